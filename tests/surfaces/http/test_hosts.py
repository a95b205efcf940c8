"""Requests with a malformed Host, over a plain socket. A proxy in front of the server might parse it differently."""

import pytest

from tests.surfaces.http.local import TOKEN, LocalServer
from tests.surfaces.http.test_access import raw

MALFORMED = [
    "[::1]evil.com",
    "[::1]:80evil.com",
    "[::1]]",
    "[::1",
    "::1",
    "[localhost]",
    "[1.2.3.4]",
    "localhost:port",
    "localhost:123456",
    "localhost:70000",
    "localhost:80:80",
    "localhost@evil.com",
    "evil.com/localhost",
    "evil.com#localhost",
    "evil.com?localhost",
    "localhost evil.com",
    "localhost,evil.com",
    "localhost\\evil.com",
    "local%68ost",
    "*",
    "-localhost",
    "localhost-",
    "localhost\xe9",
    "",
]


def asked(server: LocalServer, *lines: str, version: str = "1.1", path: str = "/api/sessions") -> bytes:
    head = "\r\n".join([f"GET {path} HTTP/{version}", f"Authorization: Bearer {TOKEN}", *lines])
    return raw(server, f"{head}\r\n\r\n").split(b"\r\n", 1)[0]


@pytest.mark.parametrize("host", MALFORMED)
def test_a_malformed_host_is_refused(server: LocalServer, host: str) -> None:
    for path in ("/", "/api/health", "/api/sessions"):
        assert asked(server, f"Host: {host}", path=path) == b"HTTP/1.1 400 Bad Request"


def test_a_request_without_a_host_is_refused(server: LocalServer) -> None:
    assert asked(server) == b"HTTP/1.1 400 Bad Request"
    assert asked(server, version="1.0").endswith(b"400 Bad Request")


@pytest.mark.parametrize("second", ["localhost", "evil.example", ""])
def test_two_hosts_are_refused_even_if_they_are_the_same(server: LocalServer, second: str) -> None:
    assert asked(server, "Host: localhost", f"Host: {second}") == b"HTTP/1.1 400 Bad Request"
    assert asked(server, f"Host: {second}", "Host: localhost") == b"HTTP/1.1 400 Bad Request"


@pytest.mark.parametrize("line", ["Authorization: Bearer wrong", "Origin: http://localhost", "Perdure-Page-Key: x"])
def test_a_header_that_must_be_unique_is_refused_if_it_is_repeated(server: LocalServer, line: str) -> None:
    assert asked(server, "Host: localhost", line, line) == b"HTTP/1.1 400 Bad Request"
