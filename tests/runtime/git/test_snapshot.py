"""A snapshot has exactly the bytes of the work tree, and changes nothing that belongs to the user."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.runtime.git.command import GitError, GitMissing
from perdure.runtime.git.snapshot import LeftAlone, Limits, OverBudget, Snapshot, Snapshots
from tests.runtime.git.project import Project, git_modes, make_hostile, marked

NOBODY = 65534


def assert_exact(project: Project, snapshot: Snapshot) -> None:
    assert project.recorded(snapshot.tree) == git_modes(project.files())


def kinds(snapshot: Snapshot) -> dict[str, str]:
    return {each.path: each.kind for each in snapshot.left_alone}


def test_a_clean_work_tree_has_the_tree_of_its_commit(project: Project, take: Callable[[], Snapshot]) -> None:
    snapshot = take()
    assert snapshot.tree == project.read_id("rev-parse", "HEAD^{tree}")
    assert (snapshot.head, snapshot.branch) == (project.read_id("rev-parse", "HEAD"), "main")
    assert (snapshot.left_alone, snapshot.files) == ([], 3)


def test_changed_new_and_deleted_files_are_recorded(project: Project, take: Callable[[], Snapshot]) -> None:
    take()
    project.write("a.txt", b"\x00binary\r\nwithout newline")
    project.write("new/deep/file", "")
    project.delete("folder/b.txt")
    os.chmod(project.place("run.sh"), 0o644)
    assert_exact(project, take())


@pytest.mark.parametrize("back_to", [None, 1_000_000_000], ids=["now", "long ago"])
def test_an_edit_of_the_same_size_at_the_same_time_is_recorded(
    project: Project, take: Callable[[], Snapshot], back_to: int | None
) -> None:
    for number in range(10):
        project.write("a.txt", f"version {number:03}\n")
        found = os.stat(project.place("a.txt"))
        time_ns = found.st_mtime_ns if back_to is None else back_to
        os.utime(project.place("a.txt"), ns=(time_ns, time_ns))
        assert project.recorded(take().tree)[b"a.txt"][1] == f"version {number:03}\n".encode()


def test_ignored_files_are_left_out_unless_git_tracks_them(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    project.write("tracked.log", "tracked\n")
    project.commit()
    project.write(".gitignore", "*.log\n")
    (project.root / ".git" / "info" / "exclude").write_text("private\n")
    (tmp_path / "global").write_text("*.swp\n")
    project.git("config", "core.excludesFile", str(tmp_path / "global"))
    for path in ("new.log", "private", "x.swp", "kept"):
        project.write(path, "new\n")
    project.write("tracked.log", "changed\n")
    recorded = project.recorded(take().tree)
    assert recorded.keys() == {b".gitignore", b"a.txt", b"folder/b.txt", b"run.sh", b"tracked.log", b"kept"}
    assert recorded[b"tracked.log"][1] == b"changed\n"


def test_a_file_that_becomes_ignored_is_taken_out(project: Project, take: Callable[[], Snapshot]) -> None:
    project.write("new.log", "new\n")
    assert b"new.log" in project.recorded(take().tree)
    project.write(".gitignore", "*.log\n")
    assert b"new.log" not in project.recorded(take().tree)


@pytest.mark.parametrize(
    "name",
    [
        b"with space", b"-leading", b":colon", b":(top)magic", b"new\nline", b"tab\there", b"\xff\xfe bytes",
        b'quote"s', b"back\\slash", b"*", b"[a]", b"a" * 250, b"git~1", b"CON", b".gitfoo", b"\x1b[31m", b"#hash",
        b"-", b"--", b"a/-b/:c/d\ne", "ä".encode(), b"!bang", "\u200c.git".encode(),
    ],
)  # fmt: skip
def test_any_file_name_is_recorded(project: Project, take: Callable[[], Snapshot], name: bytes) -> None:
    project.write(name, "one\n")
    project.link(name + b".link"[: 255 - len(name)], name) if len(name) < 250 else None
    assert_exact(project, take())
    project.write(name, "two\n")
    assert_exact(project, take())
    project.delete(name)
    assert_exact(project, take())


def test_names_that_git_refuses_are_named(project: Project, take: Callable[[], Snapshot]) -> None:
    project.write(".GIT/config", "x")
    project.write("folder/.Git", "x")
    project.link(".gitmodules", "a.txt")
    snapshot = take()
    assert kinds(snapshot) == {".GIT/config": "special", "folder/.Git": "special", ".gitmodules": "special"}
    assert snapshot.files == 3


def test_line_ends_are_recorded_as_they_are(project: Project, take: Callable[[], Snapshot]) -> None:
    project.git("config", "core.autocrlf", "true")
    project.write(
        ".gitattributes", "*.dos text eol=crlf\n*.unix text eol=lf\n*.id ident\n*.utf16 working-tree-encoding=UTF-16\n"
    )
    for name in ("a.txt", "b.dos", "c.unix", "d.id", "e.utf16"):
        project.write(name, b"$Id$\r\nmixed\nlast\r")
    assert_exact(project, take())
    project.git("add", "a.txt", "b.dos", "c.unix", "d.id")
    project.git("commit", "--quiet", "--message", "converted")
    assert_exact(project, take())
    assert project.git("cat-file", "blob", "HEAD:b.dos") != project.read("b.dos")


def test_links_are_recorded_as_links_and_never_followed(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b.txt").write_text("outside\n")
    project.link("to-file", "a.txt")
    project.link("to-folder", str(tmp_path / "outside"))
    project.link("nowhere", b"\xff/missing\n")
    project.link("folder/loop", ".")
    assert_exact(project, take())
    # A tracked folder becomes a link to one with the same names.
    shutil.rmtree(project.root / "folder")
    project.link("folder", str(tmp_path / "outside"))
    assert_exact(project, take())


def test_types_may_change(project: Project, take: Callable[[], Snapshot]) -> None:
    def file(path: str) -> None:
        project.write(path, "file\n")

    def link(path: str) -> None:
        project.link(path, "folder")

    def folder(path: str) -> None:
        project.write(f"{path}/inner", "inner\n")

    project.write("x", "tracked\n")
    project.commit()
    for make in (file, link, folder, link, file, folder, file):
        place = project.root / "x"
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
        make("x")
        assert_exact(project, take())


def test_a_repository_without_commits_has_a_snapshot(tmp_path: Path, snapshots: Snapshots) -> None:
    project = Project(tmp_path / "project")
    empty = snapshots.take(project.repository)
    assert (empty.head, empty.branch, empty.files) == (None, "main", 0)
    project.write("a", "a")
    assert_exact(project, snapshots.take(project.repository))


def test_a_repository_with_sha256_has_a_snapshot(tmp_path: Path, snapshots: Snapshots) -> None:
    project = Project(tmp_path / "project", "--object-format=sha256")
    project.write("a", "a")
    project.commit()
    project.write("b", "b")
    snapshot = snapshots.take(project.repository)
    assert len(snapshot.tree) == 64
    assert_exact(project, snapshot)
    assert_exact(project, snapshots.take(project.repository))


def test_a_linked_work_tree_has_its_own_snapshot(project: Project, snapshots: Snapshots, tmp_path: Path) -> None:
    project.git("worktree", "add", "--quiet", str(tmp_path / "second"))
    second = Project(tmp_path / "second")
    second.write("a.txt", "second\n")
    project.write("a.txt", "first\n")
    for each, branch in ((second, "second"), (project, "main"), (second, "second")):
        snapshot = snapshots.take(each.repository)
        assert snapshot.branch == branch
        assert_exact(each, snapshot)


def test_a_repository_that_borrows_objects_has_a_snapshot(
    project: Project, snapshots: Snapshots, tmp_path: Path
) -> None:
    project.git("clone", "--quiet", "--shared", str(project.root), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    clone.write("new", "new\n")
    assert_exact(clone, snapshots.take(clone.repository))
    assert not any(project.root.glob("**/index.lock"))


def test_a_sub_directory_has_the_snapshot_of_the_whole_work_tree(project: Project, snapshots: Snapshots) -> None:
    below = Project(project.root / "folder" / "..")
    assert snapshots.take(below.repository).files == 3


def test_a_sparse_checkout_has_what_is_on_disk(project: Project, take: Callable[[], Snapshot]) -> None:
    project.write("other/c.txt", "c\n")
    project.commit()
    project.git("sparse-checkout", "set", "--sparse-index", "folder")
    assert b"other/c.txt" not in project.files()
    before = project.private_parts()
    assert_exact(project, take())
    assert project.private_parts() == before
    project.write("other/c.txt", "there after all\n")
    assert_exact(project, take())


def test_special_indexes_are_read(project: Project, take: Callable[[], Snapshot]) -> None:
    project.write("intended", "intended\n")
    project.git("add", "--intent-to-add", "intended")
    project.git("update-index", "--split-index")
    project.git("update-index", "--untracked-cache", "--index-version=4")
    project.git("update-index", "--assume-unchanged", "a.txt")
    project.git("update-index", "--skip-worktree", "run.sh")
    project.write("a.txt", "assumed\n")
    project.write("run.sh", "skipped\n")
    before = project.private_parts()
    assert_exact(project, take())
    assert project.private_parts() == before


def test_an_unresolved_merge_has_the_files_as_they_are(project: Project, take: Callable[[], Snapshot]) -> None:
    project.git("checkout", "--quiet", "-b", "other")
    project.write("a.txt", "theirs\n")
    project.delete("run.sh")
    project.commit()
    project.git("checkout", "--quiet", "main")
    project.write("a.txt", "ours\n")
    project.write("run.sh", "changed\n")
    project.commit()
    with pytest.raises(AssertionError):
        project.git("merge", "other")
    before = project.private_parts()
    snapshot = take()
    assert b"<<<<<<<" in project.recorded(snapshot.tree)[b"a.txt"][1]
    assert_exact(project, snapshot)
    assert project.private_parts() == before


def test_during_a_rebase_there_is_no_snapshot(project: Project, take: Callable[[], Snapshot]) -> None:
    (project.root / ".git" / "rebase-merge").mkdir()
    with pytest.raises(GitError, match=r"A rebase is in progress in .*git rebase --continue"):
        take()


def test_nothing_of_the_user_changes_and_no_program_is_started(
    project: Project, snapshots: Snapshots, tmp_path: Path
) -> None:
    project.write("x.long", "long\n")
    project.write("staged", "staged\n")
    project.write("stashed", "stashed\n")
    project.commit()
    project.write("stashed", "changed\n")
    project.git("stash")
    project.write("staged", "staged again\n")
    project.git("add", "staged")
    project.git("pack-refs", "--all")
    project.write("staged", "changed after it was staged\n")
    project.write("untracked", "untracked\n")
    marks = make_hostile(project, tmp_path / "hostile")
    repository = project.repository
    before, files = project.private_parts(), project.files()
    first = snapshots.take(repository)
    project.write("x.long", "longer\n")
    second = snapshots.take(repository)
    snapshots.keep(repository, "refs/perdure/s/1", second.tree, parent_tree=first.tree, note={})
    snapshots.forget(repository, "s")
    assert marked(marks) == []
    assert project.private_parts() == before
    assert project.files() == files | {b"x.long": (stat.S_IFREG | 0o644, b"longer\n")}


def test_submodules_keep_their_entry_and_other_repositories_are_left_out(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    library = Project(tmp_path / "library")
    library.write("l", "l")
    commit = library.commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "sub/module")
    nested = Project(project.root / "nested" / "repository")
    nested.write("inner", "inner")
    Project(project.root / "unborn").write("x", "x")
    snapshot = take()
    assert kinds(snapshot) == {
        "sub/module": "submodule",
        "nested/repository/": "nested_repository",
        "unborn/": "nested_repository",
    }
    assert project.read_id("rev-parse", f"{snapshot.tree}:sub/module") == commit
    shutil.rmtree(project.root / "sub" / "module")
    assert take().tree == snapshot.tree
    project.write("sub/module", "a file now\n")
    replaced = take()
    assert project.recorded(replaced.tree)[b"sub/module"][1] == b"a file now\n"
    project.delete("sub/module")
    (project.root / "sub" / "module").mkdir()
    assert take().tree == snapshot.tree


def test_a_repository_made_inside_a_tracked_folder_hides_nothing_that_is_tracked(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    inner = Project(project.root / "folder")
    inner.write("b.txt", "changed\n")
    snapshot = take()
    assert project.recorded(snapshot.tree)[b"folder/b.txt"][1] == b"changed\n"


def test_bare_repositories_are_left_out_unless_git_tracks_their_files(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    fixture = Project(project.root / "fixtures" / "tracked.git", "--bare")
    fixture.git("hash-object", "-w", "--stdin", input=b"tracked")
    project.commit()
    fixture.git("hash-object", "-w", "--stdin", input=b"untracked")
    project.git("rm", "--cached", "--quiet", "fixtures/tracked.git/HEAD")
    Project(project.root / "cache" / "bare.git", "--bare")
    Project(project.root / "cache" / "bare.git" / "modules" / "inner", "--bare")
    # Names alone make no repository.
    project.write("plain/HEAD", "x")
    project.write("plain/refs/x", "x")
    snapshot = take()
    assert kinds(snapshot) == {"cache/bare.git/": "nested_repository"}
    recorded = project.recorded(snapshot.tree)
    assert {path for path in project.files() if not path.startswith(b"cache/bare.git/")} == recorded.keys()


def test_files_behind_a_filter_count_like_untracked_ones(
    project: Project, take: Callable[[], Snapshot], snapshots: Snapshots, tmp_path: Path
) -> None:
    for key in ("clean", "smudge"):
        project.git("config", f"filter.store.{key}", f"tee -a {tmp_path}/ran | head -c 10")
    project.write(".gitattributes", "*.big filter=store\n*.unknown filter=other\n")
    for name, size in (("a.big", 3000), ("b.big", 5000), ("c.unknown", 9000), ("d.txt", 9000)):
        project.write(name, "x" * size)
    project.commit()
    (tmp_path / "ran").unlink()
    repository = project.repository
    assert snapshots.take(repository, limits=Limits(total_bytes=8000)).left_alone == []
    project.write("new", "x" * 100)
    snapshot = snapshots.take(repository, limits=Limits(total_bytes=8000))
    reason = "git stores it through the filter store, so a snapshot needs its 4.9 KiB once more. There are too many "
    assert snapshot.left_alone == [LeftAlone("b.big", "too_many", f"{reason}such files.")]
    assert project.recorded(snapshot.tree).keys() == project.files().keys() - {b"b.big"}
    assert not (tmp_path / "ran").exists()


def test_large_files_are_left_alone_and_named(project: Project, snapshots: Snapshots) -> None:
    limits = Limits(file_bytes=1000)
    repository = project.repository
    project.write("grows", b"x" * 1000)
    assert snapshots.take(repository, limits=limits).left_alone == []
    project.write("grows", b"x" * 1001)
    project.write("a.txt", b"x" * 5_000_000)
    snapshot = snapshots.take(repository, limits=limits)
    assert snapshot.left_alone == [
        LeftAlone("a.txt", "large", "It has 4.8 MiB, more than the limit of 1000 bytes."),
        LeftAlone("grows", "large", "It has 1001 bytes, more than the limit of 1000 bytes."),
    ]
    assert project.recorded(snapshot.tree).keys() == {b"folder/b.txt", b"run.sh"}


def test_special_files_are_left_alone(project: Project, take: Callable[[], Snapshot]) -> None:
    os.mkfifo(project.place("pipe"))
    project.delete("a.txt")
    project.delete("run.sh")
    os.mkfifo(project.place("a.txt"))
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's address is shorter than a path may be.
        folder = os.open(project.root, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/run.sh")
        os.close(folder)
        snapshot = take()
    assert kinds(snapshot) == {"a.txt": "special", "run.sh": "special"}
    assert snapshot.files == 1


def test_the_largest_untracked_folders_are_left_alone_if_there_are_too_many_files(
    project: Project, snapshots: Snapshots
) -> None:
    for number in range(30):
        project.write(f"folder/node_modules/{number}", "x")
        project.write(f"build/{number}", "x" * 10)
    project.write("folder/new", "new")
    snapshot = snapshots.take(project.repository, limits=Limits(files=40))
    assert kinds(snapshot) == {"build/": "too_many"}
    assert snapshot.files == 34
    snapshot = snapshots.take(project.repository, limits=Limits(files=4))
    assert kinds(snapshot) == {"build/": "too_many", "folder/node_modules/": "too_many"}
    assert project.recorded(snapshot.tree).keys() == {b"a.txt", b"folder/b.txt", b"folder/new", b"run.sh"}
    snapshot = snapshots.take(project.repository, limits=Limits(total_bytes=299))
    assert kinds(snapshot) == {"build/": "too_many"}
    assert "30 of 300 bytes" in snapshot.left_alone[0].reason


def test_a_work_tree_beyond_its_budget_has_no_snapshot(project: Project, snapshots: Snapshots) -> None:
    repository = project.repository
    with pytest.raises(OverBudget, match="git tracks 3 files"):
        snapshots.take(repository, limits=Limits(files=2))
    with pytest.raises(OverBudget, match="could not be recorded within 0 seconds"):
        snapshots.take(repository, limits=Limits(time_s=0))
    for number in range(1100):
        project.write(f"{number}", "xx")
    with pytest.raises(OverBudget, match=r"files and folders .* would have to be left alone"):
        snapshots.take(repository, limits=Limits(file_bytes=1, total_bytes=1))


def test_without_git_there_is_a_sentence(
    project: Project, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = project.repository
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitMissing, match="Install git"):
        snapshots.take(repository)


def test_a_damaged_index_of_the_user_is_an_error_and_stays_as_it_is(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    index = project.root / ".git" / "index"
    index.write_bytes(b"damaged")
    with pytest.raises(GitError, match="index is damaged"):
        take()
    assert index.read_bytes() == b"damaged"


@pytest.mark.full
def test_two_snapshots_at_the_same_time_are_both_complete(project: Project, tmp_path: Path) -> None:
    for number in range(200):
        project.write(f"new/{number}", f"{number}\n")
    code = (
        "import sys; from pathlib import Path; from perdure.runtime.git.snapshot import Snapshots\n"
        "from perdure.runtime.git.repository import find\n"
        "for _ in range(5): print(Snapshots(Path(sys.argv[1])).take(find(sys.argv[2])).tree)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data"), str(project.root)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    trees = {line for process in running for line in process.communicate(timeout=60)[0].split()}
    assert len(trees) == 1
    assert project.recorded(trees.pop().decode()) == git_modes(project.files())
    assert not list(tmp_path.glob("data/*/new.*"))


@pytest.mark.needs("root")
def test_unreadable_files_are_left_alone_and_named() -> None:
    """Root can read everything, so a child of another user takes the snapshot, in a folder that it can reach."""
    with tempfile.TemporaryDirectory(prefix="perdure-git-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        project = Project(folder / "project")
        project.write("a.txt", "a\n")
        project.commit()
        project.write("secret", "secret\n", mode=0)
        project.write("closed/inner", "inner\n")
        project.git("add", "closed")
        os.chmod(project.place("closed"), 0)
        # Their files can be opened, but not listed.
        project.write("unlisted/untracked", "untracked\n")
        os.chmod(project.place("unlisted"), 0o311)
        (folder / "data").mkdir()
        for place in folder.rglob("*"):
            os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
        code = (
            "import json, os, sys; from pathlib import Path\n"
            "from perdure.runtime.git.snapshot import Snapshots; from perdure.runtime.git.repository import find\n"
            f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
            "found = Snapshots(Path(sys.argv[1])).take(find(sys.argv[2]))\n"
            "print(json.dumps([sorted((each.path, each.kind) for each in found.left_alone), found.files]))\n"
        )
        command = [sys.executable, "-c", code, str(folder / "data"), str(project.root)]
        env = {**os.environ, "HOME": name, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    named = ["closed/", "closed/inner", "secret", "unlisted/"]
    assert json.loads(done.stdout) == [[[path, "unreadable"] for path in named], 1]


def test_files_that_an_interrupted_restore_left_are_not_recorded(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    project.write("folder/.perdure-0123456789abcdef0123.part", "half")
    project.write(".perdure-other", "a user's\n")
    snapshot = take()
    assert project.recorded(snapshot.tree).keys() == {b"a.txt", b"folder/b.txt", b"run.sh", b".perdure-other"}


def test_a_changed_configuration_is_noticed(project: Project, take: Callable[[], Snapshot]) -> None:
    take()
    project.git("config", "core.fileMode", "false")
    os.chmod(project.place("a.txt"), 0o755)
    project.write("new", "new", mode=0o755)
    recorded = project.recorded(take().tree)
    assert stat.S_IMODE(recorded[b"a.txt"][0]) == 0o644
    assert stat.S_IMODE(recorded[b"new"][0]) == 0o644


def test_the_programs_of_these_tests_do_run_when_a_user_runs_git(project: Project, tmp_path: Path) -> None:
    """Otherwise, the tests that none was started would prove nothing."""
    marks = make_hostile(project, tmp_path / "hostile")
    project.write("a.txt", "changed\n")
    project.git("-c", "filter.evil.required=false", "status")
    project.git("diff", "HEAD")
    project.git("-c", "diff.external=", "diff", "--no-ext-diff", "HEAD")
    project.git("update-ref", "refs/heads/other", "HEAD")
    project.git("-c", "commit.gpgSign=false", "-c", "gc.auto=0", "commit", "--allow-empty", "--message", "x")
    names = marked(marks)
    assert {"clean", "diff", "textconv", "fsmonitor"} <= set(names)
    assert {"reference-transaction", "pre-commit", "post-index-change", "post-commit"} <= set(names)
