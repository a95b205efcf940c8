"""Ctrl-C in a command that waits for a turn, in real terminals: the turn continues, and the command says so."""

import json

import pytest

from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal


def without_spaces(text: str) -> str:
    """To compare lines that a terminal may have wrapped anywhere."""
    return "".join(text.split())


def left(server: ServerProcess, *arguments: str) -> str:
    """What stands in the terminal after Ctrl-C, once something of the answer was there."""
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
def test_the_turn_of_a_command_that_is_left_continues(server: ServerProcess, command: tuple[str, ...]) -> None:
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
        assert session_now(server)["state"] == "ended", "a run closes its session also when nobody waits for it"


@pytest.mark.full
def test_a_retry_that_is_left_continues(server: ServerProcess) -> None:
    session = json.loads(server.run("send", "--json", "say begun\nhang").stdout)["session_id"]
    server.run("abort", session)
    server.wait_idle(session)
    assert without_spaces(
        f"The turn continues. Watch it: perdure --data {server.data} watch {session}"
    ) in without_spaces(left(server, "retry", session))
    assert session_now(server)["state"] == "processing"


@pytest.mark.full
def test_a_message_that_waits_in_the_queue_stays_there(server: ServerProcess) -> None:
    session = json.loads(server.run("send", "--json", "hang").stdout)["session_id"]
    arguments = ("send", "--wait", "--queue", session, "say later")
    with Terminal(server.command(*arguments), server.environment, server.folder, signals=True) as terminal:
        terminal.wait("Queued: a turn is running.")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
        assert "The message is kept, and its turn runs as soon as it can." in terminal.text
    assert server.run("abort", session).returncode == 0
    server.wait(session, lambda shown: shown["turn_count"] == 2 and shown["state"] == "idle")
    assert server.text(session, 2) == "later"


@pytest.mark.full
def test_a_run_for_programs_says_it_too(server: ServerProcess) -> None:
    arguments = server.command("run", "--json", "hang")
    with Terminal(arguments, server.environment, server.folder, signals=True) as terminal, server.client() as client:
        session = str(eventually(lambda: client.sessions(state="processing")["sessions"], "the run runs")[0]["id"])
        # The command has its first answer, which names the session, before it watches.
        eventually(lambda: client.server()["viewers"], "the command watches the run")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
        assert without_spaces(
            f"The run continues. Watch it: perdure --data {server.data} watch {session}"
        ) in without_spaces(terminal.text)
