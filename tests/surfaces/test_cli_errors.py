"""Errors on the command line use its own terms: options and commands, never fields, headers or status numbers."""

import ast
import http.server
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from perdure import config
from perdure.surfaces import cli
from perdure.surfaces.cli import terms
from perdure.surfaces.cli.messages import send_command
from perdure.surfaces.cli.output import paragraph
from perdure.surfaces.client import Problem
from perdure.surfaces.http.routes import ENDPOINTS
from perdure.surfaces.mcp import server as mcp_server
from tests.surfaces.conftest import ServerProcess

SOURCE = Path(config.__file__).parent
ELSEWHERE = {
    **dict.fromkeys(("diane.py", "teamhq.py", "open_design.py", "open_design_answers.py"), "other programs' APIs"),
    **dict.fromkeys(
        ("request_headers.py", "streams.py", "cors.py"), "how requests are encoded, which is the client's task"
    ),
}
"""Modules whose errors no command can get."""
NOT_FOR_COMMANDS = (
    "A page of another origin",  # a browser
    "path must be a path of this server",  # tickets, which are for browsers
    "The body is not valid JSON",  # the client prevents it
    "format must be json or markdown",  # the command's own option has fixed choices
    "fresh and forceFreshSession",  # the client sends only one of them
    "The project's kickoff has no {message}",  # quoted as in perdure.toml
)
SETTINGS = {
    field.name
    for kind in (config.ServerSettings, config.Limits, config.AgentSettings, config.ProjectSettings)
    for field in msgspec.structs.fields(kind)
}
FIELDS = {
    field.encode_name
    for endpoint in ENDPOINTS
    if endpoint.body is not None
    for field in msgspec.structs.fields(endpoint.body)
} | {"group_by", "config_id"}
HTTP = re.compile(
    r"\b(authorization|bearer|header|cookie|body|json|http/|problem\+json|post|get|/api/)|\b[45]\d\d\b", re.IGNORECASE
)


def wire_words(sentence: str) -> list[str]:
    """Words that only make sense to people who write HTTP requests."""
    own = {field for field in FIELDS if "_" in field} | {"workdir", "forceFreshSession"}
    words = re.findall(r"(?<![\w-])[A-Za-z_]+(?![\w-])", sentence)
    return [word for word in words if word in own - SETTINGS] + [found[0] for found in HTTP.finditer(sentence)]


def text_of(node: ast.expr) -> str | None:
    """A message from the source, with X for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return None


def refusals() -> Iterator[tuple[str, str, list[str]]]:
    """Every refusal in the source: code, message and fields."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refused"):
                continue
            sentence = text_of(node.args[1]) if len(node.args) > 1 else None
            if sentence is None or sentence.startswith(NOT_FOR_COMMANDS):
                continue
            given = next((keyword.value for keyword in node.keywords if keyword.arg == "fields"), None)
            fields = given.elts if isinstance(given, ast.List) else []
            yield text_of(node.args[0]) or "slots_full", sentence, [text_of(field) or "X" for field in fields]


def test_no_server_error_reaches_a_command_in_terms_of_the_api() -> None:
    found = list(refusals())
    assert len(found) > 60
    bare = [sentence for _, sentence, _ in found if wire_words(sentence)]
    assert len(bare) > 8, "some refusals name fields, or the test checks nothing"
    with click.Context(send_command):
        for code, sentence, fields in found:
            shown = terms.refusal(Problem(400, code, sentence, {"fields": fields})).rpartition(" (")[0]
            assert not wire_words(shown), shown


def test_no_server_error_reaches_an_mcp_client_with_headers_or_options() -> None:
    for code, sentence, fields in refusals():
        shown = mcp_server._sentence(Problem(400, code, sentence, {"fields": fields}))
        assert not HTTP.search(shown) and "when_busy" not in shown, shown


def test_an_error_names_a_field_as_the_running_command_does() -> None:
    @click.command()
    @click.option("--since", "-s")
    @click.argument("path")
    def command() -> None: ...

    with click.Context(command):
        assert [terms.option_of(field) for field in ("since", "path", "message_id")] == [
            "--since",
            "PATH",
            "--message-id",
        ]
        problem = Problem(400, "invalid", "path '/a/path' is not a directory.", {"fields": ["path"]})
        assert terms.refusal(problem) == "PATH '/a/path' is not a directory. (invalid)"


@pytest.mark.parametrize("facts", [{"fields": None}, {"fields": "workdir"}, {"fields": [7, "", "["]}, {}])
def test_unexpected_error_details_from_another_server_are_ignored(facts: dict[str, object]) -> None:
    assert terms.refusal(Problem(400, "invalid", "workdir is odd.", facts)) == "workdir is odd. (invalid)"


ADDRESSES = [
    "server",
    "http://",
    "http://a b",
    "http://x:99999",
    "http://x:0",
    "ftp://x",
    "http://[::1",
    "http://ü",
    "http://x\n",
]


@pytest.mark.parametrize("url", ADDRESSES, ids=repr)
def test_a_bad_url_is_one_message(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--data", str(tmp_path), "sessions", "--url", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"perdure: --url {url.rstrip('/')!r} is not a valid server URL.") and said.count("\n") == 1


def test_an_invalid_token_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sessions", "--url", "http://127.0.0.1:9", "--token", "a\nb"]) == 2
    assert capsys.readouterr().err.startswith("perdure: --token contains invalid characters")


def test_the_error_for_an_unreachable_server_suggests_checking_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sessions", "--url", "http://127.0.0.1:9"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("perdure: No server responds at http://127.0.0.1:9. Check --url, or start the server there")


class Stranger(http.server.BaseHTTPRequestHandler):
    """Another program, which answers every request with an HTML page, or hangs up."""

    def do_GET(self) -> None:
        if "hangs" in self.server.how:  # type: ignore[attr-defined]
            return
        self.send_response(int(self.server.how))  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"<html>Welcome!</html>")

    def log_message(self, *_: object) -> None:
        """Silence the log."""


