"""Unauthenticated clients can't exhaust the server, however much they send, and don't slow down others."""

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from perdure.server import KEEP_ALIVE_S
from perdure.surfaces.http.connections import (
    HEAD_DEADLINE_S,
    LOGIN_MAX_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    MAX_PIPELINED_UNAUTHENTICATED,
    READ_DEADLINE_S,
)
from perdure.surfaces.http.unauthenticated import MAX_CONNECTIONS
from perdure.surfaces.open_files import MAX_OPEN_FILES
from tests.attack import (
    GROWTH_MAX_MB,
    HEAD,
    answer,
    memory_comes_back,
    open_files,
    peak_mb,
    plain,
    rest,
    send_all,
    somebody_else,
    unread,
)
from tests.harness import NO_LIMITS, ColdServer, LiveServer, eventually
from tests.surfaces.http.local import LocalServer

pytestmark = pytest.mark.needs("linux")

LONGEST_WAIT_S = 5.0
"""Generous, because the machine may be busy; `typical_s` is the better measure."""
TYPICAL_WAIT_S = 1.0
MB = 1_000_000


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


@pytest.mark.parametrize("kind", [pytest.param("many lines", marks=pytest.mark.smoke), "one line"])
def test_endless_trailers_are_cut_off_and_use_no_lasting_memory(own: LiveServer, kind: str) -> None:
    sent = 0
    with memory_comes_back(own) as before, somebody_else(own) as waits:
        while len(waits.seconds) < 10:
            with closing(plain(own)) as attacker:
                sent = max(sent, send_all(attacker, endless_trailers(kind)))
    print(f"{sent / MB} MB sent; {waits}")
    assert sent < 100 * MB
    assert peak_mb(own) < before + GROWTH_MAX_MB
    assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S


def test_a_trailer_overrides_no_header(server: LocalServer) -> None:
    trailers = f"Host: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n".encode()
    for head in (b"Host: 127.0.0.1\r\n", b"Host: evil.example\r\nAuthorization: Bearer wrong\r\n"):
        with closing(plain(server)) as connection:
            connection.sendall(b"POST /api/sessions HTTP/1.1\r\nConnection: close\r\n" + head)
            connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + trailers + b"\r\n")
            assert rest(connection)[:12] in (b"HTTP/1.1 401", b"HTTP/1.1 403")
    # All in one piece, so the trailers arrive before the request is handled.
    with closing(plain(server)) as connection:
        whole = b"POST /api/sessions HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        connection.sendall(whole + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n")
        assert rest(connection)[:12] == b"HTTP/1.1 401"
    assert server.get("/api/sessions")["sessions"] == []


def test_a_few_trailers_are_ignored_and_the_connection_stays_usable(server: LocalServer) -> None:
    authorized = HEAD + f"Authorization: Bearer {server.token}\r\n".encode()
    chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Checksum: abc\r\n\r\n"
    with closing(plain(server)) as connection:
        for last in (b"", b"Connection: close\r\n"):
            connection.sendall(b"POST /api/sessions HTTP/1.1\r\n" + last + authorized + chunked)
        assert rest(connection).count(b"HTTP/1.1 201") == 2


