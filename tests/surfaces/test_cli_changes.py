"""`perdure changes`: what a turn or a session changed, in a pipe and in a terminal."""

import subprocess
from pathlib import Path

import pytest

from perdure.surfaces.cli import chat_files
from perdure.surfaces.cli.changes import marked_patches
from tests.runtime.git.project import Project
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.reviewing import NUMBERS, Reviewed

pytestmark = pytest.mark.needs("git")

FIRST = "write numbers.txt 1 | 2 | 4\nrename old.txt sub/new.txt\nsay one"
SECOND = "edit notes.txt\nremove numbers.txt"


@pytest.fixture
def reviewed(server: ServerProcess, tmp_path: Path) -> Reviewed:
    return Reviewed(server, tmp_path / "site")


def test_the_files_and_the_diff_of_a_session_or_a_turn_are_shown(reviewed: Reviewed) -> None:
    reviewed.begin(FIRST, SECOND)
    whole = reviewed.run("changes", "S").stdout
    assert whole.startswith(
        "The session changed 3 files on branch main: +1 -30\n"
        "  A  notes.txt               +1 -0\n"
        "  D  numbers.txt             +0 -30\n"
        "  R  old.txt -> sub/new.txt  +0 -0\n"
        "\ndiff --git a/notes.txt b/notes.txt\n"
    )
    first = reviewed.run("changes", "S", "1").stdout
    assert first.startswith("Turn 1 changed 2 files on branch main: +0 -27\n") and "\n-3\n" in first
    assert reviewed.run("changes", "S", "2", "--stat").stdout == (
        "Turn 2 changed 2 files on branch main: +1 -3\n  A  notes.txt    +1 -0\n  D  numbers.txt  +0 -3\n"
    )
    assert reviewed.run("changes", "S", "--name-only").stdout == "notes.txt\nnumbers.txt\nsub/new.txt\n"


@pytest.mark.full
def test_a_patch_is_what_git_would_print_and_can_be_applied(reviewed: Reviewed) -> None:
    reviewed.project.write("windows.txt", "one\r\n")
    reviewed.project.commit()
    reviewed.begin(FIRST, "edit windows.txt")
    patch = reviewed.run("changes", "S", "--patch")
    reviewed.project.git("add", "--all")
    expected = reviewed.project.git("diff", "--cached", "--find-renames", "HEAD").decode()
    assert patch.stdout == expected
    subprocess.run(["git", "reset", "--quiet", "--hard"], cwd=reviewed.project.root, check=True, timeout=60)
    saved = reviewed.project.root.parent / "changes.patch"
    with saved.open("wb") as file:
        subprocess.run(
            reviewed.server.command("changes", reviewed.session, "--patch"),
            stdout=file, check=True, timeout=60, env=reviewed.server.environment, cwd=reviewed.project.root,
        )  # fmt: skip
    reviewed.project.git("apply", str(saved))
    assert reviewed.text("numbers.txt") == "1\n2\n4\n" and reviewed.has("sub/new.txt")
    assert reviewed.text("windows.txt") == "one\r\nrehearsed 1\n"


def test_a_patch_in_a_pipe_has_the_contents_of_binary_files(reviewed: Reviewed) -> None:
    pixels = bytes(range(256))
    reviewed.during_a_turn(lambda: reviewed.project.write("image.png", pixels))
    saved = reviewed.project.root.parent / "changes.patch"
    saved.write_text(reviewed.run("changes", "S", "--patch").stdout)
    assert "Binary files" in reviewed.run("changes", "S").stdout
    (reviewed.project.root / "image.png").unlink()
    reviewed.project.git("apply", str(saved))
    assert reviewed.project.read("image.png") == pixels
    refs = reviewed.project.git("for-each-ref", "--format=%(refname)", "refs/perdure/").decode().split()
    for ref in refs:
        reviewed.project.git("update-ref", "-d", ref)
    reviewed.project.git("prune", "--expire=now")
    lacking = reviewed.run("changes", "S", "--patch")
    assert "Binary files" in lacking.stdout
    assert lacking.returncode == 1 and "The contents of binary files are missing" in lacking.stderr


@pytest.mark.full
def test_a_file_is_named_by_its_path_in_the_repository_or_on_this_machine(reviewed: Reviewed) -> None:
    reviewed.begin(FIRST)
    root, server = reviewed.project.root, reviewed.server
    for path, cwd in (
        ("sub/new.txt", root),
        ("old.txt", root),
        ("sub", root),
        ("new.txt", root / "sub"),
        ("../sub/", root / "sub"),
        (str(root / "sub" / "new.txt"), root.parent),
    ):
        done = server.run("changes", reviewed.session, "--file", path, "--name-only", cwd=cwd)
        assert done.stdout == "sub/new.txt\n", (path, done.stderr)
    chosen = reviewed.run("changes", "S", "--file", "numbers.txt")
    assert chosen.stdout.startswith("The session changed 1 file on branch main: +0 -27\n  M  numbers.txt  +0 -27\n")
    assert "sub/new.txt" not in chosen.stdout
    unknown = reviewed.run("changes", "S", "--file", "nothing.txt")
    assert unknown.returncode == 1
    assert "'nothing.txt' is not among the changes. They are: numbers.txt, sub/new.txt." in unknown.stderr


