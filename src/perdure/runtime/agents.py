"""The agents of this machine: which there are, whether they can be started, and what is known of them.

Above: the host and the verbs. Below: the configuration, the file system and probe.py.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from perdure.config import AgentSettings
from perdure.core.errors import Refused
from perdure.core.resume import AgentFacts
from perdure.drivers import DRIVERS
from perdure.runtime.probe import Probed, file_fingerprint, probe_claude

BASE_ENVIRONMENT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""What every agent is given of the server's own environment, and nothing else: no key, no token."""

EITHER_CLAUDE = "claude"
"""The name in a configuration for both Claude drivers."""


class Abilities(msgspec.Struct, kw_only=True):
    """What an agent said of itself when it was last started."""

    can_resume: bool = True
    version: str | None = None
    capabilities: dict[str, Any] = {}
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    login_problem: str | None = None
    """What it said when it could not work for want of a login; None once it could."""


class Program(msgspec.Struct, frozen=True):
    """The command that an agent is started with: the first of its commands whose program is there."""

    binary: str
    arguments: list[str]

    @property
    def argv(self) -> list[str]:
        return [self.binary, *self.arguments]


class Agents:
    """The catalogue."""

    def __init__(
        self, configured: dict[str, AgentSettings], data: Path, default: str | None, runner_mode: str | None = None
    ) -> None:
        self._agents = {**built_in(data), **found_here(), **configured}
        self._default = default
        self._runner_mode = runner_mode
        self.abilities: dict[str, Abilities] = {}
        self.probed: dict[str, Probed] = {}

    def names(self) -> list[str]:
        return sorted(self._agents)

    def settings(self, name: str) -> AgentSettings:
        agent = self._agents.get(name)
        if agent is None:
            raise Refused("not_found", f"There is no agent {name!r}. Known agents: {', '.join(self.names())}.")
        return agent

    def default(self) -> str:
        """The server's agent; else the first Claude that can be started; else rehearsal."""
        if self._default is not None:
            return self._default
        for name in self.names():
            driver = self._agents[name].driver
            if driver.startswith("claude") and not name.startswith("rehearsal") and self.problem(name) is None:
                return name
        return "rehearsal"

    def driver(self, name: str, project_mode: str | None = None) -> str:
        """The driver's name. `claude` leaves the choice to the project, and then to SESSION_RUNNER_MODE, in which
        anything but `resume` is streaming."""
        driver = self.settings(name).driver
        if driver != EITHER_CLAUDE:
            return driver
        return "claude-resume" if (project_mode or self._runner_mode) == "resume" else "claude-stream"

    def prewarms(self, name: str, driver: str) -> bool:
        """Whether it is started with its session. A streaming Claude is: its start costs a second of work."""
        chosen = self.settings(name).prewarm
        return driver == "claude-stream" if chosen is None else chosen

    def problem(self, name: str) -> tuple[str, str] | None:
        """(state, what to do) if the agent can't be started."""
        agent = self.settings(name)
        if self.driver(name) not in DRIVERS:
            known = ", ".join(sorted([*DRIVERS, EITHER_CLAUDE]))
            return "broken", f"Its driver {agent.driver!r} is not known; use one of: {known}."
        program = self.program(name)
        if program is None:
            return "missing", f"{agent.command[0]!r} was not found. Install it, or correct its command in perdure.toml."
        probed = self.probed.get(name)
        if probed is not None and probed.state != "ready" and probed.fingerprint == file_fingerprint(program.binary):
            return probed.state, f"{probed.reason} Install a newer one, or correct its command in perdure.toml."
        return None

    def program(self, name: str) -> Program | None:
        agent = self.settings(name)
        for command in (agent.command, *agent.fallbacks):
            binary = shutil.which(command[0], path=agent.env.get("PATH", os.environ.get("PATH")))
            if binary is not None:
                return Program(binary, command[1:])
        return None

    def require(self, name: str) -> Program:
        """How to start it, or a refusal that says what to do."""
        problem = self.problem(name)
        program = self.program(name)
        if problem is not None or program is None:
            raise Refused("agent_unavailable", f"Agent {name!r} can't be started. {problem[1] if problem else ''}")
        return program

    async def probe(self) -> None:
        """Ask every Claude for its version, where that is not known of this very file."""
        for name in self.names():
            program = self.program(name)
            if program is None or not self._agents[name].driver.startswith("claude"):
                continue
            known = self.probed.get(name)
            if known is None or known.fingerprint != file_fingerprint(program.binary):
                self.probed[name] = await probe_claude(program.binary, program.arguments, self.environment(name))

    def facts(self, name: str, workdir: str) -> AgentFacts:
        """What the resume decision needs to know. The fingerprint leaves the version out: an update must not throw
        every native session away."""
        agent = self._agents.get(name)
        if agent is None:
            # A waiting message may name an agent that is no longer there; its turn is planned, and fails by itself.
            return AgentFacts(driver="", can_resume=False, workdir_id=directory_id(workdir), fingerprint="")
        able = self.abilities.get(name, Abilities()).can_resume
        program = self.program(name) or Program(agent.command[0], agent.command[1:])
        return AgentFacts(
            driver=agent.driver,
            can_resume=able,
            workdir_id=directory_id(workdir),
            fingerprint=f"{os.path.realpath(program.binary)}|{' '.join(program.arguments)}|{able}",
            resume=agent.resume,
        )

    def environment(self, name: str) -> dict[str, str]:
        base = {key: os.environ[key] for key in BASE_ENVIRONMENT if key in os.environ}
        return {**base, **self.settings(name).env}

    def public(self, name: str) -> dict[str, Any]:
        agent = self.settings(name)
        known = self.abilities.get(name, Abilities())
        problem = self.problem(name)
        if problem is None and known.login_problem is not None:
            problem = "needs_login", f"It said: {known.login_problem.rstrip('.')}. Then try again."
        probed = self.probed.get(name)
        return {
            "name": name,
            "driver": self.driver(name),
            "command": agent.command,
            "state": problem[0] if problem else "ready",
            "reason": problem[1] if problem else None,
            "version": known.version or (probed.version if probed else None),
            "capabilities": known.capabilities,
            "models": known.models,
            "modes": known.modes,
        }


def built_in(data: Path) -> dict[str, AgentSettings]:
    """The agents that need no model and no key: one for each driver."""
    env = {"PERDURE_REHEARSAL_DIR": str(data / "rehearsal"), "PYTHONPATH": os.pathsep.join(import_path())}
    command = [sys.executable, "-m", "perdure.rehearsal"]
    return {
        "rehearsal": AgentSettings(driver="acp", command=[*command, "--acp"], env=env),
        "rehearsal-stream": AgentSettings(driver="claude-stream", command=[*command, "--claude"], env=env),
        "rehearsal-resume": AgentSettings(driver="claude-resume", command=[*command, "--claude"], env=env),
    }


def found_here() -> dict[str, AgentSettings]:
    """Agents that are offered without configuration, because they are installed."""
    if shutil.which("claude") is None:
        return {}
    return {"claude": AgentSettings(driver=EITHER_CLAUDE, command=["claude"])}


def import_path() -> list[str]:
    """Where this package was imported from, so that the rehearsal agent is the same version however we were started."""
    return [str(Path(__file__).resolve().parents[2])]


def directory_id(path: str) -> str:
    """A directory's identity, whatever it is called."""
    try:
        found = os.stat(path)
    except OSError:
        return f"missing:{path}"
    return f"{found.st_dev}:{found.st_ino}"
