"""Input of the chat in a terminal: slash commands, files, pastes, and leaving."""

import base64
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.surfaces.cli.output import seconds_since
from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def chat(server: ServerProcess) -> Iterator[Terminal]:
    with Terminal(server.command("chat"), server.environment, server.folder) as terminal:
        terminal.wait("New session")
        yield terminal


def paste(chat: Terminal, text: str) -> None:
    """A bracketed paste."""
    chat.type(f"\x1b[200~{text}\x1b[201~")


def a_turn(chat: Terminal, number: int, text: str) -> None:
    chat.enter(text)
    chat.wait(f"Turn {number},")
    chat.wait("Idle")


def test_a_command_of_the_agent_is_completed_and_reaches_it(chat: Terminal) -> None:
    a_turn(chat, 1, "say hello")
    chat.wait("model rehearsal-1 · mode ask")
    chat.type("/comp")
    chat.wait("rehearsal: Free up context")
    chat.type("\t")
    chat.wait("> /compact\n")
    chat.type("be brief\r")
    chat.wait("with a view to: be brief.")
    a_turn(chat, 3, "//status")
    assert "The rehearsal agent works with model rehearsal-1" in chat.text
    chat.enter("/status")
    chat.wait("It waits for a message")


def test_a_command_that_a_replay_would_hide_returns_to_the_input(chat: Terminal) -> None:
    a_turn(chat, 1, "say hello")
    chat.enter("/fresh")
    chat.wait("restarts the agent's context")
    chat.enter("/compact")
    chat.wait("Send an ordinary message first, then send /compact.")
    chat.wait("> /compact")
    chat.type("\x03")
    a_turn(chat, 2, "/etc is full")
    assert "The conversation was replayed to rehearsal" in chat.text
    a_turn(chat, 3, "/compact")
    assert "Compacted" in chat.text


def test_a_mistyped_command_is_not_sent(chat: Terminal) -> None:
    a_turn(chat, 1, "say hello")
    chat.enter("/compcat now")
    chat.wait("There is no /compcat. Did you mean /compact?")
    chat.wait("> /compcat now")


def test_model_and_mode_are_listed_and_chosen(chat: Terminal) -> None:
    a_turn(chat, 1, "say hello")
    chat.enter("/model")
    chat.wait("* 1. rehearsal-1 (Rehearsal 1)")
    chat.enter("/model 2")
    chat.wait("Set model to rehearsal-2.")
    chat.enter("/mode aut")
    chat.wait("Set mode to auto.")
    chat.wait("model rehearsal-2 · mode auto")
    chat.enter("/mode nothing")
    chat.wait("value must be one of")


def test_another_session_is_opened_from_the_list(server: ServerProcess, chat: Terminal) -> None:
    first = server.run("send", "--new", "--agent", "rehearsal-stream", "say in the first one").stdout.strip()
    eventually(lambda: "idle" in server.run("sessions").stdout, "its turn is over")
    a_turn(chat, 1, "say in the second one")
    chat.enter("/sessions")
    chat.wait("2. say in the first one")
    chat.enter("/sessions 2")
    chat.wait(f"Switched to {first}, which works in")
    chat.wait("\nin the first one")
    chat.wait("Idle rehearsal-stream · ")
    chat.enter("/sessions 9")
    chat.wait("There is no number 9 in the list.")


def test_a_session_can_be_opened_by_number_without_showing_the_list_first(
    server: ServerProcess, chat: Terminal
) -> None:
    first = server.run("send", "--new", "say in the first one").stdout.strip()
    server.wait_idle(first)
    chat.enter("/sessions 1")
    chat.wait(f"Switched to {first}, which works in")


def test_choosing_an_unknown_agent_is_reported(server: ServerProcess, chat: Terminal) -> None:
    chat.enter("/agent nobody")
    chat.wait("There is no agent 'nobody'. Agents:")
    chat.wait("* rehearsal ")
    chat.wait("Switch with /agent NAME.")


def test_a_reason_that_the_agent_cannot_receive_becomes_a_draft(chat: Terminal) -> None:
    chat.enter("propose notes.txt 3")
    chat.wait("y/a/n>")
    chat.enter("n say another file")
    chat.wait("The agent did not receive your reason")
    chat.wait("Idle")
    chat.wait("\n> say another file")
    chat.enter("")
    chat.wait("Turn 2,")
    assert "\nanother file" in chat.text


@pytest.mark.full
def test_returning_to_a_running_turn_shows_how_long_it_has_run(server: ServerProcess) -> None:
    session = server.run("send", "--new", "hang").stdout.strip()
    with server.client() as client:
        started = client.session(session)["turns"][0]["started_at"]
    eventually(lambda: seconds_since(started) > 3, "the turn has run for a while")
    with Terminal(server.command("chat", session), server.environment, server.folder) as chat:
        chat.wait("Working")
        assert " 0 s," not in chat.text and " 1 s," not in chat.text


@pytest.mark.full
def test_returning_shows_the_last_turns_and_how_to_see_the_others(server: ServerProcess, chat: Terminal) -> None:
    for number in range(1, 6):
        a_turn(chat, number, f"say number {number}")
    chat.enter("/quit")
    assert chat.wait_end() == 0
    back = chat.text.rpartition("To come back: ")[2].replace("\n", "")
    assert back.startswith(f"perdure --data {server.data} chat s_")
    session = back.rpartition(" ")[2]
    # As in a checkout.
    environment = {**server.environment, "PERDURE_PROGRAM": "./run perdure", "PERDURE_DATA": str(server.data)}
    with Terminal([sys.executable, "-m", "perdure", "chat", session], environment, server.folder) as again:
        again.wait(f"2 earlier turns: ./run perdure show {session} --markdown")
        again.wait("Turn 5,")
        again.wait("Idle")
        assert [again.text.count(f"\nnumber {number}") for number in range(1, 6)] == [0, 0, 1, 1, 1]
        again.enter("/quit")
        again.wait(f"To come back: ./run perdure chat {session}")


