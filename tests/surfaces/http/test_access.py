"""Access control: token, cookie, Host and Origin, response headers, methods, and unknown paths."""

import contextlib
import select
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import httpx2
import pytest

from perdure.core.clock import stamp
from perdure.core.errors import Refused
from perdure.stores.base import Store
from perdure.surfaces.http import access as access_module
from perdure.surfaces.http.access import CODE_LIFETIME_S, CODES_AT_ONCE, COOKIE_LIFETIME_S, SAFE_HEADERS, Access
from perdure.surfaces.http.openapi import document
from perdure.surfaces.http.request_headers import PAGE_KEY, read_headers
from tests.harness import WAIT_S
from tests.signing import KEY_HEADER, signed_in
from tests.surfaces.http.local import PATHS, TOKEN, LocalServer

OPEN = {"/api/health", "/api/ready", "/api/login"}
CLOSED = [
    (method.upper(), path.replace("{", "").replace("}", ""))
    for path, operations in document()["paths"].items()
    for method in operations
    if path not in OPEN
]
CLOSED += [
    ("GET", "/none"),
    ("GET", "/api"),
    ("GET", "/agents"),
    ("GET", "/api/openapi.json"),
    ("GET", "/api/none"),
    ("OPTIONS", "/api/sessions"),
]


@pytest.fixture(scope="module")
def stranger(server: LocalServer) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


def is_problem(answer: httpx2.Response, status: int, code: str) -> bool:
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(body) >= {"type", "title", "status", "detail", "code", "error"}
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["detail"] == body["error"]
    return True


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_protected_endpoints_require_the_token(
    server: LocalServer, stranger: httpx2.Client, method: str, path: str
) -> None:
    cookie = server.server.access.cookie
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"cookie": f"{cookie}=wrong"},
        {"cookie": f"{cookie}={TOKEN}; x; =; {cookie}"},
    ):
        answer = stranger.request(method, path, headers=headers)
        assert is_problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_token_in_the_url_is_not_accepted(server: LocalServer) -> None:
    with server.client() as client:
        for name in ("token", "access_token", "authorization"):
            assert client.get("/api/sessions", params={name: TOKEN}).status_code == 401


def test_health_and_the_page_need_no_token(server: LocalServer) -> None:
    with server.client() as client:
        assert client.get("/api/health").json()["status"] == "ok"
        for path, media in (("/", "text/html"), ("/page/index.css", "text/css"), ("/page/page.js", "text/javascript")):
            answer = client.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(media)
            assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
            assert TOKEN not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "localhost."])
def test_a_foreign_host_is_refused(server: LocalServer, host: str) -> None:
    for path in ("/", "/api/health", "/api/sessions"):
        assert is_problem(server.http.get(path, headers={"host": host}), 403, "forbidden")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]", "[::1]:8080", "[0:0:0:0:0:0:0:1]"]
)
def test_the_names_of_this_machine_are_allowed_as_host(server: LocalServer, host: str) -> None:
    assert server.http.get("/api/sessions", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://[", "http://127.0.0.1:1", "file://", "http://127.0.0.1\u00e9"]
)
def test_a_foreign_origin_is_refused(server: LocalServer, origin: str) -> None:
    for method, path in (("GET", "/api/sessions"), ("POST", "/api/sessions"), ("POST", "/api/login"), ("GET", "/")):
        answer = server.http.request(method, path, headers={b"origin": origin.encode("latin-1")})
        assert is_problem(answer, 403, "forbidden")


def test_the_pages_own_origin_is_allowed(server: LocalServer) -> None:
    host = f"127.0.0.1:{server.port}"
    assert server.http.get("/api/sessions", headers={"host": host, "origin": f"http://{host}"}).status_code == 200


