"""Applying steps changes exactly the paths that are as expected, and follows no links."""

import json
import os
import shutil
import stat
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from perdure.runtime.git.apply import Conflict, Step, apply, check, outcome, plan
from perdure.runtime.git.command import GitError
from perdure.runtime.git.difference import Entry, entries
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git.project import Project, make_hostile, marked


class Stage:
    """A work tree, and the steps back to its first state."""

    def __init__(self, project: Project, snapshots: Snapshots) -> None:
        self.project = project
        self.snapshots = snapshots
        self.repository = project.repository
        self.first = self.take()

    def take(self) -> str:
        return self.snapshots.take(self.repository).tree

    def back(self, *paths: str) -> list[Step]:
        return plan(self.repository, self.take(), self.first, paths or None)

    def conflicts(self, steps: list[Step]) -> dict[str, str]:
        """Apply the steps. `check` must have said the same before."""
        found = check(self.repository, steps)
        assert sorted(apply(self.repository, steps), key=lambda each: each.path) == sorted(
            found, key=lambda each: each.path
        )
        return {conflict.path: conflict.reason for conflict in found}


@pytest.fixture
def stage(project: Project, snapshots: Snapshots) -> Stage:
    return Stage(project, snapshots)


def test_a_plan_can_be_limited_to_paths_and_stored(stage: Stage) -> None:
    stage.project.write("a.txt", "changed\n")
    stage.project.write("folder/b.txt", "changed\n")
    steps = stage.back("folder")
    assert [step.path for step in steps] == ["folder/b.txt"]
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(steps))), list[Step]) == steps
    assert stage.conflicts(steps) == {}
    assert stage.project.read("a.txt") == b"changed\n"
    assert stage.project.read("folder/b.txt") == b"b\n"


def test_the_outcome_has_the_steps_that_are_done_and_nothing_else(stage: Stage) -> None:
    stage.project.write("a.txt", "changed\n")
    stage.project.write("folder/b.txt", "changed\n")
    stage.project.write("new/c.txt", "new\n")
    stage.project.write("d.txt", "new\n")
    before, steps = stage.take(), stage.back("a.txt", "folder", "new", "d.txt")
    assert outcome(stage.repository, before, steps) == before
    # Somebody else is at work: in a file with a step, before and after it is carried out, and in one without.
    stage.project.write("folder/b.txt", "mine\n")
    stage.project.write("else.txt", "mine\n")
    assert [each.path for each in apply(stage.repository, steps)] == ["folder/b.txt"]
    stage.project.write("d.txt", "mine\n")
    after = outcome(stage.repository, before, steps)
    first = entries(stage.repository, stage.first)
    found = entries(stage.repository, after)
    changed = {path for path in first.keys() | found.keys() if first.get(path) != found.get(path)}
    assert changed == {"folder/b.txt", "d.txt"}
    then = entries(stage.repository, before)
    assert {path: found[path] for path in changed} == {path: then[path] for path in changed}


def test_steps_that_are_done_change_nothing(stage: Stage) -> None:
    stage.project.write("a.txt", "changed\n")
    steps = stage.back()
    assert stage.conflicts(steps) == {}
    found = os.stat(stage.project.place("a.txt"))
    assert stage.conflicts(steps) == {}
    assert os.stat(stage.project.place("a.txt")) == found


def test_a_path_with_another_state_is_left_alone_and_named(stage: Stage) -> None:
    project = stage.project
    for path in ("a.txt", "folder/b.txt", "new"):
        project.write(path, "by the agent\n")
    project.delete("run.sh")
    steps = stage.back()
    project.write("a.txt", "by somebody\n")
    project.delete("folder/b.txt")
    project.write("new", "by somebody, longer\n")
    project.write("run.sh", "by somebody\n")
    assert stage.conflicts(steps) == {
        "a.txt": "It was changed in the meantime.",
        "folder/b.txt": "It was deleted in the meantime.",
        "new": "It was changed in the meantime.",
        "run.sh": "There is a file now that was not there before.",
    }
    assert project.read("a.txt") == b"by somebody\n"
    assert project.read("run.sh") == b"by somebody\n"


def test_the_mode_alone_is_a_change_too(stage: Stage) -> None:
    os.chmod(stage.project.place("a.txt"), 0o755)
    steps = stage.back()
    os.chmod(stage.project.place("a.txt"), 0o644)
    assert stage.conflicts(steps) == {}
    os.chmod(stage.project.place("run.sh"), 0o644)
    steps = stage.back()
    os.chmod(stage.project.place("a.txt"), 0o755)
    inode = os.stat(stage.project.place("run.sh")).st_ino
    assert stage.conflicts(steps) == {}
    found = os.stat(stage.project.place("run.sh"))
    assert (found.st_ino, stat.S_IMODE(found.st_mode)) == (inode, 0o755)


def test_a_file_system_without_modes_has_no_conflicts_about_them(stage: Stage) -> None:
    stage.project.git("config", "core.fileMode", "false")
    stage.project.write("a.txt", "changed\n", mode=0o755)
    assert stage.conflicts(stage.back()) == {}
    assert stage.project.read("a.txt") == b"one\ntwo\nthree\n"


