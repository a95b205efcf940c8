"""Clients that request large responses and don't read them use a limited amount of memory and delay no one else."""

import socket
import threading
from contextlib import ExitStack, closing

import pytest

from perdure.surfaces.http.large_responses import STALL_S, WAIT_S
from tests import attack
from tests.attack import HEAD, memory_comes_back, peak_mb, somebody_else
from tests.harness import LiveServer, eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_import import body, turn

pytestmark = pytest.mark.needs("linux")

CLIENTS = 20
MB = 1_000_000
LONGEST_WAIT_S = 5.0
TYPICAL_WAIT_S = 1.0


def taken_in(server: LiveServer, turns: int, answer_bytes: int) -> None:
    """Import a session `long` and a session `short`, then restart the server, so neither is in memory."""
    events = [event for number in range(1, turns + 1) for event in numbered(number, "a" * answer_bytes)]
    server.post("/api/import", body("long", events), expect=201)
    server.post("/api/import", body("short"), expect=201)
    server.stop()
    server.restart()
    for _ in range(20):
        server.get("/api/sessions")


def numbered(number: int, answer: str) -> list[dict[str, object]]:
    named = {"turn": number, "message_id": f"m{number}"}
    return [{key: named.get(key, event[key]) for key in event} for event in turn(1, f"say {number}", answer)]


def unread(server: LiveServer, path: str, stack: ExitStack) -> socket.socket:
    """A request whose response is not read."""
    head = HEAD + f"Authorization: Bearer {server.token}\r\n".encode()
    request = f"GET {path} HTTP/1.1\r\n".encode() + head + b"\r\n"
    return stack.enter_context(closing(attack.unread(server, request, timeout_s=2 * STALL_S)))


def take(connection: socket.socket, count: int) -> None:
    while count > 0:
        received = len(connection.recv(min(count, 65536)))
        assert received, "closed"
        count -= received


@pytest.mark.parametrize(
    "kind",
    ["transcript", "transcript?format=markdown", "log?limit=1000000"],
)
def test_a_large_response_that_many_clients_do_not_read_uses_little_memory(own: LiveServer, kind: str) -> None:
    taken_in(own, turns=38, answer_bytes=MB)
    with memory_comes_back(own) as before, ExitStack() as stack:
        with somebody_else(own) as waits:
            for _ in range(CLIENTS):
                unread(own, f"/api/sessions/long/{kind}", stack)
            eventually(lambda: len(waits.seconds) > 20, "somebody else is answered")
        print(waits)
        assert peak_mb(own) < before + 100
        assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S
    whole = own.http.get(f"/api/sessions/long/{kind}")
    assert whole.status_code == 200 and whole.text.count("a" * MB) == 38


def test_a_turn_of_many_megabytes_is_sent_to_a_few_clients_at_a_time_and_refused_to_others(own: LiveServer) -> None:
    taken_in(own, turns=1, answer_bytes=38 * MB)
    with memory_comes_back(own) as before, ExitStack() as stack:
        with somebody_else(own) as waits, somebody_else(own, "/api/sessions/short/transcript") as short:
            connections = [unread(own, "/api/sessions/long/transcript", stack) for _ in range(CLIENTS)]
            heads = [connection.recv(12) for connection in connections]
        print(f"{heads.count(b'HTTP/1.1 503')} refused; {waits}; a short document: {short}")
        assert set(heads) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        assert peak_mb(own) < before + 200
        assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S
        assert short.longest_s < LONGEST_WAIT_S and short.typical_s < TYPICAL_WAIT_S, "it does not wait for long ones"
        refusal = connections[heads.index(b"HTTP/1.1 503")].recv(4096)
        assert b"retry-after: 5" in refusal and b"Other clients have not read" in refusal
    answer = eventually(lambda: own.http.get("/api/sessions/long/transcript"), "it is read again")
    assert answer.json()["turns"][0]["parts"][0]["text"] == "a" * (38 * MB)


def test_the_sent_part_of_a_long_turn_frees_memory_for_other_clients(own: LiveServer) -> None:
    taken_in(own, turns=1, answer_bytes=38 * MB)
    with memory_comes_back(own), ExitStack() as stack:
        for _ in range(3):
            # The client reads all but the last 10 MB, then stops.
            connection = unread(own, "/api/sessions/long/transcript", stack)
            take(connection, 28 * MB)
        last = unread(own, "/api/sessions/long/transcript", stack)
        last.settimeout(WAIT_S)
        assert last.recv(12) == b"HTTP/1.1 200"


def test_a_client_that_reads_too_slowly_is_disconnected(own: LiveServer) -> None:
    taken_in(own, turns=1, answer_bytes=38 * MB)
    pause = threading.Event()
    with memory_comes_back(own), ExitStack() as stack:
        connection = unread(own, "/api/sessions/long/transcript", stack)

        def is_cut_off() -> bool:
            pause.wait(0.5)
            take(connection, 4096)
            return "too slowly" in own.log_tail()

        eventually(is_cut_off, "it is disconnected", 3 * STALL_S)


def test_a_transcript_sent_in_pieces_is_the_same_document(server: LocalServer) -> None:
    session = server.create()
    empty = server.get(f"/api/sessions/{session}/transcript")
    assert empty["turns"] == []
    for number in range(1, 41):
        server.turn(session, f"say {number}")
    server.http.patch(
        f"/api/sessions/{session}/messages/{server.transcript(session)[2]['message']['message_id']}",
        json={"text": "say edited"},
    ).raise_for_status()
    server.post(f"/api/sessions/{session}/rewind", {"turn": 39}, expect=200)
    assert [turn["message"]["text"] for turn in server.transcript(session)] == [
        "say edited" if number == 3 else f"say {number}" for number in range(1, 39)
    ]
    assert [turn["parts"][0]["text"] for turn in server.transcript(session)] == [str(number) for number in range(1, 39)]
    every = server.get(f"/api/sessions/{session}/transcript?rewound=true&from_turn=5&to_turn=39")["turns"]
    assert [(turn["turn"], turn["rewound"]) for turn in every] == [(n, n > 38) for n in range(5, 40)]
    markdown = server.http.get(f"/api/sessions/{session}/transcript?format=markdown&from_turn=37").text
    assert markdown == (
        f"# {empty['title'] or 'say 1'}\n\n## 37. You\n\nsay 37\n\n## 37. rehearsal\n\n37\n"
        "\n## 38. You\n\nsay 38\n\n## 38. rehearsal\n\n38\n"
    )
