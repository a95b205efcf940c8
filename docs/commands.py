# ruff: noqa: INP001
"""The contents of commands.md: each command's help, and the errors that it reports when it is run.

generate.py writes the page. tests/test_docs.py checks that it is up to date, and tests/surfaces/test_cli_operations.py
checks the list of operations without a command. The commands run in this process against a real server. The page has
nothing that differs between machines or runs: session ids are derived from fixed message ids, and placeholders replace
the server's address and directories.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from perdure.surfaces.cli import COMMANDS, SECTIONS, main, perdure
from perdure.surfaces.client import Address, Client
from perdure.surfaces.http.openapi import shown_path
from perdure.surfaces.http.routes import ENDPOINTS

COLUMNS = 100
NOWHERE = "http://127.0.0.1:9"
"""The discard port, on which no server listens."""

WITHOUT_COMMAND = {
    "login": "Used by browsers to exchange the code in the link that `perdure login` prints.",
    "logout": "Signs out the calling browser; `perdure logout` signs out any browser.",
    "ready": "For load balancers; `perdure doctor` checks the server.",
    "new_ticket": "For clients that can't send headers; commands send the token.",
    **dict.fromkeys(
        [f"diane_{verb}" for verb in ("start", "list", "list_all", "get", "prompt", "cancel", "configure", "close")],
        "Diane's API for what `sessions`, `show`, `send`, `abort`, `config` and `stop` do.",
    ),
    **dict.fromkeys(
        ("teamhq_start", "teamhq_list", "teamhq_get", "teamhq_message", "teamhq_stop", "teamhq_events"),
        "TeamHQ's API for what `send`, `sessions`, `show`, `stop` and `watch` do.",
    ),
    **dict.fromkeys(("get_run", "answer_run"), "Open Design's API for what `show` and `answer` do."),
}
"""Operations in the OpenAPI document that no command uses, and why."""

NO_HELP = ("rehearse",)
"""Commands that print their own help instead of click's."""


class Case(NamedTuple):
    """A command that is expected to fail. In `words`, `ended`, `busy`, `idle` and `unknown` stand for session ids."""

    what: str
    words: Sequence[str]
    stdin: str = ""


