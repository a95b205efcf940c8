"""Ctrl-C in a command that waits for a turn, in real terminals: the turn continues, and the command says so."""

import json

import pytest

from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal


def without_spaces(text: str) -> str:
    """The text without whitespace, because a terminal may wrap anywhere."""
    return "".join(text.split())


def left(server: ServerProcess, *arguments: str) -> str:
    """The terminal's text after Ctrl-C, pressed once part of the answer was shown."""
    with Terminal(server.command(*arguments), server.environment, server.folder, signals=True) as terminal:
        terminal.wait("begun")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
        return terminal.text


def session_now(server: ServerProcess) -> dict[str, object]:
    found = json.loads(server.run("sessions", "--json").stdout)["sessions"]
    assert len(found) == 1
    session: dict[str, object] = found[0]
    return session


@pytest.mark.full
@pytest.mark.parametrize("command", [("send", "--wait"), ("run",)])
def test_the_turn_continues_after_its_command_is_interrupted(server: ServerProcess, command: tuple[str, ...]) -> None:
    text = left(server, *command, "say begun\nhang")
    session = session_now(server)
    what = "The run continues." if command == ("run",) else "The turn continues."
    assert without_spaces(
        f"perdure: {what} Watch it: perdure --data {server.data} watch {session['id']}"
    ) in without_spaces(text)
    assert without_spaces(f"Interrupt it: perdure --data {server.data} abort {session['id']}") in without_spaces(text)
    assert session["state"] == "processing"
    assert server.run("abort", "last").returncode == 0
    if command == ("run",):
        with server.client() as client:
            next(event for event in client.events(str(session["id"]), 0) if event.type == "session_end")
        assert session_now(server)["state"] == "ended", "a run ends its session even if the command has left"


@pytest.mark.full
def test_a_retry_continues_after_its_command_is_interrupted(server: ServerProcess) -> None:
    session = json.loads(server.run("send", "--json", "say begun\nhang").stdout)["session_id"]
    server.run("abort", session)
    server.wait_idle(session)
    assert without_spaces(
        f"The turn continues. Watch it: perdure --data {server.data} watch {session}"
    ) in without_spaces(left(server, "retry", session))
    assert session_now(server)["state"] == "processing"


@pytest.mark.full
def test_a_queued_message_stays_queued_after_its_command_is_interrupted(server: ServerProcess) -> None:
    session = json.loads(server.run("send", "--json", "hang").stdout)["session_id"]
    arguments = ("send", "--wait", "--queue", session, "say later")
    with Terminal(server.command(*arguments), server.environment, server.folder, signals=True) as terminal:
        terminal.wait("Queued: a turn is running.")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
        assert "The message stays queued." in terminal.text
    assert server.run("abort", session).returncode == 0
    server.wait(session, lambda shown: shown["turn_count"] == 2 and shown["state"] == "idle")
    assert server.text(session, 2) == "later"


@pytest.mark.full
def test_a_run_with_json_also_reports_that_it_continues(server: ServerProcess) -> None:
    arguments = server.command("run", "--json", "hang")
    with Terminal(arguments, server.environment, server.folder, signals=True) as terminal, server.client() as client:
        session = str(eventually(lambda: client.sessions(state="processing")["sessions"], "the run runs")[0]["id"])
        # The command gets the session's id before it starts to wait.
        eventually(lambda: client.server()["viewers"], "the command watches the run")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
        assert without_spaces(
            f"The run continues. Watch it: perdure --data {server.data} watch {session}"
        ) in without_spaces(terminal.text)
