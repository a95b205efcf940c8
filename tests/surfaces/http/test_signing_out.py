"""Signing out ends every stream that was opened with the sign-in."""

import contextlib
import time
from collections.abc import Callable, Iterator

import httpx2
import pytest

from perdure.surfaces.http.access import COOKIE_LIFETIME_S
from perdure.surfaces.http.routes import ENDPOINTS
from tests.signing import Browser, signed_in
from tests.surfaces.http.local import LocalServer

LONG = "stream 2000 50"
"""A turn that outlives every test here."""
CLOSED_WITHIN_S = 10.0


@contextlib.contextmanager
def session_events(server: LocalServer, browser: Browser) -> Iterator[httpx2.Response]:
    with browser.stream("GET", f"/api/sessions/{server.create()}/events") as answer:
        yield answer


@contextlib.contextmanager
def many_events(server: LocalServer, browser: Browser) -> Iterator[httpx2.Response]:
    with browser.stream("GET", f"/api/events?sessions={server.create()},{server.create()}") as answer:
        yield answer


@contextlib.contextmanager
def all_events(server: LocalServer, browser: Browser) -> Iterator[httpx2.Response]:
    with browser.stream("GET", "/api/events?all=true") as answer:
        yield answer


@contextlib.contextmanager
def teamhq_events(server: LocalServer, browser: Browser) -> Iterator[httpx2.Response]:
    folder = server.data.parent / "site"
    folder.mkdir(exist_ok=True)
    project = server.post("/api/projects", {"name": "site", "path": str(folder)}, expect=201)["id"]
    sessions = f"/api/projects/{project}/sessions"
    session = server.post(sessions, {"message": LONG}, expect=201)["id"]
    with browser.stream("GET", f"{sessions}/{session}/events") as answer:
        yield answer
    server.post(f"{sessions}/{session}/stop", expect=200)


@contextlib.contextmanager
def diane_prompt(server: LocalServer, browser: Browser) -> Iterator[httpx2.Response]:
    sessions = "/agents/rehearsal/sessions"
    session = server.post(sessions, {}, expect=201)["session_id"]
    with browser.stream("POST", f"{sessions}/{session}/prompt?stream=true", json={"prompt": LONG}) as answer:
        yield answer
    # The turn continues without a viewer until it is cancelled.
    server.wait(session, lambda found: found["state"] == "processing")
    server.post(f"{sessions}/{session}/cancel", expect=200)


def ends(pieces: Iterator[bytes]) -> None:
    """Read until the server closes the stream. That must happen soon, although heartbeats keep arriving."""
    deadline = time.monotonic() + CLOSED_WITHIN_S
    for _ in pieces:
        assert time.monotonic() < deadline, "the stream goes on"


STREAMS = [session_events, many_events, all_events, teamhq_events, diane_prompt]
Opened = Callable[[LocalServer, Browser], contextlib.AbstractContextManager[httpx2.Response]]


@pytest.mark.parametrize("opened", STREAMS)
def test_signing_out_a_browser_ends_its_streams(both: LocalServer, opened: Opened) -> None:
    with (
        signed_in(both) as browser,
        signed_in(both) as other,
        opened(both, browser) as watched,
        all_events(both, other) as kept,
    ):
        assert watched.status_code == 200
        pieces = watched.iter_bytes()
        next(pieces)
        both.http.delete(f"/api/logins/{browser.login_id()}").raise_for_status()
        ends(pieces)
        # The stream of another sign-in stays open.
        assert next(kept.iter_bytes())


@pytest.mark.parametrize("opened", STREAMS)
def test_a_browser_that_signs_out_loses_its_streams(server: LocalServer, opened: Opened) -> None:
    with signed_in(server) as browser, opened(server, browser) as watched:
        pieces = watched.iter_bytes()
        next(pieces)
        assert browser.post("/api/logout").status_code == 204
        ends(pieces)


def test_these_tests_cover_every_stream() -> None:
    """If you add a stream to the table of endpoints, add it to STREAMS too."""
    serving = {
        endpoint.handler.__name__
        for endpoint in ENDPOINTS
        for answer in endpoint.answers.values()
        if "text/event-stream" in (answer if isinstance(answer, tuple) else (answer,))
    }
    assert serving <= {"many_events", *(opened.__name__ for opened in STREAMS)}


def test_streams_opened_with_the_token_stay_open(server: LocalServer) -> None:
    session = server.create()
    with signed_in(server) as browser, server.watch(session) as stream:
        server.http.delete(f"/api/logins/{browser.login_id()}").raise_for_status()
        server.turn(session, "say on")
        assert stream.until("turn_end")


def test_a_sign_in_sent_with_other_authorization_is_signed_out_too(server: LocalServer) -> None:
    """For example behind a proxy with its own password."""
    with signed_in(server) as browser:
        browser.headers["authorization"] = "Basic cGVyc29uOnBhc3N3b3Jk"
        with all_events(server, browser) as watched:
            assert watched.status_code == 200
            server.http.delete(f"/api/logins/{browser.login_id()}").raise_for_status()
            ends(watched.iter_bytes())


def test_an_expired_sign_in_ends_its_streams(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(heartbeat_s=0.1)
    access = server.server.access
    with signed_in(server) as browser, all_events(server, browser) as watched:
        server.ask(lambda: setattr(access, "_clock", lambda: time.time() + COOKIE_LIFETIME_S + 1))
        ends(watched.iter_bytes())
        assert browser.get("/api/sessions").status_code == 401
