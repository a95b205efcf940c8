"""A branch comes back as with `git merge` or `git rebase`; local changes and conflicts stop it before it starts."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.git import index, merge
from perdure.runtime.git.command import GitError, HalfDone
from perdure.runtime.git.commit import Outdated
from perdure.runtime.git.merge import MergeConflict, Preview, Strategy, finish, preview
from perdure.runtime.git.worktree import ensure, remove
from tests.runtime.git.project import Project, make_hostile, marked
from tests.runtime.git.session import AUTHOR, Session, state, status

STRATEGIES: tuple[Strategy, Strategy] = ("merge", "rebase")
both = pytest.mark.parametrize("strategy", STRATEGIES)
SUBJECTS = "--format=%an|%ad|%s"


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def session(project: Project) -> Session:
    return Session(project, "x")


def blocked(project: Project, session: Session, strategy: Strategy = "merge") -> str:
    """Why it isn't possible. Neither asking nor trying changes anything."""
    before = state(project, session), project.private_parts()
    reason = preview(session.worktree, strategy).blocked
    assert reason is not None
    with pytest.raises(GitError) as raised:
        merge.prepare(session.worktree, strategy)
    assert raised.value.message == reason
    assert (state(project, session), project.private_parts()) == before
    return reason


@both
def test_a_branch_whose_base_has_not_moved_is_fast_forwarded(
    strategy: Strategy, project: Project, session: Session
) -> None:
    session.write("a.txt", "one\nnew\nthree\n")
    session.delete("folder/b.txt")
    session.write("deep/er/new.sh", "#!/bin/sh\n", mode=0o755)
    session.link("link", "a.txt")
    tip = session.commit("Change several files")
    found = preview(session.worktree, strategy)
    assert found == Preview(
        ahead=1,
        behind=0,
        commits=[merge.Commit(tip, "Change several files")],
        files=[
            merge.ChangedFile("a.txt", "modified"),
            merge.ChangedFile("deep/er/new.sh", "added"),
            merge.ChangedFile("folder/b.txt", "deleted"),
            merge.ChangedFile("link", "added"),
        ],
    )
    plan = session.plan(strategy)
    assert plan.files == ["a.txt", "deep/er/new.sh", "folder/b.txt", "link"]
    assert finish(plan) == []
    assert project.read_id("rev-parse", "main") == project.read_id("rev-parse", "perdure/x") == tip
    assert project.files() == session.files() == project.recorded("main")
    assert not (project.root / "folder").exists()
    assert status(project) == status(session) == []
    assert f"{strategy} (perdure) perdure/x: Fast-forward" in project.git("reflog", "-1", "--format=%gs").decode()
    assert "nothing to merge" in blocked(project, session, strategy)


def test_a_merge_makes_a_merge_commit_and_leaves_the_session_as_it_is(project: Project, session: Session) -> None:
    session.write("a.txt", "one\ntwo\nthree\nfour\n")
    tip = session.commit("Count on")
    session.write("folder/b.txt", "not committed\n")
    project.write("a.txt", "zero\none\ntwo\nthree\n")
    base = project.commit("Count from zero")
    before = state(session)["trees"]
    found = preview(session.worktree, "merge")
    assert (found.ahead, found.behind, found.uncommitted, found.blocked) == (1, 1, ["folder/b.txt"], None)
    assert session.bring_back() == []
    assert project.read("a.txt") == b"zero\none\ntwo\nthree\nfour\n"
    assert project.git("log", "-1", "--format=%P %s").decode() == f"{base} {tip} Merge branch 'perdure/x'\n"
    assert status(project) == []
    assert state(session)["trees"] == before
    session.commit("more")
    assert finish(session.plan("merge", "A message\n\nof its own\n")) == []
    assert project.git("log", "-1", "--format=%B") == b"A message\n\nof its own\n\n"
    assert project.read("folder/b.txt") == b"not committed\n"


