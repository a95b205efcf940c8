"""`perdure restore`, `discard` and `undo`, and the commands that change the history together with the files."""

from pathlib import Path

import pytest

from perdure.surfaces.client import Problem
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.reviewing import NUMBERS, Reviewed

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def reviewed(server: ServerProcess, tmp_path: Path) -> Reviewed:
    """A session with two turns: the first changes a file, the second changes it again and adds another."""
    reviewed = Reviewed(server, tmp_path / "site")
    reviewed.begin("write numbers.txt 1 | 2 | 3", "edit numbers.txt\nedit notes.txt")
    return reviewed


def test_files_are_restored_to_before_or_after_a_turn_and_back(reviewed: Reviewed) -> None:
    preview = reviewed.run("restore", "S", "2", "--preview").stdout
    assert preview == "Restoring to before turn 2 changes 2 files:\n  delete  notes.txt\n  change  numbers.txt\n"
    assert reviewed.has("notes.txt")
    restored = reviewed.run("restore", "S", "2")
    assert restored.stdout.startswith("Restored 2 files to before turn 2. Undo it with `perdure undo ")
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("1\n2\n3\n", False)
    undone = reviewed.run("undo", "S")
    assert undone.stdout.startswith("Undone: 2 files changed back. Redo it with `perdure undo ")
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("1\n2\n3\nrehearsed 1\n", True)
    reviewed.run("restore", "S", "1")
    assert reviewed.text("numbers.txt") == NUMBERS
    assert reviewed.read("restore", "S", "1", "--after", "numbers.txt")["files"] == [
        {"path": "numbers.txt", "change": "write"}
    ]
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("1\n2\n3\n", False)
    assert reviewed.run("restore", "S", "1", "--after").stdout == "The files are already as after turn 1.\n"


def test_only_the_given_files_are_restored(reviewed: Reviewed) -> None:
    found = reviewed.read("restore", "S", "2", "notes.txt", "--preview")
    assert (found["files"], found["file_count"]) == ([{"path": "notes.txt", "change": "delete"}], 1)
    reviewed.run("restore", "S", "2", "./notes.txt")
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("1\n2\n3\nrehearsed 1\n", False)
    unknown = reviewed.run("restore", "S", "2", "old.txt")
    assert unknown.returncode == 1
    assert "'old.txt' is not among the files that differ from before turn 2. They are: numbers.txt." in unknown.stderr


def test_files_that_somebody_changed_are_kept_or_overwritten_as_the_user_says(reviewed: Reviewed) -> None:
    reviewed.project.write("numbers.txt", "mine\n")
    refused = reviewed.run("restore", "S", "2")
    assert refused.returncode == 1 and "(files_changed)" in refused.stderr
    assert "\n  numbers.txt" in refused.stderr and "Add --outside keep to leave them as they are" in refused.stderr
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("mine\n", True)
    kept = reviewed.run("restore", "S", "2", "--outside", "keep").stdout
    assert "1 file left unchanged:\n  numbers.txt" in kept
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("mine\n", False)
    reviewed.project.write("numbers.txt", "mine again\n")
    reviewed.run("restore", "S", "2", "--outside", "overwrite")
    assert reviewed.text("numbers.txt") == "1\n2\n3\n"
    reviewed.run("undo", "S")
    assert reviewed.text("numbers.txt") == "mine again\n"


@pytest.mark.full
def test_a_terminal_lists_the_files_and_asks(reviewed: Reviewed) -> None:
    with reviewed.terminal("restore", "S", "2") as terminal:
        terminal.wait("  change  numbers.txt")
        terminal.wait("Restore 2 files? [y/N]")
        terminal.enter("n")
        assert terminal.wait_end() == 1 and "Nothing was changed." in terminal.text
    reviewed.project.write("numbers.txt", "mine\n")
    with reviewed.terminal("restore", "S", "2") as terminal:
        terminal.wait("Changed by you or somebody else, not by this session:")
        terminal.wait("Keep the files that the session did not change (k), overwrite them (o), or cancel (c)?")
        terminal.enter("k")
        terminal.wait("Restore 1 file? [y/N]")
        terminal.enter("y")
        assert terminal.wait_end() == 0
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("mine\n", False)
    with reviewed.terminal("restore", "S", "2", "--yes", "--outside", "overwrite") as terminal:
        assert terminal.wait_end() == 0
    with reviewed.terminal("restore", "S", "2") as terminal:
        assert terminal.wait_end() == 0 and "The files are already as before turn 2." in terminal.text


@pytest.mark.full
def test_a_change_or_some_of_its_hunks_are_discarded(reviewed: Reviewed) -> None:
    changed = NUMBERS.replace("2\n", "two\n", 1).replace("29\n", "twenty-nine\n")
    reviewed.project.write("numbers.txt", NUMBERS)
    reviewed.begin("write numbers.txt " + " | ".join(changed.splitlines()))
    before = reviewed.text("numbers.txt")
    hunks = reviewed.run("changes", "S", "--patch").stdout.count("\n@@")
    assert hunks == 2
    discarded = reviewed.run("discard", "S", "numbers.txt", "--hunk", "2")
    assert discarded.stdout.startswith("Discarded 1 hunk of numbers.txt. Undo it with")
    assert reviewed.text("numbers.txt") == before.replace("twenty-nine\n", "29\n")
    reviewed.run("undo", "S")
    assert reviewed.text("numbers.txt") == before
    assert reviewed.read("discard", "S", "numbers.txt", "--turn", "1")["outcome"] == "done"
    assert "two\n" not in reviewed.text("numbers.txt")
    assert reviewed.run("discard", "S", "numbers.txt", "--hunk", "0").returncode == 2
    unknown = reviewed.run("discard", "S", "old.txt")
    assert unknown.returncode == 1 and "There are no changes. (not_found)" in unknown.stderr