def test_permissions_beyond_those_of_git_are_kept(stage: Stage) -> None:
    project = stage.project
    project.write("a.txt", "changed\n", mode=0o600)
    project.write("run.sh", "changed\n", mode=0o640)
    assert stage.conflicts(stage.back()) == {}
    assert stat.S_IMODE(os.stat(project.place("a.txt")).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(project.place("run.sh")).st_mode) == 0o750


@pytest.mark.needs("root")
def test_the_owner_of_a_replaced_file_is_kept(stage: Stage) -> None:
    stage.project.write("a.txt", "changed\n")
    os.chown(stage.project.place("a.txt"), 12345, 12346)
    assert stage.conflicts(stage.back()) == {}
    found = os.stat(stage.project.place("a.txt"))
    assert (found.st_uid, found.st_gid) == (12345, 12346)


def test_empty_folders_are_removed_unless_they_are_to_be_kept(stage: Stage) -> None:
    project = stage.project
    for path in ("new/deep/er/file", "work/place/file", "shared/file"):
        project.write(path, "x")
    (project.root / "shared" / "empty").mkdir()
    steps = stage.back()
    assert apply(stage.repository, steps, keep=["work/place", "."]) == []
    assert not (project.root / "new").exists()
    assert (project.root / "work" / "place").is_dir()
    assert (project.root / "shared" / "empty").is_dir()
    assert stage.conflicts(steps) == {}
    assert not (project.root / "work").exists()


def test_a_folder_that_gets_files_is_the_same_folder_afterwards(stage: Stage) -> None:
    """A process may have it as its working directory."""
    folder = os.stat(stage.project.place("folder")).st_ino
    os.rename(stage.project.place("folder/b.txt"), stage.project.place("folder/c.txt"))
    assert stage.conflicts(stage.back()) == {}
    assert os.stat(stage.project.place("folder")).st_ino == folder


