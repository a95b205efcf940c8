"""Requests as no good client sends them: ahead of an answer, broken off, and for names that no file can have."""

from contextlib import closing

import pytest

from tests.attack import HEAD, plain
from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.http.reading import receive_until


@pytest.mark.full
def test_a_request_behind_a_streams_puts_nothing_into_the_stream(process: ServerProcess) -> None:
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


def test_a_sign_in_that_is_broken_off_is_one_line_in_the_log(process: ServerProcess) -> None:
    with closing(plain(process)) as connection:
        connection.sendall(b"POST /api/login HTTP/1.1\r\nContent-Length: 100\r\n" + HEAD + b'\r\n{"code": ')
    eventually(lambda: "left in the middle" in process.log_tail(), "it is in the log")
    lines = process.log_tail().strip().split("\n")
    assert len(lines) == 1 and "POST '/api/login'" in lines[0]


def test_an_attachment_of_a_name_that_no_file_can_have_is_not_found(process: ServerProcess) -> None:
    session = process.create()
    for name in ("x" * 5_000, "%00", "a%00b", "%ff", "%2e%2e", "..%2f..%2fperdure.db", "%ED%A0%80", "\u00fc" * 200):
        answer = process.http.get(f"/api/sessions/{session}/attachments/{name}")
        assert answer.status_code == 404, (name[:20], answer.text)
    assert "Traceback" not in process.log_tail()
