"""The agents of this machine: which there are, whether they can be started, and what is known of them.

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

from perdure.config import AgentSettings, ConfigError, load
from perdure.core import slash_commands
from perdure.core.errors import UNREADABLE, Refused
from perdure.core.resume import AgentFacts
from perdure.drivers import DRIVERS
from perdure.runtime.agents.abilities import NOT_LOGGED_IN, Abilities
from perdure.runtime.agents.catalogue import CATALOGUE, CLAUDE, TELL_THEIR_VERSION, Entry
from perdure.runtime.agents.probe import OLDEST_CLAUDE, Probed, ask_version, fingerprint_of
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
"""What every agent is given of the server's own environment, and nothing else: no key, no token. Where the network is
behind a proxy, an agent that does not know of it reaches nothing."""

EITHER_CLAUDE = "claude"
"""The name in a configuration for both Claude drivers."""

OFFERS = "agent"
"""The documents with what each agent offered last. With several nodes, each node also has its own."""
LOOKUP_HOLDS_S = 10.0
"""After this a program that was installed in an earlier place is found."""
INSTALLERS = {"npx": "It comes with Node.js: install that", "uvx": "It comes with uv: install that"}


class Program(msgspec.Struct, frozen=True):
    """A command of an agent's whose program is on this machine. The path is as it was found, a link not followed."""

    binary: str
    arguments: list[str]

    @property
    def argv(self) -> list[str]:
        return [self.binary, *self.arguments]


class _Lookup(msgspec.Struct, frozen=True):
    """Where an agent's program was found a moment ago."""

    agent: AgentSettings
    program: Program
    fingerprint: str
    file: tuple[int, int]
    until_s: float


