"""Sessions with a git worktree of their own: they work at the same time, and are brought back one after the other."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.reviewing import NUMBERS, WorkTree, answer, paths, recorded
from tests.harness import NO_LIMITS, LiveServer, SharedServers, no_holes
from tests.runtime.git.project import Project

pytestmark = pytest.mark.timeout(180)

ONE_SLOT = NO_LIMITS.replace("project_slots = 0", "project_slots = 1")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", "ada@example.org")
    made.write(".gitignore", "*.log\n")
    made.write("numbers.txt", NUMBERS)
    made.write("inner/text.txt", "one\n")
    made.commit("the first commit")
    made.write("build.log", "ignored\n")
    return made


@pytest.fixture
def server(servers: SharedServers) -> Iterator[LiveServer]:
    """A server with one slot for each project."""
    with servers.borrowed(LiveServer, ONE_SLOT) as shared:
        yield shared


@pytest.fixture
def site(server: LiveServer, project: Project) -> str:
    """A project whose sessions get worktrees."""
    made = server.post(
        "/api/projects", {"name": "Site", "path": str(project.root), "workspace": "worktree"}, expect=201
    )
    assert made["workspace"] == "worktree"
    return str(made["id"])


class Own:
    """A session with its worktree."""

    def __init__(self, server: LiveServer, **fields: Any) -> None:
        self.server = server
        self.id = server.create(**fields)
        self.url = f"/api/sessions/{self.id}"
        found = server.session(self.id)
        self.branch, self.workdir = str(found["worktree"]["branch"]), Path(found["workdir"])
        self.project = WorkTree(found["worktree"]["path"])

    def turn(self, text: str) -> Any:
        """The turn's changes, when they are recorded."""
        return recorded(self.server, self.id, self.server.turn(self.id, text)["turn"])

    def merge(self, expect: int = 200, **body: Any) -> Any:
        return self.server.post(f"{self.url}/merge", {"strategy": "merge", **body}, expect=expect)

    def archive(self) -> Any:
        """The last operation, after the worktree was cleaned up or kept."""
        self.server.http.patch(self.url, json={"archived": True}).raise_for_status()
        self.server.wait(self.id, lambda found: found["file_operation"] is None)
        return self.server.get(f"{self.url}/changes")["operations"][0]


def branches(project: Project) -> set[str]:
    return set(project.git("for-each-ref", "--format=%(refname:short)", "refs/heads").decode().split())


@pytest.mark.smoke
def test_two_sessions_work_at_the_same_time_and_are_merged_one_after_the_other(
    server: LiveServer, project: Project, site: str
) -> None:
    one, other = Own(server, project=site, title="First work"), Own(server, project=site, title="Other work")
    assert one.branch != other.branch and branches(project) == {"main", one.branch, other.branch}
    before = project.files()
    for own, name in ((one, "one.txt"), (other, "other.txt")):
        server.send(own.id, f"write {name} by {name}\npermit Bash\nedit inner/{name}\nsay done")
    prompts = [server.prompt(own.id) for own in (one, other)]
    running = [server.session(own.id) for own in (one, other)]
    assert all(found["turns"][-1]["stop_reason"] is None for found in running), running
    for own, prompt in zip((one, other), prompts, strict=True):
        answer(server, own.id, prompt)
        server.wait_idle(own.id)
    assert project.files() == before
    for own, name in ((one, "one.txt"), (other, "other.txt")):
        found = recorded(server, own.id, 1)
        assert paths(found).keys() == {name, f"inner/{name}"}
        assert found["shared_with"] == []
        assert (found["worktree"]["ahead"], found["worktree"]["dirty"]) == (0, 2)

    preview = one.merge(preview=True)
    assert sorted(preview["uncommitted"]) == ["inner/one.txt", "one.txt"] and preview["blocked"] is None
    one.merge(commit_message="One's work")
    preview = other.merge(preview=True, strategy="rebase")
    assert (preview["ahead"], preview["behind"], preview["conflicts"]) == (0, 1, [])
    done = other.merge(commit_message="Other's work", strategy="rebase")
    assert {file["path"] for file in done["files"]} == {"other.txt", "inner/other.txt"}
    assert project.git("log", "--format=%s", "main").decode().split("\n")[:-1] == [
        "Other's work",
        "One's work",
        "the first commit",
    ]
    assert project.files().keys() == before.keys() | {b"one.txt", b"inner/one.txt", b"other.txt", b"inner/other.txt"}
    for place in (project, one.project, other.project):
        assert place.git("status", "--porcelain") == b""
    for own in (one, other):
        no_holes(server.log(own.id))


def test_both_turns_run_at_once_although_a_session_in_the_directory_waits(
    server: LiveServer, project: Project, site: str
) -> None:
    inside = [server.create(project=site, workspace="directory") for _ in range(2)]
    own = [Own(server, project=site) for _ in range(2)]
    for session in [*inside, *(each.id for each in own)]:
        server.send(session, "hang")
    for session in (inside[0], *(each.id for each in own)):
        server.wait(session, lambda found: found["state"] == "processing")
    assert server.session(inside[1])["state"] == "accepted", "the project has one slot"
    for session in [*inside, *(each.id for each in own)]:
        server.post(f"/api/sessions/{session}/abort", expect=202)
        server.wait_idle(session)


