"""The agents of this machine: their settings, whether they can be started, and what is known about them.

Above: the facts and the verbs. Below: the configuration, the catalogue, the file system and probe.py.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from perdure import drivers
from perdure.config import AgentSettings, ConfigError, load
from perdure.core import slash_commands
from perdure.core.errors import UNREADABLE, Refused
from perdure.core.resume import AgentFacts
from perdure.drivers import DRIVERS
from perdure.drivers.base import Driver, Probe
from perdure.runtime.agents.abilities import NOT_LOGGED_IN, Abilities
from perdure.runtime.agents.catalogue import CATALOGUE, TELL_THEIR_VERSION, Entry
from perdure.runtime.agents.probe import PLAIN, Probed, ask_version, fingerprint_of
from perdure.stores.base import Store

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
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""The variables that every agent inherits from the server's environment. No others, so no keys or tokens. The proxy
variables are here because behind a proxy an agent without them has no network."""

OFFERS = "agent"
"""The kind of documents with each agent's last reported abilities. With several nodes, each also has its own kind."""
LOOKUP_HOLDS_S = 10.0
"""How long a lookup is cached. After this, a program installed earlier in PATH is found."""
INSTALLERS = {"npx": "Install Node.js, which includes it", "uvx": "Install uv, which includes it"}


class Program(msgspec.Struct, frozen=True):
    """An agent's command whose program is on this machine. The path is as found, with links not resolved."""

    binary: str
    arguments: list[str]

    @property
    def argv(self) -> list[str]:
        return [self.binary, *self.arguments]


class _Lookup(msgspec.Struct, frozen=True):
    """A recent lookup of an agent's program."""

    agent: AgentSettings
    program: Program
    fingerprint: str
    file: tuple[int, int]
    until_s: float