NEEDS = {
    # Further arguments that a command with a session needs.
    "answer": ["--allow"],
    "attachments download": ["notes.txt"],
    "config": ["model", "rehearsal-2"],
    "commit": ["-m", "Add notes"],
    "discard": ["notes.txt"],
    "edit": ["1", "say better"],
    "erase": ["--yes"],
    "label": ["--add", "release"],
    "mode": ["auto"],
    "model": ["rehearsal-2"],
    "nodes move": ["--to", "other"],
    "queue edit": ["1", "say better"],
    "queue withdraw": ["1"],
    "rename": ["A title"],
    "restore": ["1"],
    "rewind": ["1"],
    "send": ["say hello"],
}
ENOUGH = {
    # Arguments that a command without a session needs to contact the server.
    "attachments": ["last"],
    "import": ["exported"],
    "jobs add": ["Report", "--every", "1h", "--message", "say hello"],
    "jobs edit": ["report", "--every", "2h"],
    "jobs history": ["report"],
    "jobs pause": ["report"],
    "jobs preview": ["--every", "1h"],
    "jobs remove": ["report"],
    "jobs resume": ["report"],
    "jobs run": ["report"],
    "jobs show": ["report"],
    "logins revoke": ["abc"],
    "logout": ["--all"],
    "nodes drain": ["other"],
    "nodes remove": ["other", "--yes"],
    "nodes resume": ["other"],
    "projects add": ["."],
    "projects edit": ["site", "--name", "Site"],
    "projects remove": ["site"],
    "projects show": ["site"],
    "queue": ["last"],
    "run": ["say hello"],
}
BAD_VALUES: dict[str, list[Case]] = {
    "agents": [Case("unknown agent", ["nobody"])],
    "agents add": [Case("unknown agent", ["nobody"]), Case("bad value", ["mine", "--command", "'"])],
    "agents sessions": [Case("bad value", ["rehearsal", "--limit", "0"])],
    "agents test": [Case("bad value", ["rehearsal", "--timeout", "0"])],
    "abort": [Case("no running turn", ["idle"])],
    "answer": [
        Case("conflicting options", ["idle", "--allow", "--deny", "--text", "yes"]),
        Case("no prompt", ["idle", "--allow"]),
    ],
    "attachments download": [
        Case("unknown attachment", ["idle", "nothing.txt"]),
        Case("no attachments", ["idle"]),
    ],
    "changes": [
        Case("unknown turn", ["idle", "9"]),
        Case("unknown file", ["idle", "--file", "nothing.txt"]),
        Case("conflicting options", ["idle", "--json", "--patch"]),
    ],
    "chat": [Case("unknown agent", ["--agent", "nobody"], stdin="say hello\n")],
    "commit": [Case("no message", ["idle"]), Case("no changes", ["idle", "-m", "Add notes"])],
    "completion": [Case("bad value", ["tcsh"])],
    "config": [
        Case("bad value", ["idle", "model", "nothing"]),
        Case("unknown option", ["idle", "colour", "red"]),
        Case("no value", ["idle", "model"]),
    ],
    "directories": [Case("no such directory", ["/nothing/here/"]), Case("bad value", ["/", "--limit", "0"])],
    "discard": [Case("unknown file", ["idle", "nothing.txt"]), Case("bad value", ["idle", "notes.txt", "--hunk", "0"])],
    "edit": [Case("unknown turn", ["idle", "9", "say better"]), Case("no text", ["idle", "1"])],
    "erase": [Case("no confirmation", ["idle"])],
    "events": [Case("bad value", ["--count", "0"])],
    "export": [Case("two sessions", ["idle", "ended"]), Case("bad value", ["idle", "--format", "pdf"])],
    "files": [Case("bad value", ["idle", "--limit", "1000"])],
    "fork": [Case("unknown turn", ["idle", "9"]), Case("unknown agent", ["idle", "--agent", "nobody"])],
    "import": [Case("no such directory", ["nothing-here"])],
    "jobs": [Case("unknown job", ["nothing"])],
    "jobs add": [
        Case("no schedule", ["Report", "--message", "say hello"]),
        Case("conflicting options", ["Report", "--message", "say hello", "--cron", "@daily", "--every", "1h"]),
        Case("bad cron", ["Report", "--message", "say hello", "--cron", "0 9"]),
        Case("bad duration", ["Report", "--message", "say hello", "--every", "30"]),
        Case("unknown zone", ["Report", "--message", "say hello", "--cron", "@daily", "--zone", "Mars/Olympus"]),
        Case("never due", ["Report", "--message", "say hello", "--every", "1h", "--until", "2020-01-01"]),
        Case("unknown session", ["Report", "--message", "say hello", "--every", "1h", "--session", "unknown"]),
    ],
    "jobs edit": [
        Case("unknown job", ["nothing", "--every", "1h"]),
        Case("nothing to change", ["nothing"]),
        Case("no schedule", ["nothing", "--cron", ""]),
    ],
    "jobs history": [Case("unknown job", ["nothing"]), Case("bad value", ["nothing", "--limit", "0"])],
    "jobs pause": [Case("unknown job", ["nothing"])],
    "jobs preview": [Case("bad cron", ["--cron", "0 0 30 2 *"])],
    "jobs remove": [Case("unknown job", ["nothing"])],
    "jobs resume": [Case("unknown job", ["nothing"])],
    "jobs run": [Case("unknown job", ["nothing"])],
    "jobs show": [Case("unknown job", ["nothing"])],
    "label": [Case("conflicting options", ["idle", "--add", "a", "--remove", "a"])],
    "logins revoke": [Case("unknown sign-in", ["abc"]), Case("no selection", [])],
    "logout": [Case("unknown sign-in", ["abc"]), Case("no selection", [])],
    "migrate": [
        Case("no target", []),
        Case("bad value", ["--to", "mysql://db.example.com/perdure"]),
        Case("no source", ["--to", "sqlite"]),
        Case("no database", ["--data", "nothing-here", "--to", "postgresql://db.example.com/perdure"]),
    ],
    "merge": [Case("no worktree", ["idle"])],
    "mode": [Case("bad value", ["idle", "nothing"])],
    "model": [Case("bad value", ["idle", "nothing"])],
    "nodes": [Case("unknown command", ["stop"])],
    "nodes drain": [Case("the only node", ["other"])],
    "nodes move": [
        Case("no selection", ["--to", "other"]),
        Case("conflicting options", ["idle", "--from", "one", "--to", "other"]),
        Case("no target", ["idle"]),
    ],
    "nodes remove": [Case("the only node", ["other", "--yes"]), Case("no confirmation", ["other"])],
    "nodes resume": [Case("the only node", ["other"])],
    "plan": [Case("running turn", ["busy"]), Case("unknown agent", ["idle", "--agent", "nobody"])],
    "projects": [Case("unknown project", ["nothing"])],
    "projects add": [
        Case("no such directory", ["/nothing/here"]),
        Case("bad rule", [".", "--rule", "sometimes Bash"]),
        Case("bad limit", [".", "--limit", "turn_timeout_s"]),
    ],
    "projects edit": [
        Case("unknown project", ["nothing", "--agent", "rehearsal"]),
        Case("nothing to change", ["nothing"]),
    ],
    "projects remove": [Case("unknown project", ["nothing"])],
    "projects show": [Case("unknown project", ["nothing"])],
    "queue": [Case("missing argument", [])],
    "queue edit": [Case("no such message", ["busy", "7", "say better"]), Case("no text", ["busy", "1"])],
    "queue withdraw": [Case("no such message", ["busy", "7"]), Case("no selection", ["busy"])],
    "rename": [Case("empty title", ["idle", " "])],
    "restore": [
        Case("no snapshot", ["idle", "1"]),
        Case("running turn", ["busy", "1"]),
        Case("bad value", ["idle", "0"]),
    ],
    "retry": [Case("running turn", ["busy"]), Case("unknown turn", ["idle", "9"])],
    "review": [
        Case("no line", ["idle", "-c", "notes.txt", "Why?"]),
        Case("unknown file", ["idle", "-c", "nothing.txt:1", "Why?"]),
        Case("no comment", ["idle", "--text", "Why?"]),
    ],
    "rewind": [
        Case("bad value", ["idle", "0"]),
        Case("unknown turn", ["idle", "9"]),
        Case("running turn", ["busy", "1"]),
    ],
    "run": [Case("no text", []), Case("unknown agent", ["--agent", "nobody", "say hello"])],
    "send": [
        Case("no text", []),
        Case("running turn", ["busy", "say hello"]),
        Case("unknown agent", ["idle", "say hello", "--agent", "nobody"]),
        Case("unknown project", ["--new", "say hello", "--project", "nothing"]),
        Case("no such file", ["idle", "say hello", "--attach", "nothing.txt"]),
    ],
    "serve": [Case("bad value", ["--port", "70000"]), Case("no such file", ["--config", "/nothing/here.toml"])],
    "sessions": [
        Case("bad value", ["--state", "sleeping"]),
        Case("bad value", ["--limit", "0"]),
        Case("conflicting options", ["--archived", "--all"]),
    ],
    "show": [Case("conflicting options", ["idle", "--markdown", "--rewound"])],
    "stop": [Case("no selection", []), Case("conflicting options", ["idle", "--all"])],
    "undo": [Case("nothing to undo", ["idle"])],
    "usage": [Case("bad value", ["--by", "colour"])],
    "watch": [Case("bad value", ["idle", "--from", "x"])],
}
ALWAYS = [
    Case("unknown command", ["converse"]),
    Case("command of another tool", ["ls"]),
    Case("misspelt command", ["sesions"]),
    Case("unknown option", ["sessions", "--nothing"]),
    Case("no server", ["sessions", "--data", "nothing-here"]),
    Case("wrong token", ["sessions", "--token", "wrong"]),
]
"""Errors that are the same for all commands, shown for one of them."""


