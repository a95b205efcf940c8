# ruff: noqa: INP001
"""Writes the pages that are read from the code: sessions.md, settings.md, api.md, commands.md.

    python docs/generate.py          writes them beside this file; takes some seconds, as it starts a server

Above: a person who changed a table or a sentence; tests/test_docs.py, which compares. Below: the machine's tables, the
events, the configuration, the table of endpoints, and commands.py, which runs the commands. It is deliberately not a
documentation tool: what people have to say is written by hand on the other pages.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from perdure import config
from perdure.core import commands as core_commands
from perdure.core import events, observations
from perdure.core.errors import STATUS_OF_CODE
from perdure.core.observe import OBSERVED
from perdure.core.session import ALLOWED
from perdure.surfaces.cli import COMMANDS
from perdure.surfaces.cli.trial import own_server
from perdure.surfaces.client import Address
from perdure.surfaces.http.openapi import answer_kinds, shown_path
from perdure.surfaces.http.routes import ENDPOINTS, Endpoint

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from docs import commands

HERE = Path(__file__).resolve().parent
NOTE = "<!-- Written by docs/generate.py. Change the code, then run it again. -->"

PHASES = {
    "idle": "no turn runs; the next message starts one",
    "accepted": "a message has its turn, which has not begun yet: it may wait for a free slot",
    "working": "a turn runs",
    "aborting": "a turn runs and has been asked to stop",
    "ended": "nothing will ever run again",
}
CODES = {
    "invalid": "The request does not fit; `detail` says what would.",
    "unauthorized": "The token is missing or wrong.",
    "forbidden": "Another site, or a host name that the server does not know.",
    "not_found": "There is no such thing.",
    "turn_active": "A turn runs, or a message waits to begin. Wait, abort, queue or interrupt.",
    "no_turn_active": "Nothing runs that could be stopped.",
    "session_ended": "The session is over. Start a new one.",
    "slots_full": "As many turns run as the server or the project allows, and the sender does not want to wait.",
    "queue_full": "Too many messages wait for the running turn already.",
    "prompt_resolved": "Somebody answered first, or the turn is over.",
    "conflict": "The id was used for something else, the `revision` is out of date, or a fixed thing can't be changed.",
    "too_large": "Larger than `max_message_bytes`.",
    "rate_limited": "Too many at once. Wait.",
    "agent_unavailable": "The agent can't be started; `detail` says what to do.",
    "unavailable": "Not now, for example because the disk is full. Nothing was taken. See `Retry-After`.",
    "damaged": "What is stored of it can't be read. It is set aside, and `perdure doctor --deep` says what to do.",
    "internal": "A bug. Please report it.",
}
SERVER = "[server]\nagent = 'rehearsal'\n"
"""Settings of the server that commands are run against: the same agent answers on every machine."""
UNITS = {"_s": "seconds", "_mb": "MiB", "_bytes": "bytes", "_events": "events"}


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> list[str]:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def sentence(kind: type) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((kind.__doc__ or "").strip().split("\n\n", maxsplit=1)[0].split())


def page(title: str, *blocks: list[str]) -> str:
    return "\n\n".join(["# " + title, NOTE, *("\n".join(block) for block in blocks)]) + "\n"


# Sessions ---------------------------------------------------------------------------------------------------------


def arrows() -> Iterator[str]:
    """Every way from one phase to another, with what leads there."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, row in (*ALLOWED.items(), *OBSERVED.items()):
        for phase, targets in row.items():
            for target in targets:
                if target != phase:
                    found.setdefault((phase, target), []).append(name)
    for (phase, target), names in found.items():
        yield f"    {phase} --> {target}: {', '.join(names)}"


def phase_rows(rules: dict[str, dict[str, tuple[str, ...]]], otherwise: str) -> Iterator[tuple[str, ...]]:
    for name, row in rules.items():
        yield (f"`{name}`", *(" or ".join(row[phase]) if phase in row else otherwise for phase in PHASES))


def event_rows() -> Iterator[tuple[str, ...]]:
    shared = {"at", "session_id", "turn"}
    for kind in get_args(events.AnyEvent):
        fields = [f"`{field.encode_name}`" for field in msgspec.structs.fields(kind) if field.name not in shared]
        yield f"`{kind.__struct_config__.tag}`", sentence(kind), ", ".join(fields)


def meaning_rows(module: Any, names: list[str]) -> Iterator[tuple[str, ...]]:
    for name in names:
        yield f"`{name}`", sentence(getattr(module, name))


