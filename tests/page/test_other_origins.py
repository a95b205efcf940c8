"""A front end of another origin in a real browser: what it can do with the token, and what it can't without."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.harness import NO_LIMITS, LiveServer
from tests.page.neighbour import neighbour

ASK = """async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return { status: answer.status, body: await answer.json() };
  } catch (error) {
    return { failed: String(error) };
  }
}"""
FIRST_FRAME = """async ([url, token]) => {
  const answer = await fetch(url, { headers: { authorization: `Bearer ${token}`, "last-event-id": "0" } });
  const { value } = await answer.body.getReader().read();
  return new TextDecoder().decode(value);
}"""
LISTEN = """(url) => new Promise((resolve) => {
  const source = new EventSource(url);
  source.addEventListener("snapshot", (event) => (source.close(), resolve(JSON.parse(event.data).type)));
  source.onerror = () => (source.close(), resolve("refused"));
})"""


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveServer, str, str]]:
    """A server, an origin that it allows, and one that it does not."""
    folder: Path = tmp_path_factory.mktemp("front")
    with neighbour() as friend, neighbour() as other:
        server = LiveServer(folder / "data", f'{NO_LIMITS}allowed_origins = ["{friend.url}"]\n').start()
        yield server, friend.url, other.url
        server.finish()


def opened(browser: Browser, url: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(url)
    return page


def ask(page: Page, server: LiveServer, path: str, **options: Any) -> Any:
    return page.evaluate(ASK, [server.url + path, options])


def test_a_front_end_of_an_allowed_origin_uses_the_api_with_the_token(
    front: tuple[LiveServer, str, str], browser: Browser
) -> None:
    server, friend, _ = front
    page = opened(browser, friend)
    headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
    made = ask(page, server, "/api/sessions", method="POST", headers=headers, body="{}")
    assert made["status"] == 201
    session = made["body"]["id"]
    assert (
        ask(page, server, f"/api/sessions/{session}", method="PATCH", headers=headers, body='{"title": "x"}')["status"]
        == 200
    )
    # The page can read an error response too, which says what to do.
    assert "perdure login" in ask(page, server, "/api/sessions")["body"]["error"]
    assert ask(page, server, "/api/sessions/none", headers=headers)["body"]["code"] == "not_found"
    assert "event: " in page.evaluate(FIRST_FRAME, [f"{server.url}/api/sessions/{session}/events", server.token])
    page.context.close()


def test_a_ticket_opens_one_event_source(front: tuple[LiveServer, str, str], browser: Browser) -> None:
    server, friend, _ = front
    page = opened(browser, friend)
    path = f"/api/sessions/{server.create()}/events"
    headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
    body = f'{{"path": "{path}"}}'
    ticket = ask(page, server, "/api/tickets", method="POST", headers=headers, body=body)["body"]["ticket"]
    address = f"{server.url}{path}?ticket={ticket}"
    assert page.evaluate(LISTEN, address) == "snapshot"
    assert page.evaluate(LISTEN, address) == "refused"
    page.context.close()


def test_other_origins_can_not_use_the_browsers_login(front: tuple[LiveServer, str, str], browser: Browser) -> None:
    server, friend, other = front
    page = opened(browser, server.url + server.post("/api/login-links", expect=201)["path"])
    page.get_by_role("navigation", name="Sessions").wait_for(state="attached")
    for origin in (friend, other):
        elsewhere = page.context.new_page()
        elsewhere.goto(origin)
        assert "failed" in ask(elsewhere, server, "/api/sessions", credentials="include")
        assert "failed" in ask(elsewhere, server, "/api/logout", method="POST", credentials="include")
        assert elsewhere.evaluate(LISTEN, f"{server.url}/api/events?all=true") == "refused"
    headers = {"authorization": f"Bearer {server.token}"}
    assert "failed" in ask(elsewhere, server, "/api/sessions", headers=headers), "it is not an admitted origin"
    assert len(server.get("/api/logins")["logins"]) == 1
    page.context.close()