def test_a_configured_host_is_allowed(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(allowed_hosts=["Perdure.example:8443"])
    assert server.http.get("/api/sessions", headers={"host": "perdure.example"}).status_code == 200


# Signing in ---------------------------------------------------------------------------------------------------------


def test_a_browser_signs_in_once_per_link_stays_signed_in_after_a_restart_and_signs_out(
    make_server: Callable[..., LocalServer],
) -> None:
    server = make_server()
    path = server.post("/api/login-links", expect=201)["path"]
    code = {"code": path.partition("#login=")[2]}
    with server.client() as client:
        answer = client.post("/api/login", json=code)
        assert (answer.status_code, list(answer.json())) == (200, ["page_key"])
        key = {"perdure_page_key": answer.json()["page_key"]}
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
        assert TOKEN not in cookie
        name, secret = server.server.access.cookie, client.cookies[server.server.access.cookie]
        assert client.get("/api/sessions", headers={KEY_HEADER: answer.json()["page_key"]}).status_code == 200
        with server.client() as other:
            assert is_problem(other.post("/api/login", json=code), 401, "unauthorized")
    assert secret.encode() not in b"".join(path.read_bytes() for path in server.data.glob("perdure.db*"))
    port = server.port
    server.stop()
    server.start(port)
    with server.client(cookie=f"{name}={secret}", **key) as client:
        assert client.get("/api/sessions").status_code == 200
        left = client.post("/api/logout")
        assert left.status_code == 204
        assert "Max-Age=0" in left.headers["set-cookie"]
        assert client.get("/api/sessions").status_code == 401
    assert server.http.post("/api/logout").status_code == 204


def test_a_browser_can_stay_signed_in_to_two_servers_on_one_machine(make_server: Callable[..., LocalServer]) -> None:
    servers = make_server(), make_server()
    kept: dict[str, str] = {}
    keys: list[str] = []
    for server in servers:
        with signed_in(server) as client:
            kept |= dict(client.cookies)
            keys.append(client.headers[KEY_HEADER])
    # A browser sends a host's cookies to all of its ports, but each origin can only read its own key.
    cookie = "; ".join(f"{name}={value}" for name, value in kept.items())
    for server, key in zip(servers, keys, strict=True):
        with server.client(cookie=cookie, perdure_page_key=key) as client:
            assert client.get("/api/sessions").status_code == 200
            assert server.server.access.cookie in client.get("/api/openapi.json").text


def test_a_wrong_or_empty_code_is_refused(server: LocalServer) -> None:
    with server.client() as client:
        assert is_problem(client.post("/api/login", json={"code": "guess"}), 401, "unauthorized")
        for body in ({}, {"code": ""}, {"code": None}, {"code": "x" * 300}):
            assert is_problem(client.post("/api/login", json=body), 400, "invalid")


async def test_codes_and_cookies_expire_and_the_number_of_codes_is_limited(tmp_path: Any) -> None:
    from perdure.stores.sqlite import SqliteStore

    now = [1_000_000.0]
    store: Store = SqliteStore(tmp_path / "perdure.db")
    await store.open()
    access = Access("token", store, "id", clock=lambda: now[0])
    code = await access.new_code(None)
    now[0] += CODE_LIFETIME_S
    with pytest.raises(Refused) as refusal:
        await access.redeem(code)
    assert refusal.value.code == "unauthorized"
    cookie, key = await access.redeem(await access.new_code(None))
    head = read_headers([(b"cookie", f"{access.cookie}={cookie}".encode()), (PAGE_KEY, key.encode())])
    assert access.login_of(head) is not None
    now[0] += COOKIE_LIFETIME_S
    assert access.login_of(head) is None
    again = Access("token", store, "id", clock=lambda: now[0])
    await again.load()
    assert await store.documents("login") == {}
    for _ in range(CODES_AT_ONCE):
        await access.new_code(None)
    with pytest.raises(Refused) as refusal:
        await access.new_code(None)
    assert refusal.value.code == "rate_limited"
    now[0] += CODE_LIFETIME_S
    assert await access.new_code(None)
    await store.close()


async def test_expired_sign_ins_and_the_oldest_above_the_limit_are_deleted(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.stores.sqlite import SqliteStore

    monkeypatch.setattr(access_module, "LOGINS_MAX", 3)
    now, ended = [1_000_000.0], list[str]()
    store: Store = SqliteStore(tmp_path / "perdure.db")
    await store.open()
    access = Access("token", store, "id", clock=lambda: now[0])
    access.on_signed_out = ended.append
    for _ in range(5):
        now[0] += 1
        await access.redeem(await access.new_code(None))
    assert [login["until"] for login in access.logins(None)] == [
        stamp(1_000_000 + number + COOKIE_LIFETIME_S) for number in (3, 4, 5)
    ]
    assert len(ended) == 2 and len(await store.documents("login")) == 3
    now[0] += COOKIE_LIFETIME_S
    await access.redeem(await access.new_code(None))
    assert len(ended) == 5 and len(await store.documents("login")) == len(access.logins(None)) == 1
    await store.close()


class Interrupted:
    """A store that runs something else before its n-th call."""

    def __init__(self, store: Store, call: int, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._store, self._left, self._meanwhile = store, call, meanwhile

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                await self._meanwhile()
            return await getattr(self._store, name)(*args)

        return call

    @property
    def is_over(self) -> bool:
        return self._left > 0


async def test_signing_everyone_out_ends_a_sign_in_in_progress(tmp_path: Any) -> None:
    """Even if another node does it, between any two steps of the sign-in."""
    from perdure.stores.sqlite import SqliteStore

    store: Store = SqliteStore(tmp_path / "perdure.db")
    await store.open()
    call, is_over = 0, False
    while not is_over:
        call += 1
        elsewhere = Access("token", store, "id")
        await elsewhere.redeem(await elsewhere.new_code(None))
        code = await elsewhere.new_code(None)
        interrupted = Interrupted(store, call, elsewhere.end_all)
        here = Access("token", cast(Store, interrupted), "id")
        with contextlib.suppress(Refused):
            await here.redeem(code)
        is_over = interrupted.is_over
        if is_over:
            await elsewhere.end_all()
        assert await store.documents("login") == {}, f"before call {call}"
        with pytest.raises(Refused):
            await elsewhere.redeem(code)
    assert call > 3
    await store.close()


# Headers, methods, paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/page/page.js", "/api/health", "/api/sessions", "/api/none", "/api/docs", "/none"]
)
def test_every_response_has_the_browser_security_headers(server: LocalServer, path: str) -> None:
    for headers in ({}, {"host": "evil.example"}):
        answer = server.http.get(path, headers=headers)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("way", list(PATHS))
def test_event_streams_have_the_security_headers_too(make_server: Callable[..., LocalServer], way: str) -> None:
    server = make_server(way)
    session = server.create()
    for path in (f"/api/sessions/{session}/events", "/api/events?all=true"):
        with server.stream(path) as stream:
            for name, value in SAFE_HEADERS.items():
                assert stream.headers[name.decode()] == value.decode()
            assert stream.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/sessions", "GET, HEAD, POST"),
        ("/api/projects/x", "DELETE, GET, HEAD, PATCH"),
        ("/api/sessions/x", "DELETE, GET, HEAD, PATCH"),
        ("/api/login", "POST"),
        ("/", "GET, HEAD"),
    ],
)
def test_an_unsupported_method_is_refused_with_the_allowed_ones(server: LocalServer, path: str, allowed: str) -> None:
    for method in ("PUT", "OPTIONS", "TRACE"):
        answer = server.http.request(method, path)
        assert is_problem(answer, 405, "invalid")
        assert answer.headers["allow"] == allowed