class Agents:
    """The built-in agents, the installed ones, and those in perdure.toml, which take precedence."""

    def __init__(
        self,
        configured: dict[str, AgentSettings],
        data: Path,
        default: str | None,
        runner_mode: str | None = None,
        config_path: Path | None = None,
    ) -> None:
        self._data = data
        self._default = default
        self._runner_mode = runner_mode
        self._config_path = config_path
        # Unbounded, but small: these have one entry per agent or program that was ever configured here.
        self.abilities: dict[str, Abilities] = {}
        self.probed: dict[str, Probed] = {}
        """Probe results by fingerprint."""
        self.documents, self._probes = OFFERS, "probe"
        """The kinds of documents in which these are stored."""
        self._offered: dict[str, Abilities] = {}
        """Each agent's last reported abilities on any node: shown until it has run on this node."""
        self._lookups: dict[str, _Lookup] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._configure(configured)

    def _configure(self, configured: dict[str, AgentSettings]) -> None:
        """Replace all agents. If one is invalid, raise ConfigError and change nothing."""
        known = {**built_in(self._data), **found_here()}
        whole = {name: completed(name, given, known.get(name)) for name, given in configured.items()}
        self._configured = configured
        self._agents = {**known, **whole}

    def reload(self) -> None:
        """Read the agents from perdure.toml again, and check again what is installed. Running agents are unaffected."""
        if self._config_path is None:
            raise Refused("conflict", "This server was started without perdure.toml, so there is nothing to reload.")
        try:
            self._configure(load(self._config_path).agents)
        except ConfigError as error:
            raise Refused("invalid", f"Nothing was changed. {error}") from error

    def names(self) -> list[str]:
        return sorted(self._agents)

    def has(self, name: str) -> bool:
        return name in self._agents

    def settings(self, name: str) -> AgentSettings:
        agent = self._agents.get(name)
        if agent is None:
            advice = f" Add it with `perdure agents add {name}`." if name in CATALOGUE else ""
            raise Refused("not_found", f"There is no agent {name!r}.{advice} Known agents: {', '.join(self.names())}.")
        return agent

    def default(self) -> str:
        """The configured default; otherwise the first agent with a preferred driver that can be started; otherwise
        rehearsal."""
        if self._default is not None:
            return self._default
        for name in self.names():
            driver = self._driver(name)
            is_preferred = driver is not None and driver.is_preferred and not name.startswith("rehearsal")
            if is_preferred and self.problem(name) is None:
                return name
        return "rehearsal"

    def driver(self, name: str, project_mode: str | None = None) -> str:
        """The driver's name. For a family of drivers, the project chooses one, or else SESSION_RUNNER_MODE."""
        return drivers.resolve(self.settings(name).driver, project_mode or self._runner_mode)

    def _driver(self, name: str) -> Driver | None:
        return DRIVERS.get(self.driver(name))

    def _probe_of(self, name: str) -> Probe:
        driver = self._driver(name)
        return PLAIN if driver is None else driver.probe

    def prewarms(self, name: str, driver: str, *, asked: bool = False) -> bool:
        """Whether to start it before its first message: as configured, or else as its driver says. If `asked`, also if
        its driver merely can."""
        chosen, known = self.settings(name).prewarm, DRIVERS.get(driver)
        if known is None:
            return False
        return (known.prewarms if chosen is None else chosen) or (asked and not known.process_per_turn)

    # Programs --------------------------------------------------------------------------------------------------------

    def problem(self, name: str) -> tuple[str, str] | None:
        """(state, advice) if the agent can't be started, otherwise None."""
        agent = self.settings(name)
        if self.driver(name) not in DRIVERS:
            return "broken", f"Its driver {agent.driver!r} is unknown; use one of: {', '.join(drivers.names())}."
        program = self.program(name)
        if program is None:
            return "missing", self._how_to_install(name)
        probed = self._known(name, program)
        if probed is None or probed.state == "ready":
            return None
        if probed.state == "too_old":
            return "too_old", f"{probed.reason} Install a newer one, or correct its command in perdure.toml."
        return "broken", f"{probed.reason} Reinstall it, or correct its command in perdure.toml."

    def _how_to_install(self, name: str) -> str:
        program = self.settings(name).command[0]
        entry = entry_of(program)
        how = INSTALLERS.get(program, "Install it")
        if entry is not None:
            how = f"Install {entry.title} with `{entry.install}`; then {entry.login}"
        correct = ", or correct its command in perdure.toml" if name in self._configured else ""
        return f"{program!r} was not found. {how}{correct}."

    def program(self, name: str) -> Program | None:
        """The first of its commands that exists and is not known to be unusable; otherwise the first that exists."""
        first = None
        for program in self._programs(name):
            known = self._known(name, program)
            if known is None or known.state == "ready":
                return program
            first = first or program
        return first

    def _programs(self, name: str) -> Iterator[Program]:
        agent = self.settings(name)
        for command in (agent.command, *agent.fallbacks):
            program, *arguments = (self._at_home(agent, word) for word in command)
            binary = shutil.which(program, path=agent.env.get("PATH", os.environ.get("PATH")))
            if binary is not None:
                yield Program(binary, arguments)

    @staticmethod
    def _at_home(agent: AgentSettings, word: str) -> str:
        """Expand `~/bin/claude` like a shell, with the agent's own HOME."""
        home = agent.env.get("HOME") or os.path.expanduser("~")
        return home + word[1:] if word == "~" or word.startswith("~/") else word

    def require(self, name: str) -> Program:
        """The program to start. Raises Refused with advice if there is none."""
        problem = self.problem(name)
        program = self.program(name)
        if problem is not None or program is None:
            raise Refused("agent_unavailable", f"Agent {name!r} can't be started. {problem[1] if problem else ''}")
        return program

    async def ready(self, name: str) -> Program:
        """The program to start, when the agent is about to be used. If its driver requires a probe, probes it first
        unless it has passed before. Otherwise the version is only informational, so it doesn't wait for a probe."""
        if name in self._agents and self._probe_of(name).is_required:
            await self._probe(name, until_fit=True)
        return self.require(name)

    # Versions --------------------------------------------------------------------------------------------------------

    async def probe(self) -> None:
        """Probe every program that supports `--version`, unless the result for this file is known."""
        for name in self.names():
            await self._probe(name)

    async def _probe(self, name: str, *, until_fit: bool = False) -> None:
        async with self._asking[name]:
            if name not in self._agents:
                return  # perdure.toml was reloaded in the meantime
            probe, environment = self._probe_of(name), self.environment(name)
            asked = [(program, self._asked_with(name, program)) for program in self._programs(name)]
            for program, arguments in asked:
                if arguments is None:
                    continue
                known = self.probed.get(fingerprint_of(program.binary, arguments, probe))
                if known is None or not known.lasts:
                    known = await ask_version(program.binary, arguments, environment, probe)
                    if known.state == "ready" or probe.is_required:
                        self.probed[known.fingerprint] = known
                if until_fit and known.state == "ready":
                    return

    def _asked_with(self, name: str, program: Program) -> list[str] | None:
        """The arguments to put before `--version`; None to skip the probe. If the probe is required, these are all of
        them, because they may select the program (`npx ...`). Otherwise none, because they may start the protocol."""
        if self._probe_of(name).is_required:
            return program.arguments
        return [] if os.path.basename(program.binary) in TELL_THEIR_VERSION else None

    def _known(self, name: str, program: Program) -> Probed | None:
        arguments, probe = self._asked_with(name, program), self._probe_of(name)
        return None if arguments is None else self.probed.get(fingerprint_of(program.binary, arguments, probe))

    async def recall(self, store: Store, node_id: str) -> None:
        """Load what earlier servers stored. With several nodes, each node has its own agents."""
        if store.is_shared:
            self.documents, self._probes = f"agent.{node_id}", f"probe.{node_id}"
            await self.read_offers(store)
        self.abilities |= await _stored(store, self.documents)
        for body in (await store.documents(self._probes)).values():
            with contextlib.suppress(*UNREADABLE):
                probed = msgspec.json.decode(body, type=Probed)
                self.probed[probed.fingerprint] = probed

    async def read_offers(self, store: Store) -> None:
        self._offered = await _stored(store, OFFERS)

    async def survey(self, store: Store) -> None:
        """Probe all agents, and store the lasting results for programs that are installed here."""
        await self.probe()
        here = [self._known(name, program) for name in self.names() for program in self._programs(name)]
        lasting = {each.fingerprint: msgspec.json.encode(each) for each in here if each is not None and each.lasts}
        kept = await store.documents(self._probes)
        for key in kept.keys() | lasting.keys():
            if kept.get(key) != lasting.get(key):
                await store.put_document(self._probes, key, lasting.get(key))

    # Facts -----------------------------------------------------------------------------------------------------------

    def facts(self, name: str, workdir: str) -> AgentFacts:
        """The facts for the decision whether to resume. The fingerprint contains no version and no resolved links,
        because an update must not invalidate every native session."""
        agent = self._agents.get(name) or self.settings(name)
        program, probed = self._looked_up(name)
        known = self.abilities.get(name, Abilities())
        able = known.can_resume and (probed is None or probed.can_resume)
        return AgentFacts(
            driver=agent.driver,
            can_resume=able,
            workdir_id=directory_id(workdir),
            fingerprint=f"{program.binary}|{' '.join(program.arguments)}",
            shares=agent.shared,
            resume=agent.resume,
            commands=None if known.commands is None else slash_commands.names(known.commands),
        )

    def _looked_up(self, name: str) -> tuple[Program, Probed | None]:
        """Its program and probe result. Finding a program takes many system calls, so the result is cached while the
        file and the agent's settings are unchanged, for at most LOOKUP_HOLDS_S."""
        agent, found = self._agents[name], self._lookups.get(name)
        if found is not None and found.agent is agent and time.monotonic() < found.until_s:
            with contextlib.suppress(OSError):
                seen = os.stat(found.program.binary)
                if (seen.st_ino, seen.st_mtime_ns) == found.file:
                    return found.program, self.probed.get(found.fingerprint)
        program = self.program(name)
        if program is None:
            return Program(agent.command[0], agent.command[1:]), None
        arguments = self._asked_with(name, program)
        fingerprint = "" if arguments is None else fingerprint_of(program.binary, arguments, self._probe_of(name))
        probed = self.probed.get(fingerprint)
        if arguments is None or (probed is not None and probed.state == "ready"):
            seen = os.stat(program.binary)
            file, until_s = (seen.st_ino, seen.st_mtime_ns), time.monotonic() + LOOKUP_HOLDS_S
            self._lookups[name] = _Lookup(agent, program, fingerprint, file, until_s)
        return program, probed

    def shares(self, name: str) -> bool:
        agent = self._agents.get(name)
        return agent is not None and agent.shared

    def environment(self, name: str) -> dict[str, str]:
        base = {key: os.environ[key] for key in BASE_ENVIRONMENT if key in os.environ}
        return {**base, **self.settings(name).env}

    def public(self, name: str) -> dict[str, Any]:
        agent = self.settings(name)
        known = self.abilities.get(name, Abilities())
        offered = self._offered.get(name, known) if known.models is None and known.modes is None else known
        problem = self.problem(name)
        if problem is None and known.login_problem is not None:
            problem = "needs_login", f"It reported: {known.login_problem.rstrip('.')}. Then try again."
            if known.login_problem == NOT_LOGGED_IN:
                problem = "needs_login", f"It is not logged in: {self._login_hint(name)}, or set a key in its env."
        program = self.program(name)
        probed = self._known(name, program) if program is not None else None
        return {
            "name": name,
            "driver": self.driver(name),
            "command": agent.command,
            "state": problem[0] if problem else "ready",
            "reason": problem[1] if problem else None,
            "version": (probed.version if probed else None) or known.version,
            "capabilities": offered.capabilities,
            "models": offered.models,
            "modes": offered.modes,
            "commands": offered.commands,
        }

    def _login_hint(self, name: str) -> str:
        entry, driver = entry_of(self.settings(name).command[0]), self._driver(name)
        if entry is not None:
            return entry.login
        return driver.login_hint if driver is not None else Driver.login_hint

    def catalogue(self) -> list[dict[str, Any]]:
        """Every agent in the catalogue, and whether this server already offers it."""
        return [{**entry.public(), "offered": entry.name in self._agents} for entry in CATALOGUE.values()]


