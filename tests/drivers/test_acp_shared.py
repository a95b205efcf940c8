"""Several sessions in one ACP process: each conversation handles only its own messages."""

import pytest

from perdure.drivers.base import (
    CloseSession,
    Noise,
    ResumeRefused,
    SendInput,
    SessionOpened,
    StartFailed,
    StartSession,
    TurnFinished,
)
from tests.drivers.acp_peer import Peer, all_of, only, text


@pytest.fixture
def peer() -> Peer:
    return Peer()


def test_a_second_session_joins_without_another_handshake_and_uses_its_own_request_ids(peer: Peer) -> None:
    peer.open(StartSession("/srv/site", options={"shared": True}), loadSession=True)
    second = peer.joined(3)
    second.order(StartSession("/srv/site", options={"shared": True}))
    (asked,) = second.sent
    assert asked["method"] == "session/new" and asked["id"] >= 3 * 10**9
    opened = only(SessionOpened, second.replies("session/new", {"sessionId": "session-2"}))
    assert opened.capabilities["loadSession"] is True


def test_messages_of_other_sessions_in_the_process_are_ignored(peer: Peer) -> None:
    peer.open(StartSession("/srv/site", options={"shared": True}))
    peer.send_input()
    params = {"sessionId": "session-2", "toolCall": {"toolCallId": "t"}, "options": []}
    others = [{"id": "q", "method": "session/request_permission", "params": params}]
    assert peer.says(*others) == [] and peer.sent == []
    assert peer.updates(text("not ours"), session="session-2") == []
    assert only(TurnFinished, peer.ends()).stop_reason == "end_turn"


def test_messages_without_a_session_are_reported_by_one_conversation(peer: Peer) -> None:
    peer.open(StartSession("/srv/site", options={"shared": True}))
    second = peer.joined(1)
    unknown = {"id": "q", "method": "craft/drain", "params": {}}
    for one, answers in ((peer, 1), (second, 0)):
        noise = all_of(Noise, one.lines(b"a banner"))
        one.says(unknown)
        assert (len(noise), len(one.sent)) == (answers, answers)
    conversation = second.driver.restore(second.dump)
    conversation.speaks = True
    assert len(all_of(Noise, conversation.receive([b"a banner"]).observations)) == 1


SHARED = StartSession("/srv/site", options={"shared": True})


def test_the_id_of_another_open_session_is_refused_and_nothing_is_sent_to_it(peer: Peer) -> None:
    peer.open(SHARED)
    second = peer.joined(1)
    second.order(SHARED)
    second.order(SendInput(turn=1, message_id="m", text="hello"))
    second.taken = {"session-1"}
    found = second.replies("session/new", {"sessionId": "session-1"})
    assert only(SessionOpened, found).native_session_id == "session-1"
    failed = only(StartFailed, found)
    assert failed.code == "native_session_shared" and "shared = false" in failed.message
    assert second.sent == []
    assert second.order(CloseSession()) == [] and second.sent == []
    assert second.updates(text("not ours")) == []


def test_a_native_session_open_in_the_process_is_not_resumed_again(peer: Peer) -> None:
    peer.open(SHARED, loadSession=True)
    second = peer.joined(1)
    second.order(StartSession("/srv/site", native_session_id="session-1", options={"shared": True}))
    second.taken = {"session-1"}
    assert "another session" in only(ResumeRefused, second.replies("session/load", {})).reason
    second.order(SHARED)
    assert only(SessionOpened, second.replies("session/new", {"sessionId": "session-2"})).resumed is False


def test_a_session_that_is_being_loaded_is_unavailable_to_others_in_the_process(peer: Peer) -> None:
    peer.open(SHARED, loadSession=True)
    again = StartSession("/srv/site", native_session_id="old", options={"shared": True})
    first, second = peer.joined(1), peer.joined(2)
    for one in (first, second):
        one.order(again)
    first.updates(text("what was said"), session="old")
    assert first.replies("session/load", {}) == []
    assert first.native_session_id == "old"
    second.taken = {"old"}
    only(ResumeRefused, second.replies("session/load", {}))
    assert second.native_session_id is None
    assert only(SessionOpened, first.replies("_perdure/settled", {})).native_session_id == "old"
