"""Changes to files on two nodes with PostgreSQL: the node that has the directory changes them, and either node shows
them. If that node is down, the other one shows what was stored, and refuses to change anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster import NodeProcess
from tests.end_to_end.reviewing import patch, recorded
from tests.harness import NO_LIMITS, eventually, no_holes
from tests.runtime.git.project import Project

pytestmark = [pytest.mark.needs("postgresql"), pytest.mark.timeout(240)]


class Pair(NamedTuple):
    a: NodeProcess
    """The node that has the directory."""
    b: NodeProcess
    project: Project

    def session(self) -> str:
        """A session with two turns on node a."""
        session = self.a.create(workdir=str(self.project.root))
        for number, text in enumerate(
            ("write new.txt one | two\nedit old.txt", "write new.txt one | 2\nremove gone.txt"), 1
        ):
            self.a.turn(session, text)
            recorded(self.a, session, number)
        return session


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    """Two nodes, each with its own directories."""
    nodes = [NodeProcess(tmp_path / name, f"{NO_LIMITS}node_name = '{name}'\n", postgres_url) for name in "ab"]
    project = Project(tmp_path / "project")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@example.org")
    project.write("old.txt", "old\n")
    project.write("gone.txt", "soon gone\n")
    project.commit()
    try:
        yield Pair(nodes[0].start(), nodes[1].start(), project)
    finally:
        for node in nodes:
            node.finish()


def shown(changes: Any, *without: str) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name not in without}


def test_either_node_shows_a_turn_of_the_other_and_what_is_stored_after_it_died(pair: Pair) -> None:
    session = pair.session()
    path = f"/api/sessions/{session}/changes"
    for query in ("?turn=1", "?turn=2", ""):
        live = pair.b.get(path + query)
        assert live == pair.a.get(path + query)
        assert (live["source"], live["state"], live["node_name"]) == ("snapshots", "ready", "a")
        assert live["repository"]["root"] == str(pair.project.root)
        assert patch(pair.b, session, query) == patch(pair.a, session, query)
    ref = f"refs/perdure/{session}/2"
    wanted = pair.project.git("diff", f"{ref}^", ref)
    assert patch(pair.b, session, "?turn=2") == wanted
    content = pair.b.http.get(f"{path}/content?turn=1&path=new.txt&side=after")
    assert content.content == b"one\ntwo\n"
    before = {query: (pair.b.get(path + query), patch(pair.b, session, query)) for query in ("?turn=1", "?turn=2", "")}
    pair.a.kill()
    eventually(lambda: pair.b.get(path)["source"] == "stored", lambda: f"a does not respond: {pair.b.get(path)}")
    for query, (live, text) in before.items():
        stored = pair.b.get(path + query)
        assert (stored["source"], stored["node_name"], stored["repository"]) == ("stored", "a", None)
        assert (live["node_responds"], stored["node_responds"]) == (True, False)
        left_out = ("source", "repository", "files", "node_responds")
        assert shown(stored, *left_out) == shown(live, *left_out)
        assert [shown(file, "committed") for file in stored["files"]] == [
            shown(file, "committed") for file in live["files"]
        ]
        assert patch(pair.b, session, query) == text
    only = patch(pair.b, session, "?turn=2&path=new.txt")
    assert only == pair.project.git("diff", f"{ref}^", ref, "--", "new.txt")
    pair.a.restart()
    eventually(lambda: pair.b.get(path)["source"] == "snapshots", "the node is back")


@pytest.mark.smoke
def test_what_one_node_is_asked_to_do_is_done_by_the_node_that_has_the_directory(pair: Pair) -> None:
    session, project = pair.session(), pair.project
    url = f"/api/sessions/{session}"
    changed = project.files()
    discarded = pair.b.post(f"{url}/discard", {"turn": 2, "path": "new.txt"}, expect=200)
    assert discarded["outcome"] == "done" and project.read("new.txt") == b"one\ntwo\n"
    pair.b.post(f"{url}/undo", {"operation_id": discarded["operation_id"]}, expect=200)
    assert project.files() == changed
    preview = pair.b.post(f"{url}/restore", {"turn": 1, "preview": True}, expect=200)
    assert [(file["path"], file["change"]) for file in preview["files"]] == [
        ("gone.txt", "create"),
        ("new.txt", "delete"),
        ("old.txt", "write"),
    ]
    restored = pair.b.post(f"{url}/restore", {"turn": 2, "point": "before"}, expect=200)
    assert restored["file_count"] == 2 and b"gone.txt" in project.files()
    made = pair.b.post(f"{url}/commit", {"message": "From node b"}, expect=200)
    assert project.read_id("rev-parse", "HEAD") == made["commit"]
    assert project.git("status", "--porcelain") == b""
    project.write("new.txt", "mine\n")
    refused = pair.b.post(f"{url}/rewind", {"turn": 1, "files": "restore"}, expect=409)
    assert refused["code"] == "files_changed" and [one["path"] for one in refused["outside"]] == ["new.txt"]
    assert len(pair.b.transcript(session)) == 2
    rewound = pair.b.post(f"{url}/rewind", {"turn": 1, "files": "restore", "outside": "overwrite"}, expect=200)
    assert rewound["operation"]["outcome"] == "done"
    assert set(project.files()) == {b"old.txt", b"gone.txt"}
    assert pair.a.transcript(session) == pair.b.transcript(session) == []
    actions = ["restore", "restore", "commit", "restore", "undo", "discard"]
    for node in (pair.a, pair.b):
        done = node.get(f"{url}/changes")["operations"]
        assert [one["action"] for one in done] == actions
        no_holes(node.log(session))
    assert pair.b.session(session)["node_name"] == "a"


def test_a_worktree_is_merged_and_its_folders_are_listed_through_the_other_node(pair: Pair) -> None:
    project = pair.project
    before = project.files()
    session = pair.a.create(workdir=str(project.root), workspace="worktree", title="Some work")
    url, own = f"/api/sessions/{session}", pair.a.session(session)["worktree"]
    pair.a.turn(session, "write new.txt one\nedit old.txt")
    recorded(pair.a, session, 1)
    preview = pair.b.post(f"{url}/merge", {"preview": True}, expect=200)
    assert (sorted(preview["uncommitted"]), preview["branch"]) == (["new.txt", "old.txt"], own["branch"])
    merged = pair.b.post(f"{url}/merge", {"commit_message": "Through b"}, expect=200)
    assert merged["message"] == f"Merged {own['branch']} into main."
    assert project.git("log", "-1", "--format=%s") == b"Through b\n"
    assert project.files().keys() == before.keys() | {b"new.txt"}
    [a] = [node["id"] for node in pair.b.get("/api/nodes")["nodes"] if node["name"] == "a"]
    listed = pair.b.get(f"/api/directories?node={a}&recent=false&path={project.root.parent}/")
    assert [(one["path"], one["repository"]) for one in listed["entries"] if one["name"] == project.root.name] == [
        (str(project.root), True)
    ]


def test_nothing_is_half_done_while_the_node_that_has_the_directory_is_down(pair: Pair) -> None:
    session, project = pair.session(), pair.project
    url = f"/api/sessions/{session}"
    files, private = project.files(), project.private_parts()
    pair.a.kill()
    before = pair.b.session(session)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("restore", {"turn": 1}),
        ("restore", {"turn": 1, "preview": True}),
        ("discard", {"turn": 2, "path": "new.txt"}),
        ("commit", {"message": "never"}),
        ("rewind", {"turn": 1, "files": "restore"}),
        ("retry", {"turn": 1, "files": "restore"}),
    ]
    for verb, body in requests:
        refused = pair.b.post(f"{url}/{verb}", body, expect=503)
        assert refused["detail"] == "Node a has the session's directory and does not respond. Try again later.", verb
    assert pair.b.session(session) == before and before["file_operation"] is None
    pair.a.restart()
    assert project.files() == files and project.private_parts() == private
    assert pair.b.get(f"{url}/changes")["operations"] == []
    assert len(pair.a.transcript(session)) == 2
    eventually(
        lambda: pair.b.http.post(f"{url}/rewind", json={"turn": 1, "files": "restore"}).is_success,
        lambda: f"it works when the node is back: {pair.b.get('/api/nodes')}",
    )
    assert project.files().keys() == {b"old.txt", b"gone.txt"}


def test_a_request_is_refused_before_a_silent_node_is_noticed(pair: Pair) -> None:
    """Otherwise it would be carried out when the node is back, which can be much later, and no turn could begin."""
    session, project = pair.session(), pair.project
    url, files = f"/api/sessions/{session}", project.files()
    pair.a.kill()
    pair.b.post(f"{url}/rewind", {"turn": 2, "files": "restore"}, expect=503)
    assert pair.b.session(session)["file_operation"] is None
    pair.a.restart()
    pair.b.turn(session, "say on")
    assert project.files() == files
    assert [one["turn"] for one in pair.b.transcript(session)] == [1, 2, 3]
