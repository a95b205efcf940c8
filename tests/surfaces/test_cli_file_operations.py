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
    assert restored.stdout.startswith("Restored 2 files to before turn 2. To undo it:\n  perdure ")
    assert (reviewed.text("numbers.txt"), reviewed.has("notes.txt")) == ("1\n2\n3\n", False)
    undone = reviewed.run("undo", "S")
    assert undone.stdout.startswith("Undone: 2 files changed back. To redo it:\n  perdure ")
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
    preview, chosen = (reviewed.run("restore", "S", "2", "--preview", *more) for more in ((), ("--outside", "keep")))
    assert preview.stdout.endswith("outside a terminal, it needs --outside keep or overwrite.\n")
    assert "it needs --outside" not in chosen.stdout
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
        terminal.wait("Also changed by you or somebody else:")
        terminal.wait("Keep these files (k), overwrite them (o), or cancel (c)?")
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
    missing = reviewed.run("discard", "S", "numbers.txt", "--hunk", "3", "--yes")
    assert missing.returncode == 1 and "numbers.txt has 2 hunks. Give --hunk 1 or 2." in missing.stderr
    discarded = reviewed.run("discard", "S", "numbers.txt", "--hunk", "2", "--yes")
    assert discarded.stdout.startswith("Discarded 1 hunk of numbers.txt. To undo it:\n  perdure ")
    assert "-29\n" in discarded.stdout and "+two" not in discarded.stdout, "what was discarded"
    assert "The other hunks have new numbers now. To see them:\n  perdure " in discarded.stdout
    assert reviewed.text("numbers.txt") == before.replace("twenty-nine\n", "29\n")
    reviewed.run("undo", "S")
    assert reviewed.text("numbers.txt") == before
    assert reviewed.read("discard", "S", "numbers.txt", "--turn", "1")["outcome"] == "done"
    assert "two\n" not in reviewed.text("numbers.txt")
    assert reviewed.run("discard", "S", "numbers.txt", "--hunk", "0").returncode == 2
    unknown = reviewed.run("discard", "S", "old.txt", "--yes")
    assert unknown.returncode == 1 and "There are no changes. (not_found)" in unknown.stderr


@pytest.mark.full
def test_a_terminal_shows_the_hunk_before_it_is_discarded(reviewed: Reviewed) -> None:
    changed = NUMBERS.replace("2\n", "two\n", 1).replace("29\n", "twenty-nine\n")
    reviewed.project.write("numbers.txt", NUMBERS)
    reviewed.begin("write numbers.txt " + " | ".join(changed.splitlines()))
    before = reviewed.text("numbers.txt")
    with reviewed.terminal("discard", "S", "numbers.txt", "--hunk", "2") as terminal:
        terminal.wait("Discard 1 hunk? [y/N]")
        assert "+twenty-nine" in terminal.text and "+two" not in terminal.text
        terminal.enter("n")
        assert terminal.wait_end() == 1 and "Nothing was changed." in terminal.text
    assert reviewed.text("numbers.txt") == before
    with reviewed.terminal("discard", "S", "numbers.txt", "--hunk", "2") as terminal:
        terminal.wait("Discard 1 hunk? [y/N]")
        terminal.enter("y")
        assert terminal.wait_end() == 0 and "The other hunks have new numbers now." in terminal.text
        assert terminal.text.count("+twenty-nine") == 1
    assert reviewed.text("numbers.txt") == before.replace("twenty-nine\n", "29\n")


def test_a_discard_that_can_not_ask_needs_to_be_confirmed(reviewed: Reviewed) -> None:
    refused = reviewed.run("discard", "S", "notes.txt")
    assert refused.returncode == 2 and "Use --yes to confirm." in refused.stderr
    assert reviewed.has("notes.txt")
    assert reviewed.read("discard", "S", "notes.txt")["outcome"] == "done"
    assert not reviewed.has("notes.txt")


