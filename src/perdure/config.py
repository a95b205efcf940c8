"""All settings, each with its unit, default and description. docs/settings.md is generated from this file.

The server reads `perdure.toml` once at startup; options and environment variables of the command line override it. An
unknown setting is an error, to catch spelling mistakes.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from perdure.core.addresses import host_of, is_origin
from perdure.core.permissions import Rule
from perdure.core.validation import what_is_wrong

DEFAULT_PORT = 7433
MIB = 1024 * 1024
SLOTS = 3
SLOTS_REPLACING = 1


class ConfigError(Exception):
    """The configuration is invalid; the message says where, and what to do."""


# About thirty years. A larger value could give a date that can't be represented.
Seconds = Annotated[float, Meta(ge=0, le=1_000_000_000)]
NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class Limits(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Timeouts and limits, and what happens when they are reached. A project or a session can override each of them."""

    turn_timeout_s: Annotated[
        Seconds | None,
        Meta(
            description="Stop a turn after this long without activity: no output from the agent, and no CPU time used "
            "by its tools. Time spent waiting for a person doesn't count. 0: never."
        ),
    ] = None
    turn_limit_s: Annotated[
        Seconds | None,
        Meta(
            description="Stop a turn after this total time, even if it is active. Time spent waiting for a person "
            "doesn't count. 0: no limit."
        ),
    ] = None
    idle_timeout_s: Annotated[
        Seconds | None, Meta(description="Suspend an agent process that has been idle for this long. 0: never.")
    ] = None
    lifetime_s: Annotated[
        Seconds | None,
        Meta(
            description="Suspend an agent process that is older than this, once its turn is over; see `on_lifetime`. "
            "0: never."
        ),
    ] = None
    silence_s: Annotated[
        Seconds | None,
        Meta(
            description="Report a running turn that produces no output for this long; doesn't apply while a tool runs. "
            "0: never."
        ),
    ] = None
    on_silence: Annotated[
        Literal["report", "abort"] | None,
        Meta(description="What happens after `silence_s`: `report` the turn, or `abort` it."),
    ] = None
    on_idle: Annotated[
        Literal["suspend", "end"] | None,
        Meta(
            description="What happens after `idle_timeout_s`: `suspend` the process, or `end` the session, even if it "
            "has no process."
        ),
    ] = None
    on_lifetime: Annotated[
        Literal["suspend", "end"] | None,
        Meta(
            description="What happens after `lifetime_s`: `suspend` the process, measured from its start; or `end` the "
            "session, measured from its first turn, even if it has no process."
        ),
    ] = None
    on_full: Annotated[
        Literal["refuse", "replace"] | None,
        Meta(
            description="What happens if no slot is free. `refuse`: the message waits, or is refused if its sender "
            "asked for that (`when_full`). `replace`: the least recently active session is ended; every session that "
            "has not ended holds a slot."
        ),
    ] = None
    count_idle: Annotated[
        bool | None, Meta(description="Whether every session that has not ended holds a slot, even if it is idle.")
    ] = None
    on_limit: Annotated[
        Literal["stop", "continue"] | None,
        Meta(
            description="What happens after a usage limit: `stop` and stay idle, or `continue` when the limit resets, "
            "if the agent reports the time."
        ),
    ] = None
    limit_retries: Annotated[
        NonNegative | None,
        Meta(description="How many times in a row a session continues automatically after a usage limit."),
    ] = None
    memory_limit_mb: Annotated[
        NonNegative | None,
        Meta(description="Kill an agent if its processes together use more memory than this. 0: no limit."),
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
    """Settings of the whole server."""

    slots: Annotated[
        NonNegative | None,
        Meta(
            description="How many turns may run at the same time, not counting turns that wait for a person. "
            '0: no limit. Default: 3, or 1 with `on_full = "replace"`.'
        ),
    ] = None
    project_slots: Annotated[
        int,
        Meta(ge=0, description="The same per configured project. Sessions without a project don't count. 0: no limit."),
    ] = 1
    agent: Annotated[str | None, Meta(description="The default agent for new sessions.")] = None
    on_restart: Annotated[
        Literal["continue", "end"],
        Meta(description="What the server does with its sessions when it restarts: `continue` or `end` them."),
    ] = "continue"
    durability: Annotated[
        Literal["normal", "full"],
        Meta(description="`full`: acknowledged writes survive a power failure, at the cost of throughput."),
    ] = "normal"
    max_message_bytes: Annotated[
        int, Meta(ge=1, description="Maximum size of a message or request. Larger ones are refused (413).")
    ] = MIB
    max_attachment_bytes: Annotated[
        int, Meta(ge=0, description="Maximum total size of the files in one message. More is refused (413).")
    ] = 10 * MIB
    allowed_hosts: Annotated[
        list[str],
        Meta(description="Host names that the server accepts in requests, in addition to this machine's own."),
    ] = []
    allowed_origins: Annotated[
        list[str],
        Meta(
            description="Origins of front ends on other servers that may use the API with the token, such as "
            "`https://team.example.com`."
        ),
    ] = []
    behind_proxy: Annotated[
        bool, Meta(description="Set this behind a reverse proxy with TLS: sign-in cookies are then for HTTPS only.")
    ] = False
    insecure_http: Annotated[
        bool,
        Meta(description="Allow plain HTTP on an address that other machines can reach. Use it on trusted networks."),
    ] = False
    abort_grace_s: Annotated[
        Seconds, Meta(description="How long an agent may take to stop when asked, before its process is ended.")
    ] = 10
    stuck_s: Annotated[
        Seconds,
        Meta(
            description="If a streaming Claude doesn't react to a message for this long, fall back to one process per "
            "turn. 0: never."
        ),
    ] = 60
    start_timeout_s: Annotated[Seconds, Meta(description="How long an agent may take to open its session.")] = 90
    eof_grace_s: Annotated[
        Seconds, Meta(description="How long an agent may take to exit after its input is closed, before SIGTERM.")
    ] = 5
    term_grace_s: Annotated[
        Seconds, Meta(description="How long an agent may take to exit after SIGTERM, before SIGKILL.")
    ] = 2
    orphan_quiet_s: Annotated[
        Seconds, Meta(description="While no server runs: end an agent that produces no output for this long.")
    ] = 900
    orphan_max_s: Annotated[
        Seconds, Meta(description="While no server runs: how long an agent may keep running at most.")
    ] = 7200
    orphan_prompt_s: Annotated[
        Seconds, Meta(description="While no server runs: how long an agent waits for a person's answer.")
    ] = 86400
    spool_limit_mb: Annotated[
        int, Meta(ge=1, description="How much unstored output an agent may produce before it is paused.")
    ] = 256
    disk_floor_mb: Annotated[int, Meta(ge=0, description="Pause agents while less disk space than this is free.")] = 64
    replay_limit_events: Annotated[
        int, Meta(ge=0, description="A viewer that missed more events than this gets a snapshot instead of a replay.")
    ] = 10_000
    snapshots: Annotated[
        bool,
        Meta(description="Record what each turn changes in a git repository, under `refs/perdure` in that repository."),
    ] = True
    snapshot_timeout_s: Annotated[
        float,
        Meta(gt=0, le=120, description="How long a snapshot may take. A turn waits for the one before it."),
    ] = 10
    snapshot_max_file_mb: Annotated[
        int, Meta(ge=1, description="Larger files are left out of snapshots, and the changes name them.")
    ] = 10
    heartbeat_s: Annotated[float, Meta(gt=0, description="How often a stream sends a heartbeat.")] = 15
    node_name: Annotated[
        str | None, Meta(description="This node's display name. Default: the machine's name and the port.")
    ] = None
    labels: Annotated[
        list[str], Meta(description="This node's labels. A session with the label `node:LABEL` runs on such a node.")
    ] = []
    workdirs: Annotated[
        Literal["local", "shared"],
        Meta(
            description="With several nodes. `local`: a session stays on the node that has its directory. `shared`: "
            "all nodes see the same directories, so another node can take a session over."
        ),
    ] = "local"
    workspaces: Annotated[
        str | None,
        Meta(
            description="Absolute path of the directory in which Perdure creates workspaces, for sessions without a "
            "working directory. Default: in the data directory. Required with "
            '`workdirs = "shared"`; every node must see it.'
        ),
    ] = None
    takeover_after_s: Annotated[
        float,
        Meta(
            ge=2,
            le=86_400,
            description='With `workdirs = "shared"`: take over the sessions of a node that has sent no heartbeat for '
            "this long. Set it longer than a failover of your database takes.",
        ),
    ] = 30
    placement_patience_s: Annotated[
        Seconds,
        Meta(description="How long other nodes leave a waiting message to the node that last ran its session."),
    ] = 2
    database_connections: Annotated[
        int,
        Meta(
            ge=3,
            le=100,
            description="How many connections to PostgreSQL this node opens, plus two that listen for notifications.",
        ),
    ] = 6
    database_listen: Annotated[
        str | None,
        Meta(
            description="PostgreSQL's own address. Set it if `--database` points to a transaction pooler, which can't "
            "forward notifications."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.workspaces is not None and not os.path.isabs(self.workspaces):
            raise ValueError(f"workspaces: {self.workspaces!r} is not an absolute path")
        for host in self.allowed_hosts:
            if host_of(host) is None:
                raise ValueError(f"allowed_hosts: {host!r} is not a host name such as perdure.example.com")
        for origin in self.allowed_origins:
            if origin == "*":
                raise ValueError(
                    "allowed_origins: '*' would allow every site; list each origin, such as https://team.example.com"
                )
            if not is_origin(origin):
                raise ValueError(
                    f"allowed_origins: {origin!r} is not an origin; give the scheme, host and port as a browser sends "
                    "them, such as https://team.example.com or http://localhost:5173"
                )


SESSION_VARIABLE = "PERDURE_SESSION"
"""The environment variable that tells an agent's MCP server which session it belongs to."""


class McpServer(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An MCP server for agents: either a program to start or the URL of a running server."""

    command: Annotated[list[str], Meta(description="The program and its arguments.")] = []
    env: Annotated[dict[str, str], Meta(description="Environment variables for the program.")] = {}
    url: Annotated[str | None, Meta(description="The URL of a running server.")] = None
    transport: Annotated[Literal["http", "sse"], Meta(description="The transport for `url`.")] = "http"
    headers: Annotated[dict[str, str], Meta(description="HTTP headers for requests to `url`.")] = {}

    def __post_init__(self) -> None:
        if bool(self.command) == (self.url is not None):
            raise ValueError("an MCP server needs either a command or a url")


class AgentOptions(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How an agent runs. Only perdure.toml can set these options, because some of them run code or skip prompts."""

    trust_project_settings: Annotated[
        bool | None,
        Meta(description="Use the agent settings found in the working directory. Their hooks run without asking."),
    ] = None
    agent_teams: Annotated[bool | None, Meta(description="Enable Claude Code's experimental agent teams.")] = None
    extra_args: Annotated[list[str], Meta(description="Extra arguments for the agent's command line.")] = []
    mcp_servers: Annotated[dict[str, McpServer], Meta(description="MCP servers by name; see below.")] = {}


class ProjectOptions(AgentOptions, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How agents run in a project; overrides the agent's own options. Only perdure.toml can set these options."""

    skip_permissions: Annotated[bool, Meta(description="Let agents do everything here without asking.")] = False
    env: Annotated[
        dict[str, str],
        Meta(description="Environment variables for every agent here, such as a separate CLAUDE_CONFIG_DIR."),
    ] = {}


class AgentSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """One agent: a driver and a command under a name. If the name is a known agent's, you can leave out either or
    both: Perdure then uses its built-in settings for that agent, and the ones given here override them."""

    driver: Annotated[
        str,
        Meta(
            description="The protocol: `acp`, `claude-stream`, `claude-resume`, or `claude`, which leaves the choice "
            "between the last two to the project or to SESSION_RUNNER_MODE. Default: the known agent's driver."
        ),
    ] = ""
    command: Annotated[
        list[str],
        Meta(description="The program and its arguments; `~/` is HOME. Default: the known agent's command."),
    ] = []
    fallbacks: Annotated[
        list[list[str]],
        Meta(
            description="Commands to try, in order, if the program is missing, too old or broken. Default: the places "
            "where a known program's installers put it."
        ),
    ] = []
    env: Annotated[
        dict[str, str],
        Meta(description="Environment variables, in addition to a small base set (PATH, HOME, LANG ...)."),
    ] = {}
    resume: Annotated[
        Literal["auto", "never"],
        Meta(description="`never`: don't resume native sessions; each turn gets the full transcript."),
    ] = "auto"
    transcript_tokens: Annotated[
        Positive | None,
        Meta(
            description="Maximum size of a transcript, in tokens. Default: half of the model's context window, or "
            "100,000 if its size is not known.",
        ),
    ] = None
    model_transcript_tokens: Annotated[dict[str, Positive], Meta(description="The same per model.")] = {}
    prewarm: Annotated[
        bool | None,
        Meta(description="Start the agent when a session is created. Default: only for a streaming Claude."),
    ] = None
    shared: Annotated[
        bool,
        Meta(description="Let several sessions in the same directory and project share one process; ACP agents only."),
    ] = False
    model: Annotated[str | None, Meta(description="The default model for sessions with this agent.")] = None
    mode: Annotated[str | None, Meta(description="The default mode for sessions with this agent.")] = None
    options: Annotated[AgentOptions, Meta(description="How the agent runs; see below.")] = msgspec.field(
        default_factory=AgentOptions
    )


class ProjectSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """A working directory with a name and defaults for its sessions."""

    path: Annotated[str, Meta(description="Absolute path of the working directory.")]
    name: Annotated[str | None, Meta(description="Display name. Default: the key.")] = None
    agent: Annotated[str | None, Meta(description="The default agent for sessions in this project.")] = None
    permissions: Annotated[
        list[Rule], Meta(description="Rules that answer permission requests; the first match wins.")
    ] = []
    limits: Annotated[Limits, Meta(description="Limits that override the server's.")] = msgspec.field(
        default_factory=Limits
    )
    instructions: Annotated[str | None, Meta(description="Added to every message to the agent.")] = None
    kickoff: Annotated[
        str | None,
        Meta(
            description="A template for a session's first message, with the placeholders {project}, {path}, {title}, "
            "{date} and {message}."
        ),
    ] = None
    workspace: Annotated[
        Literal["directory", "worktree"],
        Meta(
            description="Where sessions work. `directory`: in the project's directory. `worktree`: each in a git "
            "worktree and branch of its own, so that several can work at the same time."
        ),
    ] = "directory"
    history_scope: Annotated[
        Literal["all", "agent"],
        Meta(
            description="How much of the history an agent gets. `all`: every turn. `agent`: only the turns after the "
            "last answer of another agent."
        ),
    ] = "all"
    resume: Annotated[
        Literal["auto", "never"],
        Meta(description="`never`: don't resume native sessions; each turn gets the full transcript."),
    ] = "auto"
    runner_mode: Annotated[
        Literal["streaming", "resume"] | None,
        Meta(description="How Claude Code runs here: `streaming`, one process for all turns; `resume`, one per turn."),
    ] = None
    options: Annotated[
        ProjectOptions, Meta(description="How agents run here; these override the agent's own options.")
    ] = msgspec.field(default_factory=ProjectOptions)


class Config(Struct, kw_only=True, forbid_unknown_fields=True):
    server: ServerSettings = msgspec.field(default_factory=ServerSettings)
    limits: Limits = msgspec.field(default_factory=Limits)
    agents: dict[str, AgentSettings] = {}
    projects: dict[str, ProjectSettings] = {}

    @property
    def slots(self) -> int:
        """The configured number, or the default, which depends on `on_full`."""
        if self.server.slots is not None:
            return self.server.slots
        return SLOTS_REPLACING if self.limits.on_full == "replace" else SLOTS


def merged(*layers: Limits | dict[str, Any]) -> Limits:
    """The default limits with these layers applied; later layers override earlier ones."""
    values: dict[str, Any] = msgspec.to_builtins(DEFAULT_LIMITS)
    for layer in layers:
        given = layer if isinstance(layer, dict) else msgspec.to_builtins(layer)
        values.update({key: value for key, value in given.items() if value is not None})
    return msgspec.convert(values, Limits)


def load(path: Path | None) -> Config:
    """Read the configuration file. Without one, return the defaults."""
    try:
        if path is None or not path.exists():
            return Config()
        written = tomllib.loads(path.read_text("utf-8"))
        config = msgspec.convert(written, Config)
    except OSError as error:
        raise ConfigError(f"Can't read {path}: {error.strerror}. Fix it, or choose another with --config.") from error
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
    """The data directory: the given one, or the default in the user's home."""
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser().absolute() / "perdure"