def test_a_rebase_keeps_authors_dates_and_messages(project: Project, session: Session) -> None:
    subjects = []
    for number in range(3):
        session.write(f"new-{number}", f"{number}\n")
        session.git("add", "--all")
        who = {"GIT_AUTHOR_NAME": f"Author {number}", "GIT_AUTHOR_EMAIL": "x@example.org"}
        when = {"GIT_AUTHOR_DATE": f"{1_600_000_000 + number} +0530", "GIT_COMMITTER_DATE": "1600000000 +0000"}
        session.git(
            "-c", "i18n.commitEncoding=ISO-8859-1", "commit", "--quiet", "--file=-", "--cleanup=verbatim",
            input=b"gr\xfc\xdfe %d\n\n\n  body\n\n" % number, env=who | when,
        )  # fmt: skip
        subjects.append(session.git("cat-file", "commit", "HEAD").partition(b"\nauthor ")[2])
    session.git("commit", "--quiet", "--allow-empty", "--message", "empty on purpose")
    project.write("a.txt", "by the user\n")
    base = project.commit("by the user")
    session.write("folder/b.txt", "not committed\n")
    assert session.bring_back("rebase") == []
    tip = project.read_id("rev-parse", "main")
    assert project.read_id("rev-parse", "main~4") == base
    assert session.read_id("rev-parse", "HEAD") == project.read_id("rev-parse", "perdure/x") == tip
    for number, expected in enumerate(subjects):
        made = project.git("cat-file", "commit", f"main~{3 - number}").partition(b"\nauthor ")[2]
        author, _, rest = made.partition(b"\ncommitter ")
        assert author == expected.partition(b"\ncommitter ")[0]
        assert rest.startswith(b"Ada <ada@example.org> ")
        assert rest.partition(b"\nencoding")[2] == expected.partition(b"\nencoding")[2] != b""
    assert project.files() == project.recorded("main")
    assert session.read("a.txt") == b"by the user\n"
    assert status(session) == [" M folder/b.txt"]
    assert status(project) == []


def test_a_rebase_follows_renames_and_drops_what_the_base_has(project: Project, session: Session) -> None:
    session.write("folder/b.txt", "b\nmore\n")
    shared = session.commit("shared")
    session.write("a.txt", "one\ntwo\nthree\nfour\n")
    session.commit("four")
    project.git("cherry-pick", shared)
    project.git("mv", "a.txt", "renamed.txt")
    project.commit("rename")
    assert session.bring_back("rebase") == []
    assert project.read("renamed.txt") == b"one\ntwo\nthree\nfour\n"
    assert project.git("log", "--format=%s").decode().split("\n")[:4] == ["four", "rename", "shared", "first"]
    assert session.files() == project.files()


def test_a_rebase_whose_changes_the_base_has_brings_nothing(project: Project, session: Session) -> None:
    session.write("a.txt", "changed\n")
    project.write("b.txt", "b\n")
    project.commit()
    project.git("cherry-pick", session.commit("shared"))
    assert "changes of all commits already" in blocked(project, session, "rebase")
    session.write("c.txt", "c\n")
    session.commit()
    project.git("merge", "--quiet", "--no-edit", "perdure/x")
    session.git("merge", "--quiet", "--no-ff", "--no-edit", "main~1")
    session.write("d.txt", "d\n")
    session.commit()
    assert "merge commits" in blocked(project, session, "rebase")
    assert session.bring_back() == []


@both
def test_a_conflict_changes_nothing_and_names_the_files(strategy: Strategy, project: Project, session: Session) -> None:
    session.write("a.txt", "by the session\n")
    session.write("run.sh", "by the session\n")
    session.write("fine.txt", "fine\n")
    session.commit()
    project.write("a.txt", "by the user\n")
    project.delete("run.sh")
    project.commit()
    before = state(project, session), project.private_parts()
    found = preview(session.worktree, strategy)
    assert found.conflicts == ["a.txt", "run.sh"]
    assert [file.path for file in found.files] == ["a.txt", "fine.txt", "run.sh"]
    assert found.blocked is None
    with pytest.raises(MergeConflict) as raised:
        merge.prepare(session.worktree, strategy)
    assert raised.value.paths == ["a.txt", "run.sh"]
    assert (state(project, session), project.private_parts()) == before


