"""The disk fills up during a turn: the server reports it, waits, and continues when there is room."""

import errno
import subprocess
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from tests.end_to_end.victims import until_said
from tests.harness import LiveServer, eventually, no_holes

SIZE_MB = 48
STEP_BYTES = 64 * 1024
# The minimum free space leaves room for the agent's own small files. An agent that can't store its session is a
# different problem.
CONFIG = """\
[server]
slots = 0
project_slots = 0
disk_floor_mb = 1
"""


def has_room(file: FileIO, size: int) -> bool:
    try:
        file.write(b"\0" * size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


class Ballast:
    """A file that takes all the free space."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self) -> None:
        for size in (STEP_BYTES, 4096, 1):
            with self._path.open("ab", buffering=0) as file:
                while has_room(file, size):
                    pass

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk can't be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def cramped(small_disk: Path, tmp_path: Path) -> Iterator[LiveServer]:
    """A server on the small disk, whose log output goes elsewhere."""
    server = LiveServer(small_disk / "data", CONFIG)
    server.errors = tmp_path / "server.log"
    yield server.start()
    Ballast(small_disk / "ballast").remove()
    server.finish()
    assert "Traceback" not in server.errors.read_text()


def until_refused(server: LiveServer, ballast: Ballast) -> str:
    """Fill the disk until a new session is refused. Returns the refusal."""
    told: list[dict[str, str]] = []

    def look() -> bool:
        ballast.fill()
        answer = server.http.post("/api/sessions", json={})
        if answer.status_code == 201:
            return False
        told.append({**answer.json(), "status": str(answer.status_code)})
        return True

    eventually(look, "a full disk is noticed")
    assert (told[0]["status"], told[0]["code"]) == ("503", "unavailable"), told
    return told[0]["detail"]


def waits_for_room(server: LiveServer, session: str) -> bool:
    return "disk is full" in server.get(f"/api/sessions/{session}/explain")["why"]


@pytest.mark.needs("linux", "mount")
def test_a_turn_whose_keeper_waits_for_disk_space_says_so(cramped: LiveServer, small_disk: Path) -> None:
    server, ballast = cramped, Ballast(small_disk / "ballast")
    session = server.create(message="say half\nhang")
    until_said(server, session, 1, "half")
    assert not waits_for_room(server, session)
    ballast.fill()
    assert waits_for_room(server, session)
    ballast.remove()
    assert not waits_for_room(server, session)


@pytest.mark.needs("linux", "mount")
def test_a_turn_on_a_full_disk_waits_and_loses_nothing(cramped: LiveServer, small_disk: Path) -> None:
    server, ballast = cramped, Ballast(small_disk / "ballast")
    session, other = server.create(), server.create()
    server.turn(other, "say one")
    server.send(session, "stream 1500 2\nsay end")
    until_said(server, session, 1, "w20 ")
    assert "full" in until_refused(server, ballast)
    ballast.fill()
    refused = server.post(f"/api/sessions/{other}/messages", {"text": "say two"}, expect=503)
    assert refused["code"] == "unavailable"
    assert server.session(other)["turn_count"] == 1
    ballast.remove()
    found = server.wait_idle(session)
    assert found["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(session, 1) == "".join(f"w{n} " for n in range(1500)) + "\nend"
    no_holes(server.log(session))
    assert server.recalled(other) == ["say one"]


@pytest.mark.needs("linux", "mount")
def test_while_the_disk_is_full_reads_work_and_writes_are_refused(cramped: LiveServer, small_disk: Path) -> None:
    server, ballast = cramped, Ballast(small_disk / "ballast")
    running, asking, idle = server.create(), server.create(), server.create()
    server.turn(idle, "say one")
    server.send(asking, "permit Deploy\nsay end")
    prompt = server.prompt(asking)
    answer = f"/api/sessions/{asking}/prompts/{prompt['prompt_id']}"
    server.send(running, "stream 1000000 2")
    until_said(server, running, 1, "w20 ")
    until_refused(server, ballast)
    ballast.fill()
    eventually(lambda: waits_for_room(server, running), "the session says why it waits")
    assert server.text(idle, 1) == "one"
    assert [found["id"] for found in server.get("/api/sessions?q=one")["sessions"]] == [idle]
    assert server.get("/api/health")["status"] == "ok"
    for method, path, body in (
        ("POST", answer, {"option_id": "allow_once"}),
        ("POST", f"/api/sessions/{running}/abort", {}),
        ("PATCH", f"/api/sessions/{idle}", {"title": "another"}),
        ("DELETE", f"/api/sessions/{idle}?purge=true", None),
    ):
        refused = server.http.request(method, path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable"), path
        assert "The disk is full. Free some space" in refused.json()["detail"]
    said = len(server.text(running, 1))
    ballast.remove()
    eventually(lambda: len(server.text(running, 1)) > said, "the turn continues")
    eventually(lambda: not waits_for_room(server, running), "the session no longer waits")
    server.post(f"/api/sessions/{running}/abort", expect=202)
    assert server.wait_idle(running)["turns"][0]["stop_reason"] == "cancelled"
    server.post(answer, {"option_id": "allow_once"}, expect=200)
    assert server.wait_idle(asking)["turns"][0]["stop_reason"] == "end_turn"
    assert server.recalled(idle) == ["say one"]


@pytest.mark.needs("linux", "mount")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_after_a_server_died_on_a_full_disk_the_next_one_continues(
    cramped: LiveServer, small_disk: Path, how: str
) -> None:
    server, ballast = cramped, Ballast(small_disk / "ballast")
    session, other = server.create(), server.create()
    server.turn(other, "say one")
    server.send(session, "stream 1500 2\nsay end")
    until_said(server, session, 1, "w20 ")
    until_refused(server, ballast)
    if how == "stopped":
        assert server.stop() == 0
    else:
        server.kill()
    ballast.remove()
    server.restart()
    server.wait_idle(session)
    assert server.text(session, 1) == "".join(f"w{n} " for n in range(1500)) + "\nend"
    no_holes(server.log(session))
    assert server.recalled(other) == ["say one"]


@pytest.mark.smoke
@pytest.mark.needs("linux", "mount")
def test_a_server_that_starts_on_a_full_disk_says_so(cramped: LiveServer, small_disk: Path) -> None:
    server, ballast = cramped, Ballast(small_disk / "ballast")
    until_refused(server, ballast)
    server.kill()
    ballast.fill()
    with pytest.raises(AssertionError, match=r"did not start \(exit code 1\)"):
        server.restart()
    assert "Free some space" in server.log_tail() or "No space left" in server.log_tail()
    ballast.remove()
    server.restart()
    assert server.get("/api/health")["status"] == "ok"