@pytest.mark.full
def test_a_path_that_may_mean_two_files_is_refused(reviewed: Reviewed) -> None:
    reviewed.begin(FIRST)
    root, server = reviewed.project.root, reviewed.server
    reviewed.message("edit sub/numbers.txt\nedit sub/notes.txt")
    for path, meant in (("./numbers.txt", "sub/numbers.txt"), ("../numbers.txt", "numbers.txt")):
        done = server.run("changes", reviewed.session, "--file", path, "--name-only", cwd=root / "sub")
        assert done.stdout == meant + "\n", (path, done.stderr)
    both = server.run("changes", reviewed.session, "--file", "numbers.txt", cwd=root / "sub")
    assert both.returncode == 2 and "'numbers.txt' is ambiguous. Give ./numbers.txt for sub/numbers.txt" in both.stderr
    assert "or ../numbers.txt for numbers.txt." in both.stderr
    elsewhere = server.run("changes", reviewed.session, "--file", "../a.txt", cwd=root)
    assert elsewhere.returncode == 1 and f"'../a.txt' is not in {root}. (not_found)" in elsewhere.stderr


@pytest.mark.full
def test_a_folder_may_have_very_many_files(reviewed: Reviewed) -> None:
    names = [f"folder/{number:04} {'long' * 20}.txt" for number in range(1_500)]

    def write() -> None:
        for name in names:
            reviewed.project.write(name, "new\n")
        reviewed.project.write("other.txt", "new\n")

    reviewed.during_a_turn(write)
    patch = reviewed.run("changes", "S", "--file", "folder", "--patch")
    assert (patch.returncode, patch.stderr) == (0, "")
    assert [line for line in patch.stdout.splitlines() if line.startswith("diff")] == [
        f"diff --git a/{name} b/{name}" for name in names
    ]
    shown = reviewed.run("changes", "S", "--file", "folder")
    assert shown.returncode == 0 and shown.stdout.endswith(patch.stdout)
    assert f"... and 1400 more (`perdure changes {reviewed.session} --name-only` lists them)" in shown.stdout
    assert reviewed.run("changes", "S", "--file", "folder", "--name-only").stdout == "".join(f"{n}\n" for n in names)


@pytest.mark.full
def test_what_is_incomplete_does_not_look_complete(reviewed: Reviewed) -> None:
    def write_long() -> None:
        for name in ("a.txt", "b.txt"):
            reviewed.project.write(name, ("x" * 1_000_000 + "\n") * 9)

    reviewed.during_a_turn(write_long)
    for view in ("--patch", "--file=a.txt"):
        done = reviewed.run("changes", "S", view)
        assert done.stdout.count("diff --git") == 1
        assert (done.returncode, "files at its end are left out" in done.stderr) == (
            view == "--patch",
            view == "--patch",
        )
    whole = reviewed.run("changes", "S")
    assert whole.returncode == 0 and "files at its end are left out. Give --file PATH" in whole.stderr
    assert "too many changed files" not in whole.stdout
    with reviewed.server.client() as client:
        rows = chat_files.changes(client, reviewed.session, "").rows
    assert rows[-1].text.startswith("The diff is too long, so files at its end are left out. `perdure changes ")

    def write_many() -> None:
        for number in range(2_001):
            reviewed.project.write(f"folder/{number}", "")

    reviewed.during_a_turn(write_many)
    for view in ("--name-only", "--patch"):
        done = reviewed.run("changes", "S", "3", "--file", "folder", view)
        assert done.returncode == 1 and "too many changed files to list" in done.stderr, view
    assert "too many changed files to list" in reviewed.run("changes", "S", "3", "--stat").stdout
    unlisted = reviewed.run("changes", "S", "--file", "folder/999")
    assert "too many changed files to list" in unlisted.stderr