@both
def test_a_conflict_about_a_folder_that_was_split_names_the_folder(strategy: Strategy, project: Project) -> None:
    project.write("z/a", "a1\na2\na3\n" * 5)
    project.write("z/b", "b1\nb2\nb3\n" * 5)
    project.commit()
    session = Session(project, "x")
    session.write("z/c", "new\n")
    session.commit()
    for old, new in (("z/a", "y/a"), ("z/b", "w/b")):
        project.write(new, project.read(old))
        project.delete(old)
    project.commit()
    before = state(project, session)
    assert preview(session.worktree, strategy).conflicts == ["z"]
    with pytest.raises(MergeConflict, match="the same places in z"):
        merge.prepare(session.worktree, strategy)
    assert state(project, session) == before


@both
def test_sessions_come_back_one_after_the_other_and_nothing_is_lost(strategy: Strategy, project: Project) -> None:
    sessions = [Session(project, name) for name in ("x", "y", "z")]
    for number, session in enumerate(sessions):
        session.write(f"by-{number}", f"{number}\n")
        session.commit(f"new file {number}")
        lines = ["one\n", "two\n", "three\n"]
        # The first and the last change the same line.
        lines[(0, 2, 0)[number]] = f"by session {number}\n"
        session.write("a.txt", "".join(lines) if number != 1 else "one\ntwo\nthree\n" + "\n" * 9 + "end\n")
        session.commit(f"edit {number}")
    assert sessions[0].bring_back(strategy) == []
    assert sessions[1].bring_back(strategy) == []
    middle = project.files()
    before = state(project, *sessions)
    with pytest.raises(MergeConflict):
        sessions[2].plan(strategy)
    assert state(project, *sessions) == before
    # The agent resolves the conflict in its own worktree.
    resolved = project.read("a.txt").replace(b"by session 0\n", b"by sessions 0 and 2\n")
    sessions[2].git("fetch", "--quiet")
    with pytest.raises(AssertionError):
        sessions[2].git("merge", "main")
    sessions[2].write("a.txt", resolved)
    sessions[2].commit("resolved")
    assert sessions[2].bring_back("merge") == []
    assert project.files() == middle | {
        b"by-2": (middle[b"by-1"][0], b"2\n"),
        b"a.txt": (middle[b"a.txt"][0], resolved),
    }
    for session in sessions:
        assert remove(session.worktree)
    assert status(project) == []
    log = project.git("log", "--format=%s").decode()
    assert all(f"new file {number}" in log and f"edit {number}" in log for number in range(3))


def test_local_changes_stop_a_merge_only_where_it_would_change_files(project: Project, session: Session) -> None:
    session.write("a.txt", "by the session\n")
    session.write("new.txt", "by the session\n")
    session.delete("run.sh")
    session.commit()
    project.write("folder/b.txt", "staged\n")
    project.git("add", "folder/b.txt")
    project.write("folder/b.txt", "not staged\n")
    project.write("other.txt", "untracked\n")
    for path in ("a.txt", "new.txt", "run.sh"):
        old = project.files().get(path.encode())
        project.write(path, "by the user\n")
        assert path in blocked(project, session)
        project.git("add", path)
        assert "staged" in blocked(project, session)
        project.git("reset", "--quiet", path)
        project.delete(path)
        if old:
            assert path in blocked(project, session)
            project.git("checkout", "--quiet", path)
    staged, changed = project.git("diff", "--cached"), project.git("diff")
    assert session.bring_back() == []
    assert project.git("diff", "--cached") == staged
    assert project.git("diff") == changed
    assert status(project) == ["MM folder/b.txt", "?? other.txt"]
    assert project.read("a.txt") == b"by the session\n"


def test_ignored_files_and_folders_in_the_way_stop_a_merge(project: Project, session: Session) -> None:
    project.write(".git/info/exclude", "*.log\nsecret\n")
    session.write("x.log", "by the session\n")
    session.git("add", "--force", "x.log")
    session.git("commit", "--quiet", "--message", "log")
    project.write("x.log", "precious\n")
    assert "x.log" in blocked(project, session)
    project.delete("x.log")
    session.git("rm", "--quiet", "-r", "folder")
    session.write("folder", "a file now\n")
    session.commit()
    project.write("folder/secret", "precious\n")
    assert "has other files" in blocked(project, session)
    project.delete("folder/secret")
    assert session.bring_back() == []
    assert project.read("folder") == b"a file now\n"


