"""The status line of a chat: what it knows from events, and how it fits a terminal of any width."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.cli.config_options import values
from perdure.surfaces.cli.situation import Situation, doing_now, farewell, lost_line, queue_lines, status_line


def test_an_ended_session_is_not_shown_as_idle() -> None:
    situation = known()
    situation.follow("session_end", {"status": "stopped", "reason": "person"})
    assert doing_now(situation, "claude", "s_1", None, False)[-1] == "Ended"


def known(**figures: Any) -> Situation:
    situation = Situation()
    session = {"agent": "claude", "workdir": "/srv", "model": "opus", "modes": {"currentModeId": "plan"}}
    usage = {"context_used": 50_000, "context_size": 200_000, "cost_usd": 0.25}
    turns = [{"turn": 1, "stop_reason": "end_turn", "usage": usage}]
    snapshot = {"session": {**session, "turns": turns, "usage": {"cost_usd": 1.5}}, "queue": []}
    situation.follow("snapshot", {**snapshot, **figures})
    return situation


def test_a_wide_terminal_shows_everything_and_a_narrow_one_the_essentials() -> None:
    situation = known(queue=[{"message_id": "m", "text": "later"}])
    doing = ["Working claude 12 s, Esc interrupts", "Working 12 s"]
    assert status_line(doing, situation, 120) == (
        "Working claude 12 s, Esc interrupts · 1 queued · model opus · mode plan · 25% context · $1.50"
    )
    assert status_line(doing, situation, 80) == (
        "Working claude 12 s, Esc interrupts · 1 queued · opus · plan · 25% · $1.50"
    )
    assert status_line(doing, situation, 40) == "Working 12 s · 1 queued · opus · 25%"
    assert status_line(doing, situation, 24) == "Working 12 s · 1 queued"


def test_the_status_line_says_how_to_start_a_server_that_stays_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lost_line(1.0, 100) == "Reconnecting ... your draft is safe."
    assert lost_line(9.0, 120) == (
        "Reconnecting ... your draft is safe. No server responds. Start one in another terminal: perdure serve"
    )
    assert lost_line(9.0, 80) == "Reconnecting ... Start one in another terminal: perdure serve"
    assert lost_line(9.0, 40) == "Reconnecting ... your draft is safe."
    monkeypatch.setenv("PERDURE_PROGRAM", "./run perdure")
    assert lost_line(9.0, 80).endswith("./run perdure serve")


@given(st.integers(1, 200), st.text(max_size=60), st.text(max_size=60), st.integers(0, 10**9), st.integers(0, 200))
def test_the_status_line_always_fits_the_terminal(columns: int, model: str, mode: str, used: int, queued: int) -> None:
    situation = known(queue=[{"message_id": str(number), "text": "x"} for number in range(queued)])
    situation.model, situation.mode, situation.context_used, situation.context_size = model, mode, used, None
    line = status_line(["Working claude 12 s, Esc interrupts", "Working 12 s"], situation, columns)
    assert len(line) < max(columns, 1) and "\n" not in line
    lines = queue_lines(situation.queue, ["y" * 300], columns)
    assert len(lines) <= 4 and all(len(one) <= max(20, columns) for one in lines)


def test_the_situation_follows_the_events_of_a_session() -> None:
    situation = known()
    situation.follow("usage", {"context_used": 100_000, "context_size": 200_000, "cost_usd": 0.5})
    assert (situation.context(), situation.cost()) == ("50% context", "$2.00")
    situation.follow("turn_end", {"usage": {"context_used": 100_000, "cost_usd": 0.5}})
    situation.follow("turn_start", {"agent": "claude"})
    assert situation.cost() == "$2.00"
    situation.follow("config", {"config_id": "mode", "value": "default"})
    situation.follow("config", {"config_id": "available_commands", "value": [{"name": "compact"}, 7]})
    assert (situation.mode, situation.commands) == ("default", [{"name": "compact"}])
    situation.follow("turn_start", {"agent": "codex"})
    assert (situation.model, situation.commands, situation.context()) == (None, None, "")
    situation.follow("agent_attached", {"models": {"currentModelId": "gpt"}, "modes": None})
    assert situation.model == "gpt"


def test_returning_to_a_running_turn_shows_the_context_of_the_previous_turn() -> None:
    usage = {"context_used": 50_000, "context_size": 200_000, "cost_usd": 0.25}
    turns = [
        {"turn": 1, "agent": "claude", "stop_reason": "end_turn", "usage": usage},
        {"turn": 2, "agent": "codex", "stop_reason": "end_turn", "usage": {**usage, "context_used": 90_000}},
        {"turn": 3, "agent": "claude", "stop_reason": None, "usage": None},
    ]
    session = {"agent": "claude", "workdir": "/srv", "turns": turns, "usage": {"cost_usd": 0.5}}
    situation = known(session=session)
    assert (situation.context(), situation.cost()) == ("25% context", "$0.50")


def test_texts_for_a_new_session_and_for_leaving_the_chat() -> None:
    assert doing_now(Situation(), "", None, None, False) == ["New session", "New"]
    assert doing_now(known(), "codex", "s_1", None, False) == ["Idle claude, next codex", "Idle"]
    assert farewell(None, True, 1) == ""
    assert farewell("s_1", False, 0) == "To come back: perdure chat s_1\n"
    assert farewell("s_1", True, 2) == (
        "The agent continues. 2 queued messages will be sent after this turn.\nTo come back: perdure chat s_1\n"
    )


def test_the_queue_matches_the_servers_queue() -> None:
    situation = known()
    for name, first in (("a", False), ("b", False), ("c", True), ("b", False)):
        situation.follow("message_queued", {"message_id": name, "text": name, "first": first})
    situation.follow("queued_message_edited", {"message_id": "a", "text": "other"})
    situation.follow("message_unqueued", {"message_id": "b"})
    assert [one["text"] for one in situation.queue] == ["c", "other"]


def test_a_model_that_is_reported_only_as_an_option_is_recognized() -> None:
    """opencode and codex: the option's id may be anything; its category identifies it."""
    options = [
        {"id": "llm", "category": "model", "currentValue": "big", "options": [{"value": "big"}, {"value": "small"}]},
        {"id": "mode", "category": "mode", "currentValue": "build", "options": []},
    ]
    situation = known()
    situation.follow("turn_start", {"agent": "opencode"})
    situation.follow("agent_attached", {"models": None, "modes": None, "config_options": options})
    assert (situation.model, situation.mode) == ("big", "build")
    situation.follow("config", {"config_id": "llm", "value": "small", "options": None})
    assert situation.model == "small"
    session = {"agent": "opencode", "model": None, "mode": None, "config_options": options}
    situation.follow("session_created", {"session": session})
    assert (situation.model, situation.mode) == ("big", "build")
    assert [one.value for one in values(session, "model")] == ["big", "small"]


def test_a_waiting_message_is_not_shown_as_working() -> None:
    situation = known()
    situation.follow("waiting_to_begin", {"code": "slots_full", "message": "Waiting for a free slot."})
    assert doing_now(situation, "claude", "s_1", None, False) == [
        "Waiting for a slot claude, Esc cancels",
        "Waiting for a slot",
    ]
    situation.follow("waiting_to_begin", {"code": "agent", "message": "The message waits for a node."})
    assert doing_now(situation, "claude", "s_1", None, False)[-1] == "Waiting to start"
    situation.follow("turn_start", {"agent": "claude"})
    assert doing_now(situation, "claude", "s_1", 2.0, False)[-1] == "Working 2 s"
    assert "is still waiting" in farewell("s_1", False, 0, is_waiting=True)


def test_a_chat_that_reopens_a_session_with_a_waiting_message_shows_the_wait() -> None:
    session = {"agent": "claude", "workdir": "/srv", "waits_for": {"code": "slots_full", "message": "..."}}
    situation = known(session=session)
    assert situation.waits_for == "slots_full"
    situation.follow("session_end", {"status": "stopped", "reason": "person"})
    assert doing_now(situation, "claude", "s_1", None, False)[-1] == "Ended"
