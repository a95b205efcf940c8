"""A full or locked store: requests are refused with a message, change nothing partially, and work afterwards."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.stores import sqlite
from perdure.stores.sqlite import SqliteStore
from tests.signing import Browser, new_code
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

Make = Callable[..., LocalServer]
LOCK_TIMEOUT_S = 0.05


@contextlib.contextmanager
def locked(server: LocalServer) -> Iterator[None]:
    """Another program holds the write lock of the database."""
    with contextlib.closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def full(server: LocalServer) -> Iterator[None]:
    """The database can't grow."""
    store = server.server.store
    assert isinstance(store, SqliteStore)
    server.run(bounded(store, 1))
    yield
    server.run(bounded(store, 1_000_000))


async def bounded(store: SqliteStore, pages: int) -> None:
    """Limit the database to this many pages. If it is already larger, SQLite uses its current size as the limit."""
    await store._writer.submit(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchall())


@pytest.fixture
def hasty(make_server: Make, monkeypatch: pytest.MonkeyPatch) -> LocalServer:
    """A server that does not wait long for a locked database."""
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", LOCK_TIMEOUT_S)
    return make_server()


def folders(server: LocalServer) -> set[str]:
    return {path.name for path in (server.data / "workspaces").glob("*")}


@pytest.mark.parametrize("trouble", [locked, full])
def test_writes_that_the_store_rejects_are_refused_as_unavailable(
    hasty: LocalServer, tmp_path: Path, trouble: Callable[[LocalServer], contextlib.AbstractContextManager[None]]
) -> None:
    session = hasty.create()
    # Too large for the existing pages.
    large = "say " + "x" * 200_000
    project = {"name": "site", "path": str(tmp_path), "instructions": large}
    with trouble(hasty):
        for path, body in (
            ("/api/projects", project),
            ("/api/sessions", {"title": "none", "message": large}),
            ("/api/messages", {"text": large, "message_id": "m"}),
            (f"/api/sessions/{session}/messages", {"text": large}),
        ):
            answer = hasty.http.post(path, json=body)
            assert is_problem(answer, 503, "unavailable"), path
            assert str(hasty.data) not in answer.text
        assert hasty.get("/api/projects")["projects"] == []
        assert hasty.session(session)["turn_count"] == 0
    assert [found["id"] for found in hasty.get("/api/sessions")["sessions"]] == [session]
    assert folders(hasty) == {session}
    hasty.post("/api/projects", project, expect=201)
    assert hasty.post("/api/messages", {"text": "say hi", "message_id": "m"}, expect=202)["turn"] == 1


def test_a_sign_in_that_the_store_rejects_leaves_its_link_valid(hasty: LocalServer) -> None:
    code = new_code(hasty)
    with Browser(hasty) as browser:
        with locked(hasty):
            assert is_problem(browser.sign_in(code), 503, "unavailable")
        assert browser.sign_in(code).status_code == 200
        with locked(hasty):
            assert is_problem(browser.post("/api/logout"), 503, "unavailable")
        assert browser.get("/api/sessions").status_code == 200, "who was not signed out is told so, and is not"
        assert browser.post("/api/logout").status_code == 204


# Folders created for sessions ---------------------------------------------------------------------------------------


def test_a_refused_session_leaves_no_folder(make_server: Make) -> None:
    server = make_server(slots=1)
    busy = server.create()
    server.send(busy, "hang")
    for path, body in (("/api/sessions", {"message": "say hi"}), ("/api/messages", {"text": "say hi"})):
        assert is_problem(server.http.post(path, json={**body, "when_full": "refuse"}), 409, "slots_full")
    assert folders(server) == {busy}


def test_purging_a_session_deletes_its_own_folder_and_no_other(server: LocalServer, tmp_path: Path) -> None:
    given = server.create(workdir=str(tmp_path))
    own = server.create()
    server.turn(own, "edit notes.txt")
    folder = server.data / "workspaces" / own
    assert (folder / "notes.txt").exists()
    guest = server.create(workdir=str(folder))
    for session in (given, own):
        assert server.http.delete(f"/api/sessions/{session}?purge=true").status_code == 200
    assert tmp_path.is_dir()
    assert (folder / "notes.txt").exists(), "another session works there"
    alone = server.create()
    server.turn(alone, "edit notes.txt")
    assert server.http.delete(f"/api/sessions/{alone}?purge=true").status_code == 200
    assert alone not in folders(server)
    assert server.session(guest)["workdir"] == str(folder)


def test_a_folder_that_cannot_be_created_is_reported(make_server: Make) -> None:
    server = make_server()
    (server.data / "workspaces").write_text("in the way")
    answer = server.http.post("/api/sessions", json={})
    assert is_problem(answer, 503, "unavailable")
    assert "Can't create the session's workspace" in answer.json()["detail"]


def test_attachments_count_toward_the_size_of_a_message(make_server: Make) -> None:
    server = make_server(max_message_bytes=10_000, max_attachment_bytes=5_000)
    session = server.create()
    attachments = [{"path": "/tmp/" + "x" * 9_000}]
    body = {"text": "say " + "x" * 2_000, "attachments": attachments}
    large = {"text": "say it", "attachments": [{"name": "a.bin", "data": "QUJD" * 2_000}]}
    for path in (f"/api/sessions/{session}/messages", "/api/messages"):
        assert is_problem(server.http.post(path, json=body), 413, "too_large")
        refused = server.http.post(path, json=large)
        assert is_problem(refused, 413, "too_large") and "max_attachment_bytes" in refused.json()["error"]
    assert not list(server.data.glob("attachments/**/*"))
