"""The client's methods for changes to files, against a real server, a real repository and the rehearsal agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.surfaces.async_client import AsyncClient
from perdure.surfaces.client import Client, Problem
from tests.runtime.git.project import Project
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.test_client_history import finish

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "site")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@example.org")
    project.write("a.txt", "one\ntwo\n")
    project.commit()
    return project


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with server.client() as made:
        yield made


def worked(client: Client, project: Project, *texts: str, workspace: str = "directory") -> str:
    session_id = str(client.create_session(workdir=str(project.root), workspace=workspace)["id"])
    for text in texts:
        finish(client, session_id, client.send(text, session_id)["seq"])
    return session_id


def test_changes_are_read_as_a_list_a_patch_and_contents(client: Client, project: Project) -> None:
    session_id = worked(client, project, "write a.txt one |  two", "edit b.txt")
    changes = client.file_changes(session_id)
    assert [(file["path"], file["added"], file["removed"]) for file in changes["files"]] == [
        ("a.txt", 1, 1), ("b.txt", 1, 0),
    ]  # fmt: skip
    assert client.file_changes(session_id, 1, ignore_whitespace=True)["added"] == 0
    patch = client.patch(session_id, 1, context=0)
    assert patch.content.splitlines()[-3:] == [b"@@ -2 +2 @@ one", b"-two", b"+ two"] and not patch.truncated
    assert client.patch(session_id, paths=["b.txt"]).content.startswith(b"diff --git a/b.txt b/b.txt\n")
    many = [f"{number:04}{'x' * 90}" for number in range(1_000)]
    assert client.patch(session_id, paths=["a.txt", *many, "b.txt"]) == client.patch(session_id)
    assert client.file_content(session_id, "a.txt", 1, side="before") == b"one\ntwo\n"
    assert client.file_content(session_id, "a.txt") == b"one\n two\n"


@pytest.mark.full
def test_files_are_restored_discarded_undone_and_committed(client: Client, project: Project) -> None:
    session_id = worked(client, project, "write a.txt 1 | 2", "edit b.txt")
    preview = client.restore(session_id, 2, preview=True)
    assert (preview["preview"], preview["files"]) == (True, [{"path": "b.txt", "change": "delete"}])
    restored = client.restore(session_id, 1, paths=["a.txt"])
    assert project.read("a.txt") == b"one\ntwo\n"
    client.undo(session_id, restored["operation_id"])
    assert project.read("a.txt") == b"1\n2\n"
    new_id = client.file_changes(session_id, 2)["files"][0]["new_id"]
    with pytest.raises(Problem) as refused:
        client.discard(session_id, "b.txt", turn=2, new_id="0" * 40)
    assert refused.value.code == "files_changed"
    assert client.discard(session_id, "b.txt", turn=2, hunks=[0], new_id=new_id)["outcome"] == "done"
    assert not (project.root / "b.txt").exists()
    done = client.commit(session_id, "Number the lines", ["a.txt"])
    assert done["commit"] == project.read_id("rev-parse", "HEAD")


@pytest.mark.full
def test_a_worktree_is_merged_and_comments_are_sent(client: Client, project: Project) -> None:
    session_id = worked(client, project, "edit b.txt", workspace="worktree")
    sent = client.review(session_id, [{"path": "b.txt", "side": "new", "line": 1, "text": "Why?"}], "say seen")
    finish(client, session_id, sent["seq"])
    assert client.file_changes(session_id)["comments"][0]["quote"] == "rehearsed 1"
    preview = client.merge(session_id, preview=True)
    assert (preview["base"], preview["uncommitted"]) == ("main", ["b.txt"])
    merged = client.merge(session_id, strategy="rebase", commit_message="Add b")
    assert merged["action"] == "merge" and project.read("b.txt") == b"rehearsed 1\n"


@pytest.mark.full
def test_history_and_files_go_back_together(client: Client, project: Project) -> None:
    session_id = worked(client, project, "edit a.txt", "edit a.txt")
    with pytest.raises(Problem) as ignored:
        client.rewind(session_id, 2, outside="keep")
    assert (ignored.value.code, ignored.value.facts["fields"]) == ("invalid", ["outside"])
    client.rewind(session_id, 2, files="restore")
    assert project.read("a.txt") == b"one\ntwo\nrehearsed 1\n"
    project.write("a.txt", "mine\n")
    with pytest.raises(Problem) as refused:
        client.retry(session_id, 1, files="restore")
    assert refused.value.code == "files_changed"
    assert [one["path"] for one in refused.value.facts["outside"]] == ["a.txt"]
    sent = client.retry(session_id, 1, files="restore", outside="overwrite")
    finish(client, session_id, sent["seq"])
    assert project.read("a.txt") == b"one\ntwo\nrehearsed 1\n"


async def test_the_asynchronous_client_reads_the_same(server: ServerProcess, client: Client, project: Project) -> None:
    session_id = worked(client, project, "edit b.txt")
    async with AsyncClient(server.address) as other:
        assert await other.file_changes(session_id, 1) == client.file_changes(session_id, 1)
        assert (await other.patch(session_id)).content == client.patch(session_id).content