def sessions_page() -> str:
    return page(
        "Sessions",
        [
            "A session is in one of five phases. On the wire `working` and `aborting` are both `processing`.",
        ],
        table(("phase", "what it means"), ((f"`{phase}`", what) for phase, what in PHASES.items())),
        ["```mermaid", "stateDiagram-v2", "    [*] --> idle", *arrows(), "    ended --> [*]", "```"],
        ["## Commands", "", "What people, programs and clocks ask for. `-`: refused."],
        table(("command", *PHASES), phase_rows(ALLOWED, "-")),
        table(("command", "what it asks for"), meaning_rows(core_commands, list(ALLOWED))),
        [
            "## Facts",
            "",
            "What an agent's process reports. A fact is never refused; one of an older process or turn is ignored.",
            "No other fact changes the phase.",
        ],
        table(("fact", *PHASES), phase_rows(OBSERVED, "")),
        table(("fact", "what it means"), meaning_rows(observations, list(OBSERVED))),
        [
            "## Events",
            "",
            "Everything that ever happened in a session, in order. Each has `seq`, `type`, `at`, `session_id` and",
            "`turn` besides. How to follow them is in [events.md](events.md).",
        ],
        table(("type", "what it means", "fields"), event_rows()),
    )


# Settings ---------------------------------------------------------------------------------------------------------


def described(hint: Any) -> tuple[str, Any]:
    """The sentence of an annotated setting, and its bare type."""
    if get_origin(hint) is Annotated:
        bare, *notes = get_args(hint)
        words = [note.description for note in notes if isinstance(note, msgspec.Meta) and note.description]
        return (words[0] if words else ""), bare
    return "", hint


def shown_default(field: msgspec.structs.FieldInfo, defaults: Any) -> str:
    value = getattr(defaults, field.name) if defaults is not None else field.default
    if value is msgspec.NODEFAULT:
        made = field.default_factory
        value = made() if made is not msgspec.NODEFAULT else "required"
    if value is None:
        return "none"
    if value == "required":
        return "required"
    return f"`{msgspec.json.encode(value).decode()}`"


def unit(name: str) -> str:
    return next((words for ending, words in UNITS.items() if name.endswith(ending)), "")


def setting_rows(kind: type, defaults: Any = None) -> Iterator[tuple[str, ...]]:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        words, _ = described(hints[field.name])
        yield f"`{field.name}`", unit(field.name), shown_default(field, defaults), words


def setting_sections() -> Iterator[tuple[str, type]]:
    """Each table of perdure.toml, with those that lie in others; limits look the same wherever they are given."""
    tops = (
        ("server", config.ServerSettings),
        ("limits", config.Limits),
        ("agents.NAME", config.AgentSettings),
        ("projects.NAME", config.ProjectSettings),
    )
    for name, kind in tops:
        yield f"[{name}]", kind
        for inner, hint in get_type_hints(kind, include_extras=True).items():
            _, bare = described(hint)
            if isinstance(bare, type) and issubclass(bare, msgspec.Struct) and bare is not config.Limits:
                yield f"[{name}.{inner}]", bare
    yield "[agents.NAME.options.mcp_servers.NAME], [projects.NAME.options.mcp_servers.NAME]", config.McpServer


def settings_page() -> str:
    heads = ("setting", "unit", "default", "what it does")
    blocks: list[list[str]] = [
        [
            "Settings are read at the start from `perdure.toml` in the data directory, or from the file that",
            "`--config` names. A setting that is not known is an error, so that a misspelt one is noticed.",
        ]
    ]
    for name, kind in setting_sections():
        defaults = config.DEFAULT_LIMITS if kind is config.Limits else None
        blocks += [[f"## {name}", "", sentence(kind)], table(heads, setting_rows(kind, defaults))]
    rule_words = (
        ("`tool`", "The tool's name; `*` and `?` stand for anything."),
        ("`pattern`", "What its command, path or input must look like; `*` by default."),
        ("`action`", "`allow`, `ask` or `deny`; `ask` by default."),
    )
    blocks += [["## Permission rules", "", "One entry of `permissions`."], table(("field", "what"), iter(rule_words))]
    return page("Settings", *blocks)


# The API ----------------------------------------------------------------------------------------------------------


def takes(endpoint: Endpoint) -> str:
    if endpoint.body is not None:
        fields = msgspec.structs.fields(endpoint.body)
        return "{" + ", ".join(f"{field.encode_name}{'' if field.required else '?'}" for field in fields) + "}"
    return ", ".join(f"`?{name}`" for name in endpoint.query)


def answers(endpoint: Endpoint) -> str:
    found = []
    for status in endpoint.answers:
        names = [kind if isinstance(kind, str) else struct_name(kind) for kind in answer_kinds(endpoint, status)]
        found.append(f"{status} {' or '.join(names)}".strip())
    return ", ".join(found)


def struct_name(kind: Any) -> str:
    return f"[{get_args(kind)[0].__name__}]" if get_origin(kind) is list else str(kind.__name__)


