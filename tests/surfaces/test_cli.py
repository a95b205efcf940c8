"""The commands, against a real server and the rehearsal agent."""

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from perdure.surfaces import cli
from perdure.surfaces.cli import COMMANDS, perdure
from tests.harness import eventually, no_holes
from tests.signing import signed_in
from tests.surfaces.conftest import COMMAND_LIMIT_S, ServerProcess


def session_of(server: ServerProcess, *arguments: str) -> str:
    sent = server.run("send", "--json", *arguments)
    assert sent.returncode == 0, sent.stderr
    return str(json.loads(sent.stdout)["session_id"])


def test_the_overview_has_the_first_line_of_each_commands_help() -> None:
    context = click.Context(perdure)
    for name, (_, what) in COMMANDS.items():
        command = perdure.get_command(context, name)
        assert command is not None and command.help is not None
        assert command.help.startswith(what.rstrip(".")), name


def test_help_imports_nothing_that_only_a_command_needs() -> None:
    heavy = ["rich", "prompt_toolkit", "httpx2", "uvicorn", "starlette", "msgspec", "asyncio"]
    code = "import sys; from perdure.surfaces.cli import main; main(['--help'])"
    code += f"; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["converse"]) == 2
    assert "No such command" in capsys.readouterr().err


@pytest.mark.parametrize("filter", ["--status", "--state"])
def test_a_filter_value_that_does_not_exist_is_a_usage_error(filter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sessions", filter, "nonsense"]) == 2
    assert "'nonsense' is not one of" in capsys.readouterr().err


def test_without_a_server_the_exit_code_is_3_and_the_message_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--data", str(tmp_path), "sessions"]) == 3
    assert "perdure serve" in capsys.readouterr().err
    assert cli.main(["sessions", "--url", "http://127.0.0.1:9"]) == 3


class Listener:
    """Another program on this machine. It answers every request with an empty list and records the headers."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            with connection:
                self.heads.append(connection.recv(65536))
                body = b'{"agents": []}'
                connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 14\r\n\r\n" + body)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def test_a_killed_servers_file_is_ignored_and_its_port_gets_no_token(server: ServerProcess, listener: Listener) -> None:
    server.kill()
    (server.data / "server.json").write_text(json.dumps({"url": listener.url, "pid": 1, "version": "0"}))
    shown = server.run("agents")
    assert shown.returncode == 3
    assert "No server is running for" in shown.stderr and "perdure serve" in shown.stderr
    assert server.run("agents", "--url", listener.url).returncode == 0
    assert len(listener.heads) == 1 and b"authorization" not in listener.heads[0].lower()


def test_the_token_of_the_data_directory_goes_only_to_its_own_server(server: ServerProcess, listener: Listener) -> None:
    assert server.run("agents").returncode == 0
    assert server.run("agents", "--url", server.url + "/").returncode == 0
    assert server.run("agents", "--url", listener.url).returncode == 0
    assert server.run("agents", "--url", listener.url, "--token", "given").returncode == 0
    heads = [head.lower() for head in listener.heads]
    assert b"authorization" not in heads[0]
    assert b"authorization: bearer given" in heads[1]


def test_send_with_wait_writes_the_answer_and_nothing_else_to_stdout(server: ServerProcess) -> None:
    done = server.run("send", "--wait", "-", stdin="think hm\nedit notes.txt\nsay the answer\n")
    assert (done.returncode, done.stdout) == (0, "the answer\n")
    assert "> Edited notes.txt +1 -0" in done.stderr


def test_a_blank_line_separates_text_before_and_after_a_tool(server: ServerProcess) -> None:
    done = server.run("send", "--wait", "-", stdin="say before\ntool Look nothing\ntool Look again\nsay after\n")
    assert (done.returncode, done.stdout) == (0, "before\n\nafter\n")
    whole = server.run("send", "--wait", "-", stdin="tool Look nothing\nstream 5 0\n")
    assert whole.stdout.split() == [f"w{number}" for number in range(5)] and whole.stdout.count("\n") == 1


@pytest.mark.parametrize("word", ["last", "s_019a8fc1d2", "s_"])
def test_a_session_without_text_is_a_usage_error_unless_new_is_given(server: ServerProcess, word: str) -> None:
    refused = server.run("send", word)
    assert refused.returncode == 2 and f"perdure send {word} TEXT" in refused.stderr and "--new" in refused.stderr
    assert server.run("send", "--wait", "--new", word).returncode == 0
    (session,) = json.loads(server.run("sessions", "--json").stdout)["sessions"]
    assert session["title"] == word


def test_send_with_wait_fails_if_the_turn_fails(server: ServerProcess) -> None:
    done = server.run("send", "--wait", "-", stdin="say partly\ncrash 3\n")
    assert done.returncode == 1
    assert "partly" in done.stdout
    assert "The turn failed" in done.stderr


def test_a_repeated_message_id_creates_one_message_even_for_a_new_session(server: ServerProcess) -> None:
    first = json.loads(server.run("send", "--json", "--message-id", "once", "say hi").stdout)
    again = json.loads(server.run("send", "--json", "--message-id", "once", "say hi").stdout)
    assert first == again
    assert len(json.loads(server.run("sessions", "--json").stdout)["sessions"]) == 1


def test_a_session_is_found_by_a_prefix_of_its_id_and_as_last(server: ServerProcess) -> None:
    session = session_of(server, "say one")
    assert server.run("send", "--wait", session[:9], "--queue", "say two").stdout == "two\n"
    assert json.loads(server.run("show", "--json", "last").stdout)["id"] == session
    missing = server.run("show", "s_nothing")
    assert missing.returncode == 1 and "not_found" in missing.stderr


def test_last_skips_ended_sessions_when_it_continues_one(server: ServerProcess) -> None:
    session = session_of(server, "say one")
    server.wait_idle(session)
    assert server.run("run", "--scratch", "say two").stdout == "two\n"
    assert json.loads(server.run("show", "--json", "last").stdout)["single_shot"]
    assert server.run("send", "--wait", "--queue", "last", "say three").stdout == "three\n"
    assert json.loads(server.run("show", "--json", "last").stdout)["id"] == session
    server.run("stop", session)
    assert "There is no session to continue." in server.run("chat", "last", stdin="say four\n").stderr


def test_a_message_to_a_busy_session_is_refused_queued_or_interrupts(server: ServerProcess) -> None:
    session = session_of(server, "hang")
    refused = server.run("send", session, "say no")
    assert refused.returncode == 1 and "(turn_active)" in refused.stderr
    assert json.loads(server.run("send", "--json", "--queue", session, "say queued").stdout)["turn"] is None
    assert server.run("send", "--wait", "--interrupt", session, "say now").stdout == "now\n"


def test_abort_interrupts_and_a_second_one_is_refused(server: ServerProcess) -> None:
    waiting = subprocess.Popen(
        server.command("send", "--wait", "hang"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=server.environment, cwd=server.folder,
    )  # fmt: skip
    with server.client() as client:
        eventually(lambda: client.sessions(state="processing")["sessions"], "the turn runs")
    assert server.run("abort", "last").returncode == 0
    _, errors = waiting.communicate(timeout=COMMAND_LIMIT_S)
    assert waiting.returncode == 1 and "Interrupted." in errors
    again = server.run("abort", "last")
    assert again.returncode == 1 and "(no_turn_active)" in again.stderr


def test_a_prompt_is_listed_and_answered_from_another_terminal(server: ServerProcess) -> None:
    session = session_of(server, "permit Deploy")
    watching = subprocess.Popen(
        server.command("watch", session, "--from", "0"),
        stdout=subprocess.PIPE, text=True, env=server.environment, cwd=server.folder,
    )  # fmt: skip
    assert watching.stdout is not None
    for line in watching.stdout:
        if line.startswith("Permission:"):
            break
    listed = server.run("answer", session)
    assert "Deploy" in listed.stdout and "--allow" in listed.stdout
    assert server.run("answer", session, "--allow", "--text", "yes").returncode == 2
    answered = server.run("answer", session, "--allow")
    assert answered.returncode == 0 and answered.stdout.startswith("Allowed")
    again = server.run("answer", session, "--allow")
    assert again.returncode == 1 and "(prompt_resolved)" in again.stderr
    assert server.run("stop", session).returncode == 0
    rest = watching.communicate(timeout=COMMAND_LIMIT_S)[0]
    assert "The session ended (stopped)." in rest


def test_a_question_is_answered_with_a_choice(server: ServerProcess) -> None:
    session = session_of(server, "ask Which one? | red | green")
    with server.client() as client:
        next(event for event in client.events(session, 0) if event.type == "pending_prompt")
    assert server.run("answer", session, "--allow").returncode == 2
    assert server.run("answer", session, "--choose", "green").returncode == 0
    with server.client() as client:
        next(event for event in client.events(session, 0) if event.type == "turn_end")
    assert "answer: green" in server.run("show", "--markdown", session).stdout


@pytest.mark.full
def test_watch_continues_after_a_server_restart_without_gaps_or_duplicates(server: ServerProcess) -> None:
    session = session_of(server, "stream 200 10")
    watching = subprocess.Popen(
        server.command("watch", session, "--json", "--from", "0"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=server.environment, cwd=server.folder,
    )  # fmt: skip
    assert watching.stdout is not None
    events = []
    for line in watching.stdout:
        events.append(json.loads(line))
        if "w20 " in events[-1].get("delta", ""):
            server.kill()
            server.start()
            break
    for line in watching.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == "turn_end":
            break
    watching.send_signal(signal.SIGINT)
    errors = watching.communicate(timeout=COMMAND_LIMIT_S)[1]
    assert watching.returncode == 130
    assert "Reconnecting ..." in errors
    # On a busy machine, the turn may have ended and been compacted before the command reads its words.
    no_holes(events)
    text = "".join(event["delta"] for event in events if event["type"] == "assistant_text")
    assert text.split() == [f"w{number}" for number in range(200)]


def test_lists_have_plain_columns_when_piped_and_json_for_programs(server: ServerProcess, tmp_path: Path) -> None:
    session = session_of(server, "say hello")
    listed = server.run("sessions", "--agent", "rehearsal", "-q", "hello").stdout
    assert listed.startswith("SESSION") and session in listed and "\x1b" not in listed
    assert "rehearsal" in server.run("agents").stdout
    assert "rehearsal" in {agent["name"] for agent in json.loads(server.run("agents", "--json").stdout)["agents"]}
    (tmp_path / "site").mkdir()
    added = server.run("projects", "add", str(tmp_path / "site"), "--agent", "rehearsal")
    assert added.stdout == "site\n"
    assert str(tmp_path / "site") in server.run("projects").stdout
    assert server.run("send", "--wait", "--project", "site", "say in a project").stdout == "in a project\n"
    assert server.run("projects", "remove", "site").returncode == 0
    assert json.loads(server.run("projects", "--json").stdout) == {"projects": []}


def test_a_session_begins_with_its_projects_kickoff(server: ServerProcess, tmp_path: Path) -> None:
    server.run("projects", "add", str(tmp_path), "--name", "site", "--kickoff", "say {project}: {message}")
    sent = server.run("send", "--project", "site", "--kickoff", "--wait", "add tests")
    assert (sent.returncode, sent.stdout) == (0, "site: add tests\n"), sent.stderr
    assert server.run("send", "--project", "site", "--kickoff", "--wait").stdout.strip() == "site:"
    assert server.run("send", "--kickoff", "--wait").stdout.strip() == "site:", "the current directory is the project's"
    assert server.run("send", "--kickoff", "--scratch").returncode == 1
    assert server.run("send").returncode == 2


def test_export_writes_the_log_and_the_transcript(server: ServerProcess, tmp_path: Path) -> None:
    server.run("send", "--wait", "say kept")
    lines = server.run("export", "last").stdout.splitlines()
    no_holes([json.loads(line) for line in lines])
    assert json.loads(server.run("export", "last", "--format", "json").stdout)["turns"][0]["turn"] == 1
    target = tmp_path / "session.md"
    assert server.run("export", "last", "--format", "markdown", "-o", str(target)).returncode == 0
    assert "kept" in target.read_text()
    nowhere = server.run("export", "last", "-o", str(tmp_path / "no" / "file"))
    assert nowhere.returncode == 1 and "Can't write" in nowhere.stderr


def test_stop_all_ends_every_session(server: ServerProcess) -> None:
    session_of(server, "hang")
    session_of(server, "hang")
    assert server.run("stop", "--all").stdout == "Ended 2 sessions.\n"
    assert server.run("stop").returncode == 2
    states = [entry["status"] for entry in json.loads(server.run("sessions", "--json").stdout)["sessions"]]
    assert states == ["stopped", "stopped"]


def test_a_login_link_carries_its_secret_in_the_fragment(server: ServerProcess) -> None:
    assert re.fullmatch(re.escape(server.url) + r"/#login=\S+\n", server.run("login").stdout)


def test_logout_signs_out_one_browser_or_all(server: ServerProcess) -> None:
    def code() -> str:
        return server.run("login").stdout.strip().partition("#login=")[2]

    with signed_in(server, code()) as first, signed_in(server, code()) as second, signed_in(server, code()) as third:
        login = first.login_id()
        unclear = server.run("logout")
        assert unclear.returncode == 2 and login in unclear.stderr and "--all" in unclear.stderr
        unused = code()
        assert server.run("logout", login).stdout == "Signed out 1 browser.\n"
        assert [browser.get("/api/sessions").status_code for browser in (first, second, third)] == [401, 200, 200]
        assert server.run("logout", login).returncode == 1
        assert server.run("logout", "--all").stdout == "Signed out 2 browsers.\n"
        assert [browser.get("/api/sessions").status_code for browser in (first, second, third)] == [401, 401, 401]
        # Unused links no longer work either.
        assert first.sign_in(unused).status_code == 401
    assert json.loads(server.run("logout", "--all", "--json").stdout) == {"ended": 0}


def test_lines_piped_into_chat_are_messages_of_one_session(server: ServerProcess) -> None:
    done = server.run("chat", stdin="say one\n\nsay two\n")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    sessions = json.loads(server.run("sessions", "--json").stdout)["sessions"]
    assert [entry["turn_count"] for entry in sessions] == [2]


def test_agent_output_reaches_a_pipe_unchanged(server: ServerProcess) -> None:
    assert server.run("send", "--wait", "say a\x1b[31mred").stdout == "a\x1b[31mred\n"


def test_a_message_that_is_not_utf_8_is_sent_with_replacement_characters(server: ServerProcess) -> None:
    for arguments, given in ((["send", "--wait", "-"], b"say a\xffb\n"), (["chat"], b"say a\xffb\n")):
        done = subprocess.run(
            server.command(*arguments),
            input=given,
            capture_output=True,
            timeout=COMMAND_LIMIT_S,
            env=server.environment,
            cwd=server.folder,
        )
        assert done.stdout.decode() == "a\ufffdb\n", done.stderr


def test_doctor_reports_a_healthy_server_and_a_token_that_others_can_read(server: ServerProcess) -> None:
    healthy = server.run("doctor")
    assert healthy.returncode == 0, healthy.stdout
    assert re.search(r"^ok +agent rehearsal: ready(, version \S+)?$", healthy.stdout, re.MULTILINE)
    (server.data / "token").chmod(0o644)
    try:
        found = server.run("doctor", "--json")
    finally:
        (server.data / "token").chmod(0o600)
    assert found.returncode == 1
    problems = [one for one in json.loads(found.stdout)["findings"] if one["level"] == "problem"]
    assert [one["about"] for one in problems] == ["token"] and "chmod 600" in problems[0]["what"]


@pytest.mark.needs("linux")
def test_doctor_warns_about_a_low_limit_of_open_files(server: ServerProcess) -> None:
    def found() -> tuple[str, str]:
        (line,) = (line for line in server.run("doctor").stdout.splitlines() if " open files: " in line)
        level, _, what = line.partition("  open files: ")
        return level.strip(), what

    assert server.process is not None
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        assert found()[0] == "warning" and "at most 1024" in found()[1] and "ulimit -Hn" in found()[1]
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
    assert found() == ("ok", f"at most {limits[0]}")


def test_a_wrong_token_is_refused_with_an_error_message(server: ServerProcess) -> None:
    refused = server.run("--token", "wrong", "sessions")
    assert refused.returncode == 1 and "(unauthorized)" in refused.stderr


def test_the_help_of_the_rehearsal_agent_lists_its_commands() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "perdure", "rehearse", "--help"], capture_output=True, text=True, timeout=COMMAND_LIMIT_S
    )
    assert shown.returncode == 0 and "stream N [MS]" in shown.stdout
