"""The client: parsing frames, reconnecting streams, idempotent messages."""

import json
import socket
import threading

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.server import KEEP_ALIVE_S
from perdure.surfaces.client import Address, Client, NeverSent, Problem, Unreachable
from perdure.surfaces.sse import Frame, Frames
from tests.harness import no_holes
from tests.surfaces.conftest import ServerProcess

LIMIT_S = 20.0


@given(
    st.lists(
        st.tuples(st.integers(1, 99999), st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)),
        max_size=8,
    ),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_do_not_depend_on_how_the_bytes_are_split(events: list[tuple[int, str]], cuts: list[int]) -> None:
    stream = b"".join(f": beat\n\nid: {seq}\nevent: system\ndata: {text}\n\n".encode() for seq, text in events)
    frames, position, number = Frames(), 0, 0
    found: list[Frame] = []
    while position < len(stream):
        size = cuts[number % len(cuts)]
        found += frames.feed(stream[position : position + size])
        position, number = position + size, number + 1
    assert found == [Frame(str(seq), "system", text.encode()) for seq, text in events]


class Script:
    """A server that gives each connection the next prepared response and then hangs up. Records the requests."""

    def __init__(self, answers: list[bytes]) -> None:
        self.asked: list[str] = []
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(f"http://127.0.0.1:{self._listener.getsockname()[1]}", "token")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(LIMIT_S)
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536)
                self.asked.append(request.decode())
                connection.sendall(answer)

    def close(self) -> None:
        self._thread.join(LIMIT_S)
        self._listener.close()


def sse(*frames: str) -> bytes:
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return (head + "".join(frames)).encode()


def frame(seq: int, kind: str = "system", more: str = "", position: str | None = None) -> str:
    body = f'{{"seq":{seq},"type":"{kind}"{more}}}'
    return f"id: {position or seq}\nevent: {kind}\ndata: {body}\n\n"


def test_a_stream_resumes_at_its_position_drops_duplicates_and_ends_with_204() -> None:
    server = Script(
        [
            sse(frame(1), frame(2), "id: 3\nevent: system\nda"),
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            sse(frame(2), frame(3, position="3-7")),
            b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
        ]
    )
    changes: list[str] = []
    with Client(server.address) as client:
        stream = client.events(
            "s", 0, on_lost=lambda reason: changes.append("lost"), on_back=lambda: changes.append("back")
        )
        assert [event.seq for event in stream] == [1, 2, 3]
    server.close()
    assert changes == ["lost", "back", "lost"]
    assert "offset=0" in server.asked[0] and "last-event-id" not in server.asked[0].lower()
    assert "last-event-id: 2\r\n" in server.asked[2].lower()
    assert "last-event-id: 3-7\r\n" in server.asked[3].lower()


def test_a_snapshot_resets_the_event_number() -> None:
    server = Script(
        [
            sse(frame(9)),
            sse(frame(4, "snapshot", ',"session":{"state":"idle"}', "4-2"), frame(5), frame(6, "session_end")),
        ]
    )
    with Client(server.address) as client:
        assert [(event.seq, event.type) for event in client.events("s", 8)] == [
            (9, "system"),
            (4, "snapshot"),
            (5, "system"),
            (6, "session_end"),
        ]
    server.close()


def test_a_stream_closed_from_another_thread_ends_immediately(server: ServerProcess) -> None:
    with server.client() as client:
        sent = client.send("hang")
        stream = client.events(sent["session_id"], 0)
        started = threading.Event()

        def read() -> None:
            for event in stream:
                if event.type == "turn_start":
                    started.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert started.wait(LIMIT_S)
        stream.close()
        reader.join(LIMIT_S)
        assert not reader.is_alive()


def test_a_stream_of_a_missing_session_is_refused(server: ServerProcess) -> None:
    with server.client() as client, pytest.raises(Problem) as refused:
        next(iter(client.events("s_nothing")))
    assert refused.value.code == "not_found"