async def _stored(store: Store, kind: str) -> dict[str, Abilities]:
    """The stored abilities of agents. Skips unreadable ones, which another version may have written."""
    found = {}
    for name, body in (await store.documents(kind)).items():
        with contextlib.suppress(*UNREADABLE):
            found[name] = msgspec.json.decode(body, type=Abilities)
    return found


def built_in(data: Path) -> dict[str, AgentSettings]:
    """The rehearsal agents, which need no model and no key: one per driver."""
    env = {"PERDURE_REHEARSAL_DIR": str(data / "rehearsal"), "PYTHONPATH": os.pathsep.join(import_path())}
    command = [sys.executable, "-m", "perdure.rehearsal"]
    return {
        "rehearsal": AgentSettings(driver="acp", command=[*command, "--acp"], env=env),
        "rehearsal-stream": AgentSettings(driver="claude-stream", command=[*command, "--claude"], env=env),
        "rehearsal-resume": AgentSettings(driver="claude-resume", command=[*command, "--claude"], env=env),
    }


def found_here() -> dict[str, AgentSettings]:
    """Agents offered without configuration: those that are installed, and those that are always offered."""
    here = [
        entry
        for entry in CATALOGUE.values()
        if entry.is_always_offered or (entry.installed and shutil.which(entry.installed[0]) is not None)
    ]
    return {entry.name: _settings_of(entry) for entry in here}