@pytest.mark.parametrize("how", ["200", "404", "502", "hangs up"])
def test_another_program_at_the_url_causes_no_traceback(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        stranger.how = how  # type: ignore[attr-defined]
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        code = cli.main(["sessions", "--url", f"http://127.0.0.1:{stranger.server_port}"])
        stranger.shutdown()
    said = capsys.readouterr().err
    wanted = (
        (3, "closed the connection before it responded")
        if how == "hangs up"
        else (1, "is not from a Perdure server. Check --url")
    )
    assert code == wanted[0] and wanted[1] in said
    assert said.count("\n") == 1 and how not in said.replace(str(stranger.server_port), "")


def test_every_error_of_a_server_names_options_and_commands(server: ServerProcess, tmp_path: Path) -> None:
    session = server.run("send", "--new", "--message-id", "m1", "hang").stdout.strip()
    for arguments, words in {
        ("send", "last", "more"): "Send with --queue to wait until it ends, or with --interrupt",
        ("rewind", "last", "1"): f"Wait until it ends, or interrupt it with `perdure abort {session}`.",
        ("changes", "3"): "3 is no session id. `perdure sessions` lists them.",
        ("undo", ""): "'' is no session id.",
        ("show", session[2:]): "There is no session",
        ("send", "--new", "--message-id", "m1", "another"): "This --message-id was used for another text.",
        ("send", "--kickoff"): "--kickoff needs a project",
        ("send", "--project", "none", "x"): "There is no project 'none'. `perdure projects` lists them.",
        ("run", "--agent", "none", "x"): "There is no agent 'none'.",
        ("projects", "add", "missing"): "PATH",
        ("usage", "--since", "yesterday"): "--since must be a day",
        ("config", "last", "speed", "high"): "OPTION must be one of",
        ("model", "last", "nonsense"): "MODEL must be one of",
        ("show", "s_none"): "`perdure sessions` lists all sessions.",
        ("fork", "last", "9"): "There is no turn 9",
    }.items():
        said = server.run(*arguments)
        assert said.returncode == 1, (arguments, said)
        assert words in said.stderr and said.stderr.count("\n") == 1, (arguments, said.stderr)
        assert not wire_words(re.sub(r"'[^']*'|\([a-z_]+\)|s_\w+", "", said.stderr)), said.stderr
    server.run("abort", "last")


def test_a_missing_token_names_the_option(server: ServerProcess, tmp_path: Path) -> None:
    for token in ((), ("--token", "wrong")):
        said = server.run("--data", str(tmp_path), "sessions", "--url", server.url, *token)
        assert said.returncode == 1
        assert "Set --token or PERDURE_TOKEN" in said.stderr
        assert not wire_words(said.stderr), said.stderr


def test_commands_are_named_as_the_user_types_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE_PROGRAM", "./run perdure")
    assert cli.main(["--data", str(tmp_path), "sessions"]) == 3
    assert "Start one with `./run perdure serve`." in capsys.readouterr().err
    assert cli.main(["send", "--when-busy"]) == 2
    assert "./run perdure send --help" in capsys.readouterr().err
    assert cli.main(["ls"]) == 2
    assert "Did you mean `./run perdure sessions`?" in capsys.readouterr().err
    assert cli.main(["no-such-command"]) == 2
    assert "`./run perdure --help` lists all commands." in capsys.readouterr().err
    assert cli.main(["projects", "add", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Usage: ./run perdure projects add" in shown and "`./run perdure send --project PROJECT` starts" in shown
    assert "see `./run perdure send --kickoff`" in shown
    once = terms.as_typed("perdure: see `perdure show last`, /srv/perdure and perdure.toml")
    assert once == "perdure: see `./run perdure show last`, /srv/perdure and perdure.toml"
    assert terms.as_typed(once) == once


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_breaks_an_error_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    log = "  | a line of the log that stays as it is, however long"
    said = f"perdure: The server did not start (exit code 1). Its log:\n{log}\nDo that."
    shown = paragraph(said, Screen())
    assert shown.split("\n") == [
        "perdure: The server did not start (exit",
        "code 1). Its log:",
        log,
        "Do that.",
    ]
    assert paragraph(said, io.StringIO()) == said
    assert paragraph("An agent said \x1b[2Jthis", Screen()) == "An agent said [2Jthis"


def test_no_command_tells_anybody_to_reload_the_page() -> None:
    told = [line.strip() for file in (SOURCE / "runtime").rglob("*.py") for line in file.read_text().splitlines()]
    sentences = [line for line in told if ". Reload the" in line]
    assert sentences, "some refusals are worded for the page, or the test checks nothing"
    for sentence in sentences:
        shown = terms.refusal(Problem(409, "files_changed", sentence, {}))
        assert "Reload" not in shown and "`perdure changes SESSION`" in shown


@pytest.mark.parametrize(
    "option", [("--workspace", "worktree"), ("--workdir", "/"), ("--scratch",), ("--project", "p"), ("--parent", "s_1")]
)
@pytest.mark.parametrize("session", ["last", "s_unknown"])
def test_a_session_is_not_taken_for_a_message_to_a_new_one(
    session: str, option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--data", str(tmp_path), "send", session, *option, "say y"]) == 2
    assert f"{option[0]} is for a new session: leave out '{session}', or add --new" in capsys.readouterr().err
    assert cli.main(["--data", str(tmp_path), "send", "--new", session, *option, "say y"]) == 3, "no server is running"