def test_a_stream_that_never_connected_is_unreachable() -> None:
    with Client(Address("http://127.0.0.1:9")) as client, pytest.raises(Unreachable):
        next(iter(client.events("s")))


def test_a_message_is_accepted_once_although_the_response_was_lost(server: ServerProcess) -> None:
    lost = Script([b""])
    places = iter([lost.address])
    with Client(lambda: next(places, None) or server.address(), patience_s=LIMIT_S) as client:
        with server.client() as other:
            session_id = other.create_session()["id"]
        first = client.send("say hi", session_id, message_id="m1")
        assert client.send("say hi", session_id, message_id="m1") == first
        assert client.session(session_id)["turn_count"] == 1
    lost.close()
    assert len(lost.asked) == 1


def test_a_job_runs_once_although_the_response_was_lost(server: ServerProcess) -> None:
    with server.client() as other:
        job = other.add_job("Greet", "say hi", every_s=3600)["id"]
    lost = Script([b""])
    places = iter([lost.address])
    with Client(lambda: next(places, None) or server.address(), patience_s=LIMIT_S) as client:
        first = client.run_job(job)
        assert client.run_job(job, first["id"].removeprefix("manual-"))["id"] == first["id"]
        assert [run["id"] for run in client.job_runs(job)["runs"]] == [first["id"]]
        assert client.run_job(job)["id"] != first["id"]
    lost.close()
    assert "/run " in lost.asked[0]


def test_a_request_that_is_not_idempotent_is_not_retried() -> None:
    lost = Script([b""])
    with Client(lost.address, patience_s=LIMIT_S) as client, pytest.raises(Unreachable) as broken:
        client.abort("s")
    lost.close()
    assert not isinstance(broken.value, NeverSent)
    assert len(lost.asked) == 1


def test_a_server_keeps_an_idle_connection_far_longer_than_its_client_uses_it() -> None:
    used_for_s = httpx2.Limits().keepalive_expiry
    assert used_for_s is not None and used_for_s * 3 < KEEP_ALIVE_S


def test_a_problem_has_a_code_a_message_and_details(server: ServerProcess) -> None:
    with server.client() as client:
        sent = client.send("hang")
        with pytest.raises(Problem) as refused:
            client.send("say no", sent["session_id"])
    assert (refused.value.status, refused.value.code) == (409, "turn_active")
    assert refused.value.facts["state"] == "processing"
    assert str(refused.value)


def test_a_response_from_another_program_is_a_problem_too() -> None:
    stranger = Script([b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 5\r\nconnection: close\r\n\r\n<html"])
    with Client(stranger.address) as client, pytest.raises(Problem, match="status 502"):
        client.health()
    stranger.close()


def test_a_session_is_read_page_by_page_with_all_its_turns(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.surfaces.client.PAGE_LIMIT", 2)
    with server.client() as client:
        session = client.create_session()["id"]
        assert client.whole_session(session)["turns"] == []
        for number in range(1, 6):
            sent = client.send(f"say {number}", session)
            next(event for event in client.events(session, sent["seq"]) if event.type == "waiting_for_input")
            whole = client.whole_session(session)
            assert [turn["turn"] for turn in whole["turns"]] == list(range(1, number + 1))
            assert whole == client.session(session)
        assert [turn["turn"] for turn in client.session(session, limit=2, cursor="4")["turns"]] == [2, 3]


def test_the_log_is_read_page_by_page_to_its_end(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.surfaces.client.LOG_PAGE_EVENTS", 3)
    with server.client() as client:
        sent = client.send("say a few words here")
        next(event for event in client.events(sent["session_id"], 0) if event.type == "waiting_for_input")
        events = [json.loads(line) for line in client.log(sent["session_id"])]
        no_holes(events)
        assert events[-1]["seq"] == client.session(sent["session_id"])["event_count"] > 3
