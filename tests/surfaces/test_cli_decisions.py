"""Deciding on an edit, in a terminal and in a pipe: the diff is shown before and after."""

from collections.abc import Iterator

import pytest

from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal


@pytest.fixture
def chat(server: ServerProcess) -> Iterator[Terminal]:
    command = server.command("chat", "--workdir", str(server.folder))
    with Terminal(command, server.environment, server.folder) as terminal:
        terminal.wait("New session")
        yield terminal


def asking(server: ServerProcess, text: str) -> str:
    """A session that is waiting for an answer."""
    with server.client() as client:
        session = str(client.send(text, workdir=str(server.folder))["session_id"])
        eventually(lambda: bool(client.prompts(session)), "it asks")
    return session


def test_a_change_is_shown_folded_before_the_decision_and_in_full_on_ctrl_o(
    server: ServerProcess, chat: Terminal
) -> None:
    (server.folder / "notes.txt").write_text("\tfirst\nlast\n")
    chat.enter("propose notes.txt 60")
    chat.wait("y/a/n>")
    text = chat.text
    assert "Permission: edit notes.txt  +60 -0" in text
    assert "   1      first\n" in text and "   3 +rehearsed 1\n" in text
    assert "more lines (Ctrl-O shows all)" in text and "rehearsed 60" not in text
    assert "  1 y  Allow once" in text and "  3 n  Deny" in text
    chat.type("\x0f")
    chat.wait("  62 +rehearsed 60")
    chat.enter("n too much")
    chat.wait("Denied: notes.txt")
    chat.wait("Turn 1,")
    assert "Edited" not in chat.text
    assert (server.folder / "notes.txt").read_text() == "\tfirst\nlast\n"
    chat.type("\x0f")
    chat.wait("Nothing is folded.")


def test_an_allowed_change_is_shown_again_as_it_was_made(server: ServerProcess, chat: Terminal) -> None:
    chat.enter("propose notes.txt 12")
    chat.wait("Permission: write notes.txt  +12 -0")
    chat.wait("y/a/n>")
    chat.enter("y")
    chat.wait("> Edited notes.txt +12 -0")
    chat.wait("  ... 5 more lines (Ctrl-O shows all)")
    chat.wait("Turn 1,")
    assert (server.folder / "notes.txt").read_text().count("\n") == 12


@pytest.mark.full
def test_answer_asks_in_a_terminal_and_shows_all_of_a_long_change(server: ServerProcess) -> None:
    session = asking(server, "propose notes.txt 60")
    with Terminal(server.command("answer", session), server.environment, server.folder) as terminal:
        terminal.wait("y/a/n>")
        assert "more lines (f shows all)" in terminal.text and "rehearsed 60" not in terminal.text
        terminal.enter("f")
        terminal.wait("  60 +rehearsed 60")
        terminal.enter("perhaps")
        terminal.wait("y allows, a allows always (Always allow), n denies (a reason may follow)")
        terminal.enter("y")
        terminal.wait("Allowed: Edit notes.txt")
        assert terminal.wait_end() == 0


@pytest.mark.full
def test_an_empty_line_leaves_a_prompt_open(server: ServerProcess) -> None:
    session = asking(server, "ask Which one? | red | green")
    with Terminal(server.command("answer", session), server.environment, server.folder) as terminal:
        terminal.wait("answer>")
        terminal.enter("")
        terminal.wait("Still open. Answer later with: perdure --data")
        assert terminal.wait_end() == 0
    with Terminal(server.command("answer", session), server.environment, server.folder) as terminal:
        terminal.wait("answer>")
        terminal.enter("2")
        terminal.wait("Answered: Which one?")
        assert terminal.wait_end() == 0


@pytest.mark.full
def test_a_pipe_gets_all_of_a_change_without_colour(server: ServerProcess) -> None:
    (server.folder / "notes.txt").write_text("\tfirst\n")
    session = asking(server, "propose notes.txt 60")
    for command in ("answer", "show"):
        printed = server.run(command, session).stdout
        assert "Permission: edit notes.txt  +60 -0\n" in printed and "\n   1  \tfirst\n" in printed, printed
        assert "\n  61 +rehearsed 60\n" in printed and "more lines" not in printed and "\x1b" not in printed
    assert "allow_once (Allow once)" in server.run("answer", session).stdout
    assert server.run("answer", session, "--deny", "--reason", "no").stdout == "Denied: Edit notes.txt\n"


@pytest.mark.full
def test_send_and_watch_shorten_a_change_unless_full_is_given(server: ServerProcess) -> None:
    where = ("--workdir", str(server.folder))
    message = "edit notes.txt\ntool Bash one\nsay done"
    sent = server.run("send", "--new", *where, "--wait", message)
    assert "> Edited notes.txt +1 -0" in sent.stderr and "\n  1 +rehearsed 1\n" in sent.stderr, sent.stderr
    assert "> Ran one" in sent.stderr and "\n  one\n" in sent.stderr and sent.stdout == "done\n"
    session = asking(server, "propose long.txt")
    server.run("answer", session, "--always")
    short = server.run("send", session, "--queue", "--wait", "propose long.txt 30").stderr
    assert "\n  ... 24 more lines\n" in short and "rehearsed 31" not in short, short
    full = server.run("send", session, "--queue", "--wait", "--full", "propose long.txt 30").stderr
    assert "rehearsed 61\n" in full and "more lines" not in full
