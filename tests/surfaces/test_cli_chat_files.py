"""Reviewing, restoring and committing changes from inside the chat."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.conftest import ServerProcess
from tests.surfaces.reviewing import Reviewed
from tests.surfaces.terminal import Terminal

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def reviewed(server: ServerProcess, tmp_path: Path) -> Reviewed:
    return Reviewed(server, tmp_path / "site")


@pytest.fixture
def chat(reviewed: Reviewed) -> Iterator[Terminal]:
    with reviewed.terminal("chat") as terminal:
        terminal.wait("New session")
        terminal.enter("write numbers.txt 1 | 2 | 3")
        terminal.wait("1 file changed, +0 -27 (/changes 1)")
        terminal.enter("edit notes.txt")
        terminal.wait("1 file changed, +1 -0 (/changes 2)")
        terminal.wait("Idle")
        yield terminal


def test_changes_are_listed_and_folded(chat: Terminal) -> None:
    chat.enter("/changes 2")
    chat.wait("Turn 2 changed 1 file on branch main: +1 -0")
    chat.wait("  A  notes.txt  +1 -0")
    chat.enter("/changes")
    chat.wait("The session changed 2 files on branch main: +1 -27")
    chat.wait("more lines (Ctrl-O shows all)")
    chat.type("\x0f")
    chat.wait("  30 -30")
    chat.enter("/changes nothing")
    chat.wait("Give a turn number: /changes N")
    chat.enter("/changes 9")
    chat.wait("There is no turn 9 in this session. It has turns 1 and 2.")


@pytest.mark.full
def test_files_are_restored_and_the_restore_is_undone(chat: Terminal, reviewed: Reviewed) -> None:
    chat.enter("/restore 2")
    chat.wait("Restored 1 file to before turn 2.")
    chat.wait("/undo undoes it.")
    assert not reviewed.has("notes.txt")
    chat.enter("/undo")
    chat.wait("Undone: 1 file changed back.")
    assert reviewed.has("notes.txt")
    chat.enter("/undo")
    chat.wait("There is nothing to undo.")
    reviewed.project.write("numbers.txt", "mine\n")
    chat.enter("/restore 1")
    chat.wait("Add `keep` to leave them as they are, or `overwrite`: /restore 1 keep")
    chat.enter("/restore 1 keep")
    chat.wait(lambda text: text.count("/undo undoes it.") == 2)
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("mine\n", False)
    chat.wait("1 file left unchanged:")
    chat.enter("/restore 1 all")
    chat.wait("'all' must be `keep` or `overwrite`")
    reviewed.project.write("notes.txt", "mine too\n")
    chat.enter("/undo")
    chat.wait("Add `keep` to leave them as they are, or `overwrite`: /undo keep")
    chat.enter("/undo overwrite")
    chat.wait(lambda text: text.count("Undone: 1 file changed back.") == 2)
    assert reviewed.text("notes.txt") == "rehearsed 1\n"


@pytest.mark.full
def test_the_changes_are_committed(chat: Terminal, reviewed: Reviewed) -> None:
    chat.enter("/commit")
    chat.wait("Give a commit message: /commit MESSAGE.")
    chat.enter("/commit Shorten the numbers")
    chat.wait("Committed 2 files to main: Shorten the numbers")
    assert reviewed.project.read_id("log", "-1", "--format=%s") == "Shorten the numbers"
    chat.enter("/commit Again")
    chat.wait("This session has no uncommitted changes.")
    chat.wait("> /commit Again")
    chat.type("\x15")
    chat.enter("hang")
    chat.wait("Working")
    chat.enter("/restore 1")
    chat.wait("Wait until it ends, or interrupt it with Esc or /abort. (turn_active)")
    assert chat.text.count("This session has no uncommitted changes.") == 1
