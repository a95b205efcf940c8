"""What new users type, with habits from other tools: it works, or the error says what to type."""

import json

import pytest

from perdure.surfaces.cli import main
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("search", "words"), "Did you mean `perdure sessions --query WORDS`?"),
        (("version",), "Did you mean `perdure --version`?"),
        (("approve",), "Did you mean `perdure answer`?"),
        (("agents", "tst", "codex"), "No such command 'tst'. Did you mean `perdure agents test`?"),
        (("watch",), "Missing argument 'SESSION'. Give a session id, a unique prefix of one, or `last`."),
        (("send", "lst", "say hi"), "Did you mean `last` by 'lst'? If it is part of the message, add --new."),
        (("chat", "fix the bug"), "Type messages in the chat, or use: perdure send --wait TEXT"),
        (("chat", "--continue", "s_1"), "Give SESSION or --continue, not both."),
        (("chat", "last", "--model", "opus"), "--model and --mode are only for a new session"),
    ],
)
def test_the_error_for_a_mistake_says_what_to_type(
    capsys: pytest.CaptureFixture[str], typed: tuple[str, ...], answer: str
) -> None:
    assert main(typed) == 2
    assert answer in capsys.readouterr().err


def test_chat_starts_a_session_with_a_model_and_continues_the_last_one(server: ServerProcess) -> None:
    begun = server.run("chat", "--model", "rehearsal-2", stdin="say first\n")
    assert begun.stdout == "first\n"
    assert server.run("chat", "-c", stdin="say second\n").stdout == "second\n"
    with server.client() as client:
        [session] = client.sessions()["sessions"]
        assert (session["turn_count"], session["model"]) == (2, "rehearsal-2")


def test_last_skips_the_ended_session_of_a_run(server: ServerProcess) -> None:
    session = server.run("send", "--new", "say first").stdout.strip()
    server.wait_idle(session)
    assert server.run("run", "say aside").stdout == "aside\n"
    assert server.run("send", "last", "--wait", "say second").stdout == "second\n"
    assert server.run("run", "say aside").stdout == "aside\n"
    assert server.run("chat", "last", stdin="say third\n").stdout == "third\n"
    with server.client() as client:
        assert client.session(session)["turn_count"] == 3


def test_the_chats_header_and_status_name_the_model_that_was_given(server: ServerProcess) -> None:
    with Terminal(server.command("chat", "--model", "rehearsal-2"), server.environment, server.folder) as chat:
        chat.wait("Perdure: rehearsal, rehearsal-2, in")
        chat.enter("say hello")
        chat.wait("Turn 1,")
        chat.wait("model rehearsal-2")


def waiting(server: ServerProcess, text: str) -> str:
    """A session that is waiting for an answer."""
    session = server.run("send", "--new", text).stdout.strip()
    server.wait(session, lambda shown: bool(shown["pending_prompts"]))
    return session


def test_answer_finds_the_only_session_that_is_waiting(server: ServerProcess) -> None:
    none = server.run("answer", "--allow")
    assert (none.returncode, none.stderr) == (1, "perdure: No session is waiting for an answer. (prompt_resolved)\n")
    first = waiting(server, "permit Deploy")
    assert server.run("answer", "--allow").stdout.startswith("Allowed: ")
    server.wait_idle(first)
    several = [waiting(server, "permit Deploy"), waiting(server, "permit Release")]
    asked = server.run("answer", "--allow")
    assert asked.returncode == 2 and "2 sessions are waiting for an answer. Give the id of one:" in asked.stderr
    assert all(session in asked.stderr for session in several)


def test_answer_says_that_an_acp_agent_does_not_get_the_reason_and_how_to_send_it(server: ServerProcess) -> None:
    session = waiting(server, "permit Deploy")
    done = server.run("answer", "--deny", "--reason", "not today")
    assert done.stdout.startswith("Denied: ")
    assert f"perdure send {session} --queue 'not today'" in done.stderr
    server.wait_idle(session)
    waiting(server, "permit Deploy")
    assert server.run("answer", "--deny").stderr == ""


def test_a_run_that_was_denied_a_tool_says_how_to_allow_it(server: ServerProcess) -> None:
    done = server.run("run", "propose notes.txt 2")
    assert "Denied. A run can't ask you: allow it with --allow Edit." in done.stderr
    assert "Always allow" not in done.stderr, "there is nothing to choose"
    assert "Edited notes.txt" in server.run("run", "--allow", "Edit", "propose notes.txt 2").stderr


def test_doctor_names_the_servers_process_and_breaks_lines_between_words(server: ServerProcess) -> None:
    pid = json.loads((server.data / "server.json").read_text())["pid"]
    with Terminal(server.command("doctor"), server.environment, server.folder) as terminal:
        terminal.wait_end()
        assert f", pid {pid}" in terminal.text.replace("\n          ", " ")
        starts = ("ok ", "warning ", "problem ", " " * 10)
        assert all(line.startswith(starts) for line in terminal.text.splitlines() if line.strip())