def test_leaving_says_how_to_return_even_if_the_server_is_gone(server: ServerProcess, chat: Terminal) -> None:
    chat.enter("hang")
    chat.wait("Working")
    server.kill()
    chat.wait("Reconnecting")
    chat.type("\x03")
    chat.wait("Press Ctrl-C again to leave.")
    chat.type("\x03\x03")
    assert chat.wait_end() == 0
    assert "To come back: perdure --data" in chat.text


def test_leaving_in_a_checkout_prints_a_command_that_works_there(server: ServerProcess) -> None:
    environment = {**server.environment, "PERDURE_PROGRAM": "./run perdure", "PERDURE_DATA": str(server.data)}
    with Terminal([sys.executable, "-m", "perdure", "chat"], environment, server.folder) as chat:
        chat.wait("New session")
        chat.enter("hang")
        chat.wait("Working")
        chat.type("\x04")
        assert chat.wait_end() == 0
        assert "The agent continues.\nTo come back: ./run perdure chat s_" in chat.text


def test_a_long_paste_is_folded_in_the_input_and_sent_in_full(server: ServerProcess, chat: Terminal) -> None:
    lines = "\n".join(f"say line {number}" for number in range(40))
    chat.type("look: ")
    paste(chat, lines)
    chat.wait("> look: [pasted 40 lines]")
    chat.type("\r")
    chat.wait("You: look: [pasted 40 lines]")
    chat.wait("Turn 1,")
    with server.client() as client:
        session = client.sessions()["sessions"][0]["id"]
        assert client.transcript(session)["turns"][0]["message"]["text"] == f"look: {lines}"


def test_a_pasted_image_is_sent_with_the_message(server: ServerProcess, chat: Terminal, tmp_path: Path) -> None:
    picture = tmp_path / "a shot.png"
    picture.write_bytes(PICTURE)
    chat.type("say see ")
    paste(chat, f"'{picture}'")
    chat.wait("> say see [image a shot.png]")
    chat.type("\r")
    chat.wait("Turn 1,")
    with server.client() as client:
        session = client.sessions()["sessions"][0]["id"]
        (attachment,) = client.transcript(session)["turns"][0]["message"]["attachments"]
        assert client.attachment(session, attachment["file"]) == PICTURE


def test_a_queued_message_comes_back_with_its_paste_and_its_image(chat: Terminal, tmp_path: Path) -> None:
    picture = tmp_path / "shot.png"
    picture.write_bytes(PICTURE)
    chat.enter("hang")
    chat.wait("Working")
    paste(chat, "\n".join(["say more"] * 20))
    paste(chat, str(picture))
    chat.type("\r")
    chat.wait("1 queued")
    chat.type("\x1b")
    chat.wait("> [pasted 20 lines][image shot.png]")


def test_files_of_the_sessions_directory_are_completed_after_an_at(server: ServerProcess) -> None:
    (server.folder / "notes.md").write_text("hello")
    command = server.command("chat", "--workdir", str(server.folder))
    with Terminal(command, server.environment, server.folder) as chat:
        chat.wait("New session")
        chat.type("say see @not\t")
        chat.wait("> say see @notes.md\n")
        chat.type("\r")
        chat.wait("Turn 1,")
        chat.type("say again @ote\t")
        chat.wait("> say again @notes.md\n")


@pytest.mark.full
def test_without_a_clipboard_program_the_chat_says_what_to_do(chat: Terminal) -> None:
    chat.type("\x16")
    chat.wait("an image file instead, or drop the file here.")


def test_agent_commands_work_in_a_plain_chat_and_with_send(server: ServerProcess) -> None:
    session = (
        server.run("send", "--new", "--wait", "say hello", "--json").stdout.split('"session_id":"')[1].split('"')[0]
    )
    assert "Compacted 2 messages." in server.run("send", session, "--wait", "/compact").stdout
    assert "Compacted 3 messages." in server.run("chat", session, stdin="/compact\n").stdout
    refused = server.run("send", session, "--fresh", "/compact")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Send an ordinary message first, then send /compact." in refused.stderr


def test_in_a_plain_chat_two_slashes_reach_the_agent_and_a_refused_line_does_not_end_it(server: ServerProcess) -> None:
    session = server.run("send", "--new", "--scratch", "--wait", "say hello", "--json").stdout
    session = session.split('"session_id":"')[1].split('"')[0]
    said = server.run("chat", session, stdin="//status\n//agent of mine\nsay it\n")
    assert "The rehearsal agent works with model" in said.stdout and said.stdout.endswith("it\n")
    with server.client() as client:
        sent = [turn["message"]["text"] for turn in client.transcript(session)["turns"]]
    assert sent == ["say hello", "/status", "/agent of mine", "say it"]
    said = server.run("chat", session, "--fresh", stdin="/compact\nsay first\n/compact\n")
    assert said.returncode == 1
    assert "Send an ordinary message first, then send /compact." in said.stderr
    assert said.stdout.startswith("first\n") and "Compacted" in said.stdout
