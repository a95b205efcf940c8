"""An input that a claude process does not react to: what counts as a reaction, and what does not."""

import pytest

from tests.drivers.claude_peer import Json, Peer, init, result, start, text, whole


@pytest.fixture
def peer() -> Peer:
    return Peer()


IDLE = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
OF_THE_LAST_TURN = (
    IDLE,
    {"type": "command_lifecycle", "command_uuid": "another", "state": "completed"},
    {"type": "system", "subtype": "task_updated"},
    {"type": "prompt_suggestion", "suggestion": "go on"},
    {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
)


@pytest.mark.parametrize("late", OF_THE_LAST_TURN, ids=str)
def test_late_output_of_the_last_turn_is_not_a_reaction_to_the_next_input(peer: Peer, late: Json) -> None:
    peer.send_input()
    peer.says(init(), result())
    peer.send_input(turn=2)
    peer.says(late)
    assert peer.unanswered == 2


@pytest.mark.parametrize(
    "line",
    [
        init(),
        start("m1"),
        whole("m1", text("hi")),
        result(),
        IDLE | {"state": "running"},
        {"type": "system", "subtype": "hook_started"},
        {"type": "system", "subtype": "status", "status": "compacting"},
        {"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}},
    ],
    ids=str,
)
def test_any_sign_that_the_agent_has_the_input_is_a_reaction(peer: Peer, line: Json) -> None:
    peer.open()
    assert peer.unanswered is None
    peer.send_input()
    assert peer.unanswered == 1
    peer.says(line)
    assert peer.unanswered is None


def test_a_receipt_for_the_input_is_a_reaction(peer: Peer) -> None:
    peer.send_input()
    (sent,) = peer.sent
    peer.says({"type": "command_lifecycle", "command_uuid": sent["uuid"], "state": "queued"})
    assert peer.unanswered is None


def test_a_turn_that_the_agent_starts_before_it_has_the_input_is_not_a_reaction(peer: Peer) -> None:
    peer.send_input()
    own = init(capabilities=["msg_lifecycle_v1"]), start("m1"), result(origin={"kind": "task-notification"})
    peer.says(*own)
    assert peer.unanswered is None
    peer.says(IDLE)
    assert peer.unanswered == 1
    peer.says(init())
    assert peer.unanswered is None