def test_local_changes_of_the_session_stop_a_rebase_only_where_it_changes_files(
    project: Project, session: Session
) -> None:
    session.write("new.txt", "new\n")
    session.commit()
    project.write("a.txt", "by the user\n")
    project.commit()
    session.write("a.txt", "not committed\n")
    assert f"{session.root} has local changes" in blocked(project, session, "rebase")
    assert preview(session.worktree, "merge").blocked is None


def test_states_in_which_nothing_can_be_merged_are_explained(project: Project, session: Session) -> None:
    assert "nothing to merge" in blocked(project, session)
    session.write("a.txt", "changed\n")
    # These can be committed in the same step, so they are not in the way.
    assert preview(session.worktree, "merge") == Preview(uncommitted=["a.txt"])
    session.commit()
    git_dir = project.root / ".git"
    (git_dir / "MERGE_HEAD").write_text(project.read_id("rev-parse", "HEAD") + "\n")
    assert "A merge is in progress" in blocked(project, session)
    (git_dir / "MERGE_HEAD").unlink()
    project.git("checkout", "--quiet", "--detach")
    (git_dir / "rebase-merge").mkdir()
    (git_dir / "rebase-merge" / "head-name").write_text("refs/heads/main\n")
    assert "is being rebased" in blocked(project, session)
    shutil.rmtree(git_dir / "rebase-merge")
    session.git("checkout", "--quiet", "-b", "other")
    assert "another branch or commit checked out" in blocked(project, session)
    session.git("checkout", "--quiet", "perdure/x")
    project.git("branch", "-m", "main", "trunk")
    assert "branch main does not exist" in blocked(project, session)
    project.git("branch", "-m", "trunk", "main")
    detached = Session(project, "detached")
    detached.write("a.txt", "changed\n")
    detached.commit()
    assert "no branch to merge into" in blocked(project, detached)
    # With the base checked out nowhere, only the branch moves.
    files = project.files()
    assert session.bring_back() == []
    assert project.files() == files
    assert project.read_id("rev-parse", "main") == project.read_id("rev-parse", "perdure/x")