def test_a_sign_in_of_many_megabytes_is_refused_and_uses_no_lasting_memory(own: LiveServer) -> None:
    body = b'{"code": "' + b"a" * (18 * MB) + b'"}'

    sized = [login(body, b"Content-Length: %d" % len(body))]
    chunked = [login(b"", b"Transfer-Encoding: chunked"), b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n"]

    def attack(number: int) -> bytes:
        with closing(plain(own)) as connection:
            send_all(connection, iter((sized, chunked)[number % 2]))
            return connection.recv(65536)

    with memory_comes_back(own) as before, somebody_else(own) as waits, ThreadPoolExecutor(40) as attackers:
        answers = [found for _ in range(3) for found in attackers.map(attack, range(40))]
    print(waits)
    assert {found[:12] for found in answers} == {b"HTTP/1.1 413"}
    assert peak_mb(own) < before + GROWTH_MAX_MB
    assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S


def test_a_sign_in_request_has_a_size_limit(server: LocalServer) -> None:
    def status(padding: int) -> int:
        code = server.post("/api/login-links", expect=201)["path"].partition("=")[2]
        body = json.dumps({"code": code, "unknown": "x" * padding})
        return server.http.post("/api/login", content=body.encode()).status_code

    assert status(0) == 200
    assert status(LOGIN_MAX_BYTES) == 413


def test_thousands_of_silent_connections_do_not_block_other_clients(own: LiveServer) -> None:
    with memory_comes_back(own) as before, ExitStack() as opened:
        with somebody_else(own) as waits:
            for number in range(2_000):
                connection = opened.enter_context(closing(plain(own)))
                if number % 8 == 0:
                    connection.sendall(login(b"", b"Content-Length: 100") if number % 16 else b"GET / HT")
            eventually(lambda: len(waits.seconds) > 20, "somebody else is answered")
            eventually(lambda: open_files(own) < MAX_CONNECTIONS + 100, "most of them are closed")
        print(waits)
        assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S
        assert peak_mb(own) < before + GROWTH_MAX_MB


@pytest.mark.full
def test_unauthenticated_connections_get_a_share_of_a_low_limit_of_open_files(tmp_path: Path) -> None:
    server = ColdServer(tmp_path / "data", NO_LIMITS).start()
    assert server.process is not None
    # No client has connected yet, so the server has not read its limit.
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    with ExitStack() as opened, somebody_else(server) as waits:
        for _ in range(1_500):
            opened.enter_context(closing(plain(server)))
        eventually(lambda: len(waits.seconds) > 20, "somebody else is answered")
        eventually(lambda: open_files(server) < 1024 // 4 + 100, "most of them are closed")
    assert waits.longest_s < LONGEST_WAIT_S
    server.finish()


UNFINISHED_HEADS = {
    "short headers": b"ab:cd\r\n" * 9_000,
    "more than one read of short headers": b"ab:cd\r\n" * 34_000,
    "headers within the limits": (b"ab:" + b"x" * 400 + b"\r\n") * 150,
    "one long header": b"ab:" + b"x" * 60_000,
}


@pytest.mark.parametrize("kind", list(UNFINISHED_HEADS))
def test_unfinished_heads_with_many_headers_use_little_memory(own: LiveServer, kind: str) -> None:
    head = b"GET / HTTP/1.1\r\n" + HEAD + UNFINISHED_HEADS[kind]
    with memory_comes_back(own) as before:
        with ExitStack() as opened, somebody_else(own) as waits:
            connections = [opened.enter_context(closing(plain(own))) for _ in range(1_000)]
            for connection in connections[-600:]:
                send_all(connection, iter([head]))
            asked = len(waits.seconds)
            eventually(lambda: len(waits.seconds) > asked + 20, "somebody else is answered")
        print(waits)
        assert peak_mb(own) < before + 2 * GROWTH_MAX_MB
        assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S
    assert "Traceback" not in own.log_tail()


def test_the_number_of_headers_in_a_request_is_limited(server: LocalServer) -> None:
    def status(count: int) -> bytes:
        with closing(plain(server)) as connection:
            headers = HEAD + b"Connection: close\r\n" + b"ab:cd\r\n" * (count - 2)
            connection.sendall(b"GET /api/health HTTP/1.1\r\n" + headers + b"\r\n")
            return rest(connection)[:12]

    assert (status(MAX_HEADERS), status(MAX_HEADERS + 1)) == (b"HTTP/1.1 200", b"HTTP/1.1 431")


def test_the_unread_body_of_a_refused_request_is_not_held_in_memory(own: LiveServer) -> None:
    asking = b"POST /api/sessions HTTP/1.1\r\n" + HEAD + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000
    with memory_comes_back(own) as before, ExitStack() as opened:
        for _ in range(400):
            connection = opened.enter_context(closing(plain(own)))
            connection.sendall(asking)
            assert answer(connection).startswith(b"HTTP/1.1 401")
        assert peak_mb(own) < before + GROWTH_MAX_MB


def test_unauthenticated_clients_that_do_not_read_their_responses_are_disconnected(own: LiveServer) -> None:
    asking = b"GET /page/page.js HTTP/1.1\r\n" + HEAD + b"\r\n"
    files = open_files(own)
    with memory_comes_back(own) as before, ExitStack() as opened:
        connections = [opened.enter_context(closing(unread(own, asking))) for _ in range(20)]
        for _ in range(30):
            # Each request fills the socket buffers a bit more; responses beyond that must wait in the server.
            for connection in connections:
                send_all(connection, iter([asking]))
                own.get("/api/health")
        assert open_files(own) > files + 15, "they have some time"
        assert peak_mb(own) < before + GROWTH_MAX_MB
        eventually(lambda: open_files(own) < files + 5, "they are closed", READ_DEADLINE_S + 20)
    assert "Traceback" not in own.log_tail()


def test_requests_with_many_headers_and_unread_responses_use_little_memory(own: LiveServer) -> None:
    asking = b"GET /page/page.js HTTP/1.1\r\n" + HEAD
    ahead = asking + (b"ab:" + b"x" * 250 + b"\r\n") * 190 + b"\r\n"
    with memory_comes_back(own) as before, ExitStack() as opened:
        with somebody_else(own) as waits:
            for _ in range(200):
                connection = opened.enter_context(closing(unread(own, asking + b"\r\n")))
                send_all(connection, iter([ahead * 12]))
            asked = len(waits.seconds)
            eventually(lambda: len(waits.seconds) > asked + 20, "somebody else is answered")
        assert peak_mb(own) < before + 2 * GROWTH_MAX_MB
        assert waits.longest_s < LONGEST_WAIT_S and waits.typical_s < TYPICAL_WAIT_S
    assert "Traceback" not in own.log_tail()


def test_unauthenticated_connections_never_displace_an_authenticated_one(own: LiveServer) -> None:
    session = own.create()
    asking = b"GET /api/sessions HTTP/1.1\r\n" + HEAD + f"Authorization: Bearer {own.token}\r\n\r\n".encode()
    with ExitStack() as opened, own.watch(session) as stream:
        frames = stream.frames()
        assert next(frames)[1] == "snapshot"
        kept = opened.enter_context(closing(plain(own)))
        kept.sendall(asking)
        assert answer(kept).startswith(b"HTTP/1.1 200")
        for _ in range(MAX_CONNECTIONS + 50):
            opened.enter_context(closing(plain(own)))
        kept.sendall(asking)
        assert answer(kept).startswith(b"HTTP/1.1 200")
        own.post(f"/api/sessions/{session}/stop", expect=200)
        assert next(frames)[1] == "session_end"


def test_an_incomplete_request_is_disconnected(own: LiveServer) -> None:
    half = (b"", b"\r\n", b"GET / HTTP/1.1\r\nHost: 127", login(b"{", b"Content-Length: 100"))
    with ExitStack() as opened:
        connections = [opened.enter_context(closing(plain(own, HEAD_DEADLINE_S + 20))) for _ in half]
        for connection, said in zip(connections, half, strict=True):
            connection.sendall(said)
        answers = [rest(connection)[:12] for connection in connections]
    assert answers == [b"", b"", b"HTTP/1.1 408", b"HTTP/1.1 408"]
    eventually(lambda: "client disconnected during its request: POST" in own.log_tail(), "it is in the log")
    assert "Traceback" not in own.log_tail()


def test_empty_lines_do_not_keep_a_connection_open(own: LiveServer) -> None:
    with closing(plain(own, KEEP_ALIVE_S + 20)) as connection:
        connection.sendall(b"GET /api/health HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        assert rest(connection) == b"", "it is closed as one over which nothing came"


def test_an_authenticated_request_may_take_longer_than_an_unauthenticated_one(own: LiveServer) -> None:
    asking = b"POST /api/sessions HTTP/1.1\r\nContent-Length: 2\r\n" + HEAD
    with closing(plain(own, HEAD_DEADLINE_S + 20)) as stranger, closing(plain(own)) as known:
        known.sendall(asking + b"Authorization: Bearer " + own.token.encode() + b"\r\n\r\n{")
        assert rest(stranger) == b"", "its time is over"
        known.sendall(b"}")
        assert answer(known).startswith(b"HTTP/1.1 201")


def test_pipelined_requests_are_answered_up_to_a_limit(server: LocalServer) -> None:
    known = HEAD + f"Authorization: Bearer {server.token}\r\n".encode()
    for head, limit in ((HEAD, MAX_PIPELINED_UNAUTHENTICATED), (known, MAX_PIPELINED)):
        ahead = b"GET /api/sessions HTTP/1.1\r\n" + head + b"\r\n"
        for count in (limit, 200):
            with closing(plain(server)) as connection:
                connection.sendall(ahead)
                answer(connection)
                # In one piece; the last request closes the connection.
                connection.sendall(ahead * count + ahead.replace(HEAD, HEAD + b"Connection: close\r\n"))
                assert rest(connection).count(b"HTTP/1.1 ") == limit + 1


def test_pipelined_requests_leak_no_memory(own: LiveServer) -> None:
    ahead = b"GET /api/health HTTP/1.1\r\n" + HEAD + b"\r\n"
    with memory_comes_back(own) as before, ExitStack() as opened:
        for _ in range(50):
            connection = opened.enter_context(closing(plain(own)))
            connection.sendall(b"POST /api/login HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\n\r\n")
            connection.sendall(b"{" + ahead * 4_000)
        own.get("/api/sessions")
        assert peak_mb(own) < before + GROWTH_MAX_MB


def test_the_server_raises_its_limit_of_open_files_as_far_as_possible(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        server = ColdServer(tmp_path / "data", NO_LIMITS).start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.process is not None
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    found = next(line.split() for line in limits.splitlines() if line.startswith("Max open files"))
    assert int(found[3]) == (MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES))
    server.finish()