# Help -------------------------------------------------------------------------------------------------------------


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand by its name, such as `jobs add`. A group comes before its subcommands."""
    root = click.Context(perdure, info_name="perdure")
    for name in COMMANDS:
        command = perdure.get_command(root, name)
        assert command is not None
        yield name, command
        for inner in sorted(getattr(command, "commands", {})):
            yield f"{name} {inner}", command.commands[inner]  # type: ignore[attr-defined]


def help_of(name: str, command: click.Command) -> str:
    """The output of --help, independent of the terminal's width."""
    context = click.Context(perdure, info_name="perdure", **perdure.context_settings)
    for word, step in zip(name.split(), _steps(name), strict=True):
        context = click.Context(step, info_name=word, parent=context, terminal_width=COLUMNS, max_content_width=COLUMNS)
    return command.get_help(context)


def _steps(name: str) -> list[click.Command]:
    first, *rest = name.split()
    found = perdure.get_command(click.Context(perdure), first)
    assert found is not None
    return [found, *(found.commands[word] for word in rest)]  # type: ignore[attr-defined]


# Errors -----------------------------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, Case]]:
    """The cases to run for each command: generic ones derived from its parameters, then those in BAD_VALUES."""
    for name, command in leaves():
        if name in NO_HELP:
            continue
        arguments = [param for param in command.params if isinstance(param, click.Argument)]
        takes_session = any(param.name in ("session", "sessions") for param in arguments) or name == "send"
        needs = NEEDS.get(name, [])
        if any(param.required for param in arguments):
            yield name, Case("missing argument", [])
        if takes_session:
            yield name, Case("unknown session", ["unknown", *needs])
            if name != "erase":
                yield name, Case("ended session", ["ended", *needs], stdin="say hello\n" if name == "chat" else "")
        for case in BAD_VALUES.get(name, []):
            yield name, case
        if any("--json" in param.opts for param in command.params) and name not in ("agents add", "doctor", "mcp"):
            enough = ["last", *needs] if takes_session else _enough(name, arguments)
            yield name, Case("no server", [*enough, "--url", NOWHERE])