@pytest.mark.full
def test_a_name_can_not_fake_a_row(reviewed: Reviewed) -> None:
    name = "a\n  D  numbers.txt  +0 -30"
    reviewed.during_a_turn(lambda: reviewed.project.write(name, "new\n"))
    quoted = '"a\\n  D  numbers.txt  +0 -30"'
    assert reviewed.run("changes", "S", "--name-only").stdout == quoted + "\n"
    assert reviewed.run("changes", "S", "--stat").stdout.splitlines()[1:] == [f"  A  {quoted}  +1 -0"]
    assert reviewed.run("restore", "S", "2", "--preview").stdout.splitlines()[1:] == [f"  delete  {quoted}"]
    assert reviewed.run("changes", "S", "--file", quoted, "--content", "after").stdout == "new\n"
    reviewed.run("review", "S", "-c", f"{quoted}:1", "Why this name?", "--wait")
    assert f"{quoted}:1  " in reviewed.run("review", "S").stdout
    unknown = reviewed.run("discard", "S", "numbers.txt", "--yes")
    assert f"They are: {quoted}." in unknown.stderr


@pytest.mark.full
def test_the_content_of_a_file_before_and_after_is_printed(reviewed: Reviewed) -> None:
    reviewed.begin(FIRST, SECOND)
    words = ("changes", "S", "1", "--file", "numbers.txt", "--content")
    assert reviewed.run(*words, "after").stdout == "1\n2\n4\n"
    assert reviewed.run(*words, "before").stdout.splitlines() == [str(number) for number in range(1, 31)]
    assert reviewed.run("changes", "S", "--content", "after").returncode == 2
    reviewed.during_a_turn(lambda: reviewed.project.write("image.png", b"PNG\0\x1b]0;x\a"))
    image = ("changes", "S", "--file", "image.png", "--content", "after")
    assert reviewed.run(*image).returncode == 0
    with reviewed.terminal(*image) as terminal:
        assert terminal.wait_end() == 1
        assert "image.png is a binary file. To save it, add `> FILE` to the command." in terminal.text
        assert "PNG" not in terminal.text.replace("image.png", "")
    for side in ("before", "after"):
        renamed = reviewed.run("changes", "S", "1", "--file", "sub/new.txt", "--content", side)
        assert renamed.stdout == "some\nlines\nto\nrecognise\n", renamed.stderr
    gone = reviewed.run("changes", "S", "2", "--file", "numbers.txt", "--content", "after")
    assert gone.returncode == 1 and "(not_found)" in gone.stderr


def test_changes_in_whitespace_can_be_ignored(reviewed: Reviewed) -> None:
    reviewed.project.write("code.py", "if x:\n  y\n")
    reviewed.begin("write code.py if x: |     y | z")
    assert "+2 -1" in reviewed.run("changes", "S", "--stat").stdout
    ignored = reviewed.run("changes", "S", "-w").stdout
    assert "+1 -0" in ignored and "\n-" not in ignored.split("@@", 2)[2]
    patch = reviewed.run("changes", "S", "-w", "--patch")
    assert patch.returncode == 0 and "`git apply` may refuse it" in patch.stderr


@pytest.mark.full
def test_hunks_have_no_numbers_if_whitespace_is_ignored(reviewed: Reviewed) -> None:
    lines = NUMBERS.splitlines()
    changed = ["  1", *lines[1:14], "fifteen", *lines[15:29], "thirty"]
    reviewed.begin("write numbers.txt " + " | ".join(changed))
    for options, hunks in (((), 3), (("-w",), 0)):
        with reviewed.terminal("changes", "S", *options) as terminal:
            assert terminal.wait_end() == 0
            assert terminal.text.count("hunk ") == hunks and "+thirty" in terminal.text


def test_json_is_the_servers_and_only_one_view_can_be_chosen(reviewed: Reviewed) -> None:
    reviewed.begin(FIRST)
    found = reviewed.read("changes", "S", "1")
    assert (found["turn"], found["source"], found["state"]) == (1, "snapshots", "ready")
    assert [file["path"] for file in found["files"]] == ["numbers.txt", "sub/new.txt"]
    for more in ("--patch", "--stat", "--name-only"):
        wrong = reviewed.run("changes", "S", "--json", more)
        assert wrong.returncode == 2 and "Give only one of --json" in wrong.stderr


