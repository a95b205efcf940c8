"""Where a new session of `chat`, `send` and `run` works, against real servers."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.data.filesystem import BOOT_ID
from perdure.surfaces.cli.places import sees_here
from perdure.surfaces.cli.reach import Reach
from tests.harness import ColdServer, LiveServer
from tests.surfaces.conftest import COMMAND_LIMIT_S, ServerProcess
from tests.surfaces.terminal import Terminal

BEGINNINGS = (("send", "say hi"), ("send", "--new", "say hi"), ("run", "say hi"), ("chat",))
OPTIONS = "--workdir DIR, --project NAME or --scratch"


def begin(server: ServerProcess, cwd: Path, *arguments: str) -> Any:
    """Start a session in this directory. Returns the session."""
    done = server.run(*arguments, stdin="say hi\n", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(server.run("show", "--json", "last").stdout)


@pytest.mark.parametrize("arguments", BEGINNINGS)
def test_a_new_session_works_in_the_current_directory(
    server: ServerProcess, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "repository").mkdir()
    session = begin(server, tmp_path / "repository", *arguments)
    assert (session["workdir"], session["project"]) == (str(tmp_path / "repository"), None)


@pytest.mark.parametrize("arguments", BEGINNINGS)
def test_a_scratch_session_works_in_a_new_folder(server: ServerProcess, arguments: tuple[str, ...]) -> None:
    session = begin(server, server.folder, arguments[0], "--scratch", *arguments[1:])
    assert session["workdir"] == str(server.data / "workspaces" / session["id"])


def test_a_symbolic_link_to_a_directory_is_resolved(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert begin(server, tmp_path / "link", "send", "edit a.txt")["workdir"] == str(tmp_path / "real")
    relative = begin(server, tmp_path, "send", "--workdir", "link", "say hi")
    assert relative["workdir"] == str(tmp_path / "real")


def test_the_url_of_the_local_server_changes_nothing(server: ServerProcess, tmp_path: Path) -> None:
    way = ("--url", server.url, "--token", server.token)
    assert begin(server, tmp_path, "send", *way, "say hi")["workdir"] == str(tmp_path)


@pytest.mark.full
def test_a_removed_directory_is_reported(server: ServerProcess, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "gone").mkdir()
        script = f'cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec "$@"'
        return subprocess.run(
            ["sh", "-c", script, "sh", *server.command(*arguments)],
            capture_output=True, text=True, env=server.environment, timeout=COMMAND_LIMIT_S,
        )  # fmt: skip

    for arguments in (("send", "say hi"), ("send", "--workdir", ".", "say hi")):
        refused = run(*arguments)
        assert refused.returncode == 2
        assert "The current directory no longer exists." in refused.stderr and OPTIONS in refused.stderr
    assert run("send", "--wait", "--scratch", "say hi").stdout == "hi\n"


def test_the_root_directory_needs_an_option(server: ServerProcess) -> None:
    refused = server.run("run", "say hi", cwd=Path("/"))
    assert refused.returncode == 2 and OPTIONS in refused.stderr
    assert server.run("run", "--workdir", "/", "say hi").stdout == "hi\n"


@pytest.mark.full
def test_the_home_directory_gets_a_warning(server: ServerProcess, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for arguments in (("send", "say hi"), ("run", "say hi"), ("chat",)):
        done = server.run(*arguments, stdin="say hi\n", cwd=home)
        assert done.returncode == 0 and "works in your home directory (~)" in done.stderr
    (home / "code").mkdir()
    assert "home directory" not in server.run("run", "say hi", cwd=home / "code").stderr
    server.run("projects", "add", str(home))
    assert "home directory" not in server.run("run", "say hi", cwd=home).stderr


def test_the_data_directory_is_refused_but_a_sessions_folder_is_accepted(server: ServerProcess) -> None:
    refused = server.run("send", "say hi", cwd=server.data)
    assert refused.returncode == 2 and "Perdure's own data" in refused.stderr and OPTIONS in refused.stderr
    scratch = Path(begin(server, server.folder, "send", "--wait", "--scratch", "say hi")["workdir"])
    assert begin(server, scratch, "send", "say hi")["workdir"] == str(scratch)


# Projects --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_directory_inside_a_project_selects_the_project_with_its_agent_and_rules(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "site" / "src").mkdir(parents=True)
    (tmp_path / "site-2").mkdir()
    server.run("projects", "add", str(tmp_path / "site"), "--agent", "rehearsal-stream")
    for folder in ("site", "site/src"):
        session = begin(server, tmp_path / folder, "send", "--wait", "say hi")
        assert (session["project"], session["agent"]) == ("site", "rehearsal-stream")
        assert session["workdir"] == str(tmp_path / folder)
    for folder, options in (("site", ("--workdir", ".")), ("site", ("--scratch",)), ("site-2", ()), ("", ())):
        session = begin(server, tmp_path / folder, "send", *options, "say hi")
        assert (session["project"], session["agent"]) == (None, "rehearsal")


@pytest.mark.full
def test_the_header_of_a_chat_shows_agent_model_directory_project_and_session(
    server: ServerProcess, tmp_path: Path
) -> None:
    def header(*arguments: str) -> str:
        command = server.command("chat", *arguments)
        with Terminal(command, {**server.environment, "HOME": str(tmp_path)}, tmp_path / "site") as chat:
            return chat.wait("/help lists keys and commands.").rpartition("/help")[0].strip()

    (tmp_path / "site").mkdir()
    server.run("send", "--wait", "say hi")
    assert header() == "Perdure: rehearsal, rehearsal-1, in ~/site\nNew session."
    assert header("--scratch") == "Perdure: rehearsal, rehearsal-1, in a new scratch folder\nNew session."
    server.run("projects", "add", str(tmp_path / "site"), "--name", "Site")
    assert header() == "Perdure: rehearsal, rehearsal-1, in ~/site (project Site)\nNew session."
    assert header("--project", "site") == header()
    session = begin(server, tmp_path / "site", "send", "--wait", "say the title")
    assert header("last") == (
        f'Perdure: rehearsal, rehearsal-1, in ~/site (project Site)\n"say the title"\nSession {session["id"]}.'
    )
    command = server.command("chat", "--agent", "nobody")
    with Terminal(command, server.environment, tmp_path / "site") as chat:
        assert chat.wait_end() == 1 and "There is no agent 'nobody'. Agents: " in chat.text


@pytest.mark.full
def test_a_session_whose_agent_is_gone_can_still_be_opened(server: ServerProcess) -> None:
    agent = server.get("/api/agents/rehearsal")["command"]
    server.add_agents(f"[agents.passing]\ndriver = 'acp'\ncommand = {json.dumps(agent)}\n")
    assert server.run("send", "--wait", "--agent", "passing", "say hi").returncode == 0
    (server.data / "perdure.toml").write_text(server.config)
    server.post("/api/agents/reload", expect=200)
    with Terminal(server.command("chat", "last"), server.environment, server.folder) as chat:
        chat.wait("passing is not ready: the server no longer has this agent.")
        chat.wait("You: say hi")


@pytest.mark.full
def test_the_innermost_project_wins_and_two_projects_at_one_path_need_a_choice(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "outer" / "inner" / "deep").mkdir(parents=True)
    server.run("projects", "add", str(tmp_path / "outer"))
    server.run("projects", "add", str(tmp_path / "outer" / "inner"))
    assert begin(server, tmp_path / "outer" / "inner" / "deep", "run", "say hi")["project"] == "inner"
    server.run("projects", "add", str(tmp_path / "outer" / "inner"), "--name", "other")
    unclear = server.run("run", "say hi", cwd=tmp_path / "outer" / "inner")
    assert unclear.returncode == 2 and "The current directory belongs to 2 projects: inner, other" in unclear.stderr
    assert begin(server, tmp_path / "outer" / "inner", "run", "--project", "other", "say hi")["project"] == "other"


# Contradictory options --------------------------------------------------------------------------------------------


def test_only_one_place_option_is_allowed_and_none_for_an_existing_session(server: ServerProcess) -> None:
    for command in ("chat", "send", "run"):
        refused = server.run(command, "--scratch", "--workdir", ".", "say hi")
        assert refused.returncode == 2 and "Give only one of --workdir, --project and --scratch." in refused.stderr
    refused = server.run("chat", "last", "--scratch")
    assert refused.returncode == 2 and "are only for a new session" in refused.stderr


def test_a_missing_relative_directory_is_refused_without_a_request(server: ServerProcess) -> None:
    refused = server.run("run", "--workdir", "nowhere", "say hi")
    assert refused.returncode == 2 and f"There is no directory {server.folder}/nowhere" in refused.stderr


# Servers that see other directories -------------------------------------------------------------------------------


class Elsewhere(BaseHTTPRequestHandler):
    """A server that reports a directory at every path, but never ours."""

    def do_GET(self) -> None:
        body = json.dumps({"status": "ok", "identity": "0" * 32, "private": False, "projects": []}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence the log."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{listener.server_address[1]}"
    listener.shutdown()
    thread.join()
    listener.server_close()


@pytest.mark.parametrize("arguments", BEGINNINGS)
def test_a_server_behind_a_tunnel_needs_an_option_for_the_directory(
    server: ServerProcess, elsewhere: str, arguments: tuple[str, ...]
) -> None:
    refused = server.run(*arguments, "--url", elsewhere, stdin="say hi\n")
    assert refused.returncode == 2
    assert f"The server at {elsewhere} can't see the current directory" in refused.stderr
    assert OPTIONS in refused.stderr
    relative = server.run(arguments[0], "--url", elsewhere, "--workdir", ".", *arguments[1:], stdin="say hi\n")
    assert relative.returncode == 2 and "Give an absolute path on the server's machine." in relative.stderr


def test_the_server_is_asked_whether_the_agent_sees_files_of_this_machine(
    server: ServerProcess, elsewhere: str
) -> None:
    for url, expected in ((server.url, True), (elsewhere, False)):
        reach = Reach(str(server.data), url, server.token, False)
        with reach.client() as client:
            assert sees_here(reach, client) is expected


class HiddenServer(ColdServer):
    """A server with something else mounted at a path: a file, or an empty directory."""

    def __init__(self, data: Path, hidden: Path, over: Path) -> None:
        super().__init__(data, "[server]\nagent = 'rehearsal'\n")
        self._mount = f"mount --bind {over} {hidden}"

    def _begin(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with self.errors.open("ab") as log:
            return subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", f'{self._mount} && exec "$@"', "sh",
                 sys.executable, "-m", "perdure", "serve", *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self.start_environment,
                start_new_session=True,
            )  # fmt: skip


def can_mount() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    tried = ["unshare", "--mount", "sh", "-c", f"mount --bind /dev/null {BOOT_ID}"]
    return subprocess.run(tried, capture_output=True, timeout=COMMAND_LIMIT_S).returncode == 0


@pytest.mark.full
@pytest.mark.parametrize("difference", ["another directory at the path", "another kernel"])
def test_a_server_that_sees_another_directory_is_detected(tmp_path: Path, difference: str) -> None:
    if not can_mount():
        pytest.skip("needs root, unshare and leave to mount")
    repository, over = tmp_path / "repository", tmp_path / "over"
    repository.mkdir()
    if difference == "another kernel":
        over.write_text("00000000-0000-0000-0000-000000000000\n")
        server: LiveServer = HiddenServer(tmp_path / "data", BOOT_ID, over).start()
    else:
        over.mkdir()
        server = HiddenServer(tmp_path / "data", repository, over).start()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "perdure", "--data", str(server.data), "run", *arguments, "say hi"],
            capture_output=True, text=True, env=server.start_environment, cwd=repository, timeout=COMMAND_LIMIT_S,
        )  # fmt: skip

    try:
        refused = run()
        assert refused.returncode == 2 and "can't see the current directory" in refused.stderr
        assert run("--scratch").stdout == "hi\n"
        assert run("--workdir", str(tmp_path)).stdout == "hi\n"
    finally:
        server.finish()
