"""`perdure commit` and `merge`, and sessions that work in their own worktree."""

import sys
from pathlib import Path

import pytest

from perdure.surfaces.cli import editor
from tests.runtime.git.project import Project
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.reviewing import NUMBERS, Reviewed
from tests.surfaces.terminal import Terminal

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def reviewed(server: ServerProcess, tmp_path: Path) -> Reviewed:
    return Reviewed(server, tmp_path / "site")


def subjects(reviewed: Reviewed, branch: str = "main") -> list[str]:
    return reviewed.project.read_id("log", "--format=%s", branch).splitlines()


def test_the_files_of_a_session_are_committed_and_no_others(reviewed: Reviewed) -> None:
    reviewed.begin("write numbers.txt 1 | 2\nrename old.txt new.txt\nedit notes.txt")
    reviewed.project.write("mine.txt", "mine\n")
    reviewed.project.git("add", "mine.txt")
    first = reviewed.run("commit", "S", "notes.txt", "-m", "Add notes")
    commit = reviewed.project.read_id("rev-parse", "HEAD")
    assert first.stdout == f"Committed 1 file to main: Add notes ({commit[:10]})\n", first.stderr
    assert "A  notes.txt           +1 -0  committed\n" in reviewed.run("changes", "S", "--stat").stdout
    renamed = reviewed.run("commit", "S", "new.txt", "-m", "-", stdin="Rename it\n\nWith a reason.\n")
    assert renamed.returncode == 0, renamed.stderr
    rest = reviewed.read("commit", "S", "-m", "The rest")
    assert (rest["action"], rest["undoable"], rest["commit"]) == (
        "commit", False, reviewed.project.read_id("rev-parse", "HEAD"),
    )  # fmt: skip
    assert subjects(reviewed) == ["The rest", "Rename it", "Add notes", "the first commit"]
    assert reviewed.project.git("status", "--porcelain") == b"A  mine.txt\n"
    nothing = reviewed.run("commit", "S", "-m", "Again")
    assert nothing.returncode == 1 and "no uncommitted changes" in nothing.stderr


