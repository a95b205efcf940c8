"""GET of a session returns a page of its turns. A page has a limited size, and the pages have all turns."""

from itertools import chain
from typing import Any

import pytest

from perdure.core.view import PAGE_TURNS
from perdure.surfaces.http.sessions import Session
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem
from tests.surfaces.http.test_contract import fits
from tests.surfaces.http.test_import import T, body, take_in

Json = dict[str, Any]
TURNS = 2 * PAGE_TURNS + 20


def events(turns: int) -> list[Json]:
    at, found = T.format(0), []
    for number in range(1, turns + 1):
        known = {"turn": number, "at": at, "message_id": f"m{number}", "agent": ""}
        found += [
            {"type": "user_message", "text": f"say {number}", **known},
            {"type": "turn_start", "run_id": "", "context": "fresh", "context_reason": "imported", **known},
            {"type": "assistant_text", "turn": number, "at": at, "block": 0, "delta": f"said {number}"},
            {"type": "turn_end", "turn": number, "at": at, "stop_reason": "end_turn", "duration_ms": 1},
        ]
    return found


def numbers(session: Json) -> list[int]:
    return [turn["turn"] for turn in session["turns"]]


def pages(server: LocalServer, session: str, limit: int) -> list[list[int]]:
    """The turns of each page, the newest page first."""
    found, cursor = [], ""
    while True:
        page = server.get(f"/api/sessions/{session}?limit={limit}{cursor}")
        fits(page, Session)
        found.append(numbers(page))
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.smoke
def test_a_long_session_is_shown_with_its_newest_turns_and_the_others_on_further_pages(server: LocalServer) -> None:
    made = take_in(server, body("long", events(TURNS)))
    assert numbers(made) == list(range(TURNS - PAGE_TURNS + 1, TURNS + 1))
    assert made["turn_count"] == TURNS
    found = pages(server, "long", PAGE_TURNS)
    assert [len(page) for page in found] == [PAGE_TURNS, PAGE_TURNS, TURNS - 2 * PAGE_TURNS]
    assert list(chain.from_iterable(reversed(found))) == list(range(1, TURNS + 1))
    with server.watch("long") as viewer:
        shown = next(viewer.frames())[2]["session"]
    assert (len(shown["turns"]), shown["next_cursor"]) == (PAGE_TURNS, str(TURNS - PAGE_TURNS + 1))
    older = server.get(f"/api/sessions/long?limit={TURNS}&cursor={shown['next_cursor']}")
    assert numbers(older) == list(range(1, TURNS - PAGE_TURNS + 1))
    assert older["next_cursor"] is None


def test_pages_have_each_visible_turn_once(server: LocalServer) -> None:
    take_in(server, body("short", events(6)))
    server.post("/api/sessions/short/rewind", {"turn": 4}, expect=200)
    for text in ("say seven", "say eight"):
        server.turn("short", text)
    for limit in (1, 2, 3, 5, 7, 1_000):
        found = pages(server, "short", limit)
        assert list(chain.from_iterable(reversed(found))) == [1, 2, 3, 7, 8]
        assert all(len(page) == limit for page in found[:-1])


def test_the_running_turn_is_only_on_the_first_page(server: LocalServer) -> None:
    take_in(server, body("busy", events(4)))
    server.post("/api/sessions/busy/messages", {"text": "hang"}, expect=202)
    assert pages(server, "busy", 2) == [[4, 5], [2, 3], [1]]
    assert server.get("/api/sessions/busy?cursor=99&limit=1")["turns"][0]["stop_reason"] is None
    server.post("/api/sessions/busy/abort", {}, expect=202)


def test_a_session_without_turns_has_one_page(server: LocalServer) -> None:
    session = server.get(f"/api/sessions/{server.create()}")
    assert (session["turns"], session["next_cursor"]) == ([], None)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=-1", "cursor=", "cursor=1e5"]
)
def test_an_invalid_page_is_refused(server: LocalServer, query: str) -> None:
    is_problem(server.http.get(f"/api/sessions/{server.create()}?{query}"), 400, "invalid")


def test_a_long_history_is_read_planned_and_forked_from_records_as_from_the_log(server: LocalServer) -> None:
    take_in(server, body("told", events(40)))
    message = server.get("/api/sessions/told?limit=1&cursor=4")["turns"][0]["message_id"]
    edited = server.http.patch(f"/api/sessions/told/messages/{message}", json={"text": "say changed"})
    assert edited.status_code == 200
    server.turn("told", "say more")
    said = [f"say {number}" for number in range(1, 41)] + ["say more"]
    said[2] = "say changed"
    assert [turn["message"]["text"] for turn in server.transcript("told")] == said
    fork = server.post("/api/sessions/told/fork", {"turn": 40}, expect=201)["id"]
    assert [turn["message"]["text"] for turn in server.transcript(fork)] == said[:40]
    assert server.recalled(fork)[:40] == said[:40]
