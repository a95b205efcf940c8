"""Changes to files over HTTP: what a turn changed, restoring, discarding, committing, and comments on lines.

The repositories are real, and what the API says is compared with what git says.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.surfaces.http.changes import Changes, Operation, RestorePreview
from perdure.surfaces.http.messages import Accepted
from tests.harness import eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_contract import fits

Json = dict[str, Any]


class Scratch:
    """A repository with one commit, and a session that works in it."""

    def __init__(self, server: LocalServer, root: Path, **fields: Any) -> None:
        self.server = server
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.com")
        self.write("a.txt", "one\ntwo\nthree\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        self.session = server.create(workdir=str(root), **fields)

    def git(self, *args: str) -> bytes:
        return subprocess.run(["git", *args], cwd=self.root, check=True, capture_output=True).stdout

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def turn(self, text: str) -> Json:
        """A turn, until its changes are recorded."""
        ended: Json = self.server.turn(self.session, text)
        self.changes(ended["turn"])
        return ended

    def changes(self, turn: int | None = None, **query: Any) -> Json:
        given = {**query, **({} if turn is None else {"turn": turn})}
        asked = "&".join(f"{name}={value}" for name, value in given.items())
        found: Json = self.server.get(f"/api/sessions/{self.session}/changes?{asked}")
        fits(found, Changes)
        return found

    def patch(self, **query: Any) -> bytes:
        answer = self.server.http.get(f"/api/sessions/{self.session}/changes/patch", params=query)
        assert answer.status_code == 200
        return answer.content

    def post(self, what: str, body: Json, *, expect: int = 200) -> Json:
        answer: Json = self.server.post(f"/api/sessions/{self.session}/{what}", body, expect=expect)
        return answer

    def files(self) -> dict[str, bytes]:
        """All files of the working tree."""
        names = [path for path in self.root.rglob("*") if ".git" not in path.parts and path.is_file()]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in names}


@pytest.fixture
def scratch(server: LocalServer, tmp_path: Path) -> Scratch:
    return Scratch(server, tmp_path / "repository")


def statuses(changes: Json) -> dict[str, str]:
    return {file["path"]: file["status"] for file in changes["files"]}


# Reading --------------------------------------------------------------------------------------------------------------


def test_a_turn_shows_what_it_changed_and_the_patch_is_what_git_prints(scratch: Scratch) -> None:
    scratch.turn("write b.txt x\nrename a.txt c.txt")
    scratch.turn("write b.txt y\nremove c.txt")
    first, second = scratch.changes(1), scratch.changes(2)
    assert statuses(first) == {"b.txt": "added", "c.txt": "renamed"}
    assert statuses(second) == {"b.txt": "modified", "c.txt": "deleted"}
    assert (first["source"], first["state"], first["reason"]) == ("snapshots", "ready", None)
    assert (second["added"], second["removed"]) == (1, 4)
    for turn, change in ((1, first), (2, second)):
        assert scratch.patch(turn=turn) == scratch.git("diff", "-M", change["before"], change["after"])
    assert scratch.patch(turn=1, path="c.txt") == scratch.git(
        "diff", "-M", first["before"], first["after"], "--", "a.txt", "c.txt"
    )


def test_a_session_shows_all_its_turns_together(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.turn("write b.txt y\nwrite d.txt z")
    whole = scratch.changes()
    assert statuses(whole) == {"b.txt": "added", "d.txt": "added"}
    assert [(turn["turn"], turn["file_count"]) for turn in whole["turns"]] == [(1, 1), (2, 2)]
    assert [tool["turn"] for file in whole["files"] if file["path"] == "b.txt" for tool in file["tools"]] == [1, 2]
    assert scratch.patch() == scratch.git("diff", "-M", whole["before"], whole["after"])


def test_taking_snapshots_leaves_index_branch_stash_and_ignored_files_alone(scratch: Scratch) -> None:
    scratch.write(".gitignore", "*.log\n")
    scratch.write("big.log", "ignored\n")
    scratch.write("staged.txt", "staged\n")
    scratch.git("add", "staged.txt")
    before = (scratch.git("ls-files", "-s"), scratch.git("for-each-ref", "refs/heads", "refs/stash"))
    config = (scratch.root / ".git" / "config").read_bytes()
    scratch.turn("write b.txt x")
    assert (scratch.git("ls-files", "-s"), scratch.git("for-each-ref", "refs/heads", "refs/stash")) == before
    assert (scratch.root / ".git" / "config").read_bytes() == config
    assert scratch.read("big.log") == "ignored\n"
    assert "big.log" not in statuses(scratch.changes())


def test_the_event_of_a_turn_says_how_much_it_changed(scratch: Scratch) -> None:
    scratch.turn("write b.txt x | y")
    scratch.changes(1)

    def noted() -> list[Json]:
        # The record comes before the event, and another node can show it at once.
        return [event for event in scratch.server.log(scratch.session) if event["type"] == "turn_changes"]

    (event,) = eventually(noted, "the event is in the log")
    assert {name: event[name] for name in ("turn", "state", "files", "added", "removed")} == {
        "turn": 1,
        "state": "ready",
        "files": 1,
        "added": 2,
        "removed": 0,
    }


def test_whitespace_can_be_ignored(scratch: Scratch) -> None:
    scratch.write("b.txt", "a\nb\n")
    scratch.turn("say hello")
    scratch.write("a.txt", "one\ntwo\nthree\n")
    scratch.turn("write b.txt   a | b | c")
    assert b"+c" in scratch.patch(turn=2, whitespace="ignore")
    answer = scratch.server.http.get(f"/api/sessions/{scratch.session}/changes?whitespace=some")
    assert answer.status_code == 400


def test_a_file_is_served_as_it_was_before_and_after(scratch: Scratch) -> None:
    scratch.turn("write a.txt new")
    where = f"/api/sessions/{scratch.session}/changes/content?turn=1&path=a.txt"
    before, after = (scratch.server.http.get(f"{where}&side={side}") for side in ("before", "after"))
    assert (before.content, after.content) == (b"one\ntwo\nthree\n", b"new\n")
    assert "attachment" in after.headers["content-disposition"]
    assert scratch.server.http.get(where.replace("a.txt", "none.txt")).status_code == 404


def test_without_a_repository_the_agents_own_edits_are_shown(server: LocalServer, tmp_path: Path) -> None:
    session = server.create(workdir=str(tmp_path))
    server.turn(session, "write b.txt x | y")
    found = server.get(f"/api/sessions/{session}/changes?turn=1")
    fits(found, Changes)
    assert (found["source"], found["state"], found["repository"]) == ("edits", "none", None)
    assert "is not in a git repository" in found["reason"]
    assert (statuses(found), found["added"]) == ({"b.txt": "added"}, 2)
    patch = server.http.get(f"/api/sessions/{session}/changes/patch?turn=1").text
    assert patch == (
        "diff --git a/b.txt b/b.txt\nnew file mode 100644\n--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1,2 @@\n+x\n+y\n"
    )


def test_a_denied_edit_is_not_a_change(scratch: Scratch, server: LocalServer, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for session in (scratch.session, server.create(workdir=str(plain))):
        server.send(session, "propose notes.txt 5")
        prompt = server.prompt(session)
        answer = {"option_id": next(o["option_id"] for o in prompt["options"] if o["kind"].startswith("reject"))}
        server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answer, expect=200)
        server.wait_idle(session)
        assert server.get(f"/api/sessions/{session}/changes?turn=1")["files"] == []


def test_what_others_changed_between_two_turns_is_marked(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.write("a.txt", "mine\n")
    scratch.turn("write b.txt y")
    assert scratch.changes(2)["outside"] == [{"path": "a.txt", "status": "modified"}]
    assert statuses(scratch.changes(2)) == {"b.txt": "modified"}
    assert [file["path"] for file in scratch.changes()["files"] if file["outside"]] == ["a.txt"]


def test_two_sessions_that_work_in_one_directory_at_the_same_time_are_named(scratch: Scratch) -> None:
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root), title="Other")
    server.send(scratch.session, "ask Wait? | yes\nwrite b.txt x")
    prompt = server.prompt(scratch.session)
    server.turn(other, "write c.txt y")
    answer = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    server.post(f"/api/sessions/{scratch.session}/prompts/{prompt['prompt_id']}", answer, expect=200)
    server.wait_idle(scratch.session)
    shared = scratch.changes(1)["shared_with"]
    assert [(one["session_id"], one["turn"], one["title"]) for one in shared] == [(other, 1, "Other")]
    found = server.get(f"/api/sessions/{other}/changes?turn=1")["shared_with"]
    assert [one["session_id"] for one in found] == [scratch.session]


def test_a_running_turn_shows_what_it_has_changed_so_far(scratch: Scratch) -> None:
    server = scratch.server
    server.send(scratch.session, "write b.txt x\nask Go on? | yes")
    prompt = server.prompt(scratch.session)
    found = scratch.changes(1)
    assert (found["state"], statuses(found)) == ("running", {"b.txt": "added"})
    refused = scratch.post("commit", {"message": "no"}, expect=409)
    assert (refused["code"], "before you change its files" in refused["detail"]) == ("turn_active", True)
    answer = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    server.post(f"/api/sessions/{scratch.session}/prompts/{prompt['prompt_id']}", answer, expect=200)
    server.wait_idle(scratch.session)
    assert scratch.changes(1)["state"] == "ready"


def test_a_repository_in_the_middle_of_a_rebase_is_left_alone(scratch: Scratch) -> None:
    (scratch.root / ".git" / "rebase-merge").mkdir()
    scratch.turn("write b.txt x")
    found = scratch.changes(1)
    assert (found["state"], found["source"]) == ("unavailable", "edits")
    assert "rebase" in found["reason"]
    assert statuses(found) == {"b.txt": "added"}
    assert scratch.git("for-each-ref", "refs/perdure") == b""
    assert "rebase" in scratch.post("commit", {"message": "x", "paths": ["b.txt"]}, expect=409)["detail"]


def test_file_names_that_are_no_utf_8_can_be_read_and_discarded(scratch: Scratch) -> None:
    scratch.turn("say hello")
    name = os.fsencode(scratch.root) + b'/caf\xe9 "x".txt'
    scratch.server.send(scratch.session, "ask Go on? | yes")
    prompt = scratch.server.prompt(scratch.session)
    with open(name, "wb") as file:
        file.write(b"x\n")
    answer = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    path = f"/api/sessions/{scratch.session}/prompts/{prompt['prompt_id']}"
    scratch.server.post(path, answer, expect=200)
    scratch.server.wait_idle(scratch.session)
    (file_,) = scratch.changes(2)["files"]
    assert file_["path"] == '"caf\\351 \\"x\\".txt"'
    scratch.post("discard", {"turn": 2, "path": file_["path"]})
    assert not os.path.lexists(name)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "..", "/etc/passwd", "", "a\0b", '"../x"', '"a\\000b"'])
def test_paths_that_can_not_be_in_a_repository_are_refused(scratch: Scratch, path: str) -> None:
    scratch.turn("write b.txt x")
    bodies: dict[str, Json] = {
        "restore": {"turn": 1, "paths": ["a.txt", path]},
        "discard": {"path": path},
        "commit": {"message": "x", "paths": [path]},
    }
    if path != "/etc/passwd":
        # An edit outside of a repository has such a path.
        bodies["review"] = {"comments": [{"path": path, "line": 1, "text": "Why?"}]}
    for what, body in bodies.items():
        refused = scratch.post(what, body, expect=400)
        assert (refused["code"], "path" in refused["detail"]) == ("invalid", True), what
    for what in ("content", "patch")[: 1 if path == "/etc/passwd" else 2]:
        where = f"/api/sessions/{scratch.session}/changes/{what}"
        answer = scratch.server.http.get(where, params={"turn": 1, "path": path})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), what
    assert scratch.read("b.txt") == "x\n"


# Restoring ------------------------------------------------------------------------------------------------------------


def test_restore_brings_the_tree_back_and_undo_takes_it_forward(scratch: Scratch) -> None:
    start = scratch.files()
    scratch.turn("write b.txt x\nremove a.txt")
    scratch.turn("write c.txt y")
    end = scratch.files()
    preview = scratch.post("restore", {"turn": 1, "preview": True})
    fits(preview, RestorePreview)
    assert {file["path"]: file["change"] for file in preview["files"]} == {
        "a.txt": "create",
        "b.txt": "delete",
        "c.txt": "delete",
    }
    assert scratch.files() == end
    done = scratch.post("restore", {"turn": 1})
    fits(done, Operation)
    assert (done["outcome"], done["undoable"], scratch.files()) == ("done", True, start)
    scratch.post("undo", {"operation_id": done["operation_id"]})
    assert scratch.files() == end
    refused = scratch.post("undo", {"operation_id": done["operation_id"]}, expect=409)
    assert "undone already" in refused["detail"]


def test_files_that_somebody_else_changed_are_listed_and_never_overwritten_silently(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.write("b.txt", "mine\n")
    scratch.write("new.txt", "mine\n")
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert (refused["code"], [one["path"] for one in refused["outside"]]) == ("files_changed", ["b.txt", "new.txt"])
    assert scratch.read("b.txt") == "mine\n"
    kept = scratch.post("restore", {"turn": 1, "outside": "keep"})
    assert [one["path"] for one in kept["skipped"]] == ["b.txt", "new.txt"]
    assert (scratch.read("b.txt"), scratch.read("new.txt")) == ("mine\n", "mine\n")
    # They are still somebody else's afterwards.
    assert scratch.post("restore", {"turn": 1}, expect=409)["code"] == "files_changed"
    done = scratch.post("restore", {"turn": 1, "outside": "overwrite"})
    assert set(scratch.files()) == {"a.txt"}
    scratch.post("undo", {"operation_id": done["operation_id"]})
    assert (scratch.read("b.txt"), scratch.read("new.txt")) == ("mine\n", "mine\n")


def test_what_somebody_changed_before_a_later_turn_is_not_overwritten_silently_either(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.write("mine.txt", "mine\n")
    scratch.turn("write b.txt y")
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert [one["path"] for one in refused["outside"]] == ["mine.txt"]
    scratch.post("restore", {"turn": 2})
    assert (scratch.read("b.txt"), scratch.read("mine.txt")) == ("x\n", "mine\n")


def test_a_rewind_with_files_restores_them_in_the_same_step(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    between = scratch.files()
    scratch.turn("write b.txt y")
    answer = scratch.post("rewind", {"turn": 2, "files": "restore"})
    assert (scratch.files(), answer["turn_count"], answer["operation"]["action"]) == (between, 1, "restore")
    types = [event["type"] for event in scratch.server.log(scratch.session)]
    at = types.index("files_changed")
    assert types[at : at + 2] == ["files_changed", "history_changed"]


def test_a_rewind_whose_files_were_changed_by_others_changes_nothing(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.write("b.txt", "mine\n")
    refused = scratch.post("rewind", {"turn": 1, "files": "restore"}, expect=409)
    assert refused["code"] == "files_changed"
    assert (scratch.read("b.txt"), scratch.server.session(scratch.session)["turn_count"]) == ("mine\n", 1)
    answer = scratch.post("rewind", {"turn": 1, "files": "restore", "outside": "keep"})
    assert (scratch.read("b.txt"), answer["turn_count"]) == ("mine\n", 0)


def test_outside_is_refused_without_files(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    message = scratch.server.session(scratch.session)["turns"][0]["message_id"]
    for what in ("rewind", "retry"):
        refused = scratch.post(what, {"turn": 1, "outside": "overwrite"}, expect=400)
        assert (refused["code"], refused["fields"]) == ("invalid", ["outside"])
    edited = scratch.server.http.patch(
        f"/api/sessions/{scratch.session}/messages/{message}", json={"text": "say hi", "outside": "keep"}
    )
    assert edited.status_code == 400
    assert scratch.server.session(scratch.session)["turn_count"] == 1


def test_a_retry_with_files_starts_from_the_old_files(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.write("seen.txt", "")
    scratch.turn("remove b.txt")
    answer = scratch.post("retry", {"turn": 2, "files": "restore", "message_id": "again"}, expect=202)
    fits(answer, Accepted)
    scratch.server.wait_idle(scratch.session)
    assert statuses(scratch.changes(3)) == {"b.txt": "deleted"}
    again = scratch.post("retry", {"turn": 2, "files": "restore", "message_id": "again"}, expect=202)
    assert again["turn"] == answer["turn"] == 3


def test_an_edit_with_files_restores_them_and_keeps_the_answer(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    message = scratch.server.session(scratch.session)["turns"][0]["message_id"]
    where = f"/api/sessions/{scratch.session}/messages/{message}"
    answer = scratch.server.http.patch(where, json={"text": "say hello", "files": "restore"})
    assert answer.status_code == 200
    assert (set(scratch.files()), answer.json()["turn_count"]) == ({"a.txt"}, 1)


def test_a_message_that_comes_while_files_are_restored_waits(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    done = scratch.post("restore", {"turn": 1})
    assert done["outcome"] == "done"
    assert scratch.turn("write c.txt y")["stop_reason"] == "end_turn"
    assert set(scratch.files()) == {"a.txt", "c.txt"}


def test_a_turn_without_a_snapshot_can_not_be_restored(server: LocalServer, tmp_path: Path) -> None:
    session = server.create(workdir=str(tmp_path))
    server.turn(session, "write b.txt x")
    refused = server.post(f"/api/sessions/{session}/restore", {"turn": 1}, expect=409)
    assert "is not in a git repository" in refused["detail"]
    assert (tmp_path / "b.txt").exists()


# Discarding, committing -----------------------------------------------------------------------------------------------


def test_a_hunk_is_discarded_and_the_others_stay(scratch: Scratch) -> None:
    scratch.write("long.txt", "".join(f"{number}\n" for number in range(1, 41)))
    lines = [str(number) for number in range(1, 41)]
    lines[1], lines[38] = "second", "late"
    scratch.turn(f"write long.txt {' | '.join(lines)}")
    (file,) = [file for file in scratch.changes(1)["files"] if file["path"] == "long.txt"]
    scratch.post("discard", {"turn": 1, "path": "long.txt", "hunks": [0], "new_id": file["new_id"]})
    assert scratch.read("long.txt").split("\n")[1] == "2"
    assert scratch.read("long.txt").split("\n")[38] == "late"
    stale = scratch.post("discard", {"turn": 1, "path": "long.txt", "new_id": "0" * 40}, expect=409)
    assert stale["code"] == "files_changed"
    assert scratch.post("discard", {"turn": 1, "path": "none.txt"}, expect=404)["code"] == "not_found"


def test_a_commit_takes_the_chosen_files_and_leaves_the_index_otherwise_alone(scratch: Scratch) -> None:
    scratch.write("staged.txt", "staged\n")
    scratch.git("add", "staged.txt")
    scratch.turn("write b.txt x\nwrite c.txt y")
    done = scratch.post("commit", {"message": "Add b\n\nBecause.", "paths": ["b.txt"]})
    assert scratch.git("rev-parse", "HEAD").decode().strip() == done["commit"]
    assert scratch.git("show", "--name-only", "--format=%an %s", "HEAD") == b"Ann Add b\n\nb.txt\n"
    assert scratch.git("status", "--porcelain") == b"A  staged.txt\n?? c.txt\n"
    assert {file["path"]: file["committed"] for file in scratch.changes()["files"]} == {"b.txt": True, "c.txt": False}
    scratch.post("commit", {"message": "The rest"})
    assert scratch.git("status", "--porcelain") == b"A  staged.txt\n"
    assert scratch.post("commit", {"message": "Nothing"}, expect=409)["detail"].endswith("no uncommitted changes.")


def test_a_commit_without_paths_leaves_out_what_others_changed(scratch: Scratch) -> None:
    scratch.turn("write b.txt x\nwrite c.txt y")
    scratch.write("mine.txt", "mine\n")
    scratch.post("discard", {"turn": 1, "path": "c.txt"})
    scratch.turn("write d.txt z")
    scratch.post("commit", {"message": "Ours"})
    assert scratch.git("show", "--name-only", "--format=", "HEAD") == b"b.txt\nd.txt\n"


def test_a_commit_runs_no_hook(scratch: Scratch) -> None:
    hook = scratch.root / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntouch hook-ran\nexit 1\n")
    hook.chmod(0o755)
    scratch.turn("write b.txt x")
    scratch.post("commit", {"message": "Quiet"})
    assert not (scratch.root / "hook-ran").exists()


# Comments -------------------------------------------------------------------------------------------------------------


def test_comments_are_one_message_and_show_what_became_of_them(scratch: Scratch) -> None:
    scratch.turn("write b.txt one | two | three\nwrite c.txt x")
    comments = [
        {"path": "b.txt", "line": 2, "text": "Say more.", "turn": 1},
        {"path": "c.txt", "line": 1, "text": "Rename x.", "turn": 1},
    ]
    sent = scratch.post("review", {"comments": comments, "text": "write b.txt one | 2 | three"}, expect=202)
    fits(sent, Accepted)
    scratch.server.wait_idle(scratch.session)
    message = scratch.server.transcript(scratch.session)[1]["message"]["text"]
    assert "**b.txt**, line 2:\n```\ntwo\n```\nSay more." in message
    assert "**c.txt**, line 1:\n```\nx\n```\nRename x." in message
    found = {comment["path"]: comment["state"] for comment in scratch.changes()["comments"]}
    assert found == {"b.txt": "addressed", "c.txt": "open"}


def test_a_comment_on_lines_that_others_changed_is_outdated(scratch: Scratch) -> None:
    scratch.turn("write b.txt one | two")
    scratch.write("b.txt", "one\nmine\n")
    comment = {"path": "b.txt", "line": 2, "text": "Why?", "turn": 1}
    scratch.post("review", {"comments": [comment], "text": "say because"}, expect=202)
    scratch.server.wait_idle(scratch.session)
    assert [comment["state"] for comment in scratch.changes()["comments"]] == ["outdated"]


def test_a_comment_on_a_line_that_does_not_exist_is_refused(scratch: Scratch) -> None:
    scratch.turn("write b.txt one")
    comment = {"path": "b.txt", "line": 99, "text": "Why?", "turn": 1}
    refused = scratch.post("review", {"comments": [comment]}, expect=400)
    assert "no line 99" in refused["detail"]


# Other sessions -------------------------------------------------------------------------------------------------------


def test_a_fork_shows_the_changes_of_the_turns_that_it_copied(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.changes(1)
    fork = scratch.server.post(f"/api/sessions/{scratch.session}/fork", {}, expect=201)["id"]
    assert statuses(scratch.server.get(f"/api/sessions/{fork}/changes?turn=1")) == {"b.txt": "added"}


def test_a_fork_does_not_overwrite_what_was_changed_after_it_was_made(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    fork = scratch.server.post(f"/api/sessions/{scratch.session}/fork", {}, expect=201)["id"]
    scratch.turn("write b.txt y")
    refused = scratch.server.post(f"/api/sessions/{fork}/restore", {"turn": 1}, expect=409)
    assert (refused["code"], scratch.read("b.txt")) == ("files_changed", "y\n")
    scratch.server.http.delete(f"/api/sessions/{scratch.session}?purge=true")
    scratch.server.post(f"/api/sessions/{fork}/restore", {"turn": 1, "outside": "overwrite"}, expect=200)
    assert set(scratch.files()) == {"a.txt"}


def test_an_archived_session_with_a_worktree_gets_it_back_with_its_next_message(
    server: LocalServer, scratch: Scratch
) -> None:
    session = server.create(workdir=str(scratch.root), workspace="worktree")
    server.turn(session, "say hello")
    workdir = Path(server.session(session)["workdir"])
    assert workdir.is_dir() and workdir != scratch.root
    server.http.patch(f"/api/sessions/{session}", json={"archived": True})
    server.wait(session, lambda shown: shown["file_operation"] is None)
    assert not workdir.exists()
    server.turn(session, "write b.txt x")
    assert (workdir / "b.txt").read_text() == "x\n"


def test_erasing_a_session_deletes_its_snapshots(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.changes(1)
    assert scratch.git("for-each-ref", "refs/perdure") != b""
    scratch.server.http.delete(f"/api/sessions/{scratch.session}?purge=true")
    assert scratch.git("for-each-ref", "refs/perdure") == b""
    assert scratch.read("b.txt") == "x\n"


def test_changes_of_an_unknown_turn_or_session_are_not_found(scratch: Scratch) -> None:
    scratch.turn("say hello")
    get = scratch.server.http.get
    assert get(f"/api/sessions/{scratch.session}/changes?turn=9").status_code == 404
    assert get("/api/sessions/none/changes").status_code == 404
    assert get(f"/api/sessions/{scratch.session}/changes?turn=0").status_code == 400
