"""The usage and cost of turns, summed, over HTTP."""

from typing import Any

import pytest

from perdure.surfaces.http.usage import Usage
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_contract import fits


def usage(server: LocalServer, session: str, **query: str) -> Any:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    found = server.get(f"/api/usage?session={session}&{asked}")
    fits(found, Usage)
    return found


def test_tokens_bytes_and_contexts_are_summed_by_any_key(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "usage 1000 50\nsay one")
    server.turn(session, "usage 2000 70\nsay two")
    server.turn(session, "usage 500 5\nsay three", agent="rehearsal-stream")
    found = usage(server, session)
    today = server.session(session)["turns"][0]["started_at"][:10]
    [day] = found["usage"]
    assert (day["key"], day["day"], day["turns"]) == (today, today, 3)
    assert day["contexts"] == {"live": 1, "resumed": 0, "fresh": 2}
    assert day["output_tokens"] >= 125 and day["input_bytes"] > 0
    # The first turn did not have to be sent again with the second.
    assert day["saved_bytes"] == len("usage 1000 50\nsay one") + len("one")
    assert found["total"] == {**{k: v for k, v in day.items() if k != "day"}, "key": ""}
    by_agent = usage(server, session, group_by="agent")["usage"]
    assert [(group["key"], group["turns"]) for group in by_agent] == [("rehearsal", 2), ("rehearsal-stream", 1)]
    both = usage(server, session, group_by="day,agent")["usage"]
    assert [(group["day"], group["agent"]) for group in both] == [(today, "rehearsal"), (today, "rehearsal-stream")]
    models = {group["key"] for group in usage(server, session, group_by="model")["usage"]}
    assert "rehearsal-1" in models
    assert usage(server, session, until=today)["usage"] == []
    assert usage(server, session, until=today)["total"] is None
    began = server.session(session)["turns"][0]["started_at"]
    second = began[:19] + "Z"
    assert usage(server, session, since=second)["total"]["turns"] == 3
    assert usage(server, session, until=second)["total"] is None
    assert usage(server, session, since=began[:16] + "Z")["total"]["turns"] == 3
    assert usage(server, session, since=began[:19] + "%2B00:00")["total"]["turns"] == 3


def test_rewound_turns_still_count_as_usage_and_a_fork_does_not_count_them_again(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "usage 1000 50\nsay one")
    server.turn(session, "usage 2000 70\nsay two")
    forked = server.post(f"/api/sessions/{session}/fork", expect=201)["id"]
    assert usage(server, forked)["total"] is None
    assert server.session(forked)["usage"] == {}
    server.post(f"/api/sessions/{session}/rewind", {"turn": 1}, expect=200)
    assert usage(server, session)["total"]["output_tokens"] == 120
    server.turn(forked, "usage 1 2\nsay on")
    assert usage(server, forked)["total"]["turns"] == 1


def test_each_turn_records_its_plan_and_what_it_cost(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "usage 1000 50\nsay one")
    turn = server.turn(session, "say two", agent="rehearsal-stream")
    assert (turn["context"], turn["context_reason"], turn["catch_up"]) == ("fresh", "no_native_session", 0)
    assert turn["input_bytes"] > len("say two")
    back = server.turn(session, "say three", agent="rehearsal")
    assert (back["context"], back["catch_up"], back["digested"], back["left_out"]) == ("resumed", 1, 0, 0)
    first = server.session(session)["turns"][0]
    assert (first["usage"]["output_tokens"], first["model"]) == (50, "rehearsal-1")


@pytest.mark.parametrize(
    "query", ["group_by=week", "group_by=day,day", "group_by=day,agent,model", "since=yesterday", "until=2026-99-99"]
)
def test_an_invalid_usage_query_is_refused_with_an_explanation(server: LocalServer, query: str) -> None:
    answer = server.http.get(f"/api/usage?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert "must be" in answer.json()["error"]
