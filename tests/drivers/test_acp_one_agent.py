"""Rules of the acp driver for specific agents, selected by the name that the agent reports, and failed starts."""

import pytest

from perdure.drivers.base import (
    CancelTurn,
    ResumeRefused,
    SendAnswer,
    SendInput,
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
def test_a_cancelled_turn_is_reported_as_forgotten_if_the_agent_drops_it(name: str, forgotten: bool) -> None:
    peer = opened(name)
    peer.send_input()
    peer.updates(text("half"))
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten is forgotten
    peer.send_input(2)
    assert not only(TurnFinished, peer.ends()).forgotten


def test_a_session_that_joins_a_process_knows_the_agents_name() -> None:
    peer = opened("gemini-cli").joined(1)
    peer.order(StartSession("/srv/site"))
    peer.replies("session/new", {"sessionId": SESSION})
    peer.send_input()
    peer.updates(text("half"))
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten


def test_a_turn_cancelled_before_any_output_is_reported_as_forgotten() -> None:
    peer = opened("another")
    peer.send_input()
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten
    peer.send_input(2)
    peer.updates(tool_call("t1"))
    peer.order(CancelTurn(2))
    assert not only(TurnFinished, peer.ends("cancelled")).forgotten


def test_a_warning_does_not_prove_that_the_agent_received_the_message() -> None:
    peer = opened("codex")
    peer.send_input()
    peer.updates(text("Warning: no metadata for this model.\n\n"))
    peer.order(CancelTurn(1))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten
    peer.send_input(2)
    peer.updates(text("Warning: no metadata for this model.\n\n"), text("Well"))
    peer.order(CancelTurn(2))
    assert not only(TurnFinished, peer.ends("cancelled")).forgotten


def test_an_unrequested_cancellation_is_forgotten_unless_a_refusal_caused_it() -> None:
    peer = opened("another")
    peer.send_input()
    peer.updates(text("half"))
    assert only(TurnFinished, peer.ends("cancelled")).forgotten
    peer.send_input(2)
    asked = peer.asks_permission(7)
    peer.order(SendAnswer(asked.prompt_id, {"option_id": asked.options[-1].option_id}))
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


def test_a_cancelled_prompt_answered_with_an_error_ends_the_process_and_its_session() -> None:
    peer = opened("another")
    peer.send_input()
    peer.order(CancelTurn(1))
    ended = only(TurnFinished, peer.fails("session/prompt", -32603, "Internal error"))
    assert (ended.stop_reason, ended.leaves, ended.forgotten) == ("cancelled", True, True)


def test_a_load_without_any_replay_is_refused() -> None:
    peer = Peer()
    peer.initialize(StartSession("/srv/site", native_session_id=SESSION), loadSession=True)
    peer.order(SendInput(1, "m1", "go on"))
    peer.updates({"sessionUpdate": "available_commands_update", "availableCommands": []})
    peer.updates(text("of another session"), session="another")
    peer.replies("session/load", {})
    refused = only(ResumeRefused, peer.fails("_perdure/settled", -32601, "Method not found"))
    assert "has no history" in refused.reason and refused.reopens
    assert peer.sent == []


def test_a_prompt_for_a_refused_session_is_not_sent_in_another() -> None:
    peer = Peer()
    peer.open()
    peer.order(StartSession("/srv/site", native_session_id=SESSION))
    peer.order(SendInput(1, "m1", "with little context"))
    peer.order(StartSession("/srv/site"))
    peer.order(SendInput(1, "m1", "with the transcript"))
    peer.replies("session/new", {"sessionId": "another"})
    assert [message["params"]["prompt"][0]["text"] for message in peer.sent] == ["with the transcript"]
    peer.ends()
    assert peer.sent == []