@pytest.mark.full
def test_what_somebody_else_changed_too_is_discarded_only_with_the_users_consent(reviewed: Reviewed) -> None:
    reviewed.project.write("notes.txt", "rehearsed 1\nmine\n")
    reviewed.project.write("old.txt", "mine\n")
    reviewed.message("say something")
    shown = reviewed.run("changes", "S", "--stat").stdout
    assert shown.startswith("The session changed 2 files on branch main: ")
    assert "  A  notes.txt    +2 -0  also changed by you or another program\n" in shown
    assert "  M  old.txt      +1 -4  changed by you or another program\n" in shown
    later = reviewed.run("changes", "S", "3", "--stat").stdout
    assert "Changed by you or another program before this turn: notes.txt, old.txt." in later
    refused = reviewed.run("discard", "S", "notes.txt", "--yes")
    assert refused.returncode == 1 and "You or another program also changed notes.txt" in refused.stderr
    assert "give --turn N" in refused.stderr and refused.stderr.endswith("add --outside overwrite.\n")
    other = reviewed.run("discard", "S", "old.txt", "--json")
    assert other.returncode == 1 and "No turn of this session changed old.txt." in other.stderr
    both = reviewed.run("discard", "S", "notes.txt", "--yes", "--turn", "2", "--outside", "overwrite")
    assert both.returncode == 2 and "Leave out --outside or --turn." in both.stderr
    with reviewed.terminal("discard", "S", "notes.txt") as terminal:
        terminal.wait("Discard this change anyway? [y/N]")
        assert "You or another program also changed notes.txt" in terminal.text
        terminal.enter("n")
        assert terminal.wait_end() == 1
    assert reviewed.text("notes.txt") == "rehearsed 1\nmine\n"
    assert reviewed.run("discard", "S", "old.txt", "--yes", "--outside", "overwrite").returncode == 0
    assert reviewed.text("old.txt") == "some\nlines\nto\nrecognise\n"
    with reviewed.terminal("discard", "S", "notes.txt") as terminal:
        terminal.wait("Discard this change anyway? [y/N]")
        terminal.enter("y")
        assert terminal.wait_end() == 0
    assert not reviewed.has("notes.txt")


def test_a_turn_that_does_not_exist_is_refused_with_those_that_do(reviewed: Reviewed) -> None:
    for words in (("changes", "S", "9"), ("restore", "S", "9"), ("discard", "S", "notes.txt", "--turn", "9", "--yes")):
        refused = reviewed.run(*words)
        assert (refused.returncode, refused.stdout) == (1, ""), words
        assert refused.stderr == "perdure: There is no turn 9 in this session. It has turns 1 and 2. (not_found)\n"


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
    discard, rewind = ("discard", "S", "notes.txt", "--yes"), ("rewind", "S", "2", "--files", "restore")
    for words in (("restore", "S", "2"), discard, rewind):
        refused = reviewed.run(*words)
        assert refused.returncode == 1 and "A turn is running. Wait until it ends" in refused.stderr, words
        assert f"`perdure abort {reviewed.session}`" in refused.stderr, words
    shown = reviewed.run("changes", "S", "--stat").stdout
    assert shown.startswith("The session has changed 2 files so far on branch main: "), shown
    assert "The turn is still running, so its changes are not final." in shown
    reviewed.run("abort", "S")


def test_a_rewind_restores_the_files_in_the_same_step_or_changes_nothing(reviewed: Reviewed) -> None:
    reviewed.project.write("numbers.txt", "mine\n")
    refused = reviewed.run("rewind", "S", "2", "--files", "restore")
    assert refused.returncode == 1 and "Add --outside keep" in refused.stderr
    assert len(reviewed.read("show", "S")["turns"]) == 2 and reviewed.has("notes.txt")
    rewound = reviewed.run("rewind", "S", "2", "--files", "restore", "--outside", "overwrite")
    said = " Restored 2 files to before turn 2. To change the files back:\n  perdure "
    assert said in rewound.stdout, rewound.stderr
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
    said = " Restored 2 files to before turn 1. To change the files back:\n  perdure "
    assert said in edited.stdout, edited.stderr
    assert (reviewed.text("numbers.txt"), reviewed.has("other.txt")) == (NUMBERS, False)


def test_what_is_no_number_is_named(reviewed: Reviewed) -> None:
    for words, said in {
        ("restore", "S", "notes.txt"): "notes.txt is not a turn number. Give the number of a turn before the paths.",
        ("discard", "S", "notes.txt", "--turn", "x"): "x is not a turn number. `perdure show SESSION` lists the turns.",
        ("discard", "S", "notes.txt", "--hunk", "x"): "x is not a hunk number. In a terminal, `perdure changes ",
    }.items():
        wrong = reviewed.run(*words)
        assert wrong.returncode == 2 and said in wrong.stderr, wrong.stderr


def test_a_name_with_a_line_break_is_printed_in_quotes(reviewed: Reviewed) -> None:
    reviewed.during_a_turn(lambda: reviewed.project.write("new\nline.txt", "new\n"))
    discarded = reviewed.run("discard", "S", '"new\\nline.txt"', "--yes")
    assert discarded.returncode == 0, discarded.stderr
    assert '"new\\nline.txt"' in discarded.stdout.splitlines()[0] and "new line.txt" not in discarded.stdout
