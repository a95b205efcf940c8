"""The data directory belongs to one user: no other user can read or change it, whatever the umask, and no agent works
in it."""

import base64
import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.victims import until_said
from tests.harness import NO_LIMITS, ColdServer, LiveServer

SOMEBODY_ELSE = 54321


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LiveServer]:
    """A server that has not been started yet, on an existing directory."""
    (tmp_path / "data").mkdir(mode=0o700)
    server = ColdServer(tmp_path / "data", NO_LIMITS)
    yield server
    if server.process is not None:
        server.finish()


def open_to_others(data: Path) -> dict[str, str]:
    """What other users could read or write in the data directory if they could enter it. Files that agents create in
    their own working directories are not checked."""
    found = {}
    for path in (data, *data.rglob("*")):
        if data / "workspaces" in path.parents and path.parent != data / "workspaces":
            continue
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found[str(path)] = oct(mode)
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_only_the_owner_can_access_created_files_whatever_the_umask(lone: LiveServer, mask: int) -> None:
    with umask(mask):
        lone.start()
        lone.kill()
        lone.restart()
    file = {"name": "a.txt", "mime_type": "text/plain", "data": base64.b64encode(b"text").decode()}
    for agent in ("rehearsal", "rehearsal-stream", "rehearsal-resume"):
        session = lone.create(agent=agent)
        lone.turn(session, "say one\nedit notes.md", attachments=[file])
        lone.send(session, "say half\nhang")
        until_said(lone, session, 2, "half")
    names = {path.name for path in lone.data.rglob("*")}
    assert {"perdure.db-wal", "perdure.db-shm", "sock", "spec.json", "pid.json", "in", "out", "err", "token"} <= names
    assert open_to_others(lone.data) == {}
    # An agent's own files have the modes from the user's umask.
    (made,) = {path.stat().st_mode & 0o777 for path in lone.data.glob("workspaces/*/notes.md")}
    assert made == 0o666 & ~mask


def test_a_directory_readable_by_others_is_made_private_at_startup(lone: LiveServer) -> None:
    lone.data.chmod(0o755)
    (lone.data / "perdure.toml").chmod(0o644)
    lone.start()
    assert stat.S_IMODE(lone.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((lone.data / "perdure.toml").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_writable_by_others_is_refused_with_what_to_do(lone: LiveServer, mode: int) -> None:
    lone.data.chmod(mode)
    with pytest.raises(AssertionError, match="exit code 1"):
        lone.start()
    assert f"chmod 700 {lone.data}" in lone.log_tail()
    assert "Traceback" not in lone.log_tail()
    assert stat.S_IMODE(lone.data.stat().st_mode) == mode


@pytest.mark.needs("root")
def test_a_directory_of_another_user_is_refused_with_what_to_do(lone: LiveServer) -> None:
    os.chown(lone.data, SOMEBODY_ELSE, -1)
    with pytest.raises(AssertionError, match="exit code 1"):
        lone.start()
    assert f"chown -R root {lone.data}" in lone.log_tail()
    os.chown(lone.data, 0, -1)


def test_no_session_works_in_the_data_directory(lone: LiveServer, tmp_path: Path) -> None:
    lone.start()
    (tmp_path / "link").symlink_to(lone.data / "rehearsal")
    (tmp_path / "above").symlink_to(lone.data.parent)
    lone.turn(own := lone.create(), "say one")
    workspace = lone.session(own)["workdir"]
    inside = lone.data / "launches" / "deep"
    inside.mkdir()
    (Path(workspace) / "way-out").symlink_to(lone.data)
    for refused in (
        lone.data,
        lone.data / "launches",
        inside,
        lone.data / "workspaces",
        tmp_path / "link",
        tmp_path / "above" / "data",
        Path(workspace) / "way-out" / "attachments" / "..",
    ):
        (lone.data / "attachments").mkdir(exist_ok=True)
        answer = lone.post("/api/sessions", {"workdir": str(refused)}, expect=400)
        assert "data directory" in answer["detail"], refused
        answer = lone.post("/api/projects", {"path": str(refused), "name": "inside"}, expect=400)
        assert "data directory" in answer["detail"], refused
    (tmp_path / "moved").symlink_to(tmp_path)
    project = lone.post("/api/projects", {"path": str(tmp_path / "moved"), "name": "moved"}, expect=201)["id"]
    changed = lone.http.patch(f"/api/projects/{project}", json={"path": str(tmp_path / "link")})
    assert changed.status_code == 400 and "data directory" in changed.json()["detail"]
    (tmp_path / "moved").unlink()
    (tmp_path / "moved").symlink_to(lone.data)
    assert "data directory" in lone.post("/api/sessions", {"project": project}, expect=400)["detail"]
    # A workspace may be shared with another session.
    assert lone.session(lone.create(workdir=workspace))["workdir"] == workspace