def entry_of(program: str) -> Entry | None:
    """The catalogue's entry of an installed program, by its bare name."""
    return next((entry for entry in CATALOGUE.values() if entry.installed[:1] == (program,)), None)


def _settings_of(entry: Entry, command: tuple[str, ...] = ()) -> AgentSettings:
    return AgentSettings(
        driver=entry.driver,
        command=list(command or entry.installed),
        fallbacks=[list(fallback) for fallback in entry.fallbacks],
        env=entry.env,
        mode=entry.mode,
    )


def completed(name: str, given: AgentSettings, known: AgentSettings | None = None) -> AgentSettings:
    """An agent from perdure.toml with defaults filled in. If the driver or the command is missing, they come from
    `known`, if this server already offers an agent with this name, or else from the catalogue."""
    if not (given.driver and given.command):
        base = known or _from_catalogue(name, given.env)
        if base is None:
            missing = "command" if given.driver else "driver"
            raise ConfigError(
                f"perdure.toml: agents.{name}.{missing} is missing. You can leave it out only for known agents; "
                "`perdure agents --all` lists them."
            )
        given = msgspec.structs.replace(
            given,
            driver=given.driver or base.driver,
            command=given.command or base.command,
            fallbacks=given.fallbacks or ([] if given.command else base.fallbacks),
            env={**base.env, **given.env},
            mode=given.mode or base.mode,
        )
    if given.shared and not _can_share(given.driver):
        able = " or ".join(driver.name for driver in DRIVERS.values() if driver.shares)
        raise ConfigError(
            f"perdure.toml: agents.{name}: shared is only for agents with driver {able}: others need one process per "
            "session."
        )
    return msgspec.structs.replace(given, fallbacks=given.fallbacks or _usual_places(given.command))


def _from_catalogue(name: str, env: dict[str, str]) -> AgentSettings | None:
    """A catalogue agent's settings, with its own program if that is installed, otherwise with `npx` or `uvx`."""
    entry = CATALOGUE.get(name)
    if entry is None:
        return None
    is_here = bool(entry.installed) and shutil.which(entry.installed[0], path=env.get("PATH")) is not None
    return _settings_of(entry, entry.installed if is_here else entry.command)


def _usual_places(command: list[str]) -> list[list[str]]:
    """The usual places of a program that is given by its bare name, with the same arguments."""
    program, *arguments = command
    entry = entry_of(program)
    return [[*place, *arguments] for place in entry.fallbacks] if entry is not None else []


def _can_share(driver: str) -> bool:
    found = DRIVERS.get(drivers.resolve(driver))
    return found is not None and found.shares


def import_path() -> list[str]:
    """Where this package was imported from, so that the rehearsal agent always runs the same version."""
    return [str(Path(__file__).resolve().parents[3])]


def directory_id(path: str) -> str:
    """A directory's identity, independent of its path."""
    try:
        found = os.stat(path)
    except OSError:
        return f"missing:{path}"
    return f"{found.st_dev}:{found.st_ino}"
