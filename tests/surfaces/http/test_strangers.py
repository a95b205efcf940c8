"""Somebody without a token costs the server little, however much they send, and nobody else notices."""

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from perdure.surfaces.http.connections import HEAD_DEADLINE_S, LOGIN_MAX_BYTES, MAX_OPEN_FILES, MAX_STRANGERS
from tests.attack import HEAD, answer, peak_mb, plain, resident_mb, rest, send_all, somebody_else
from tests.harness import NO_LIMITS, LiveServer, eventually

pytestmark = pytest.mark.needs("linux")

GROWTH_MAX_MB = 20
LONGEST_WAIT_S = 5.0
"""On a machine that does other things; `typical_s` says more of the server."""
TYPICAL_WAIT_S = 1.0
MB = 1_000_000


def open_files(server: LiveServer) -> int:
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def login(body: bytes = b"", *headers: bytes) -> bytes:
    head = b"POST /api/login HTTP/1.1\r\n" + HEAD + b"".join(header + b"\r\n" for header in headers)
    return head + b"\r\n" + body


def endless_trailers(kind: str) -> Iterator[bytes]:
    yield login(b"0\r\n", b"Transfer-Encoding: chunked")
    if kind == "one line":
        yield b"X-Trailer: "
    piece = b"X-Trailer: " + b"a" * 50 + b"\r\n" if kind == "many lines" else b"a" * 64
    for _ in range(300):
        yield piece * (MB // len(piece))


@pytest.mark.parametrize("kind", ["many lines", "one line"])
def test_endless_trailers_are_cut_off_and_keep_no_memory(own: LiveServer, kind: str) -> None:
    before = resident_mb(own)
    sent = 0
    with somebody_else(own) as waits:
        while len(waits.seconds) < 10:
            with closing(plain(own)) as attacker:
                sent = max(sent, send_all(attacker, endless_trailers(kind)))
    print(f"{sent / MB} MB sent; {before} MB, peak {peak_mb(own)}, then {resident_mb(own)}; {waits}")
    assert sent < 100 * MB
    assert peak_mb(own) < before + GROWTH_MAX_MB
    assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S


def test_a_trailer_overrides_no_header(own: LiveServer) -> None:
    trailers = f"Host: 127.0.0.1\r\nAuthorization: Bearer {own.token}\r\n".encode()
    for head in (b"Host: 127.0.0.1\r\n", b"Host: evil.example\r\nAuthorization: Bearer wrong\r\n"):
        with closing(plain(own)) as connection:
            connection.sendall(b"POST /api/sessions HTTP/1.1\r\nConnection: close\r\n" + head)
            connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + trailers + b"\r\n")
            assert rest(connection)[:12] in (b"HTTP/1.1 401", b"HTTP/1.1 403")
    # All in one piece, so that the trailers are there before the request is looked at.
    with closing(plain(own)) as connection:
        whole = b"POST /api/sessions HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        connection.sendall(whole + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n")
        assert rest(connection)[:12] == b"HTTP/1.1 401"
    assert own.get("/api/sessions")["sessions"] == []


def test_a_few_trailers_are_ignored_and_the_connection_is_used_again(own: LiveServer) -> None:
    authorized = HEAD + f"Authorization: Bearer {own.token}\r\n".encode()
    chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Checksum: abc\r\n\r\n"
    with closing(plain(own)) as connection:
        for last in (b"", b"Connection: close\r\n"):
            connection.sendall(b"POST /api/sessions HTTP/1.1\r\n" + last + authorized + chunked)
        assert rest(connection).count(b"HTTP/1.1 201") == 2