@pytest.mark.full
def test_operations_are_listed_and_any_of_them_is_undone_by_its_id(reviewed: Reviewed) -> None:
    assert "No files of this session were restored" in reviewed.run("undo", "S", "--list").stderr
    nothing = reviewed.run("undo", "S")
    assert nothing.returncode == 1 and "There is nothing to undo." in nothing.stderr
    reviewed.run("restore", "S", "2")
    first = reviewed.read("undo", "S", "--list")["operations"][0]
    assert "can be undone" in reviewed.run("undo", "S", "--list").stdout
    undone = reviewed.read("undo", "S")
    assert "undone" in reviewed.run("undo", "S", "--list").stdout
    again = reviewed.run("undo", "S", first["operation_id"])
    assert again.returncode == 1 and "(conflict)" in again.stderr
    reviewed.run("undo", "S", undone["operation_id"])
    assert not reviewed.has("notes.txt")


@pytest.mark.full
def test_the_last_operation_is_undone_after_many_refused_ones(reviewed: Reviewed) -> None:
    reviewed.run("restore", "S", "2", "notes.txt")
    reviewed.project.write("numbers.txt", "mine\n")
    with reviewed.server.client() as client:
        for _ in range(21):
            with pytest.raises(Problem):
                client.restore(reviewed.session, 2)
    undone = reviewed.run("undo", "S")
    assert undone.returncode == 0, undone.stderr
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("mine\n", True)


@pytest.mark.full
def test_the_choice_is_offered_only_if_it_helps(reviewed: Reviewed) -> None:
    reviewed.message("remove notes.txt")
    reviewed.project.write(".git/info/exclude", "*.log\n")
    reviewed.project.write("notes.txt/mine.log", "mine\n")
    for options in ((), ("--outside", "overwrite")):
        refused = reviewed.run("restore", "S", "3", *options)
        assert refused.returncode == 1 and "\n  notes.txt" in refused.stderr
        assert "(files_changed)" in refused.stderr and "--outside" not in refused.stderr
    assert reviewed.text("notes.txt/mine.log") == "mine\n"


def test_a_running_turn_keeps_its_files(reviewed: Reviewed) -> None:
    assert reviewed.run("send", "S", "hang").returncode == 0
    for words in (("restore", "S", "2"), ("discard", "S", "notes.txt"), ("rewind", "S", "2", "--files", "restore")):
        refused = reviewed.run(*words)
        assert refused.returncode == 1 and "A turn is running. Wait until it ends" in refused.stderr, words
    reviewed.run("abort", "S")


def test_a_rewind_restores_the_files_in_the_same_step_or_changes_nothing(reviewed: Reviewed) -> None:
    reviewed.project.write("numbers.txt", "mine\n")
    refused = reviewed.run("rewind", "S", "2", "--files", "restore")
    assert refused.returncode == 1 and "Add --outside keep" in refused.stderr
    assert len(reviewed.read("show", "S")["turns"]) == 2 and reviewed.has("notes.txt")
    rewound = reviewed.run("rewind", "S", "2", "--files", "restore", "--outside", "overwrite")
    assert rewound.stdout.endswith("The files are as before turn 2.\n"), rewound.stderr
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("1\n2\n3\n", False)
    assert len(reviewed.read("show", "S")["turns"]) == 1
    reviewed.run("rewind", "S", "1")
    assert reviewed.text("numbers.txt") == "1\n2\n3\n"


def test_outside_is_refused_if_no_files_are_restored(reviewed: Reviewed) -> None:
    for words in (("rewind", "S", "2"), ("retry", "S", "2"), ("edit", "S", "2", "say two")):
        wrong = reviewed.run(*words, "--outside", "overwrite")
        assert wrong.returncode == 2 and "--outside needs --files restore." in wrong.stderr, words
    assert len(reviewed.read("show", "S")["turns"]) == 2


@pytest.mark.full
def test_a_retry_and_an_edit_restore_the_files_first(reviewed: Reviewed) -> None:
    again = reviewed.run("retry", "S", "2", "--files", "restore", "--text", "edit other.txt")
    assert again.returncode == 0, again.stderr
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt"), reviewed.has("other.txt")) == (
        "1\n2\n3\n", False, True,
    )  # fmt: skip
    reviewed.wait_until_recorded()
    edited = reviewed.run("edit", "S", "1", "say one", "--files", "restore")
    assert edited.stdout.endswith("The files are as before turn 1.\n"), edited.stderr
    assert (reviewed.text("numbers.txt"), reviewed.has("other.txt")) == (NUMBERS, False)