@pytest.mark.parametrize("strategy", ["merge", "rebase"])
def test_a_conflict_is_shown_and_nothing_is_lost(
    server: LiveServer, project: Project, site: str, strategy: str
) -> None:
    one, other = Own(server, project=site), Own(server, project=site)
    one.turn("write numbers.txt one's | text")
    other.turn("write numbers.txt other's | text\nwrite more.txt kept")
    one.merge(commit_message="One's work", strategy=strategy)
    files, private = project.files(), project.private_parts()
    work = other.project.files()
    preview = other.merge(preview=True, strategy=strategy)
    assert sorted(preview["uncommitted"]) == ["more.txt", "numbers.txt"]
    refused = other.merge(409, commit_message="Other's work", strategy=strategy)
    assert (refused["code"], refused["files"]) == ("merge_conflict", ["numbers.txt"])
    assert other.branch in refused["detail"] and "nothing was merged" in refused["detail"]
    assert project.files() == files and other.project.files() == work
    assert project.private_parts() == private, "nothing is committed either"
    committed = server.post(f"{other.url}/commit", {"message": "Other's work"}, expect=200)
    assert project.git("show", f"{other.branch}:more.txt") == b"kept\n" and committed["commit"]
    preview = other.merge(preview=True, strategy=strategy)
    assert preview["conflicts"] == ["numbers.txt"] and preview["blocked"] is None
    assert other.merge(409, strategy=strategy)["code"] == "merge_conflict"
    # The agent resolves it in its worktree, as the sentence advises. Here, a person does.
    other.project.git("commit", "--quiet", "--allow-empty", "--message", "resolving")
    other.turn("write numbers.txt one's | text")
    done = other.merge(commit_message="As on main", strategy="merge")
    assert done["outcome"] == "done"
    assert project.read("numbers.txt") == b"one's\ntext\n" and project.read("more.txt") == b"kept\n"


def test_uncommitted_files_are_named_when_they_are_not_merged(server: LiveServer, project: Project, site: str) -> None:
    own = Own(server, project=site)
    own.turn("write one.txt first")
    refused = own.merge(409)
    assert "Give a commit message to commit and merge them." in refused["detail"]
    assert [one["path"] for one in refused["outside"]] == ["one.txt"]
    server.post(f"{own.url}/commit", {"message": "One"}, expect=200)
    own.turn("write two.txt second")
    done = own.merge()
    assert [(one["path"], one["reason"]) for one in done["skipped"]] == [
        ("two.txt", "It is not committed, so it was not merged.")
    ]
    assert b"one.txt" in project.files() and b"two.txt" not in project.files()


def test_an_archived_session_loses_its_worktree_only_if_everything_is_merged(
    server: LiveServer, project: Project, site: str
) -> None:
    merged, dirty, ahead = (Own(server, project=site) for _ in range(3))
    merged.turn("write merged.txt one")
    merged.merge(commit_message="Merged work")
    dirty.turn("write dirty.txt one")
    ahead.turn("write ahead.txt one")
    server.post(f"{ahead.url}/commit", {"message": "Not merged"}, expect=200)

    removed = merged.archive()
    assert (removed["action"], removed["outcome"]) == ("clean_up", "done"), removed
    assert not os.path.lexists(merged.project.root) and merged.branch not in branches(project)
    for own, name in ((dirty, "dirty.txt"), (ahead, "ahead.txt")):
        kept = own.archive()
        assert (kept["action"], kept["outcome"]) == ("clean_up", "failed"), kept
        assert "was kept" in kept["message"] and kept["message"] in server.log_tail()
        assert own.project.read(name) == b"one\n" and own.branch in branches(project)
    assert server.get(f"{merged.url}/changes")["worktree"]["missing"] is True
    assert project.git("worktree", "list").decode().count("\n") == 3

    # It still has its changes, and a message creates the worktree again.
    assert [file["path"] for file in server.get(f"{merged.url}/changes?turn=1")["files"]] == ["merged.txt"]
    again = merged.turn("edit merged.txt")
    assert [file["path"] for file in again["files"]] == ["merged.txt"]
    assert merged.project.read("merged.txt") == b"one\nrehearsed 1\n"
    assert server.recalled(merged.id) == ["write merged.txt one", "edit merged.txt"]
    assert project.git("status", "--porcelain") == b""
    done = merged.merge(commit_message="More work")
    assert done["outcome"] == "done" and project.read("merged.txt") == b"one\nrehearsed 1\n"


def test_a_rewind_in_a_worktree_restores_its_files_and_leaves_the_project_alone(
    server: LiveServer, project: Project, site: str
) -> None:
    own = Own(server, project=site)
    files, before = project.files(), own.project.files()
    own.turn("write new.txt one\nedit numbers.txt")
    own.turn("rename numbers.txt moved.txt")
    server.post(f"{own.url}/rewind", {"turn": 1, "files": "restore"}, expect=200)
    assert own.project.files() == before and project.files() == files
    assert server.transcript(own.id) == []