def test_a_sign_in_of_many_megabytes_is_refused_and_keeps_no_memory(own: LiveServer) -> None:
    before = resident_mb(own)
    body = b'{"code": "' + b"a" * (18 * MB) + b'"}'

    sized = [login(body, b"Content-Length: %d" % len(body))]
    chunked = [login(b"", b"Transfer-Encoding: chunked"), b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n"]

    def attack(number: int) -> bytes:
        with closing(plain(own)) as connection:
            send_all(connection, iter((sized, chunked)[number % 2]))
            return connection.recv(65536)

    with somebody_else(own) as waits, ThreadPoolExecutor(40) as attackers:
        answers = [found for _ in range(3) for found in attackers.map(attack, range(40))]
    print(f"{before} MB, peak {peak_mb(own)}, then {resident_mb(own)}; {waits}")
    assert {found[:12] for found in answers} == {b"HTTP/1.1 413"}
    assert peak_mb(own) < before + GROWTH_MAX_MB
    assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S


def test_a_code_signs_in_as_long_as_its_request_is_small(own: LiveServer) -> None:
    def status(padding: int) -> int:
        code = own.post("/api/login-links", expect=201)["path"].partition("=")[2]
        body = json.dumps({"code": code, "unknown": "x" * padding})
        return own.http.post("/api/login", content=body.encode()).status_code

    assert status(0) == 200
    assert status(LOGIN_MAX_BYTES) == 413


def test_thousands_of_silent_connections_keep_nobody_out(own: LiveServer) -> None:
    before = resident_mb(own)
    with ExitStack() as opened:
        with somebody_else(own) as waits:
            for number in range(2_000):
                connection = opened.enter_context(closing(plain(own)))
                if number % 8 == 0:
                    connection.sendall(login(b"", b"Content-Length: 100") if number % 16 else b"GET / HT")
            eventually(lambda: len(waits.seconds) > 20, "somebody else is answered")
            eventually(lambda: open_files(own) < MAX_STRANGERS + 100, "most of them are closed")
        print(f"{before} MB, then {resident_mb(own)}; {waits}")
        assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S
        assert resident_mb(own) < before + GROWTH_MAX_MB


def test_one_who_is_signed_in_keeps_the_connection_whatever_strangers_do(own: LiveServer) -> None:
    session = own.create()
    asking = b"GET /api/sessions HTTP/1.1\r\n" + HEAD + f"Authorization: Bearer {own.token}\r\n\r\n".encode()
    with ExitStack() as opened, own.watch(session) as stream:
        frames = stream.frames()
        assert next(frames)[1] == "snapshot"
        kept = opened.enter_context(closing(plain(own)))
        kept.sendall(asking)
        assert answer(kept).startswith(b"HTTP/1.1 200")
        for _ in range(MAX_STRANGERS + 50):
            opened.enter_context(closing(plain(own)))
        kept.sendall(asking)
        assert answer(kept).startswith(b"HTTP/1.1 200")
        own.post(f"/api/sessions/{session}/stop", expect=200)
        assert next(frames)[1] == "session_end"


def test_one_who_does_not_finish_asking_is_closed(own: LiveServer) -> None:
    half = (b"", b"GET / HTTP/1.1\r\nHost: 127", login(b"{", b"Content-Length: 100"))
    with ExitStack() as opened:
        connections = [opened.enter_context(closing(plain(own, HEAD_DEADLINE_S + 20))) for _ in half]
        for connection, said in zip(connections, half, strict=True):
            connection.sendall(said)
        answers = [rest(connection)[:12] for connection in connections]
    assert answers == [b"", b"HTTP/1.1 408", b"HTTP/1.1 408"]
    eventually(lambda: "a client left in the middle of its request: POST" in own.log_tail(), "it is in the log")
    assert "Traceback" not in own.log_tail()


def test_a_request_with_the_token_may_take_longer_than_a_stranger_may(own: LiveServer) -> None:
    asking = b"POST /api/sessions HTTP/1.1\r\nContent-Length: 2\r\n" + HEAD
    with closing(plain(own, HEAD_DEADLINE_S + 20)) as stranger, closing(plain(own)) as known:
        known.sendall(asking + b"Authorization: Bearer " + own.token.encode() + b"\r\n\r\n{")
        assert rest(stranger) == b"", "its time is over"
        known.sendall(b"}")
        assert answer(known).startswith(b"HTTP/1.1 201")


def test_requests_that_are_sent_ahead_are_answered_up_to_a_number(own: LiveServer) -> None:
    before = resident_mb(own)
    ahead = b"GET /api/health HTTP/1.1\r\n" + HEAD + b"\r\n"
    with closing(plain(own)) as connection:
        connection.sendall(ahead * 5)
        connection.sendall(ahead.replace(HEAD, HEAD + b"Connection: close\r\n"))
        assert rest(connection).count(b"HTTP/1.1 200") == 6
    with ExitStack() as opened:
        for _ in range(50):
            connection = opened.enter_context(closing(plain(own)))
            connection.sendall(b"POST /api/login HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\n\r\n")
            connection.sendall(b"{" + ahead * 4_000)
        own.get("/api/sessions")
    assert resident_mb(own) < before + GROWTH_MAX_MB


def test_the_server_may_open_as_many_files_as_the_system_lets_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        server = LiveServer(tmp_path / "data", NO_LIMITS).start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.process is not None
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    found = next(line.split() for line in limits.splitlines() if line.startswith("Max open files"))
    assert int(found[3]) == (MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES))
    server.finish()