def test_in_a_directory_without_a_repository_the_reported_edits_are_shown(
    server: ServerProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    server.run("send", "--new", "--wait", "write a.txt one | two\nedit ../outside.txt", cwd=folder)
    told = server.run("changes", "last", cwd=folder)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    # The refused edit of another file is not a change.
    assert lines[:2] == ["The session changed 1 file: +2 -0", "  A  a.txt  +2 -0"]
    assert "not in a git repository" in told.stdout and "+one\n+two" in told.stdout
    assert told.stdout.count("edit tools reported") == told.stdout.count("Those of shell commands are not known.") == 1
    unknown = server.run("changes", "last", "--file", "a.txt", "--content", "after", cwd=folder)
    assert unknown.returncode == 1 and "so the file's content is not known. (not_found)" in unknown.stderr
    server.run("send", "last", "--wait", "say nothing", cwd=folder)
    assert server.run("changes", "last", "2", cwd=folder).stdout.startswith("Turn 2 changed no files.\n")


def test_without_a_repository_the_patch_of_new_files_is_one_that_git_applies(
    server: ServerProcess, tmp_path: Path
) -> None:
    folder, copy = tmp_path / "plain", tmp_path / "copy"
    folder.mkdir()
    copy.mkdir()
    message = (
        "write a.txt one | two\nedit a.txt\nwrite sub/b.txt three\nwrite empty.txt\nedit two words.txt\nedit é.txt"
    )
    server.run("send", "--new", "--wait", message, cwd=folder)
    assert "A  a.txt          +3 -0\n" in server.run("changes", "last", "--stat", cwd=folder).stdout
    patch = server.run("changes", "last", "--patch", cwd=folder).stdout
    subprocess.run(["git", "apply"], input=patch.encode(), cwd=copy, check=True, timeout=60)
    written, applied = (
        {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (folder, copy)
    )
    assert applied == written and set(written) == {"a.txt", "sub/b.txt", "empty.txt", "two words.txt", "é.txt"}


@pytest.mark.full
def test_a_turn_that_does_not_exist_is_reported(reviewed: Reviewed) -> None:
    reviewed.begin(FIRST)
    refused = reviewed.run("changes", "S", "9")
    assert (refused.returncode, refused.stdout) == (1, "") and "There is no turn 9" in refused.stderr
    mistaken = reviewed.run("changes", "S", "old.txt")
    assert mistaken.returncode == 2 and "For a file, use: --file old.txt" in mistaken.stderr


def test_a_detached_head_is_named(reviewed: Reviewed) -> None:
    reviewed.project.git("checkout", "--quiet", "--detach")
    reviewed.begin("edit notes.txt")
    head = reviewed.project.read_id("rev-parse", "HEAD")
    shown = reviewed.run("changes", "S", "--stat").stdout
    assert shown.startswith(f"The session changed 1 file at detached {head[:10]}: +1 -0\n")


@pytest.mark.full
def test_in_a_terminal_the_diff_has_line_numbers_and_long_files_are_folded(reviewed: Reviewed) -> None:
    lines = " | ".join(f"line {number}" for number in range(100))
    reviewed.begin(f"write long.txt {lines}\nwrite numbers.txt 1 | 2 | 4")
    with reviewed.terminal("changes", "S") as terminal:
        assert terminal.wait_end() == 0
        text = terminal.text
    assert "The session changed 2 files on branch main: +100 -27" in text
    assert "long.txt  +100 -0  new file" in text and "    1 +line 0" in text
    assert "... 42 more lines (--patch shows all)" in text and "line 99" not in text
    assert "numbers.txt  +0 -27" in text and "   3 -3" in text
    with reviewed.terminal("changes", "S", "--patch") as terminal:
        assert terminal.wait_end() == 0
        assert "line 99" in terminal.text and "more lines" not in terminal.text


@pytest.mark.full
def test_watching_shows_how_much_each_turn_changed(reviewed: Reviewed) -> None:
    session = reviewed.begin(FIRST, "say nothing changed")
    reviewed.run("changes", "S")
    reviewed.run("stop", "S")
    told = reviewed.run("watch", "S", "--from", "0").stdout
    assert told.count(" changed, +") == 1
    assert f"- 2 files changed, +0 -27 (`perdure changes {session} 1`)\n" in told


def test_what_no_turn_changed_or_recorded_is_not_in_a_patch_and_said(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt")
    reviewed.project.write("old.txt", "mine\n")
    reviewed.message("edit numbers.txt")
    left_out = "Left out, because no turn of the session changed them: old.txt. To see one: --file PATH.\n"
    names, patch = (reviewed.run("changes", "S", view) for view in ("--name-only", "--patch"))
    assert (names.returncode, names.stdout, names.stderr) == (0, "notes.txt\nnumbers.txt\n", left_out)
    assert (patch.returncode, patch.stdout.count("diff --git"), patch.stderr) == (0, 2, left_out)
    for view, said in (("--name-only", "old.txt\n"), ("--patch", "+mine\n")):
        asked = reviewed.run("changes", "S", view, "--file", "old.txt")
        assert asked.stdout.endswith(said) and asked.stderr == ""
    with reviewed.server.client() as client:
        whole = client.file_changes(reviewed.session)
        marked = list(marked_patches(client.patch(reviewed.session).content, whole))
    assert [file.notes for file in marked if file.path == "old.txt"] == [["changed by you or another program"]]
    reviewed.during_a_turn(lambda: Project(reviewed.project.root / "inner").write("a.txt", "new\n"))
    for view in ("--name-only", "--patch"):
        incomplete = reviewed.run("changes", "S", view)
        assert incomplete.returncode == 1 and "Changed, but not recorded: inner" in incomplete.stderr
        assert incomplete.stdout.count("notes.txt") >= 1 and left_out in incomplete.stderr
