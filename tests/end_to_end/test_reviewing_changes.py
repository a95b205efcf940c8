"""Snapshots around turns, and what people do with them: the whole flow, and a server that dies at any step of it.

After a kill, the next server completes the operation. The files, the history and the branches are then all new; they
are never a mixture of old and new.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from tests.end_to_end.dying import NOTED, STEPS, MortalServer
from tests.end_to_end.reviewing import NUMBERS, WorkTree, answer, make_project, mark_of_hook, patch, paths, recorded
from tests.harness import NO_LIMITS, LiveServer, no_holes
from tests.runtime.git.project import Files, Project
from tests.sizes import size

KILLS = size("FILE_KILLS", 8, fast=3)
Name = TypeVar("Name", str, bytes)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[MortalServer]:
    server = MortalServer(tmp_path / "mortal" / "data", NO_LIMITS)
    try:
        yield server.start()
    finally:
        server.disarm()
        server.finish()


def turn(server: LiveServer, session: str, text: str) -> Any:
    return recorded(server, session, server.turn(session, text)["turn"])


def differing(before: dict[Name, Any], after: dict[Name, Any]) -> set[Name]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.smoke
def test_changes_are_read_discarded_undone_committed_and_rewound(server: LiveServer, project: Project) -> None:
    session = server.create(workdir=str(project.root))
    files, private = [project.files()], project.private_parts()
    url = f"/api/sessions/{session}"

    first = turn(server, session, "write new.txt one | two | three\nedit numbers.txt\nsay written")
    files.append(project.files())
    second = turn(server, session, "remove deep/er/gone.txt\nrename old.txt kept/old.txt\nsay moved")
    files.append(project.files())
    third = turn(server, session, "edit numbers.txt\nwrite tool.sh echo two\nsay edited")
    files.append(project.files())
    assert paths(first) == {"new.txt": "added", "numbers.txt": "modified"}
    assert paths(second) == {"deep/er/gone.txt": "deleted", "kept/old.txt": "renamed"}
    assert paths(third) == {"numbers.txt": "modified", "tool.sh": "modified"}
    whole = server.get(f"{url}/changes")
    assert (whole["source"], whole["turn"], whole["file_count"]) == ("snapshots", None, 5)
    assert [(one["turn"], one["state"], one["file_count"]) for one in whole["turns"]] == [
        (1, "ready", 2),
        (2, "ready", 2),
        (3, "ready", 2),
    ]
    for number in (1, 2, 3):
        ref = f"refs/perdure/{session}/{number}"
        assert patch(server, session, f"?turn={number}") == project.git("diff", f"{ref}^", ref)
    assert patch(server, session) == project.git("diff", f"refs/perdure/{session}/1^", f"refs/perdure/{session}/3")
    assert project.private_parts() == private, "only objects and refs of its own are added"

    discarded = server.post(f"{url}/discard", {"turn": 3, "path": "tool.sh"}, expect=200)
    assert (discarded["action"], discarded["outcome"], discarded["undoable"]) == ("discard", "done", True)
    assert project.files()[b"tool.sh"] == files[2][b"tool.sh"]
    assert differing(project.files(), files[3]) == {b"tool.sh"}
    undone = server.post(f"{url}/undo", {"operation_id": discarded["operation_id"]}, expect=200)
    assert undone["action"] == "undo" and project.files() == files[3]
    assert project.private_parts() == private

    head = project.read_id("rev-parse", "HEAD")
    made = server.post(f"{url}/commit", {"message": "By a person", "paths": ["new.txt", "numbers.txt"]}, expect=200)
    assert project.read_id("rev-parse", "HEAD", "HEAD^").split() == [made["commit"], head]
    assert project.git("show", "HEAD:numbers.txt") == project.read("numbers.txt")
    assert project.git("diff", "--cached", "--name-only") == b"staged.txt\n"
    mine = {"HEAD", "index", "logs/HEAD", "logs/refs/heads/main", "refs/heads/main"}
    assert differing(project.private_parts(), private) <= mine
    committed = project.private_parts()

    preview = server.post(f"{url}/restore", {"turn": 2, "preview": True}, expect=200)
    assert preview["outside"] == [] and preview["head_moved"] is not None
    assert {file["path"] for file in preview["files"]} == {
        "deep/er/gone.txt",
        "kept/old.txt",
        "numbers.txt",
        "old.txt",
        "tool.sh",
    }
    assert project.files() == files[3]
    rewound = server.post(f"{url}/rewind", {"turn": 2, "files": "restore"}, expect=200)
    assert rewound["operation"]["outcome"] == "done"
    assert project.files() == files[1]
    assert [one["turn"] for one in server.transcript(session)] == [1]
    assert project.private_parts() == committed
    assert not mark_of_hook(project).exists()
    no_holes(server.log(session))


def test_a_rewind_changes_nothing_if_somebody_else_changed_the_files(server: LiveServer, project: Project) -> None:
    session = server.create(workdir=str(project.root))
    turn(server, session, "write new.txt one\nedit numbers.txt")
    project.write("new.txt", "mine\n")
    before = project.files()
    url = f"/api/sessions/{session}/rewind"
    refused = server.post(url, {"turn": 1, "files": "restore"}, expect=409)
    assert refused["code"] == "files_changed" and [one["path"] for one in refused["outside"]] == ["new.txt"]
    assert project.files() == before
    assert [one["turn"] for one in server.transcript(session)] == [1]
    assert server.session(session)["file_operation"] is None
    done = server.post(url, {"turn": 1, "files": "restore", "outside": "keep"}, expect=200)
    assert [one["path"] for one in done["operation"]["skipped"]] == ["new.txt"]
    assert project.read("new.txt") == b"mine\n" and project.read("numbers.txt") == NUMBERS.encode()
    assert server.transcript(session) == []


# A server that dies ---------------------------------------------------------------------------------------------------


class Rewinding:
    """A session whose turns change files in every way, to be rewound again and again."""

    def __init__(self, server: MortalServer, project: Project) -> None:
        self.server, self.project = server, project
        self.session = server.create(workdir=str(project.root))
        turn(server, self.session, "edit numbers.txt")
        self.old: Files = project.files()
        self.private = project.private_parts()

    def change(self) -> int:
        """A turn that changes files, some of them by a command that a person allows."""
        number = int(
            self.server.send(
                self.session,
                "write new/deep/er.txt one | two\nedit numbers.txt\nremove deep/er/gone.txt\n"
                "rename old.txt deep/old.txt\npermit Bash\nsay done",
            )["turn"]
        )
        prompt = self.server.prompt(self.session)
        self.project.write("tool.sh", "#!/bin/sh\necho one\n", 0o644)
        self.project.write("bytes.bin", bytes(reversed(range(256))))
        self.project.delete("link")
        self.project.link("link", "tool.sh")
        self.project.link("fresh link", "nowhere")
        answer(self.server, self.session, prompt)
        self.server.wait_idle(self.session)
        recorded(self.server, self.session, number)
        assert self.project.files() != self.old
        return number

    def rewind(self, number: int) -> None:
        """Ask for it, and ignore the answer: the server may die."""
        asked(self.server, f"/api/sessions/{self.session}/rewind", {"turn": number, "files": "restore"})

    def check(self, number: int, changed: Files, moment: str) -> None:
        """Wait until nothing is going on. Then files and history are both old, if the request was never recorded;
        otherwise both are new."""
        settled(self.server, self.session)
        turns = [one["turn"] for one in self.server.transcript(self.session)]
        account = (moment, turns, self.server.account(self.session))
        is_new = moment != NOTED
        assert self.project.files() == (self.old if is_new else changed), account
        assert turns == ([1] if is_new else [1, number]), account
        done = self.server.get(f"/api/sessions/{self.session}/changes")["operations"]
        assert [(one["action"], one["outcome"]) for one in done[:1]] == [("restore", "done")] * is_new, account
        assert self.project.private_parts() == self.private, moment
        no_holes(self.server.log(self.session))


def asked(server: LiveServer, url: str, body: dict[str, Any]) -> None:
    try:
        said = server.http.post(url, json=body)
    except httpx2.TransportError:
        return
    assert said.is_success, said.text


def settled(server: LiveServer, session: str) -> None:
    server.wait(session, lambda found: found["file_operation"] is None)


def spread(count: int) -> list[str]:
    """Some of this many changes, as moments to die at; always the first and the last."""
    print(f"{count} changes")
    chosen = {round(number * (count - 1) / max(1, KILLS - 1)) for number in range(KILLS)}
    return [f"change {number}" for number in sorted(chosen)]


@pytest.mark.timeout(600)
def test_a_rewind_with_files_is_completed_at_whatever_step_the_server_is_killed(
    mortal: MortalServer, project: Project
) -> None:
    stage = Rewinding(mortal, project)
    number = stage.change()
    changed = project.files()
    mortal.die_at(NOTED)
    stage.rewind(number)
    mortal.wait_dead()
    mortal.restart()
    stage.check(number, changed, NOTED)
    stage.rewind(number)
    stage.check(number, changed, "undisturbed")
    for moment in [*STEPS, *spread(mortal.changes)]:
        number = stage.change()
        mortal.die_at(moment)
        stage.rewind(number)
        mortal.wait_dead()
        mortal.restart()
        stage.check(number, changed, moment)
    assert mortal.turn(stage.session, "say back")["stop_reason"] == "end_turn"


@pytest.mark.timeout(300)
def test_a_retry_with_files_sends_its_message_once_at_whatever_step_the_server_is_killed(
    mortal: MortalServer, project: Project
) -> None:
    stage = Rewinding(mortal, project)
    for moment in STEPS:
        number = stage.change()
        mortal.die_at(moment)
        body = {"turn": number, "text": "write again.txt again", "files": "restore"}
        asked(mortal, f"/api/sessions/{stage.session}/retry", body)
        mortal.wait_dead()
        mortal.restart()
        settled(mortal, stage.session)
        mortal.wait_idle(stage.session)
        turns = [one["turn"] for one in mortal.transcript(stage.session)]
        assert turns == [1, number + 1], (moment, mortal.account(stage.session))
        recorded(mortal, stage.session, number + 1)
        assert project.files() == {**stage.old, b"again.txt": (stage.old[b"numbers.txt"][0], b"again\n")}, moment
        assert mortal.recalled(stage.session) == ["edit numbers.txt", "write again.txt again"], moment
        body = {"turn": number + 1, "files": "restore"}
        mortal.post(f"/api/sessions/{stage.session}/rewind", body, expect=200)
        assert project.files() == stage.old


def test_the_changes_of_a_turn_are_complete_although_the_server_was_killed_in_it(
    mortal: MortalServer, project: Project
) -> None:
    session = mortal.create(workdir=str(project.root))
    before = project.files()
    mortal.send(session, "write first.txt one\npermit Bash\nremove old.txt\nedit numbers.txt\nsay done")
    prompt = mortal.prompt(session)
    mortal.kill()
    mortal.restart()
    running = mortal.get(f"/api/sessions/{session}/changes?turn=1")
    assert (running["state"], paths(running)) == ("running", {"first.txt": "added"})
    answer(mortal, session, prompt)
    mortal.wait_idle(session)
    found = recorded(mortal, session, 1)
    assert paths(found) == {"first.txt": "added", "old.txt": "deleted", "numbers.txt": "modified"}
    ref = f"refs/perdure/{session}/1"
    assert patch(mortal, session, "?turn=1") == project.git("diff", f"{ref}^", ref)
    mortal.post(f"/api/sessions/{session}/rewind", {"turn": 1, "files": "restore"}, expect=200)
    assert project.files() == before


@pytest.mark.timeout(300)
def test_a_rewind_is_completed_although_each_server_dies_at_the_next_step(
    mortal: MortalServer, project: Project
) -> None:
    stage = Rewinding(mortal, project)
    number = stage.change()
    changed = project.files()
    middle = "change 12"
    mortal.die_at(STEPS[0])
    stage.rewind(number)
    mortal.wait_dead()
    for moment in [STEPS[1], middle, *STEPS[2:]]:
        mortal.die_at(moment)
        # It completes the operation while it starts, so it may die before it listens.
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(mortal, "_first_line", lambda: "")
            mortal.start()
        mortal.wait_dead()
    mortal.restart()
    stage.check(number, changed, "after all")


class Merging:
    """A session with a worktree, and what its branch, its base and their files are."""

    def __init__(self, server: MortalServer, project: Project) -> None:
        self.server, self.project = server, project
        project.git("rm", "--quiet", "--force", "staged.txt")
        self.session = server.create(workdir=str(project.root), workspace="worktree", title="Some work")
        turn(server, self.session, "write work.txt begun")
        own = server.session(self.session)["worktree"]
        self.branch, self.own = own["branch"], WorkTree(own["path"])
        self.rounds = 0

    def prepare(self) -> None:
        """Both sides change: the base in a commit, the worktree without."""
        self.rounds += 1
        self.project.write("base.txt", f"base {self.rounds}\n")
        self.project.git("add", "base.txt")
        self.project.git("commit", "--quiet", "--no-verify", "--message", f"base {self.rounds}")
        self.own.write("work.txt", f"work {self.rounds}\n")
        self.own.write(f"{self.rounds}/new.txt", "new\n")
        if self.rounds > 1:
            self.own.delete(f"{self.rounds - 1}/new.txt")

    def merge(self, strategy: str) -> None:
        body = {"strategy": strategy, "commit_message": f"work {self.rounds}"}
        asked(self.server, f"/api/sessions/{self.session}/merge", body)

    def check(self, moment: str) -> None:
        """The branches, the working trees and the indexes are all new."""
        settled(self.server, self.session)
        account = (moment, self.server.account(self.session))
        for place in (self.project, self.own):
            assert place.git("status", "--porcelain") == b"", account
            assert place.read("work.txt") == f"work {self.rounds}\n".encode(), account
            assert place.read(f"{self.rounds}/new.txt") == b"new\n", account
            assert not os.path.exists(place.place(f"{self.rounds - 1}/new.txt")), account
        assert self.project.read("base.txt") == f"base {self.rounds}\n".encode()
        subjects = self.project.git("log", "--format=%s", "main").decode().split("\n")
        assert subjects.count(f"work {self.rounds}") == subjects.count(f"base {self.rounds}") == 1, account
        assert self.project.git("rev-list", f"main..{self.branch}") == b"", account
        assert not list((self.project.root / ".git").rglob("*.lock")), account
        done = self.server.get(f"/api/sessions/{self.session}/changes")["operations"][0]
        assert (done["action"], done["outcome"]) == ("merge", "done"), (done, account)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["merge", "rebase"])
def test_a_merge_is_completed_at_whatever_step_the_server_is_killed(
    mortal: MortalServer, project: Project, strategy: str
) -> None:
    stage = Merging(mortal, project)
    stage.prepare()
    stage.merge(strategy)
    stage.check("undisturbed")
    for moment in [*STEPS, *spread(mortal.changes)]:
        stage.prepare()
        mortal.die_at(moment)
        stage.merge(strategy)
        mortal.wait_dead()
        mortal.restart()
        stage.check(moment)


@pytest.mark.timeout(300)
def test_an_archived_sessions_worktree_is_removed_at_whatever_step_the_server_is_killed(
    mortal: MortalServer, project: Project
) -> None:
    for moment in STEPS:
        session = mortal.create(workdir=str(project.root), workspace="worktree")
        own = mortal.session(session)["worktree"]
        mortal.die_at(moment)
        with contextlib.suppress(httpx2.TransportError):
            mortal.http.patch(f"/api/sessions/{session}", json={"archived": True}).raise_for_status()
        mortal.wait_dead()
        mortal.restart()
        settled(mortal, session)
        assert not os.path.lexists(own["path"]), (moment, mortal.account(session))
        assert own["branch"] not in project.read_id("branch", "--list", "--all"), moment
        [done] = mortal.get(f"/api/sessions/{session}/changes")["operations"]
        assert (done["action"], done["outcome"]) == ("clean_up", "done"), (moment, done)