def _enough(name: str, arguments: list[click.Argument]) -> list[str]:
    return ENOUGH.get(name, ["rehearsal" for param in arguments if param.required])


class Stage:
    """A server with sessions in known states. Runs commands against it in this process."""

    def __init__(self, address: Address, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._sessions: dict[str, str] = {"unknown": "s_unknown"}

    def prepare(self) -> None:
        with Client(self._address) as client:
            for name, text in (("ended", "say one"), ("idle", "say one"), ("busy", "hang")):
                # The session id is derived from the first message's id, so it is the same each time.
                sent = client.send(text, message_id=f"commands-{name}", workdir=str(self._folder), agent="rehearsal")
                self._sessions[name] = sent["session_id"]
                if name != "busy":
                    next(event for event in client.events(sent["session_id"], 0) if event.type == "turn_end")
            client.send("say later", self._sessions["busy"], message_id="commands-waiting", when_busy="queue")
            client.stop(self._sessions["ended"])
        assert self.run("export", Case("", ["idle", "--folder", "exported"])) == (0, "")

    def leave(self) -> None:
        with Client(self._address) as client:
            for name in ("ended", "idle", "busy"):
                client.erase(self._sessions[name])

    def run(self, name: str, case: Case) -> tuple[int, str]:
        """The exit code, and stderr without anything that depends on the machine."""
        words = [self._sessions.get(word, word) for word in case.words]
        where: list[str] = []
        if "--data" not in words:
            where = ["--data", str(self._folder / "data"), "--url", self._address.url]
            where += ["--token", self._address.token or ""]
        code, said = self._called([*where, *name.split(), *words], case.stdin)
        return code, self._same_everywhere(said)

    def _called(self, argv: list[str], stdin: str) -> tuple[int, str]:
        said, aside = io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        try:
            with contextlib.chdir(self._folder), contextlib.redirect_stderr(said), contextlib.redirect_stdout(aside):
                return main(argv), said.getvalue()
        finally:
            sys.stdin = before

    def _same_everywhere(self, said: str) -> str:
        for session_name, session_id in self._sessions.items():
            if session_name != "unknown":
                said = said.replace(session_id, session_name.upper())
        for path, shown in ((str(self._folder), "HERE"), (self._address.url, "URL")):
            said = said.replace(path, shown)
        # The list of agents depends on what is installed.
        said = re.sub(r"([Aa]gents: )[\w., -]+?(?=\. |\.?$)", r"\1...", said)
        # The usage lines are on the page already.
        said = re.sub(r"^Usage: .*\nTry '.*' for help\.\n\n", "", said)
        return re.sub(r"\s+", " ", said).strip()


def shown_call(name: str, case: Case) -> str:
    shown = {"ended": "ENDED", "busy": "BUSY", "idle": "IDLE", "unknown": "s_unknown"}
    words = [shown.get(word, word) for word in case.words]
    quoted = [f'"{word}"' if " " in word or not word else word for word in words]
    return " ".join(["perdure", *name.split(), *quoted])


def tried(stage: Stage) -> Iterator[tuple[str, Case, int, str]]:
    for case in ALWAYS:
        yield "", case, *stage.run("", case)
    for name, case in cases():
        yield name, case, *stage.run(name, case)


# The page ---------------------------------------------------------------------------------------------------------


def help_blocks() -> Iterator[list[str]]:
    for name, command in leaves():
        if name in SECTIONS:
            yield [f"## {SECTIONS[name]}"]
        yield [f"### perdure {name}", "", "```", help_of(name, command) if name not in NO_HELP else _own(name), "```"]


def _own(name: str) -> str:
    return f"Run perdure {name} --help to see its options."


def operation_rows() -> Iterator[tuple[str, ...]]:
    for endpoint in ENDPOINTS:
        reason = WITHOUT_COMMAND.get(endpoint.handler.__name__)
        if reason is not None:
            yield f"`{endpoint.method} {shown_path(endpoint)}`", reason


def error_rows(stage: Stage) -> Iterator[tuple[str, ...]]:
    for name, case, code, said in tried(stage):
        if code:
            yield f"`{shown_call(name, case)}`", case.what, str(code), said


@contextlib.contextmanager
def staged(address: Address) -> Iterator[Stage]:
    """Create sessions in known states on this server, and erase them afterwards. Ignores PERDURE_* variables."""
    kept = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("PERDURE_")]:
        del os.environ[name]
    os.environ["COLUMNS"] = str(COLUMNS)
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        stage = Stage(address, Path(folder).resolve())
        try:
            stage.prepare()
            yield stage
        finally:
            stage.leave()
            os.environ.clear()
            os.environ.update(kept)
