"""Front ends on other origins (`allowed_origins`): they may use the token, never a cookie."""

from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.signing import KEY_HEADER, new_code, signed_in
from tests.surfaces.http.local import PATHS, TOKEN, LocalServer, settings
from tests.surfaces.http.test_access import is_problem

FRIEND = "https://team.example.com"
OTHERS = ["https://team.example.com.evil.example", "http://team.example.com", "https://team.example.com:8443", "null"]
ASKS = {"origin": FRIEND, "access-control-request-method": "POST"}


@pytest.fixture(scope="module", params=list(PATHS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    config = settings(heartbeat_s=0.2, allowed_origins=[FRIEND, "http://localhost:5173"])
    made = LocalServer(tmp_path_factory.mktemp("cors"), config, request.param).start()
    yield made
    made.finish()


@pytest.fixture
def stranger(server: LocalServer) -> Iterator[httpx2.Client]:
    with server.client(origin=FRIEND) as client:
        yield client


def is_shared(answer: httpx2.Response) -> bool:
    """Whether a page of that origin may read this response."""
    assert "access-control-allow-credentials" not in answer.headers
    assert "origin" in answer.headers["vary"].lower()
    return answer.headers.get_list("access-control-allow-origin") == [FRIEND]


@pytest.mark.parametrize(
    "path", ["/api/sessions", "/api/sessions/x/events", "/agents/x/sessions/y/prompt", "/api/none"]
)
def test_a_preflight_is_answered_without_the_token(stranger: httpx2.Client, path: str) -> None:
    headers = {**ASKS, "access-control-request-headers": "authorization,content-type,last-event-id"}
    answer = stranger.options(path, headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert is_shared(answer)
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert {"authorization", "content-type", "last-event-id"} <= allowed
    assert KEY_HEADER not in allowed
    methods = {name.strip() for name in answer.headers["access-control-allow-methods"].split(",")}
    assert methods == {"GET", "HEAD", "POST", "PATCH", "DELETE"}
    assert int(answer.headers["access-control-max-age"]) > 0


@pytest.mark.parametrize("origin", OTHERS)
def test_other_origins_are_refused(server: LocalServer, origin: str) -> None:
    for method, headers in (("OPTIONS", ASKS), ("GET", {}), ("POST", {})):
        answer = server.http.request(method, "/api/sessions", headers={**headers, "origin": origin})
        assert is_problem(answer, 403, "forbidden")
        assert "access-control-allow-origin" not in answer.headers


def test_responses_and_errors_can_be_read_with_the_token(server: LocalServer, stranger: httpx2.Client) -> None:
    token = {"authorization": f"Bearer {TOKEN}"}
    made = stranger.post("/api/sessions", json={}, headers=token)
    assert made.status_code == 201 and is_shared(made)
    for method, path, headers, status in (
        ("GET", "/api/health", {}, 200),
        ("GET", "/api/sessions", token, 200),
        ("GET", "/api/sessions", {}, 401),
        ("GET", "/api/sessions", {"authorization": "Bearer wrong"}, 401),
        ("GET", "/api/sessions/none", token, 404),
        ("PUT", "/api/sessions", token, 405),
        ("OPTIONS", "/api/sessions", token, 405),
        ("POST", "/api/messages", token, 400),
    ):
        answer = stranger.request(method, path, headers=headers)
        assert answer.status_code == status
        assert is_shared(answer)
        exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
        assert {"allow", "retry-after", "www-authenticate"} <= set(exposed)


def test_responses_to_the_page_itself_vary_by_origin_and_allow_none(server: LocalServer) -> None:
    for path in ("/", "/page/page.js", "/api/health"):
        answer = server.http.get(path)
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-origin" not in answer.headers
    assert "accept-encoding" in server.http.get("/").headers["vary"].lower()


def test_event_streams_can_be_read_with_the_token(server: LocalServer, stranger: httpx2.Client) -> None:
    session = server.create()
    server.turn(session, "say hello")
    for path in (f"/api/sessions/{session}/events", "/api/events?all=true"):
        with stranger.stream("GET", path, headers={"authorization": f"Bearer {TOKEN}"}) as answer:
            assert answer.status_code == 200
            assert is_shared(answer)
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert next(answer.iter_bytes())
    # A stream without an Origin has no CORS header.
    with server.watch(session) as stream:
        assert "access-control-allow-origin" not in stream.headers


def test_an_event_source_can_use_a_ticket(server: LocalServer, stranger: httpx2.Client) -> None:
    path = f"/api/sessions/{server.create()}/events"
    made = stranger.post("/api/tickets", json={"path": path}, headers={"authorization": f"Bearer {TOKEN}"})
    assert made.status_code == 201 and is_shared(made)
    address = f"{path}?ticket={made.json()['ticket']}"
    with stranger.stream("GET", address) as answer:
        assert answer.status_code == 200 and is_shared(answer)
    again = stranger.get(address)
    assert is_problem(again, 401, "unauthorized") and is_shared(again)


def test_a_cookie_from_another_origin_is_refused(server: LocalServer) -> None:
    with signed_in(server) as browser:
        for path in ("/api/sessions", "/api/events?all=true", "/api/health", "/"):
            refused = browser.get(path, headers={"origin": FRIEND})
            assert is_problem(refused, 403, "forbidden")
            assert is_shared(refused)
        # If the token is sent too, only the token counts, so signing out does not end the sign-in.
        token = {"origin": FRIEND, "authorization": f"Bearer {TOKEN}"}
        assert browser.post("/api/logout", headers=token).status_code == 204
        assert browser.get("/api/sessions").status_code == 200


def test_signing_in_from_another_origin_is_refused(server: LocalServer, stranger: httpx2.Client) -> None:
    code = new_code(server)
    answer = stranger.post("/api/login", json={"code": code})
    assert is_problem(answer, 403, "forbidden")
    assert "set-cookie" not in answer.headers
    with server.client() as client:
        assert client.post("/api/login", json={"code": code}).status_code == 200


def test_without_the_setting_other_origins_are_refused(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    answer = server.http.options("/api/sessions", headers=ASKS)
    assert is_problem(answer, 403, "forbidden")
    assert "vary" not in answer.headers
