"""Requests that no proper client sends: pipelined, incomplete, and for impossible file names."""

from contextlib import closing

import pytest

from perdure.surfaces.http.connections import MAX_HEADERS
from tests.attack import HEAD, plain, rest
from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.reading import receive_until
from tests.surfaces.http.test_access import is_problem


@pytest.mark.full
def test_a_request_pipelined_after_a_stream_request_does_not_disturb_the_stream(process: ServerProcess) -> None:
    session = process.create()
    known = HEAD + f"Authorization: Bearer {process.token}\r\n".encode()
    stream = f"GET /api/sessions/{session}/events HTTP/1.1\r\n".encode() + known + b"\r\n"
    other = b"GET /api/sessions HTTP/1.1\r\n" + known + b"\r\n"
    unfinished = b"GET /api/sess"
    for behind in (other, other * 30, unfinished, other + unfinished):
        with closing(plain(process)) as connection:
            connection.sendall(stream + behind)
            received = receive_until(connection, b"event: snapshot")
            process.http.patch(f"/api/sessions/{session}", json={"title": f"behind {len(behind)}"})
            received += receive_until(connection, b'"type":"title"')
        assert received.count(b"HTTP/1.1") == 1, received
        assert [line[7:] for line in received.split(b"\n") if line.startswith(b"event: ")] == [b"snapshot", b"title"]
    assert "Traceback" not in process.log_tail()


BEHIND = {
    "no HTTP": b"}garbage\r\n\r\n",
    "too many headers": b"GET /api/sessions HTTP/1.1\r\n" + b"ab:cd\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    "a body that breaks off": b"POST /api/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
}


@pytest.mark.parametrize("kind", list(BEHIND))
def test_a_complete_request_is_answered_whatever_follows_it(server: LocalServer, kind: str) -> None:
    known = HEAD + f"Authorization: Bearer {server.token}\r\n".encode()
    creating = b"POST /api/sessions HTTP/1.1\r\nContent-Length: 2\r\n" + known + b"\r\n{}"
    for count in (1, 3):
        before = len(server.get("/api/sessions")["sessions"])
        with closing(plain(server)) as connection:
            connection.sendall(creating * count + BEHIND[kind])
            received = rest(connection)
        assert received.count(b"HTTP/1.1 ") == received.count(b"HTTP/1.1 201") == count
        assert len(server.get("/api/sessions")["sessions"]) == before + count


def test_an_incomplete_request_is_refused(server: LocalServer) -> None:
    before = len(server.get("/api/sessions")["sessions"])
    known = HEAD + f"Authorization: Bearer {server.token}\r\n".encode()
    with closing(plain(server)) as connection:
        connection.sendall(b"POST /api/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + known + b"\r\nno length")
        assert rest(connection).startswith(b"HTTP/1.1 400")
    assert len(server.get("/api/sessions")["sessions"]) == before


def test_an_aborted_sign_in_is_one_line_in_the_log(process: ServerProcess) -> None:
    with closing(plain(process)) as connection:
        connection.sendall(b"POST /api/login HTTP/1.1\r\nContent-Length: 100\r\n" + HEAD + b'\r\n{"code": ')
    eventually(lambda: "disconnected during its request" in process.log_tail(), "it is in the log")
    lines = process.log_tail().strip().split("\n")
    assert len(lines) == 1 and "POST '/api/login'" in lines[0]


def test_an_attachment_with_an_impossible_file_name_is_not_found(process: ServerProcess) -> None:
    session = process.create()
    for name in ("x" * 5_000, "%00", "a%00b", "%ff", "%2e%2e", "..%2f..%2fperdure.db", "%ED%A0%80", "\u00fc" * 200):
        answer = process.http.get(f"/api/sessions/{session}/attachments/{name}")
        assert answer.status_code == 404, (name[:20], answer.text)
    assert "Traceback" not in process.log_tail()


@pytest.mark.parametrize("query", ["rewound=null", "to_turn=x", "from_turn=-1"])
@pytest.mark.parametrize("how", ["json", "markdown"])
def test_an_invalid_query_is_refused_in_every_format(server: LocalServer, how: str, query: str) -> None:
    path = f"/api/sessions/{server.create()}/transcript?format={how}&"
    assert server.http.get(path).status_code == 200
    assert is_problem(server.http.get(path + query), 400, "invalid")
