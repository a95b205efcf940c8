"""A viewer that does not read delays no one else, uses a limited amount of memory, and can catch up."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.runtime.log.frames import TAIL_BYTES
from perdure.surfaces.http.viewers import HIGH_WATER_BYTES
from tests.harness import LiveServer, none_left
from tests.surfaces.http.local import PATHS, LocalServer
from tests.surfaces.http.reading import Reading, connect, receive_until, whole_frames

FLOOD = "\n".join(["big 60000\nsleep 0.01"] * 150)
"""More than fits into the buffers between a server and a viewer."""


def gathered(server: LocalServer, session: str) -> int:
    """The largest number of bytes that the server buffers for a viewer of this session."""

    viewers = server.viewers(session)

    def sizes() -> list[int]:
        pipes = [viewer._pipe for viewer in viewers]
        return [pipe._size if hasattr(pipe, "_size") else pipe.get_write_buffer_size() for pipe in pipes]

    return int(max(server.ask(sizes)))


@pytest.mark.full
def test_a_viewer_that_never_reads_delays_no_other_and_later_catches_up_with_a_snapshot(both: LocalServer) -> None:
    session = both.create()
    slow = connect(both, f"/api/sessions/{session}/events", receive_buffer=4096)
    quick = Reading()
    with closing(slow), both.watch(session) as stream:
        both.send(session, FLOOD)
        most = 0
        for frame in stream.frames():
            quick.take(frame)
            if len(quick.seqs) % 20 == 0:
                most = max(most, gathered(both, session))
            if frame[1] == "waiting_for_input":
                break
        assert quick.text == both.text(session, 1)[quick.text_offset :]
        assert most < HIGH_WATER_BYTES + 3 * TAIL_BYTES
        last = both.session(session)["event_count"]
        received = receive_until(slow, b"id: %d\n" % last)
        both.send(session, "say after")
        received += receive_until(slow, b"event: waiting_for_input\n")
        received += receive_until(slow, b"\n\n")
    late = Reading()
    for one in whole_frames(received):
        late.take(one)
    assert late.types[0] == "snapshot"
    assert late.snapshots == 2, "one of them in the middle of the stream"
    assert late.types[-1] == "waiting_for_input"
    assert late.text == "after"


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.full
def test_a_server_stops_even_if_a_viewer_does_not_read(make_server: Callable[..., LocalServer], path: str) -> None:
    server = make_server(path)
    session = server.create()
    with closing(connect(server, f"/api/sessions/{session}/events", receive_buffer=4096)):
        server.turn(session, FLOOD)
        server.stop()


def allow_all(server: LiveServer, session: str) -> None:
    for prompt in server.get(f"/api/sessions/{session}/prompts")["prompts"]:
        path = f"/api/sessions/{session}/prompts/{prompt['prompt_id']}"
        server.post(path, {"option_id": "allow_once"}, expect=200)


@pytest.mark.full
def test_events_seen_before_the_server_was_killed_are_never_lost(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", "[server]\nslots = 0\nproject_slots = 0\n").start()
    try:
        session = server.create()
        reading, position = Reading(0), "0"
        server.send(session, "stream 200 5\npermit Deploy\nstream 200 5")
        kills = 0
        while "waiting_for_input" not in reading.types:
            goal = len(reading.text) + 300
            with closing(server.watch(session, position)) as stream:
                for frame in stream.frames():
                    reading.take(frame)
                    position = frame[0]
                    # At the latest while a prompt is open: on a busy machine, many words arrive at the same time.
                    if (len(reading.text) >= goal and kills < 3) or (frame[1] == "pending_prompt" and not kills):
                        server.kill()
                        break
                    if frame[1] == "pending_prompt":
                        allow_all(server, session)
                    if frame[1] == "waiting_for_input":
                        break
            if server.process is None:
                kills += 1
                server.restart()
                allow_all(server, session)
        words = "".join(f"w{n} " for n in range(200))
        assert reading.text == server.text(session, 1)
        assert reading.text.startswith(words) and reading.text.endswith(words)
        server.post(f"/api/sessions/{session}/stop")
    finally:
        server.stop()
        server.http.close()
    none_left(server.data)
