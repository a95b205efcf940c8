"""Agents that write far too much, or not their protocol: the turn ends normally and completely, in bounded memory."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure.drivers.lines import MAX_LINE_BYTES
from tests.attack import forget_peak, peak_mb, resident_mb
from tests.harness import LiveServer, no_holes

PEAK_MAX_MB = 400
LONG_LINE_BYTES = MAX_LINE_BYTES - 1024
"""Nearly the maximum length of a line."""
LONG_LINE_TIMES = 6
"""The copies of a line: bytes, text, JSON, and part of it in SQLite. Plus what any server needs when it starts to
work."""


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    """A private server, whose memory peak belongs to this test."""
    return make_server()


@pytest.mark.needs("linux")
def test_a_flood_of_text_is_stored_completely_in_bounded_memory(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "stream 200000\nsay end")
    found = server.wait_idle(session, timeout_s=90)
    print(f"peak {peak_mb(server)} MB, {found['event_count']} events")
    assert peak_mb(server) < PEAK_MAX_MB
    assert found["turns"][0]["stop_reason"] == "end_turn"
    no_holes(server.log(session))
    assert server.text(session, 1) == "".join(f"w{n} " for n in range(200_000)) + "\nend"


@pytest.mark.needs("linux")
def test_one_line_of_ten_megabytes_is_stored_completely_in_bounded_memory(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say begin\nbig 10000000\nsay end")
    found = server.wait_idle(session)
    print(f"peak {peak_mb(server)} MB")
    assert peak_mb(server) < PEAK_MAX_MB
    assert found["turns"][0]["stop_reason"] == "end_turn"
    text = server.text(session, 1)
    assert text.startswith("begin") and text.endswith("end") and len(text) > 9_000_000


@pytest.mark.needs("linux")
def test_the_longest_line_needs_a_few_times_its_size_with_any_number_of_viewers(server: LiveServer) -> None:
    session = server.create()
    server.turn(session, "say hello")
    before = resident_mb(server)
    forget_peak(server)
    with ExitStack() as watching:
        for _ in range(5):
            watching.enter_context(server.watch(session))
        server.send(session, f"say begin\nbig {LONG_LINE_BYTES}\nsay end")
        found = server.wait_idle(session, timeout_s=90)
    times = (peak_mb(server) - before) * 1024 * 1024 / LONG_LINE_BYTES
    print(f"{before} MB, peak {peak_mb(server)} MB, {times} times the line; then {resident_mb(server)}")
    assert times < LONG_LINE_TIMES
    assert found["turns"][-1]["stop_reason"] == "end_turn"
    assert len(server.text(session, 2)) > LONG_LINE_BYTES - 1_000


@pytest.mark.slow
@pytest.mark.needs("linux")
def test_a_line_longer_than_any_limit_is_skipped_and_the_turn_continues(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say begin\nbig 400000000\nsay end")
    found = server.wait_idle(session, timeout_s=110)
    print(f"peak {peak_mb(server)} MB")
    assert found["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(session, 1) == "begin\n\nend"


def test_a_line_longer_than_the_spool_limit_is_delivered(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "small", "[server]\nslots = 0\nproject_slots = 0\nspool_limit_mb = 1\n").start()
    try:
        session = server.create()
        assert server.turn(session, "big 5000000\nsay end")["stop_reason"] == "end_turn"
        server.post(f"/api/sessions/{session}/stop", expect=200)
    finally:
        server.stop()
        server.http.close()


@pytest.mark.smoke
def test_broken_lines_are_reported_and_skipped(server: LiveServer) -> None:
    session = server.create()
    turn = server.turn(session, "say begin\ngarbage\nsay end")
    assert (turn["stop_reason"], server.text(session, 1)) == ("end_turn", "begin\nend")
    assert "agent_noise" in [event.get("code") for event in server.log(session)]
    assert server.recalled(session) == ["say begin\ngarbage\nsay end"]


def test_a_flood_of_stderr_stops_nothing(server: LiveServer) -> None:
    session = server.create()
    turn = server.turn(session, "say begin\nstderr 20000\nsay end")
    assert (turn["stop_reason"], server.text(session, 1)) == ("end_turn", "begin\nend")
    sizes = [entry.stat().st_size for entry in (server.data / "launches").glob("*/err")]
    assert sizes and max(sizes) <= 512 * 1024