def test_a_commit_needs_a_message_and_known_files(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt")
    for words in (("-m", " "), ()):
        missing = reviewed.run("commit", "S", *words)
        assert missing.returncode == 2 and "Give a commit message: -m MESSAGE" in missing.stderr
    unknown = reviewed.run("commit", "S", "numbers.txt", "-m", "Numbers")
    assert unknown.returncode == 1
    assert "'numbers.txt' is not among the changes of the session. They are: notes.txt." in unknown.stderr


@pytest.mark.full
def test_a_commit_message_is_written_in_the_editor(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt")
    script = reviewed.server.folder / "editor.py"
    script.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text('From the editor\\n')\n")
    reviewed.variables = {"VISUAL": "false"}
    with reviewed.terminal("commit", "S") as terminal:
        assert terminal.wait_end() == 1 and "perdure: The editor failed: false" in terminal.text
    reviewed.variables |= {"GIT_EDITOR": f"{sys.executable} {script}"}
    with reviewed.terminal("commit", "S") as terminal:
        assert terminal.wait_end() == 0, terminal.text
    assert subjects(reviewed)[0] == "From the editor"
    script.write_text("raise SystemExit('the editor was opened')\n")
    reviewed.project.write("old.txt", "mine\n")
    reviewed.message("say nothing")
    with reviewed.terminal("commit", "S") as terminal:
        assert terminal.wait_end() == 1, terminal.text
        assert "This session has no uncommitted changes." in terminal.text
        assert "the editor was opened" not in terminal.text


@pytest.mark.full
def test_a_message_from_the_editor_is_kept_if_the_commit_is_refused(reviewed: Reviewed, tmp_path: Path) -> None:
    reviewed.begin("edit notes.txt")
    lock, kept = reviewed.project.root / ".git" / "HEAD.lock", tmp_path / "kept"
    kept.mkdir()
    script = reviewed.server.folder / "editor.py"
    script.write_text(
        f"import pathlib, sys\npathlib.Path({str(lock)!r}).touch()\n"
        "pathlib.Path(sys.argv[1]).write_text('From the editor\\n\\nWith a reason.\\n')\n"
    )
    reviewed.variables = {"VISUAL": f"{sys.executable} {script}", "TMPDIR": str(kept)}
    with reviewed.terminal("commit", "S", "notes.txt") as terminal:
        assert terminal.wait_end() == 1, terminal.text
        assert "To commit with it:" in terminal.text
        assert terminal.text.index("perdure: Another git") < terminal.text.index("Your commit message is in ")
    assert subjects(reviewed)[0] == "the first commit"
    [file] = kept.glob("perdure-commit-*")
    assert file.read_text() == "From the editor\n\nWith a reason.\n"
    lock.unlink()
    done = reviewed.run("commit", "S", "notes.txt", "-m", "-", stdin=file.read_text())
    assert done.returncode == 0 and subjects(reviewed)[0] == "From the editor"


def test_a_session_works_in_its_own_worktree_and_is_merged(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt", options=("--workspace", "worktree"))
    assert not reviewed.has("notes.txt")
    shown = reviewed.read("show", "S")
    branch = shown["worktree"]["branch"]
    assert shown["workdir"].startswith(shown["worktree"]["path"])
    assert f"worktree: branch {branch} from main" in reviewed.run("show", "S").stdout
    told = reviewed.run("changes", "S", "--stat").stdout
    assert f"Its branch {branch} is 0 commits ahead of main, 1 file not committed." in told
    assert f"To merge it: `perdure merge {reviewed.session} --commit-message MESSAGE`." in told
    preview = reviewed.run("merge", "S", "--preview").stdout
    assert "Not committed, so not merged. Add --commit-message MESSAGE to commit and merge:\n  notes.txt" in preview
    preview = reviewed.run("merge", "S", "--preview", "--commit-message", "Add notes").stdout
    assert 'Committed first, as "Add notes":\n  notes.txt' in preview and "1 commit ahead of main." in preview
    merged = reviewed.run("merge", "S", "--commit-message", "Add notes")
    assert merged.returncode == 0, merged.stderr
    assert reviewed.text("notes.txt") == "rehearsed 1\n" and "Add notes" in subjects(reviewed)


def test_a_merge_says_what_it_leaves_out_because_it_is_not_committed(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt", options=("--workspace", "worktree"))
    refused = reviewed.run("merge", "S")
    assert refused.returncode == 1 and "\n  notes.txt  It is not committed.\n" in refused.stderr
    assert refused.stderr.endswith("Add --commit-message MESSAGE.\n")
    reviewed.run("commit", "S", "-m", "Add notes")
    assert f"To merge it: `perdure merge {reviewed.session}`." in reviewed.run("changes", "S", "--stat").stdout
    reviewed.message("edit other.txt")
    merged = reviewed.run("merge", "S")
    assert merged.returncode == 0, merged.stderr
    assert "1 file left unchanged:\n  other.txt  It is not committed, so it was not merged.\n" in merged.stdout
    assert reviewed.has("notes.txt") and not reviewed.has("other.txt")


@pytest.mark.full
def test_a_merge_with_conflicts_names_the_files_and_changes_nothing(reviewed: Reviewed) -> None:
    reviewed.begin("write numbers.txt 1 | two", options=("--workspace", "worktree"))
    reviewed.run("commit", "S", "-m", "Shorten the numbers")
    reviewed.project.write("numbers.txt", NUMBERS.replace("2\n", "zwei\n", 1))
    reviewed.project.commit("In German")
    preview = reviewed.run("merge", "S", "--preview").stdout
    assert "1 commit ahead of main, 1 behind." in preview and "Shorten the numbers" in preview
    assert "Both branches changed the same lines of:\n  numbers.txt\n" in preview
    assert preview.endswith("Ask the agent to merge main into its branch, then try again.\n")
    for words in ((), ("--rebase",)):
        refused = reviewed.run("merge", "S", *words)
        assert refused.returncode == 1 and "(merge_conflict)" in refused.stderr and "numbers.txt" in refused.stderr
    assert subjects(reviewed)[0] == "In German"


def test_a_preview_finds_conflicts_of_files_that_would_be_committed_first(reviewed: Reviewed) -> None:
    reviewed.begin("write numbers.txt 1 | two", options=("--workspace", "worktree"))
    reviewed.project.write("numbers.txt", NUMBERS.replace("2\n", "zwei\n", 1))
    reviewed.project.commit("In German")
    preview = reviewed.run("merge", "S", "--preview", "--commit-message", "In words").stdout
    assert "Both branches changed the same lines of:\n  numbers.txt" in preview
    assert reviewed.read("merge", "S", "--preview", "--commit-message", "In words")["conflicts"] == ["numbers.txt"]
    assert reviewed.read("merge", "S", "--preview")["conflicts"] == []


@pytest.mark.full
def test_a_rebase_keeps_a_straight_history(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt", options=("--workspace", "worktree"))
    reviewed.run("commit", "S", "-m", "Add notes")
    reviewed.project.write("other.txt", "other\n")
    reviewed.project.commit("Something else")
    assert reviewed.read("merge", "S", "--rebase")["outcome"] == "done"
    assert subjects(reviewed) == ["Add notes", "Something else", "the first commit"]
    assert reviewed.has("notes.txt")


@pytest.mark.full
def test_a_terminal_shows_what_would_be_merged_and_asks(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt", options=("--workspace", "worktree"))
    with reviewed.terminal("merge", "S") as terminal:
        assert terminal.wait_end() == 1 and "[y/N]" not in terminal.text
        assert "Not committed, so not merged." in terminal.text and "Add --commit-message MESSAGE." in terminal.text
    reviewed.run("commit", "S", "-m", "Add notes")
    with reviewed.terminal("merge", "S") as terminal:
        terminal.wait("into main? [y/N]")
        assert "Add notes" in terminal.text and "A  notes.txt" in terminal.text
        terminal.enter("n")
        assert terminal.wait_end() == 1 and "Nothing was changed." in terminal.text
    with reviewed.terminal("merge", "S") as terminal:
        terminal.wait("into main? [y/N]")
        terminal.enter("y")
        assert terminal.wait_end() == 0
    assert reviewed.has("notes.txt")


@pytest.mark.full
def test_a_session_in_the_directory_itself_has_nothing_to_merge(reviewed: Reviewed) -> None:
    reviewed.begin("edit notes.txt")
    for words in ((), ("--preview",)):
        refused = reviewed.run("merge", "S", *words)
        assert refused.returncode == 1 and "there is nothing to merge" in refused.stderr
        assert "perdure send --new --workspace worktree" in refused.stderr


@pytest.mark.full
def test_a_project_gives_each_session_a_worktree(reviewed: Reviewed) -> None:
    added = reviewed.run("projects", "add", ".", "--name", "Site", "--workspace", "worktree").stdout.strip()
    assert "workspace" in reviewed.run("projects", added).stdout
    reviewed.begin("edit notes.txt", options=("--project", added))
    assert reviewed.read("show", "S")["worktree"]["base"] == "main" and not reviewed.has("notes.txt")
    reviewed.begin("edit notes.txt", options=("--project", added, "--workspace", "directory"))
    assert reviewed.read("show", "S")["worktree"] is None and reviewed.has("notes.txt")
    assert reviewed.read("projects", "edit", added, "--workspace", "directory")["workspace"] == "directory"
    wrong = reviewed.run("chat", "S", "--workspace", "worktree")
    assert wrong.returncode == 2 and "--workspace" in wrong.stderr


@pytest.mark.full
def test_outside_a_repository_no_editor_opens(server: ServerProcess, tmp_path: Path) -> None:
    folder, opened = tmp_path / "plain", tmp_path / "opened"
    folder.mkdir()
    server.run("send", "--new", "--wait", "edit a.txt", cwd=folder)
    environment = {**server.environment, "GIT_EDITOR": f"touch {opened}"}
    with Terminal(server.command("commit", "last"), environment, folder) as terminal:
        assert terminal.wait_end() == 1
        assert "repository, so nothing can be committed. (no_repository)" in terminal.text
    assert not opened.exists()


@pytest.mark.parametrize(
    ("variables", "settings", "wanted"),
    [
        ({"GIT_EDITOR": "one", "VISUAL": "two"}, "[core]\neditor = three\n", "one"),
        ({"VISUAL": "two", "EDITOR": "four"}, "[core]\neditor = three\n", "three"),
        ({"VISUAL": "two", "EDITOR": "four"}, "", "two"),
        ({"EDITOR": "four"}, "", "four"),
    ],
)
def test_the_editor_is_the_one_of_git_but_never_that_of_a_repository(
    variables: dict[str, str], settings: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_EDITOR", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "settings").write_text(settings)
    for name, value in {**variables, "GIT_CONFIG_GLOBAL": str(tmp_path / "settings"), "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    project = Project(tmp_path / "repository")
    project.git("config", "core.editor", "an-agents-program")
    monkeypatch.chdir(project.root)
    assert editor.found() == wanted