def test_a_merge_needs_an_author_unless_it_is_a_fast_forward(
    project: Project, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.write("new.txt", "new\n")
    session.commit()
    for name in AUTHOR:
        monkeypatch.delenv(name)
    assert preview(session.worktree, "merge").blocked is None
    project.write("a.txt", "changed\n")
    project.commit()
    for strategy in STRATEGIES:
        assert "git config --global user.name" in blocked(project, session, strategy)


def test_a_base_that_is_checked_out_in_another_work_tree_changes_there(
    project: Project, session: Session, tmp_path: Path
) -> None:
    session.write("a.txt", "changed\n")
    session.commit()
    project.git("checkout", "--quiet", "-b", "other")
    project.git("worktree", "add", "--quiet", str(tmp_path / "mine"), "main")
    files = project.files()
    assert session.bring_back() == []
    assert project.files() == files
    assert (tmp_path / "mine" / "a.txt").read_text() == "changed\n"
    assert project.git("-C", str(tmp_path / "mine"), "status", "--porcelain") == b""
    session.write("a.txt", "changed again\n")
    session.commit()
    project.git("worktree", "lock", str(tmp_path / "mine"))
    os.rename(tmp_path / "mine", tmp_path / "unmounted")
    assert "not available now" in blocked(project, session)


def test_a_missing_session_folder_does_not_stop_a_merge(project: Project, session: Session) -> None:
    session.write("new.txt", "new\n")
    session.commit()
    project.write("a.txt", "changed\n")
    project.commit()
    shutil.rmtree(session.root)
    assert session.bring_back("rebase") == []
    assert project.read("new.txt") == b"new\n"
    ensure(session.worktree)
    assert session.files() == project.files()


@both
def test_line_endings_and_keywords_are_written_as_by_a_checkout(
    strategy: Strategy, project: Project, tmp_path: Path
) -> None:
    project.git("config", "core.autocrlf", "true")
    project.write(".gitattributes", "*.bin -text\n*.id ident\n*.lf eol=lf\n*.u16 working-tree-encoding=UTF-16LE\n")
    names = ("text.txt", "gone.txt", "raw.bin", "key.id", "unix.lf")
    for name in names:
        project.write(name, "one\n$Id$\n" if name == "key.id" else "one\n")
    project.write("wide.u16", "one\n".encode("utf-16-le"))
    project.commit()
    # In the project some files have other line endings than a checkout writes. For git they are unchanged.
    session = Session(project, "x")
    assert session.read("text.txt") == b"one\r\n"
    assert project.read("text.txt") == b"one\n"
    for name in names:
        session.write(name, session.read(name) + b"two\r\n")
    session.delete("gone.txt")
    session.write("new.txt", b"new\r\n")
    session.write("wide.u16", "one\r\ntwo\r\n".encode("utf-16-le"))
    session.write("later.crlf", "one\ntwo\n")
    session.write(".gitattributes", session.read(".gitattributes") + b"*.crlf -text\n")
    session.commit()
    project.write("run.sh", "changed\n", mode=0o755)
    project.commit()
    assert session.bring_back(strategy) == []
    assert status(project) == status(session) == []
    project.git("clone", "--quiet", "-c", "core.autocrlf=true", str(project.root), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    changed = {b"raw.bin", b"key.id", b"unix.lf", b"text.txt", b"new.txt", b"wide.u16", b"later.crlf"}
    files = project.files()
    assert b"gone.txt" not in files
    assert {path: files[path] for path in changed} == {path: clone.files()[path] for path in changed}
    assert project.read("text.txt") == b"one\r\ntwo\r\n"


def test_hooks_filters_and_merge_drivers_do_not_run(project: Project, session: Session, tmp_path: Path) -> None:
    session.write("a.txt", "one\ntwo\nthree\nfour\n")
    session.write("data.bin", "a pointer\n")
    session.commit()
    project.write("a.txt", "zero\none\ntwo\nthree\n")
    project.commit()
    marks = make_hostile(project, tmp_path)
    attributes = project.root / ".git" / "info" / "attributes"
    attributes.write_text("*.txt merge=evil\n")
    for strategy in STRATEGIES:
        with pytest.raises(MergeConflict):
            session.plan(strategy)
    attributes.write_text("*.bin filter=evil\n")
    reason = preview(session.worktree, "merge").blocked
    assert reason and "data.bin: stored through the filter evil" in reason
    attributes.unlink()
    assert session.bring_back("rebase") == []
    assert marked(marks) == []


def test_submodules_move_in_the_index_and_stay_on_disk(project: Project, tmp_path: Path) -> None:
    library = Project(tmp_path / "library")
    library.write("c.txt", "1\n")
    first = library.commit()
    library.write("c.txt", "2\n")
    second = library.commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "sub")
    project.git("-C", "sub", "checkout", "--quiet", first)
    project.commit("with a submodule")
    session = Session(project, "x")
    session.git("update-index", "--cacheinfo", f"160000,{second},sub")
    session.git("commit", "--quiet", "--message", "newer library")
    assert session.bring_back() == []
    assert project.read("sub/c.txt") == b"1\n"
    assert second in project.git("ls-files", "--stage", "sub").decode()


def test_files_that_are_not_checked_out_stay_so(project: Project) -> None:
    session = Session(project, "x")
    session.write("folder/b.txt", "changed\n")
    session.write("a.txt", "changed\n")
    session.commit()
    project.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    assert session.bring_back() == []
    assert status(project) == []
    assert set(project.files()) == {b"a.txt"}
    assert project.git("show", ":folder/b.txt") == b"changed\n"


def test_names_that_are_no_text_and_changes_of_type(project: Project, session: Session) -> None:
    session.write(b'\xff\n".txt', "odd\n")
    session.write("-dash", "dash\n")
    session.write("cr\r", "cr\n")
    session.delete("a.txt")
    session.link("a.txt", b"\xff\n")
    session.delete("run.sh")
    session.write("run.sh/inner", "inner\n")
    os.chmod(session.place("folder/b.txt"), 0o755)
    session.commit()
    assert session.bring_back() == []
    assert project.files() == session.files()
    assert status(project) == []


@both
@pytest.mark.parametrize("options", [["--object-format=sha256"], ["--separate-git-dir=../elsewhere.git"]])
def test_unusual_repositories(options: list[str], strategy: Strategy, tmp_path: Path) -> None:
    project = Project(tmp_path / "project", *options)
    project.write("a.txt", "a\n")
    project.write("gone.txt", "gone\n")
    project.commit()
    session = Session(project, "x")
    session.write("a.txt", "changed\n")
    session.delete("gone.txt")
    session.commit()
    project.write("b.txt", "b\n")
    project.commit()
    assert session.bring_back(strategy) == []
    assert status(project) == []
    assert project.files() == project.recorded("main")
    assert remove(session.worktree)


def change_project(project: Project, what: str) -> Any:
    match what:
        case "commit":
            project.git("commit", "--quiet", "--allow-empty", "--message", "by the user")
        case "checkout":
            project.git("checkout", "--quiet", "-b", "other")
        case "edit":
            project.write("a.txt", "by the user\n")
        case "stage":
            project.git("rm", "--quiet", "--cached", "a.txt")
        case "untracked":
            project.write("new.txt", "by the user\n")
        case "operation":
            (project.root / ".git" / "MERGE_HEAD").write_text(project.read_id("rev-parse", "HEAD") + "\n")


@both
@pytest.mark.parametrize("what", ["commit", "checkout", "edit", "stage", "untracked", "operation"])
def test_what_happens_after_the_plan_stops_it_before_it_starts(
    what: str, strategy: Strategy, project: Project, session: Session
) -> None:
    session.write("a.txt", "changed\n")
    session.write("new.txt", "new\n")
    session.commit()
    project.write("run.sh", "changed\n")
    project.commit()
    plan = session.plan(strategy)
    change_project(project, what)
    before = state(project, session)
    with pytest.raises(GitError) as raised:
        finish(plan)
    assert state(project, session) == before
    assert isinstance(raised.value, Outdated) == (what in ("commit", "checkout"))


def test_a_plan_is_outdated_when_the_session_goes_on(project: Project, session: Session) -> None:
    session.write("a.txt", "changed\n")
    session.commit()
    project.write("run.sh", "changed\n")
    project.commit()
    plan = session.plan("rebase")
    session.write("a.txt", "changed again\n")
    session.commit()
    before = state(project, session)
    with pytest.raises(Outdated):
        finish(plan)
    assert state(project, session) == before


@both
def test_a_merge_that_runs_out_of_space_after_the_branches_moved_is_completed_by_the_next_try(
    strategy: Strategy, project: Project, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    session.write("a.txt", "one\nnew\nthree\n")
    session.write("new", "new\n")
    session.commit()
    project.write("folder/b.txt", "changed\n")
    project.commit()
    plan = session.plan(strategy)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fail)
        with pytest.raises(HalfDone, match="No space left on device"):
            finish(plan)
    assert project.read_id("rev-parse", "main") == plan.base_new
    with pytest.raises(AssertionError, match=r"index\.lock"):
        project.git("commit", "--all", "--message", "would revert the merge")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(HalfDone):
            finish(plan)
    assert finish(plan) == []
    assert (status(project), status(session)) == ([], [])
    assert project.read("new") == b"new\n"
    assert state(project, session)["leftovers"] == []


def test_a_merge_that_fails_before_the_branches_move_changes_nothing(
    project: Project, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise GitError("The disk is full.")

    session.write("a.txt", "one\nnew\nthree\n")
    session.commit()
    plan, before = session.plan(), state(project, session)
    with monkeypatch.context() as patched:
        patched.setattr(index, "write", fail)
        with pytest.raises(GitError, match="disk is full") as raised:
            finish(plan)
    assert not isinstance(raised.value, HalfDone)
    assert state(project, session) == before


def test_a_half_checked_out_worktree_is_not_rebased(project: Project, session: Session) -> None:
    session.write("new", "new\n")
    session.commit()
    project.write("folder/b.txt", "changed\n")
    project.commit()
    (Path(session.repository.git_dir) / "perdure-checkout").touch()
    with pytest.raises(GitError, match="not completely checked out"):
        merge.prepare(session.worktree, "rebase")
