"""Rules of the acp driver for single agents, by the name that each gives itself, and what it makes of a bad start."""

import pytest

from perdure.drivers.base import (
    AnswerPrompt,
    CancelTurn,
    ResumeRefused,
    SendPrompt,
    StartFailed,
    StartSession,
    TurnFinished,
)
from tests.drivers.acp_peer import SESSION, Peer, only, text, tool_call


def opened(name: str) -> Peer:
    peer = Peer()
    peer.order(StartSession("/srv/site"))
    peer.replies("initialize", {"protocolVersion": 1, "agentInfo": {"name": name, "version": "1"}})
    peer.replies("session/new", {"sessionId": SESSION})
    return peer


@pytest.mark.parametrize(("name", "forgotten"), [("gemini-cli", True), ("another", False)])
def test_a_cancelled_turn_is_told_to_be_forgotten_where_the_agent_drops_it(name: str, forgotten: bool) -> None:
    peer = opened(name)
    peer.prompt()
    peer.updates(text("half"))
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten is forgotten
    peer.prompt(2)
    assert not only(TurnFinished, peer.ends()).forgotten


def test_a_session_that_joins_a_process_knows_whose_it_is() -> None:
    peer = opened("gemini-cli").joined(1)
    peer.order(StartSession("/srv/site"))
    peer.replies("session/new", {"sessionId": SESSION})
    peer.prompt()
    peer.updates(text("half"))
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten


def test_a_turn_that_is_cancelled_before_the_agent_showed_anything_may_be_forgotten() -> None:
    peer = opened("another")
    peer.prompt()
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten
    peer.prompt(2)
    peer.updates(tool_call("t1"))
    peer.order(CancelTurn(2))
    assert not only(TurnFinished, peer.ends("cancelled")).forgotten


def test_a_warning_does_not_show_that_the_agent_has_taken_the_message_in() -> None:
    peer = opened("codex")
    peer.prompt()
    peer.updates(text("Warning: no metadata for this model.\n\n"))
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten
    peer.prompt(2)
    peer.updates(text("Warning: no metadata for this model.\n\n"), text("Well"))
    peer.order(CancelTurn(2))
    assert not only(TurnFinished, peer.ends("cancelled")).forgotten


def test_a_turn_that_nobody_cancelled_is_forgotten_unless_a_refusal_ended_it() -> None:
    peer = opened("another")
    peer.prompt()
    peer.updates(text("half"))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten
    peer.prompt(2)
    asked = peer.asks_permission(7)
    peer.order(AnswerPrompt(asked.prompt_id, {"option_id": asked.options[-1].option_id}))
    assert not only(TurnFinished, peer.ends("cancelled")).forgotten


def test_a_failed_initialize_may_be_tried_in_another_process_and_a_missing_login_may_not() -> None:
    peer = Peer()
    peer.order(StartSession("/srv/site"))
    failed = only(StartFailed, peer.fails("initialize", -32603, "Internal error", {"details": "database is locked"}))
    assert (failed.code, failed.passing) == ("initialize_refused", True)
    peer = Peer()
    peer.order(StartSession("/srv/site"))
    failed = only(StartFailed, peer.fails("initialize", -32000, "Authentication required"))
    assert (failed.code, failed.passing) == ("needs_login", False)


def test_a_cancelled_prompt_that_is_answered_with_an_error_costs_the_process_and_its_session() -> None:
    peer = opened("another")
    peer.prompt()
    peer.order(CancelTurn(1))
    ended = only(TurnFinished, peer.fails("session/prompt", -32603, "Internal error"))
    assert (ended.stop_reason, ended.leaves, ended.forgotten) == ("cancelled", True, True)


def test_an_agent_that_opens_any_session_is_believed_only_if_it_shows_something_of_it() -> None:
    peer = Peer()
    peer.initialize(StartSession("/srv/site", native_session_id=SESSION), loadSession=True)
    peer.order(SendPrompt(1, "m1", "go on"))
    peer.updates({"sessionUpdate": "available_commands_update", "availableCommands": []})
    peer.updates(text("of another session"), session="another")
    peer.replies("session/load", {})
    refused = only(ResumeRefused, peer.fails("_perdure/settled", -32601, "Method not found"))
    assert "knows nothing" in refused.reason and refused.reopens
    assert peer.sent == []


def test_a_prompt_that_came_after_its_session_was_refused_is_not_sent_in_another() -> None:
    peer = Peer()
    peer.open()
    peer.order(StartSession("/srv/site", native_session_id=SESSION))
    peer.order(SendPrompt(1, "m1", "with little context"))
    peer.order(StartSession("/srv/site"))
    peer.order(SendPrompt(1, "m1", "with the transcript"))
    peer.replies("session/new", {"sessionId": "another"})
    assert [message["params"]["prompt"][0]["text"] for message in peer.sent] == ["with the transcript"]
    peer.ends()
    assert peer.sent == []
