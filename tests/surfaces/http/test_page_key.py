"""The page's key and tickets. A cookie is visible to every port of the host, so alone it gives no access."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from perdure.surfaces.http.access import TICKET_LIFETIME_S, TICKETS_AT_ONCE
from tests.signing import KEY_HEADER, new_code, signed_in
from tests.surfaces.http.local import PATHS, TOKEN, LocalServer
from tests.surfaces.http.test_access import CLOSED, is_problem


@pytest.fixture(scope="module")
def stolen(server: LocalServer) -> dict[str, str]:
    """What a signed-in browser sends to a server on another port of this host."""
    with signed_in(server) as browser:
        assert browser.get("/api/sessions").status_code == 200
        return {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_a_stolen_cookie_opens_nothing(server: LocalServer, stolen: dict[str, str], method: str, path: str) -> None:
    with server.client(**stolen) as thief, signed_in(server) as other:
        keys: tuple[dict[str, str], ...] = (
            {},
            {KEY_HEADER: ""},
            {KEY_HEADER: "guess"},
            {KEY_HEADER: other.headers[KEY_HEADER]},
        )
        for headers in (*keys, {"origin": server.url}):
            assert is_problem(thief.request(method, path, headers=headers), 401, "unauthorized")


def test_a_key_without_its_cookie_opens_nothing(server: LocalServer) -> None:
    with signed_in(server) as browser, server.client() as stranger:
        key = {KEY_HEADER: browser.headers[KEY_HEADER]}
        assert stranger.get("/api/sessions", headers=key).status_code == 401
        cookies = {"cookie": f"{server.server.access.cookie}={browser.headers[KEY_HEADER]}"}
        assert stranger.get("/api/sessions", headers={**key, **cookies}).status_code == 401


def test_the_key_is_issued_once_and_not_saved_in_the_store(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    with server.client() as client:
        answer = client.post("/api/login", json={"code": new_code(server)})
        key = answer.json()["page_key"]
        assert len(key) >= 32 and key not in answer.headers["set-cookie"]
        assert client.get("/api/logins", headers={KEY_HEADER: key}).text.count(key) == 0
    assert key.encode() not in b"".join(path.read_bytes() for path in server.data.glob("perdure.db*"))


def test_a_sign_in_without_a_key_from_an_older_version_has_ended(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    with signed_in(server) as browser:
        login = browser.login_id()
        [key] = [name for name in server.run(server.server.store.documents("login")) if name.startswith(login)]
        server.run(server.server.store.put_document("login", key, b'{"until": 9999999999}'))
        port = server.port
        server.stop()
        server.start(port)
        assert is_problem(browser.get("/api/sessions"), 401, "unauthorized")
        # The page itself still works, so the user can sign in again.
        assert browser.get("/").status_code == 200
    assert server.get("/api/logins")["logins"] == []


def test_a_cookie_planted_by_another_port_does_no_harm(server: LocalServer) -> None:
    with signed_in(server) as browser, server.client() as client:
        name = server.server.access.cookie
        headers = {
            KEY_HEADER: browser.headers[KEY_HEADER],
            "cookie": f"{name}=planted; {name}={browser.cookies[name]}; {name}=planted",
        }
        assert client.get("/api/sessions", headers=headers).status_code == 200
        split = [(KEY_HEADER, headers[KEY_HEADER]), *(("cookie", one) for one in headers["cookie"].split("; "))]
        assert client.get("/api/sessions", headers=split).status_code == 200


def test_signing_out_needs_the_key_too(server: LocalServer, stolen: dict[str, str]) -> None:
    with server.client(**stolen) as thief:
        assert thief.post("/api/logout").status_code == 401


# Tickets ------------------------------------------------------------------------------------------------------------


def ticket(client: httpx2.Client, path: str) -> str:
    answer = client.post("/api/tickets", json={"path": path})
    assert answer.status_code == 201, answer.text
    assert answer.json()["expires_in_s"] == TICKET_LIFETIME_S
    return str(answer.json()["ticket"])


def test_a_ticket_opens_one_path_once(server: LocalServer) -> None:
    session = server.create(title="a b")
    path = f"/api/sessions/{session}/log"
    with signed_in(server) as browser, server.client() as stranger:
        for asker in (browser, server.http):
            one = ticket(asker, path)
            assert stranger.get(f"/api/sessions?ticket={one}").status_code == 401, "it is for another path"
            one = ticket(asker, path)
            assert stranger.post(path, params={"ticket": one}).status_code == 401, "it is for reading only"
            assert stranger.get(path, params={"ticket": one, "limit": 10}).status_code == 200
            assert is_problem(stranger.get(path, params={"ticket": one}), 401, "unauthorized")
    assert stranger.is_closed


@pytest.mark.parametrize("way", list(PATHS))
def test_a_ticket_opens_an_event_stream_which_ends_with_the_sign_in(
    make_server: Callable[..., LocalServer], way: str
) -> None:
    server = make_server(way, heartbeat_s=0.1)
    path = f"/api/sessions/{server.create()}/events"
    with signed_in(server) as browser, server.client() as stranger:
        one, unused = ticket(browser, path), ticket(browser, path)
        with stranger.stream("GET", path, params={"ticket": one}) as watched:
            assert watched.status_code == 200
            pieces = watched.iter_bytes()
            assert next(pieces)
            assert browser.post("/api/logout").status_code == 204
            for _ in pieces:
                pass
        assert stranger.get(path, params={"ticket": unused}).status_code == 401


def test_a_ticket_path_may_be_url_encoded_and_have_a_query(server: LocalServer, tmp_path: Path) -> None:
    project = server.post("/api/projects", {"name": "a b/ü", "path": str(tmp_path)}, expect=201)["id"]
    with server.client() as stranger:
        for path in (f"/api/projects/{project}", f"/api/projects/{httpx2.URL(f'http://x/{project}').path[1:]}?x=1"):
            assert stranger.get(path.partition("?")[0], params={"ticket": ticket(server.http, path)}).status_code == 200


@pytest.mark.parametrize(
    "path", ["", "api/sessions", "http://elsewhere/api/sessions", "//elsewhere/x", "/\n", "/" * 5000]
)
def test_a_ticket_for_an_invalid_path_is_refused(server: LocalServer, path: str) -> None:
    assert is_problem(server.http.post("/api/tickets", json={"path": path}), 400, "invalid")


def test_tickets_are_limited_in_number_and_lifetime(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    access = server.server.access
    now = server.ask(access._clock)
    server.ask(lambda: setattr(access, "_clock", lambda: now))
    old = ticket(server.http, "/api/sessions")
    server.ask(lambda: setattr(access, "_clock", lambda: now + TICKET_LIFETIME_S))
    with server.client() as stranger:
        assert stranger.get("/api/sessions", params={"ticket": old}).status_code == 401

    async def fill() -> None:
        for _ in range(TICKETS_AT_ONCE):
            await access.new_ticket("/api/sessions", None)

    server.run(fill())
    assert is_problem(server.http.post("/api/tickets", json={"path": "/api/sessions"}), 429, "rate_limited")


def test_a_ticket_cannot_create_tickets_and_the_token_is_not_a_ticket(server: LocalServer) -> None:
    with server.client() as stranger:
        one = ticket(server.http, "/api/tickets")
        assert stranger.post("/api/tickets", params={"ticket": one}, json={"path": "/"}).status_code == 401
        assert stranger.get("/api/sessions", params={"ticket": TOKEN}).status_code == 401


def test_a_browser_gets_the_page_for_an_unknown_path(server: LocalServer) -> None:
    """A browser that follows a link can't send the key."""
    with server.client(accept="text/html") as browser:
        answer = browser.get("/no/such/place")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        # For an existing path or another method, the error is the missing token.
        for path in ("/api/sessions", "/sessions", "/agents/x/sessions", "/api/openapi.json"):
            assert is_problem(browser.get(path), 401, "unauthorized")
        assert is_problem(browser.post("/no/such/place"), 401, "unauthorized")
