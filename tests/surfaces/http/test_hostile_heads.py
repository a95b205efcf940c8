"""Generated attempts to get access, over a plain socket: none succeeds, and none causes a server error."""

import base64
import random
import socket

import pytest

from tests.harness import WAIT_S
from tests.signing import KEY_HEADER, Browser, signed_in
from tests.sizes import size
from tests.surfaces.http.local import TOKEN, LocalServer

ATTEMPTS = size("HOSTILE", 200, fast=200)
TARGETS = ["/api/sessions", "/api/server", "/api/logins", "/api/events?all=true", "/api/openapi.json", "/sessions"]
ODD_BYTES = [
    b"\xff\xfe",
    b"\xe2\x98\x83",
    b"\x80",
    b"\t",
    b" ",
    b'"',
    b",",
    b";",
    b"=",
    b"%00",
    b"\\",
    b"'",
    b"\xc3\x28",
]
MAX_PIECES = 6


class Attempts:
    """Requests of an attacker who knows all names and has a cookie, but lacks one secret for each kind of access."""

    def __init__(self, seed: int, server: LocalServer, browser: Browser) -> None:
        self._random = random.Random(seed)
        self._name = server.server.access.cookie.encode()
        self._cookie = browser.cookies[server.server.access.cookie].encode()
        self._key = browser.headers[KEY_HEADER].encode()

    def request(self) -> bytes:
        makers = [self._authorization, self._cookies, self._page_key, self._many_headers, self._ticket]
        lines = [b"Host: localhost"]
        target = self._random.choice(TARGETS).encode()
        for make in self._random.sample(makers, self._random.randint(1, 3)):
            made = make()
            target, lines = (target + made, lines) if make == self._ticket else (target, [*lines, *made.split(b"\n")])
        # One of the two secrets of a sign-in, never both: with both, it would be the signed-in browser.
        body = b""
        method = self._random.choice([b"GET", b"GET", b"POST", b"DELETE", b"PATCH", b"OPTIONS"])
        if self._random.random() < 0.2:
            method, target, body = b"POST", b"/api/login", b'{"code": "%b"}' % self._noise().hex().encode()
            lines.append(b"Content-Type: application/json")
        if method != b"GET":
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join([b"%b %b HTTP/1.1" % (method, target), *lines, b"Connection: close", b"", body])

    def _noise(self) -> bytes:
        pieces = [self._random.choice(ODD_BYTES) for _ in range(self._random.randint(0, MAX_PIECES))]
        return b"".join(pieces)

    def _near(self, secret: bytes) -> bytes:
        """Not the secret, but close to it."""
        place = self._random.randrange(1, len(secret))
        return self._random.choice(
            [
                secret[:place],
                secret + self._random.choice([b"x", b"\xff", b"%00", b",", b";x"]),
                secret.swapcase() if secret.swapcase() != secret else secret[:-1],
                secret[:place] + self._random.choice(ODD_BYTES) + secret[place:],
                base64.b64encode(secret),
                secret[::-1],
                b"",
                self._noise(),
            ]
        )

    def _authorization(self) -> bytes:
        token = TOKEN.encode()
        return b"Authorization: " + self._random.choice(
            [
                b"Bearer " + self._near(token),
                b"Bearer" + token,
                b"Bearer, " + token,
                b"Basic " + base64.b64encode(b"user:" + token),
                b"Bearer Bearer " + token,
                token,
                b"Bearer " + token + b", Bearer " + token,
                b"Digest username=" + token + self._noise(),
                b"Bearer wrong\nAuthorization: Bearer " + token,
            ]
        )

    def _cookies(self) -> bytes:
        name = self._name
        pairs = [
            self._random.choice(
                [
                    name + b"=" + self._near(self._cookie),
                    name + b"=" + self._cookie,
                    name + self._noise() + b"=" + self._cookie,
                    name,
                    b"=" + self._cookie,
                    self._noise(),
                ]
            )
            for _ in range(self._random.choice([1, 3, 50, 400]))
        ]
        return b"Cookie: " + b"; ".join(pairs)

    def _page_key(self) -> bytes:
        key = self._near(self._key)
        return b"Perdure-Page-Key: " + (b"" if key.strip() == self._key else key)

    def _many_headers(self) -> bytes:
        count = self._random.choice([1, 20, 200])
        return b"\n".join(b"X-Many-%d: %b" % (number, self._noise().strip()) for number in range(count))

    def _ticket(self) -> bytes:
        given = self._random.choice(
            [TOKEN.encode(), self._cookie, self._key, b"", b"x" * 3000, b"%ff%fe", b"1&ticket=2"]
        )
        return b"&ticket=" + given if self._random.random() < 0.5 else b"?ticket=" + given


def answered(server: LocalServer, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection:
        try:
            connection.sendall(request)
            head = connection.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return 431
    return int(head.split(b" ", 2)[1]) if head else 0


@pytest.mark.parametrize("seed", range(4))
def test_almost_correct_secrets_are_never_accepted(server: LocalServer, seed: int) -> None:
    with signed_in(server) as browser:
        attempts = Attempts(seed, server, browser)
        before = server.get("/api/logins")["logins"]
        statuses: dict[int, int] = {}
        for number in range(ATTEMPTS // 4):
            request = attempts.request()
            status = answered(server, request)
            assert status in (400, 401, 403, 413, 431), f"seed {seed}, attempt {number}: {status} to {request[:2000]!r}"
            statuses[status] = statuses.get(status, 0) + 1
        assert statuses.get(401, 0) > 0 and len(statuses) > 1, statuses
        assert server.get("/api/logins")["logins"] == before
        assert browser.get("/api/sessions").status_code == 200, "who is signed in stays so"
