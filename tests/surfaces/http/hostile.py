"""Generates hostile requests from a seed, evenly distributed over all kinds.

Above: test_hostile_requests.py. Below: plain bytes. Only the paths, the field names and the ids of existing sessions
and projects (`Place`) come from the server. An `unfinished` request waits for more bytes, so its sender must close its
side of the connection.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.routes import ENDPOINTS

HOST = b"Host: 127.0.0.1\r\nConnection: close\r\n"
ODD_TEXTS = (
    "",
    "0",
    "-1",
    "9" * 400,
    "1e999",
    "0x10",
    "NaN",
    "null",
    "%00",
    "%ff%fe",
    "%ED%A0%80",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "\u0661",
    "a" * 9_000,
    "'; DROP TABLE events; --",
    "<script>",
    "%0d%0aX-Injected:%201",
    "*",
    "2026-13-45",
    "9223372036854775808",
    "0.5",
    "a,b," * 500,
    "last",
    "s_" + "0" * 21,
    "%F0%9F%98%80",
    "+",
    "%",
    "%zz",
    "?",
    ";",
    "$",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    2**64,
    -(2**70),
    1e308,
    "",
    "\x00",
    "\u202e",
    "x" * 20_000,
    [],
    {},
    [None],
    {"a": None},
    [[[[]]]],
    {"": ""},
    ["x"] * 500,
    {"type": "text"},
    "9" * 5_000,
)
QUERY_NAMES = (
    "offset",
    "limit",
    "from_turn",
    "to_turn",
    "cursor",
    "q",
    "sessions",
    "all",
    "format",
    "rewound",
    "archived",
    "state",
    "status",
    "label",
    "group_by",
    "since",
    "until",
    "wait",
    "purge",
    "project",
    "agent",
    "path",
    "query",
)
BODY_NAMES = (
    "text",
    "message",
    "message_id",
    "id",
    "title",
    "labels",
    "limits",
    "agent",
    "project",
    "workdir",
    "events",
    "code",
    "created_at",
    "turn",
    "revision",
    "fresh",
    "when_busy",
    "attachments",
    "option_id",
    "answers",
    "input",
    "config_id",
    "value",
    "name",
    "path",
    "permissions",
    "kickoff",
    "parent",
    "prompt",
    "summary",
    "session_id",
    "archived",
)
FITTING: dict[str, Any] = {
    "agent": "rehearsal",
    "answers": {},
    "config_id": "model",
    "content": "Blue",
    "fresh": True,
    "labels": ["one"],
    "limits": {"turn_timeout_s": 5},
    "message": "say hello",
    "name": "one",
    "permissions": [{"tool": "Bash", "action": "allow"}],
    "prompt": "say hello",
    "text": "say hello",
    "title": "One",
    "turn": 1,
    "value": "rehearsal-2",
    "when_busy": "queue",
}
"""Valid values. With them, a request that is invalid in one field is not refused because of another."""
WITH_BODY = tuple(endpoint for endpoint in ENDPOINTS if endpoint.body is not None)


class Place(NamedTuple):
    """A live session and its project."""

    session: str
    project: str

    def named(self, part: str) -> str | None:
        """An existing id for this part of a path; None if a session does not always have one."""
        found = {"session_id": self.session, "project_id": self.project, "name": "rehearsal"}
        return {**found, "run_id": f"{self.session}.1"}.get(part.strip("{}").partition(":")[0])


class Attack(NamedTuple):
    kind: str
    sent: bytes
    unfinished: bool = False


class Attacker:
    def __init__(self, seed: int, token: str | None, places: Sequence[Place]) -> None:
        self._random = random.Random(seed)
        self._places = places
        self._authorized = b"" if token is None else b"Authorization: Bearer " + token.encode() + b"\r\n"
        self._kinds: tuple[Callable[[], Attack], ...] = (
            self._request_line,
            self._headers,
            self._chunks,
            self._lengths,
            self._query,
            self._body,
            self._fields,
            self._traversal,
            self._method,
            self._mutation,
            self._upgrade,
            self._fields,
            self._identity,
        )

    def attacks(self, count: int) -> Iterator[Attack]:
        for number in range(count):
            yield self._kinds[number % len(self._kinds)]()

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _noise(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randrange(most))

    def _path(self) -> tuple[str, str]:
        """A method and a path of the server."""
        endpoint = self._random.choice(ENDPOINTS)
        return endpoint.method, self._path_of(endpoint)

    def _path_of(self, endpoint: Endpoint) -> str:
        """A path with existing ids or with odd ones, equally likely."""
        place, real = self._random.choice(self._places), self._one(True, False)

        def filled(part: str) -> str:
            odd: str = self._random.choice(ODD_TEXTS).replace("?", "")
            return part if "{" not in part else (real and place.named(part)) or odd

        return "/".join(filled(part) for part in endpoint.path.split("/"))

    def _at_session(self, path: str) -> str:
        return path.replace("/x/", f"/{self._random.choice(self._places).session}/")

    def _request(self, method: str, path: str, headers: bytes = b"", body: bytes = b"") -> bytes:
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        line = f"{method} {path} HTTP/1.1\r\n".encode("utf-8", "surrogatepass")
        return line + HOST + self._authorized + length + headers + b"\r\n" + body

    # Kinds -----------------------------------------------------------------------------------------------------------

    def _request_line(self) -> Attack:
        rest = b" HTTP/1.1\r\n" + HOST + self._authorized + b"\r\n"
        line: bytes = self._one(
            b"GET" + rest,
            b"GET /" + self._noise(40).replace(b"\n", b"") + rest,
            b"G\x00T /" + rest,
            b"get /" + rest,
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1 x\r\n\r\n",
            b"GET  /" + rest,
            b"GET http://" + rest,
            b"GET http://127.0.0.1/api/health" + rest,
            b"GET http://evil.example/" + rest,
            b"CONNECT evil:80" + rest,
            b"OPTIONS *" + rest,
            b"TRACE /" + rest,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"GET /" + b"a" * 80_000 + rest,
            b"GET /?" + b"a=b&" * 12_000 + rest,
            b"GET /%" + rest,
            b"GET //" + rest,
            b"GET /\xff\xfe" + rest,
            b"FOO /" + rest,
            b"\r\n" * 50 + b"GET /" + rest,
            self._noise(500) + b"\r\n\r\n",
        )
        return Attack("request line", line, unfinished=True)

    def _headers(self) -> Attack:
        headers: bytes = self._one(
            b"X-A: b\r\n" * 3_000,
            b"X-A: " + b"a" * 70_000 + b"\r\n",
            b"X" * 70_000 + b": a\r\n",
            b"X-A: a\x00b\r\n",
            b": empty\r\n",
            b"no colon\r\n",
            b"X-A: a\r\n folded\r\n",
            b"X-A: a\rX-B: b\r\n",
            b"X A: b\r\n",
            b"Host: evil.example\r\n",
            b"Host: 127.0.0.1\r\n" * 50,
            b"Authorization: Bearer \xff\xfe\r\n",
            b"X-A: \xff\xfe\x80\r\n",
            b"Content-Length: 0\r\nContent-Length: 5\r\n",
            b"Cookie: " + b"a=b; " * 5_000 + b"\r\n",
            b"Last-Event-ID: " + b"9" * 100 + b"\r\n",
            b"Last-Event-ID: 1.2.3-x\r\n",
            b"Accept-Encoding: \x7f\r\n",
            b"If-None-Match: " + b'"' * 1_000 + b"\r\n",
            b"Origin: http://[::1\r\n",
            b"Range: bytes=-9-\r\n",
        )
        path = self._one("/", "/api/sessions", "/api/events?all=true", "/api/health", "/page/page.js", "/api/nothing")
        return Attack("headers", self._request("GET", path, headers), unfinished=True)

    def _chunks(self) -> Attack:
        body: bytes = self._one(
            b"-1\r\n\r\n",
            b"g\r\n\r\n",
            b"ffffffffffffffffff\r\n",
            b"5\r\nab\r\n0\r\n\r\n",
            b"2\r\n{}0\r\n\r\n",
            b"2;" + b"x" * 90_000 + b"\r\n{}\r\n0\r\n\r\n",
            b"0\r\n" + b"X-T: a\r\n" * 20_000 + b"\r\n",
            b"2\n{}\n0\n\n",
            b"2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n",
            b"1\r\n{\r\n" * 2_000,
            b"\r\n",
            b" 2\r\n{}\r\n0\r\n\r\n",
            b"0x2\r\n{}\r\n0\r\n\r\n",
            b"7fffffff\r\n{}",
            b"2\r\n{}\r\n0\r\n\r\nGET /api/sessions HTTP/1.1\r\n\r\n",
        )
        coding = self._one(b"chunked", b"gzip, chunked", b"chunked, chunked", b"identity", b"CHUNKED", b"chunked\x00")
        both = self._one(b"", b"", b"Content-Length: 5\r\n")
        headers = b"Transfer-Encoding: " + coding + b"\r\n" + both
        path = self._one("/api/login", "/api/sessions", "/api/import", "/api/nothing", "/")
        return Attack("chunks", self._request("POST", path, headers) + body, unfinished=True)

    def _lengths(self) -> Attack:
        length = self._one(
            b"-1", b"x", b"1e3", b"9" * 30, b"18446744073709551616", b"100", b"1", b"", b"+2", b"0x2", b"2,2"
        )
        path = self._one("/api/login", "/api/sessions", "/api/import", "/api/messages")
        request = self._request("POST", path, b"Content-Length: " + length + b"\r\n")
        return Attack("lengths", request + self._one(b"", b"{}", b"{" * 300, self._noise(200)), unfinished=True)

    def _query(self) -> Attack:
        names = [self._random.choice(QUERY_NAMES) for _ in range(self._random.randrange(1, 6))]
        query = "&".join(f"{name}={self._random.choice(ODD_TEXTS)}" for name in names)
        path = self._one(
            "/api/sessions", "/api/events", "/api/usage", "/api/sessions/x/log", "/api/sessions/x/transcript"
        )
        return Attack("query", self._request("GET", f"{self._at_session(path)}?{query}"))

    def _body(self) -> Attack:
        value = {self._random.choice(BODY_NAMES): self._random.choice(ODD_VALUES) for _ in range(6)}
        bodies: tuple[bytes, ...] = (
            json.dumps(value).encode(),
            json.dumps(value).encode(),
            json.dumps(value).encode(),
            json.dumps([value]).encode(),
            b"[" * 50_000,
            b'{"a":' * 20_000,
            b'{"turn": ' + b"9" * 10_000 + b"}",
            b'{"text": "\xff"}',
            b"\x00" * 100,
            b'{"text": "\\ud800"}',
            b"\xef\xbb\xbf{}",
            self._noise(300),
            b'{"events": [' + b"0," * 50_000 + b"0]}",
            b"nul",
            json.dumps(value).encode()[:-3],
            b'{"title": "a", "title": "b"}',
            "\u00fc".encode("utf-16"),
            b"1e400",
            b'"',
        )
        method, path = self._path()
        method = self._one(method, "POST", "POST")
        return Attack("body", self._request(method, path, body=self._random.choice(bodies)))

    def _fields(self) -> Attack:
        """A body with fields that the endpoint accepts. All values are valid except one."""
        endpoint = self._random.choice(WITH_BODY)
        fields = msgspec.structs.fields(endpoint.body)  # type: ignore[arg-type]
        names = [field.encode_name for field in fields if field.required or self._one(True, False)]
        body = {name: FITTING[name] for name in names if name in FITTING}
        name = self._random.choice(fields).encode_name
        # A value of the right type passes the first validation.
        alike = [value for value in ODD_VALUES if type(value) is type(FITTING.get(name))]
        body[name] = self._random.choice(self._one(alike or ODD_VALUES, ODD_VALUES))
        return Attack("fields", self._request(endpoint.method, self._path_of(endpoint), body=json.dumps(body).encode()))

    def _traversal(self) -> Attack:
        path = self._one(
            "/../../../etc/passwd",
            "/page/../../../etc/passwd",
            "/page/%2e%2e/%2e%2e/token",
            "/page/..%2ftoken",
            "/page/page.js%00.html",
            "/api/../token",
            "//etc/passwd",
            "/s/../../token",
            "/page/" + "../" * 50 + "etc/passwd",
            "/api/sessions/../../token",
            "/api/sessions/x/attachments/..%2f..%2fperdure.db",
            "/page\\..\\token",
            "/./token",
            "/api/sessions/x/attachments/" + "a" * 5_000,
            "/api/sessions/%2e%2e%2f/transcript",
            "/api/agents/..%5c..%5c",
            "/api/sessions/x/files?path=../../..",
            "/api/sessions/x/files?query=../../../etc",
            "/page/%c0%ae%c0%ae/token",
        )
        return Attack("traversal", self._request("GET", self._at_session(path)))

    def _method(self) -> Attack:
        _, path = self._path()
        method = self._one("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "QUERY", "PROPFIND")
        return Attack("method", self._request(method, path))

    def _mutation(self) -> Attack:
        method, path = self._path()
        request = bytearray(self._request(method, path, body=self._one(b"", b'{"text": "say hello"}')))
        for _ in range(self._random.randrange(1, 12)):
            place = self._random.randrange(len(request))
            if self._one(True, False):
                request[place] = self._random.randrange(256)
            else:
                del request[place : place + self._random.randrange(4)]
        return Attack("mutation", bytes(request), unfinished=True)

    def _upgrade(self) -> Attack:
        headers: bytes = self._one(
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
            b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
            b"Expect: 100-continue\r\nContent-Length: 5\r\n",
            b"Expect: nonsense\r\n",
            b"Connection: \x00\r\n",
            b"Connection: keep-alive, close, upgrade\r\n",
            b"TE: trailers\r\nUpgrade: TLS/1.0\r\nConnection: Upgrade\r\n",
        )
        path = self._one("/", "/api/events?all=true", "/api/login", "/api/sessions")
        method = self._one("GET", "POST")
        behind = self._one(b"", self._noise(100))
        return Attack("upgrade", self._request(method, path, headers) + behind, unfinished=True)

    def _identity(self) -> Attack:
        headers: bytes = self._one(
            b"Authorization: Basic \x80\r\n",
            b"Authorization: Bearer\r\n",
            b"Authorization: " + b"Bearer " * 1_000 + b"\r\n",
            b"Cookie: perdure_login=" + self._noise(30).replace(b"\n", b"").replace(b"\r", b"") + b"\r\n",
            b"Cookie: ;;;=\r\n",
            b"Origin: null\r\n",
            b"Origin: http://127.0.0.1.evil.example\r\n",
            b"Origin: http://[\r\n",
            b"Host: [::1\r\n",
            b"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: https\r\n",
            b"Host: 127.0.0.1:99999999\r\n",
            b"Host: \r\n",
        )
        method, path = self._path()
        return Attack("identity", self._request(method, path, headers), unfinished=True)