class Agents:
    """Those that are shipped, those that are installed, and those that perdure.toml names, which win."""

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
        # These four have an entry for each agent or program that was ever configured here: few, and small.
        self.abilities: dict[str, Abilities] = {}
        self.probed: dict[str, Probed] = {}
        """What was learnt of each program, by its fingerprint."""
        self.documents, self._probes = OFFERS, "probe"
        """The kinds of documents in which these are stored."""
        self._offered: dict[str, Abilities] = {}
        """What each agent offered last on whichever node it ran: shown until it has run on this one."""
        self._lookups: dict[str, _Lookup] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._configure(configured)

    def _configure(self, configured: dict[str, AgentSettings]) -> None:
        """All or nothing: where one can't be completed, the agents stay as they are."""
        known = {**built_in(self._data), **found_here()}
        whole = {name: completed(name, given, known.get(name)) for name, given in configured.items()}
        self._configured = configured
        self._agents = {**known, **whole}

    def reload(self) -> None:
        """Take the agents as perdure.toml names them now, and look again at what is installed. What runs is left."""
        if self._config_path is None:
            raise Refused("conflict", "This server was started without perdure.toml, so there is nothing to read.")
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
        """The server's agent; else the first Claude that can be started; else rehearsal."""
        if self._default is not None:
            return self._default
        for name in self.names():
            if self._is_claude(name) and not name.startswith("rehearsal") and self.problem(name) is None:
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

    # What can be started ---------------------------------------------------------------------------------------------

    def problem(self, name: str) -> tuple[str, str] | None:
        """(state, what to do) if the agent can't be started."""
        agent = self.settings(name)
        if self.driver(name) not in DRIVERS:
            known = ", ".join(sorted([*DRIVERS, EITHER_CLAUDE]))
            return "broken", f"Its driver {agent.driver!r} is not known; use one of: {known}."
        program = self.program(name)
        if program is None:
            return "missing", self._how_to_install(name)
        probed = self._known(name, program)
        if probed is None or probed.state == "ready":
            return None
        if probed.state == "too_old":
            return "too_old", f"{probed.reason} Install a newer one, or correct its command in perdure.toml."
        return "broken", f"{probed.reason} Install it again, or correct its command in perdure.toml."

    def _how_to_install(self, name: str) -> str:
        program = self.settings(name).command[0]
        entry = next((entry for entry in CATALOGUE.values() if entry.installed[:1] == (program,)), None)
        how = INSTALLERS.get(program, "Install it")
        if entry is not None:
            how = f"{entry.title} is installed with `{entry.install}`; then {entry.login}"
        correct = ", or correct its command in perdure.toml" if name in self._configured else ""
        return f"{program!r} was not found. {how}{correct}."

    def program(self, name: str) -> Program | None:
        """The first of its commands that is there and not known to be unfit; else the first that is there."""
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
        """`~/bin/claude` as a shell would read it, for the home that the agent is given."""
        home = agent.env.get("HOME") or os.path.expanduser("~")
        return home + word[1:] if word == "~" or word.startswith("~/") else word

    def require(self, name: str) -> Program:
        """How to start it, or a refusal that says what to do."""
        problem = self.problem(name)
        program = self.program(name)
        if problem is not None or program is None:
            raise Refused("agent_unavailable", f"Agent {name!r} can't be started. {problem[1] if problem else ''}")
        return program

    async def ready(self, name: str) -> Program:
        """The same, when it is about to be used. What is not known of a Claude's programs, or was bad, is asked first;
        of others a version is nice to know, and nothing that they wait for."""
        if name in self._agents and self._is_claude(name):
            await self._probe(name, until_fit=True)
        return self.require(name)

    # Versions --------------------------------------------------------------------------------------------------------

    async def probe(self) -> None:
        """Ask every program that tells it for its version, where that is not known of this very file."""
        for name in self.names():
            await self._probe(name)

    async def _probe(self, name: str, *, until_fit: bool = False) -> None:
        async with self._asking[name]:
            if name not in self._agents:
                return  # perdure.toml was read again meanwhile
            is_claude, environment = self._is_claude(name), self.environment(name)
            asked = [(program, self._asked_with(name, program)) for program in self._programs(name)]
            for program, arguments in asked:
                if arguments is None:
                    continue
                known = self.probed.get(fingerprint_of(program.binary, arguments))
                if known is None or not known.lasts:
                    oldest = OLDEST_CLAUDE if is_claude else ()
                    known = await ask_version(program.binary, arguments, environment, oldest)
                    if known.state == "ready" or is_claude:
                        self.probed[known.fingerprint] = known
                if until_fit and known.state == "ready":
                    return

    def _asked_with(self, name: str, program: Program) -> list[str] | None:
        """What stands before `--version`; None where it is not asked. Claude's own arguments may be what makes it
        Claude (`npx ...`); those of others begin the protocol."""
        if self._is_claude(name):
            return program.arguments
        return [] if os.path.basename(program.binary) in TELL_THEIR_VERSION else None

    def _known(self, name: str, program: Program) -> Probed | None:
        arguments = self._asked_with(name, program)
        return None if arguments is None else self.probed.get(fingerprint_of(program.binary, arguments))

    async def recall(self, store: Store, node_id: str) -> None:
        """Know again what an earlier server learnt. With several nodes each has its own agents."""
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
        """Ask all, and keep what is worth it beyond this server's life: of programs that are here, no bad moment."""
        await self.probe()
        here = [self._known(name, program) for name in self.names() for program in self._programs(name)]
        lasting = {each.fingerprint: msgspec.json.encode(each) for each in here if each is not None and each.lasts}
        kept = await store.documents(self._probes)
        for key in kept.keys() | lasting.keys():
            if kept.get(key) != lasting.get(key):
                await store.put_document(self._probes, key, lasting.get(key))

    def _is_claude(self, name: str) -> bool:
        return self._agents[name].driver.startswith(EITHER_CLAUDE)

    # What is known ---------------------------------------------------------------------------------------------------

    def facts(self, name: str, workdir: str) -> AgentFacts:
        """What the resume decision needs to know. The fingerprint leaves the version out, and follows no link to it: an
        update must not throw every native session away."""
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
        """Its program and what is known of that. To look for a program takes many calls of the system, so the answer
        holds for a while, as long as that very file is there and the agent is set up as it was."""
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
        fingerprint = "" if arguments is None else fingerprint_of(program.binary, arguments)
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
            problem = "needs_login", known.login_problem
            if known.login_problem != NOT_LOGGED_IN:
                problem = "needs_login", f"It said: {known.login_problem.rstrip('.')}. Then try again."
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

    def catalogue(self) -> list[dict[str, Any]]:
        """Every agent that is known by name, and whether it is one of this server's already."""
        return [{**entry.public(), "offered": entry.name in self._agents} for entry in CATALOGUE.values()]