def test_head_is_get_without_a_body(server: LocalServer) -> None:
    for path in ("/", "/api/health", "/api/sessions", "/api/openapi.json"):
        answer, full = server.http.head(path), server.http.get(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"] == full.headers["content-type"]


@pytest.mark.parametrize(
    "target",
    [
        "/../perdure.db",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/page/../../server.py",
        "/page/page.js%00.css",
        "/__init__.py",
        "/./index.html",
        "/\\..\\x",
    ],
)
def test_no_path_escapes_the_pages_files(server: LocalServer, target: str) -> None:
    head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n"
    assert raw(server, f"{head}\r\n").startswith((b"HTTP/1.1 401", b"HTTP/1.1 400"))
    known = f"{head}Authorization: Bearer {TOKEN}\r\n\r\n"
    assert raw(server, known).startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))


def raw(server: LocalServer, request: str | bytes) -> bytes:
    """The first bytes of the response to a request that no client library would send."""
    with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection:
        try:
            connection.sendall(request.encode("latin-1") if isinstance(request, str) else request)
            return connection.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return b"HTTP/1.1 431 and closed"


def test_an_endless_request_head_is_cut_off(server: LocalServer) -> None:
    for piece in ("x" * 400_000, "X-Many: 1\r\n" * 40_000, "a" * 100_000 + "\r\n" + "X: 1\r\n" * 50_000):
        answer = raw(server, f"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Long: {piece}")
        assert answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400")), answer[:100]


def test_a_long_request_head_that_arrives_slowly_gets_a_response_before_it_is_cut_off(server: LocalServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection:
        connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n")
        while not select.select([connection], [], [], 0)[0]:
            try:
                connection.sendall(b"X-Long: " + b"x" * 1000 + b"\r\n")
            except (ConnectionResetError, BrokenPipeError):
                break
        assert connection.recv(1000).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "request_line",
    [
        "GET",
        "GET /",
        "\x00\x01\x02",
        "GET / HTTP/9.9",
        "GET http://evil.example/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "BREW / HTTP/1.1",
    ],
)
def test_a_malformed_request_line_is_refused(server: LocalServer, request_line: str) -> None:
    answer = raw(server, f"{request_line}\r\nHost: localhost\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), answer[:100]
    assert server.http.get("/api/health").status_code == 200


def test_the_api_is_shown_on_one_page(server: LocalServer) -> None:
    answer = server.http.get("/api/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "/api/sessions/{session_id}/messages" in answer.text
    assert ":path" not in answer.text and "<script" not in answer.text