def test_nothing_is_written_through_a_link(stage: Stage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("outside\n")
    project = stage.project
    project.delete("folder/b.txt")
    steps = stage.back()
    shutil.rmtree(project.root / "folder", ignore_errors=True)
    project.link("folder", str(outside))
    assert stage.conflicts(steps) == {"folder/b.txt": "folder is not a folder."}
    project.delete("folder")
    project.write("folder/b.txt", "changed\n")
    steps = stage.back()
    project.delete("folder/b.txt")
    (project.root / "folder").rmdir()
    project.link("folder", str(outside))
    assert stage.conflicts(steps) == {"folder/b.txt": "It was deleted in the meantime."}
    assert os.listdir(outside) == ["b.txt"]
    assert (outside / "b.txt").read_text() == "outside\n"


def test_a_link_that_replaced_a_folder_goes_before_the_folder_comes_back(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("outside\n")
    shutil.rmtree(stage.project.root / "folder")
    stage.project.link("folder", str(tmp_path))
    assert stage.conflicts(stage.back()) == {}
    assert stage.project.read("folder/b.txt") == b"b\n"
    assert (tmp_path / "b.txt").read_text() == "outside\n"


def test_a_folder_with_ignored_files_is_not_replaced(stage: Stage) -> None:
    project = stage.project
    project.delete("a.txt")
    project.write("a.txt/inner", "inner\n")
    project.write("a.txt/deep/x", "x\n")
    steps = stage.back()
    (project.root / ".git" / "info" / "exclude").write_text("*.log\n")
    project.write("a.txt/kept.log", "kept\n")
    reason = "The folder a.txt has other files, such as a.txt/kept.log."
    assert stage.conflicts(steps) == dict.fromkeys(("a.txt", "a.txt/inner", "a.txt/deep/x"), reason)
    assert project.read("a.txt/inner") == b"inner\n"
    project.delete("a.txt/kept.log")
    (project.root / "a.txt" / "empty" / "folders").mkdir(parents=True)
    assert stage.conflicts(steps) == {}
    assert project.read("a.txt") == b"one\ntwo\nthree\n"


def test_special_files_are_left_alone(stage: Stage) -> None:
    stage.project.delete("a.txt")
    steps = stage.back()
    os.mkfifo(stage.project.place("a.txt"))
    assert stage.conflicts(steps) == {"a.txt": "It is neither a file nor a link now."}


def test_paths_outside_of_the_work_tree_are_refused(stage: Stage) -> None:
    entry = entries(stage.repository, stage.first)["a.txt"]
    for path in ("../x", "/x", "x/../../y", ".git/config", "folder/.GIT/x", "", "a//b", "./a"):
        assert stage.conflicts([Step(path, None, entry)]) == {path: "It is not a path inside the repository."}
        assert stage.conflicts([Step(path, entry, None)]) == {path: "It is not a path inside the repository."}


def test_content_that_is_missing_is_noticed_before_anything_changes(stage: Stage) -> None:
    entry = entries(stage.repository, stage.first)["a.txt"]
    steps = [Step("a.txt", entry, Entry("100644", "1" * 40)), Step("x", None, Entry("100644", "2" * 40))]
    assert stage.conflicts(steps).keys() == {"a.txt", "x"}
    assert stage.project.read("a.txt") == b"one\ntwo\nthree\n"


def test_content_that_is_damaged_is_noticed_before_anything_changes(project: Project, snapshots: Snapshots) -> None:
    project.write("large", os.urandom(100_000))
    stage = Stage(project, snapshots)
    oid = entries(stage.repository, stage.first)["large"].oid
    project.delete("large")
    project.write("a.txt", "changed\n")
    project.write("new", "new\n")
    steps, before = stage.back(), project.files()
    place = project.root / ".git" / "objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:-1000])
    assert check(stage.repository, steps) == []
    with pytest.raises(GitError, match="git cat-file failed"):
        apply(stage.repository, steps)
    assert project.files() == before


def test_a_large_file_is_restored_without_being_in_memory_as_a_whole(project: Project, snapshots: Snapshots) -> None:
    content = os.urandom(19 * 1024 * 1024)
    project.write("large", content)
    stage = Stage(project, snapshots)
    project.delete("large")
    steps = stage.back()
    tracemalloc.start()
    try:
        assert apply(stage.repository, steps) == []
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert project.read("large") == content


@pytest.mark.parametrize("content", ["one\n", "other\n"], ids=["same content", "other content"])
def test_a_file_with_two_spellings_of_its_name_is_left_alone(project: Project, content: str) -> None:
    """As where upper and lower case are the same: there, a file has both names. Here, it needs a link."""
    project.write("folder/README", content)
    os.link(project.place("folder/README"), project.place("folder/readme"))
    oids = [
        project.git("hash-object", "-w", "--stdin", input=text).decode().strip()
        for text in (content.encode(), b"one\n")
    ]
    now, before = (Entry("100644", oid) for oid in oids)
    steps = [Step("folder/README", now, None), Step("folder/readme", None, before)]
    files = project.files()
    assert "folder/README" in {conflict.path for conflict in apply(project.repository, steps)}
    assert project.files() == files
    # Two files whose names differ only in this way are two files.
    project.delete("folder/readme")
    assert apply(project.repository, steps) == []
    assert project.files().keys() == {b"a.txt", b"folder/b.txt", b"folder/readme", b"run.sh"}


def test_what_a_snapshot_left_alone_is_not_in_the_plan(stage: Stage, tmp_path: Path) -> None:
    project = stage.project
    project.write("large", "x" * 100)
    project.write("many/1", "x")
    project.write("many/2", "x")
    project.write("manymore", "x")
    steps = plan(stage.repository, stage.take(), stage.first, without=["large", "many/"])
    assert [step.path for step in steps] == ["manymore"]


def test_submodules_are_never_changed(stage: Stage, tmp_path: Path) -> None:
    project = stage.project
    library = Project(tmp_path / "library")
    library.commit()
    shutil.rmtree(project.root / "folder")
    project.commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "folder")
    steps = stage.back()
    assert [step.path for step in steps] == [".gitmodules"]


def test_a_large_number_of_files_is_written_with_few_processes(stage: Stage) -> None:
    for number in range(600):
        stage.project.write(f"many/{number % 7}/{number}", f"{number % 50}\n")
    full = stage.take()
    shutil.rmtree(stage.project.root / "many")
    steps = plan(stage.repository, stage.take(), full)
    assert len(steps) == 600
    assert stage.conflicts(steps) == {}
    assert stage.take() == full


def test_no_program_of_the_repository_is_started(stage: Stage, tmp_path: Path) -> None:
    stage.project.write("a.txt", "changed\n")
    stage.project.write("new.long", "new\n")
    stage.project.delete("run.sh")
    steps = stage.back()
    marks = make_hostile(stage.project, tmp_path / "hostile")
    private = stage.project.private_parts()
    assert stage.conflicts(steps) == {}
    assert marked(marks) == []
    assert stage.project.private_parts() == private


@pytest.mark.needs("root")
def test_what_the_system_refuses_is_a_conflict_and_the_rest_is_done(stage: Stage) -> None:
    """A full path is too long for the system: not even root can create it."""
    entry = entries(stage.repository, stage.first)["a.txt"]
    conflicts = apply(stage.repository, [Step("x" * 300, None, entry), Step("fine", None, entry)])
    assert conflicts == [Conflict("x" * 300, "It can't be read: File name too long.")]
    assert stage.project.read("fine") == b"one\ntwo\nthree\n"


def test_a_conflict_names_an_odd_path_in_readable_words(stage: Stage) -> None:
    path = os.fsdecode(b"\xff\n")
    stage.project.write(path + "/x", "x")
    steps = stage.back()
    shutil.rmtree(stage.project.place(path))
    stage.project.write(path, "a file\n")
    entry = entries(stage.repository, stage.first)["a.txt"]
    assert stage.conflicts([*steps, Step(path + "/y", None, entry)]) == {path + "/y": "\\xff\\n is not a folder."}