async def _stored(store: Store, kind: str) -> dict[str, Abilities]:
    """What was stored of agents, except what another version wrote and can't be read: that is found out again."""
    found = {}
    for name, body in (await store.documents(kind)).items():
        with contextlib.suppress(*UNREADABLE):
            found[name] = msgspec.json.decode(body, type=Abilities)
    return found


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
    """Agents that are offered without configuration, because they are installed; and Claude Code in any case, to say
    what is to be done where it is not."""
    here = [entry for entry in CATALOGUE.values() if entry.installed and shutil.which(entry.installed[0]) is not None]
    return {entry.name: _settings_of(entry) for entry in (CLAUDE, *here)}


def _settings_of(entry: Entry, command: tuple[str, ...] = ()) -> AgentSettings:
    return AgentSettings(
        driver=entry.driver,
        command=list(command or entry.installed),
        fallbacks=[list(fallback) for fallback in entry.fallbacks],
        env=entry.env,
        mode=entry.mode,
    )


def completed(name: str, given: AgentSettings, known: AgentSettings | None = None) -> AgentSettings:
    """An agent as perdure.toml names it, with what is left out there. One with driver and command is whole; of another
    the rest is what is known of an agent by this name, `known` if it is offered here already."""
    if not (given.driver and given.command):
        base = known or _from_catalogue(name, given.env)
        if base is None:
            missing = "command" if given.driver else "driver"
            raise ConfigError(
                f"perdure.toml: agents.{name}.{missing} is missing. Only agents that are known by name, which "
                "`perdure agents --all` lists, may leave it out."
            )
        try:
            given = msgspec.structs.replace(
                given,
                driver=given.driver or base.driver,
                command=given.command or base.command,
                fallbacks=given.fallbacks or ([] if given.command else base.fallbacks),
                env={**base.env, **given.env},
                mode=given.mode or base.mode,
            )
        except ValueError as error:
            raise ConfigError(f"perdure.toml: agents.{name}: {error}.") from error
    return msgspec.structs.replace(given, fallbacks=given.fallbacks or _usual_places(given.command))


def _from_catalogue(name: str, env: dict[str, str]) -> AgentSettings | None:
    """With its own program where that is installed, else with what fetches it."""
    entry = CATALOGUE.get(name)
    if entry is None:
        return None
    is_here = bool(entry.installed) and shutil.which(entry.installed[0], path=env.get("PATH")) is not None
    return _settings_of(entry, entry.installed if is_here else entry.command)


def _usual_places(command: list[str]) -> list[list[str]]:
    """Where else a program is looked for that is given by its bare name, with the same arguments."""
    program, *arguments = command
    places = CLAUDE.fallbacks if program == CLAUDE.installed[0] else ()
    return [[*place, *arguments] for place in places]


def import_path() -> list[str]:
    """Where this package was imported from, so that the rehearsal agent is the same version however we were started."""
    return [str(Path(__file__).resolve().parents[3])]


def directory_id(path: str) -> str:
    """A directory's identity, whatever it is called."""
    try:
        found = os.stat(path)
    except OSError:
        return f"missing:{path}"
    return f"{found.st_dev}:{found.st_ino}"
