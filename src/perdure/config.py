"""Every setting, with its unit, its default and a sentence. docs/settings.md is generated from this file.

Read once at the start from `perdure.toml`, then from the environment and the command line; nothing else reads the
environment. Unknown settings are refused, so that a misspelt one is noticed.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from perdure.core.addresses import host_of, is_origin
from perdure.core.misfits import what_is_wrong
from perdure.core.permissions import Rule

DEFAULT_PORT = 7433
MIB = 1024 * 1024
SLOTS = 3
SLOTS_REPLACING = 1


class ConfigError(Exception):
    """The configuration can't be used; the message says where and what to do."""


# Thirty years: beyond it a moment can't be written as a date.
Seconds = Annotated[float, Meta(ge=0, le=1_000_000_000)]
NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class Limits(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Clocks and what they do. Given for the server, and for a project or a session where it should differ."""

    turn_timeout_s: Annotated[
        Seconds | None,
        Meta(
            description="A turn is stopped after this long without a sign of life: its agent shows nothing, and no "
            "tool that it runs uses the processor. Waiting for a person does not count. 0: never."
        ),
    ] = None
    turn_limit_s: Annotated[
        Seconds | None,
        Meta(
            description="A turn is stopped after this long, even if it is working. Waiting for a person does not "
            "count. 0: no limit."
        ),
    ] = None
    idle_timeout_s: Annotated[
        Seconds | None, Meta(description="A process that has had nothing to do for this long is suspended. 0: never.")
    ] = None
    lifetime_s: Annotated[
        Seconds | None,
        Meta(description="A process older than this is suspended after its turn; see `on_lifetime`. 0: never."),
    ] = None
    silence_s: Annotated[
        Seconds | None, Meta(description="A running turn that shows nothing for this long is reported. 0: never.")
    ] = None
    on_silence: Annotated[
        Literal["report", "abort"] | None, Meta(description="Whether a silent turn is only reported, or stopped.")
    ] = None
    on_idle: Annotated[
        Literal["suspend", "end"] | None,
        Meta(description="Whether the idle clock suspends the process or ends the session, with or without a process."),
    ] = None
    on_lifetime: Annotated[
        Literal["suspend", "end"] | None,
        Meta(
            description="Whether the lifetime clock suspends the process, measured from its start, or ends the "
            "session, with or without a process, measured from its first turn."
        ),
    ] = None
    on_full: Annotated[
        Literal["refuse", "replace"] | None,
        Meta(
            description="With no free slot: `refuse` lets the message wait, or refuses it where its sender wants that "
            "(`when_full`); `replace` ends the session that was active longest ago. With `replace` every session that "
            "has not ended takes a slot."
        ),
    ] = None
    count_idle: Annotated[bool | None, Meta(description="Whether idle sessions count as taken slots.")] = None
    on_limit: Annotated[
        Literal["stop", "continue"] | None,
        Meta(description="After a usage limit: stay idle, or continue when it resets, if the agent reports it so."),
    ] = None
    limit_retries: Annotated[
        NonNegative | None, Meta(description="How often in a row a session goes on by itself after a usage limit.")
    ] = None
    memory_limit_mb: Annotated[
        NonNegative | None, Meta(description="An agent whose processes use more memory is ended. 0: no limit.")
    ] = None


DEFAULT_LIMITS = Limits(
    turn_timeout_s=1800,
    turn_limit_s=0,
    idle_timeout_s=1800,
    lifetime_s=14400,
    silence_s=600,
    on_silence="report",
    on_idle="suspend",
    on_lifetime="suspend",
    on_full="refuse",
    count_idle=False,
    on_limit="stop",
    limit_retries=3,
    memory_limit_mb=0,
)


class ServerSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """The server as a whole."""

    slots: Annotated[
        NonNegative | None,
        Meta(
            description="How many turns may run at once; those that wait for a person do not count. 0: no limit. "
            'By default 3, or 1 with `on_full = "replace"`.'
        ),
    ] = None
    project_slots: Annotated[
        int,
        Meta(ge=0, description="The same for each configured project. Sessions without one do not count. 0: no limit."),
    ] = 1
    agent: Annotated[str | None, Meta(description="The agent of sessions that name none.")] = None
    on_restart: Annotated[
        Literal["continue", "end"],
        Meta(description="Whether a restarted server goes on with its sessions or ends them."),
    ] = "continue"
    durability: Annotated[
        Literal["normal", "full"], Meta(description="`full` survives a power cut, and costs throughput.")
    ] = "normal"
    max_message_bytes: Annotated[int, Meta(ge=1, description="A larger message or request is refused (413).")] = MIB
    max_attachment_bytes: Annotated[
        int, Meta(ge=0, description="Files that are sent inside a message, all together. More is refused (413).")
    ] = 10 * MIB
    allowed_hosts: Annotated[
        list[str], Meta(description="Host names besides this machine's own under which the server may be reached.")
    ] = []
    allowed_origins: Annotated[
        list[str],
        Meta(
            description="Origins of front ends elsewhere that may use the API with the token, such as "
            "`https://team.example.com`."
        ),
    ] = []
    behind_proxy: Annotated[
        bool, Meta(description="A reverse proxy with TLS is in front: sign-in cookies are for HTTPS only.")
    ] = False
    insecure_http: Annotated[
        bool, Meta(description="Serve plain HTTP on an address that others can reach, on a network that you trust.")
    ] = False
    abort_grace_s: Annotated[
        Seconds, Meta(description="How long an agent may take to stop when asked, before it is ended.")
    ] = 10
    stuck_s: Annotated[
        Seconds,
        Meta(description="A streaming Claude that takes a message and shows nothing of it for this long is replaced."),
    ] = 60
    start_timeout_s: Annotated[Seconds, Meta(description="How long an agent may take to open its session.")] = 90
    eof_grace_s: Annotated[
        Seconds, Meta(description="How long an agent may take to end after its input is closed.")
    ] = 5
    term_grace_s: Annotated[Seconds, Meta(description="How long it may take after SIGTERM, before SIGKILL.")] = 2
    orphan_quiet_s: Annotated[
        Seconds, Meta(description="With no server: an agent that writes nothing for this long is ended.")
    ] = 900
    orphan_max_s: Annotated[Seconds, Meta(description="With no server: how long an agent may go on at all.")] = 7200
    orphan_prompt_s: Annotated[
        Seconds, Meta(description="With no server: how long an agent waits for a person's answer.")
    ] = 86400
    spool_limit_mb: Annotated[int, Meta(ge=1, description="Output not yet stored before an agent is made to wait.")] = (
        256
    )
    disk_floor_mb: Annotated[int, Meta(ge=0, description="Free disk space below which agents are made to wait.")] = 64
    replay_limit_events: Annotated[
        int, Meta(ge=0, description="A viewer that missed more events than this gets a snapshot instead.")
    ] = 10_000
    heartbeat_s: Annotated[float, Meta(gt=0, description="How often a stream shows that it is alive.")] = 15
    node_name: Annotated[
        str | None, Meta(description="What people call this node. By default the machine's name and the port.")
    ] = None
    labels: Annotated[
        list[str], Meta(description="What this node offers; a session with `node:LABEL` among its labels runs there.")
    ] = []
    workdirs: Annotated[
        Literal["local", "shared"],
        Meta(
            description="With several nodes: `local` keeps a session on the node that has its directory; `shared` says "
            "that every node sees the same directories, so another node may take a session over."
        ),
    ] = "local"
    workspaces: Annotated[
        str | None,
        Meta(
            description="Where sessions without a working directory get theirs, absolute. By default in the data "
            'directory; required with `workdirs = "shared"`, where every node must see it.'
        ),
    ] = None
    takeover_after_s: Annotated[
        float,
        Meta(
            ge=2,
            le=86_400,
            description='With `workdirs = "shared"`: take over the sessions of a node that shows no sign of life for '
            "this long. Set it above the time that your database needs for a failover.",
        ),
    ] = 30
    placement_patience_s: Annotated[
        Seconds,
        Meta(description="How long other nodes leave a waiting message to the node that ran its session last."),
    ] = 2
    database_connections: Annotated[
        int,
        Meta(ge=3, le=100, description="How many connections to PostgreSQL this node opens, besides two to listen."),
    ] = 6
    database_listen: Annotated[
        str | None,
        Meta(
            description="The address of PostgreSQL itself, where `--database` leads to a transaction pooler: "
            "notifications can't pass one."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.workspaces is not None and not os.path.isabs(self.workspaces):
            raise ValueError(f"workspaces: {self.workspaces!r} is not an absolute path")
        for host in self.allowed_hosts:
            if host_of(host) is None:
                raise ValueError(f"allowed_hosts: {host!r} is not a host name; write it as in perdure.example.com")
        for origin in self.allowed_origins:
            if origin == "*":
                raise ValueError(
                    "allowed_origins: '*' would admit every site; name each origin, such as https://team.example.com"
                )
            if not is_origin(origin):
                raise ValueError(
                    f"allowed_origins: {origin!r} is not an origin; write scheme, host and port as a browser does, "
                    "such as https://team.example.com or http://localhost:5173"
                )


SESSION_VARIABLE = "PERDURE_SESSION"
"""Says to a program that an agent is given which session it is for."""


class McpServer(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An MCP server that agents are given: a program, or an address."""

    command: Annotated[list[str], Meta(description="The program and its arguments.")] = []
    env: Annotated[dict[str, str], Meta(description="Environment for the program.")] = {}
    url: Annotated[str | None, Meta(description="The address of a server that runs already.")] = None
    transport: Annotated[Literal["http", "sse"], Meta(description="How the address is spoken to.")] = "http"
    headers: Annotated[dict[str, str], Meta(description="Headers for the address.")] = {}

    def __post_init__(self) -> None:
        if bool(self.command) == (self.url is not None):
            raise ValueError("an MCP server has either a command or a url")


class AgentOptions(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What only perdure.toml may say of how an agent runs: some of it runs code or skips questions."""

    trust_project_settings: Annotated[
        bool | None,
        Meta(description="Heed the settings that lie in the working directory. Their hooks run without asking."),
    ] = None
    agent_teams: Annotated[bool | None, Meta(description="Turn Claude Code's experimental agent teams on.")] = None
    extra_args: Annotated[list[str], Meta(description="More arguments for the agent's command line.")] = []
    mcp_servers: Annotated[dict[str, McpServer], Meta(description="MCP servers by name; see below.")] = {}


class ProjectOptions(AgentOptions, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What only perdure.toml may say of how agents run in a project; it goes before the agent's own options."""

    skip_permissions: Annotated[bool, Meta(description="Let agents do everything here without asking.")] = False
    env: Annotated[
        dict[str, str], Meta(description="Environment for every agent here, such as a CLAUDE_CONFIG_DIR of its own.")
    ] = {}


class AgentSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """One agent: a name for a driver and a command. An agent that is known by name may leave out either or both: then
    what is given here goes on top of what is known of it, its environment and its mode included."""

    driver: Annotated[
        str,
        Meta(
            description="How it is spoken to: `acp`, `claude-stream`, `claude-resume`, or `claude`, which leaves the "
            "choice between the last two to the project or to SESSION_RUNNER_MODE. By default that of the known agent."
        ),
    ] = ""
    command: Annotated[
        list[str],
        Meta(description="The program and its arguments; `~/` is HOME. By default that of the known agent."),
    ] = []
    fallbacks: Annotated[
        list[list[str]],
        Meta(
            description="Commands to try, in order, where the first program is not there, too old or broken. By "
            "default where the installers of a known program put it."
        ),
    ] = []
    env: Annotated[dict[str, str], Meta(description="Environment, besides a small base (PATH, HOME, LANG ...).")] = {}
    resume: Annotated[Literal["auto", "never"], Meta(description="`never`: each turn gets the full transcript.")] = (
        "auto"
    )
    transcript_tokens: Annotated[
        Positive | None,
        Meta(
            description="How much of a long history it is told, in tokens. By default half of what its model was seen "
            "to hold, or 100,000.",
        ),
    ] = None
    model_transcript_tokens: Annotated[dict[str, Positive], Meta(description="The same by model.")] = {}
    prewarm: Annotated[
        bool | None, Meta(description="Start it when a session is created. By default a streaming Claude is.")
    ] = None
    shared: Annotated[
        bool, Meta(description="One process for all sessions in the same directory; for agents that speak ACP.")
    ] = False
    model: Annotated[str | None, Meta(description="The model of sessions that name none.")] = None
    mode: Annotated[str | None, Meta(description="The mode of sessions that name none.")] = None
    options: Annotated[AgentOptions, Meta(description="How it runs; see below.")] = msgspec.field(
        default_factory=AgentOptions
    )

    def __post_init__(self) -> None:
        if self.shared and self.driver not in ("", "acp"):
            raise ValueError("shared is only for agents with driver acp: others have a process for each session")


class ProjectSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """A working directory with a name and defaults for its sessions."""

    path: Annotated[str, Meta(description="The working directory, absolute.")]
    name: Annotated[str | None, Meta(description="What people call it; the key if left out.")] = None
    agent: Annotated[str | None, Meta(description="The agent of its sessions.")] = None
    permissions: Annotated[
        list[Rule], Meta(description="Rules that answer permission prompts; the first match wins.")
    ] = []
    limits: Annotated[Limits, Meta(description="Where its clocks differ from the server's.")] = msgspec.field(
        default_factory=Limits
    )
    instructions: Annotated[str | None, Meta(description="Told to the agent with each message.")] = None
    kickoff: Annotated[
        str | None,
        Meta(
            description="A template for a session's first message, with places for {project}, {path}, {title}, {date} "
            "and {message}."
        ),
    ] = None
    history_scope: Annotated[
        Literal["all", "agent"],
        Meta(
            description="What an agent is given of the history: all of it, or only what follows the last answer of "
            "another agent."
        ),
    ] = "all"
    resume: Annotated[Literal["auto", "never"], Meta(description="`never`: each turn gets the full transcript.")] = (
        "auto"
    )
    runner_mode: Annotated[
        Literal["streaming", "resume"] | None,
        Meta(description="How Claude Code runs here: one process for all turns, or one for each."),
    ] = None
    options: Annotated[ProjectOptions, Meta(description="How agents run here, on top of the agent's own.")] = (
        msgspec.field(default_factory=ProjectOptions)
    )


class Config(Struct, kw_only=True, forbid_unknown_fields=True):
    server: ServerSettings = msgspec.field(default_factory=ServerSettings)
    limits: Limits = msgspec.field(default_factory=Limits)
    agents: dict[str, AgentSettings] = {}
    projects: dict[str, ProjectSettings] = {}

    @property
    def slots(self) -> int:
        """As given, or as the rule for full slots wants it."""
        if self.server.slots is not None:
            return self.server.slots
        return SLOTS_REPLACING if self.limits.on_full == "replace" else SLOTS


def merged(*layers: Limits | dict[str, Any]) -> Limits:
    """Limits where each layer overrides those before it."""
    values: dict[str, Any] = msgspec.to_builtins(DEFAULT_LIMITS)
    for layer in layers:
        given = layer if isinstance(layer, dict) else msgspec.to_builtins(layer)
        values.update({key: value for key, value in given.items() if value is not None})
    return msgspec.convert(values, Limits)


def load(path: Path | None) -> Config:
    """The configuration file, or the defaults if there is none."""
    try:
        if path is None or not path.exists():
            return Config()
        written = tomllib.loads(path.read_text("utf-8"))
        config = msgspec.convert(written, Config)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}. Correct the file, or name another.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{path}: {what_is_wrong(error, Config, written)}. See docs/settings.md for all settings."
        ) from error
    for key, project in config.projects.items():
        if not os.path.isabs(project.path):
            raise ConfigError(f"{path}: projects.{key}.path must be absolute, not {project.path!r}.")
    return config


def data_directory(given: str | None) -> Path:
    """Where everything is kept: as given, or the user's data directory."""
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser().absolute() / "perdure"
