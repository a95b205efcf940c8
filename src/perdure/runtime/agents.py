"""The agents of this machine: which there are, whether they can be started, and what is known of them.

Above: the host and the verbs. Below: the configuration and the file system. It starts nothing.
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


class Abilities(msgspec.Struct, kw_only=True):
    """What an agent said of itself when it was last started."""

    can_resume: bool = True
    version: str | None = None
    capabilities: dict[str, Any] = {}
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None


class Agents:
    """The catalogue."""

    def __init__(self, configured: dict[str, AgentSettings], data: Path, default: str | None) -> None:
        self._agents = {"rehearsal": rehearsal(data), **configured}
        self._default = default
        self.abilities: dict[str, Abilities] = {}

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
            if self._agents[name].driver.startswith("claude") and self.problem(name) is None:
                return name
        return "rehearsal"

    def problem(self, name: str) -> tuple[str, str] | None:
        """(state, what to do) if the agent can't be started."""
        agent = self.settings(name)
        if agent.driver not in DRIVERS:
            return "broken", f"Its driver {agent.driver!r} is not known; use one of: {', '.join(sorted(DRIVERS))}."
        if self.binary(name) is None:
            return "missing", f"{agent.command[0]!r} was not found. Install it, or correct its command in perdure.toml."
        return None

    def binary(self, name: str) -> str | None:
        agent = self.settings(name)
        return shutil.which(agent.command[0], path=agent.env.get("PATH", os.environ.get("PATH")))

    def require(self, name: str) -> AgentSettings:
        problem = self.problem(name)
        if problem is not None:
            raise Refused("agent_unavailable", f"Agent {name!r} can't be started. {problem[1]}")
        return self._agents[name]

    def facts(self, name: str, workdir: str) -> AgentFacts:
        """What the resume decision needs to know. The fingerprint leaves the version out: an update must not throw
        every native session away."""
        agent = self._agents.get(name)
        if agent is None:
            # A waiting message may name an agent that is no longer configured; its turn is planned, and fails by itself.
            return AgentFacts(driver="", can_resume=False, workdir_id=directory_id(workdir), fingerprint="")
        able = self.abilities.get(name, Abilities()).can_resume
        binary = self.binary(name) or agent.command[0]
        return AgentFacts(
            driver=agent.driver,
            can_resume=able,
            workdir_id=directory_id(workdir),
            fingerprint=f"{os.path.realpath(binary)}|{' '.join(agent.command[1:])}|{able}",
            resume=agent.resume,
        )

    def environment(self, name: str) -> dict[str, str]:
        base = {key: os.environ[key] for key in BASE_ENVIRONMENT if key in os.environ}
        return {**base, **self.settings(name).env}

    def public(self, name: str) -> dict[str, Any]:
        agent = self.settings(name)
        known = self.abilities.get(name, Abilities())
        problem = self.problem(name)
        return {
            "name": name,
            "driver": agent.driver,
            "command": agent.command,
            "state": problem[0] if problem else "ready",
            "reason": problem[1] if problem else None,
            "version": known.version,
            "capabilities": known.capabilities,
            "models": known.models,
            "modes": known.modes,
        }


def rehearsal(data: Path) -> AgentSettings:
    """The agent that needs no model and no key."""
    return AgentSettings(
        driver="acp",
        command=[sys.executable, "-m", "perdure.rehearsal", "--acp"],
        env={"PERDURE_REHEARSAL_DIR": str(data / "rehearsal"), "PYTHONPATH": os.pathsep.join(import_path())},
    )


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