def endpoint_rows() -> Iterator[tuple[str, ...]]:
    for endpoint in ENDPOINTS:
        refusals = ", ".join(f"`{code}`" for code in endpoint.refusals)
        yield (
            f"`{endpoint.method} {shown_path(endpoint)}`",
            endpoint.summary,
            takes(endpoint),
            answers(endpoint),
            refusals,
        )


def query_rows() -> Iterator[tuple[str, ...]]:
    for endpoint in ENDPOINTS:
        for name, (_, what, *_) in endpoint.query.items():
            yield f"`{endpoint.method} {shown_path(endpoint)}`", f"`{name}`", what


def api_page() -> str:
    return page(
        "The HTTP API",
        [
            "[walkthrough.md](walkthrough.md) shows a whole conversation with curl, and [jobs.md](jobs.md) explains",
            "scheduled jobs. This page is the reference.",
            "",
            "JSON in and out. Every request needs the token, as `Authorization: Bearer TOKEN`, except for",
            "`GET /api/health`, `GET /api/ready`, `POST /api/login` and `GET /api/docs`, which shows this table. A",
            "browser that signed in sends its cookie and the key that came with it (`Perdure-Page-Key`) instead. What",
            "can't send a header, such as a download or an `EventSource`, uses a ticket: `POST /api/tickets` with a",
            "path answers a ticket that opens this path once, within 30 seconds, as `?ticket=TICKET`. The full",
            "description of every body and answer is the OpenAPI document at `/api/openapi.json`. A field with `?` may",
            "be left out.",
            "",
            "A field that nobody knows is ignored, so that an old server understands a new client; in a permission",
            "rule and in `limits` it is refused. A field that Perdure knows but can't set with that request, as",
            "`resume` of a project or `model` in a change of a session, is refused with what to do instead, unless it",
            "says what is so already. A filter value that does not exist is refused.",
            "",
            'A message that finds no free slot is not refused: the answer is 202 with `state: "accepted"`, and',
            "`waits_for` has a `code` and a `message`. Its turn begins when a slot is free, in order of arrival. With",
            '`when_full: "refuse"` the answer is 409 `slots_full` instead. The paths of Diane and TeamHQ always',
            "refuse.",
        ],
        table(("request", "what it does", "takes", "answers", "may refuse"), endpoint_rows()),
        ["## Queries"],
        table(("request", "name", "what it does"), query_rows()),
        [
            "## Errors",
            "",
            "Errors are `application/problem+json`: `type`, `title`, `status`, `detail`, `code`, and `error`, which is",
            "the detail again. Where it is about fields of the request, `fields` lists them. Any request may get",
            "`invalid`, `unauthorized`, `forbidden`, `unavailable`, `damaged` or `internal`.",
        ],
        table(("code", "status", "what it means"), ((f"`{c}`", str(s), CODES[c]) for c, s in STATUS_OF_CODE.items())),
        ["## The command line", "", "[commands.md](commands.md) has each command's help and errors."],
        table(("command", "what it does"), ((f"`perdure {name}`", what) for name, (_, what) in COMMANDS.items())),
    )


# Commands ---------------------------------------------------------------------------------------------------------


def commands_page(address: Address) -> str:
    """Every command's help, and the errors that it gives at this server."""
    with commands.staged(address) as stage:
        errors = list(commands.error_rows(stage))
    return page(
        "Commands",
        [
            "What `perdure COMMAND --help` prints, for every command; then the [errors](#errors) that each gives,",
            "with their exit codes; then what has [no command](#without-a-command). With `--json` a command writes the",
            "server's JSON to stdout. Errors go to stderr.",
        ],
        table(
            ("exit code", "what it means"),
            iter(
                (
                    ("0", "Done."),
                    ("1", "Refused or failed; the sentence ends with the error's code, see [api.md](api.md#errors)."),
                    ("2", "Not understood: a word, an option or a value is missing or wrong. Nothing was done."),
                    ("3", "No server can be reached."),
                    ("130", "Interrupted with Ctrl-C."),
                )
            ),
        ),
        *commands.help_blocks(),
        [
            "## Errors",
            "",
            "Each row was run against a real server. `IDLE`, `BUSY` and `ENDED` stand for the ids of sessions in which",
            "no turn runs, in which one runs, and which have ended; `HERE` for the current directory, `URL` for the",
            "server's address.",
        ],
        table(("command", "case", "exit code", "what it says"), iter(errors)),
        [
            "## Without a command",
            "",
            "These operations of the [API](api.md) have no command:",
        ],
        table(("request", "why"), commands.operation_rows()),
    )


PAGES: dict[str, Callable[[], str]] = {
    "sessions.md": sessions_page,
    "settings.md": settings_page,
    "api.md": api_page,
}


def main() -> int:
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
    with own_server(SERVER) as client:
        (HERE / "commands.md").write_text(commands_page(client.address), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
