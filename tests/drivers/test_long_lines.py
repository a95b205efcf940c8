"""Lines that are very long or have very many parts: no text is lost, and every request is answered."""

from typing import Any

from perdure.core.events import AssistantText
from perdure.drivers import jsonrpc
from perdure.drivers.base import Noise, TurnFinished
from perdure.drivers.outbox import PIECE_CHARS
from tests.drivers import acp_peer, claude_peer
from tests.drivers.acp_peer import OPTIONS, SESSION, all_of, only

LONG = "x" * (2 * PIECE_CHARS) + "\U0001f600"
MANY: list[Any] = [[]] * jsonrpc.MAX_PARTS


def acp() -> acp_peer.Peer:
    peer = acp_peer.Peer()
    peer.open()
    peer.send_input()
    return peer


def claude() -> claude_peer.Peer:
    peer = claude_peer.Peer()
    peer.send_input()
    return peer


def test_a_long_text_from_an_acp_agent_becomes_several_deltas_of_one_block() -> None:
    texts = [acp_peer.text(words) for words in ("a", LONG, "b", "c")]
    told = all_of(AssistantText, acp().updates(*texts))
    assert "".join(one.delta for one in told) == f"a{LONG}bc"
    assert len({one.block for one in told}) == 1
    assert [len(one.delta) for one in told] == [1, PIECE_CHARS, PIECE_CHARS, 1, 2], "short pieces are joined as usual"


def test_a_long_text_from_claude_becomes_several_deltas_of_one_block() -> None:
    told = all_of(AssistantText, claude().says(claude_peer.whole("m1", claude_peer.text(LONG))))
    assert "".join(one.delta for one in told) == LONG
    assert (len(told), len({one.block for one in told})) == (3, 1)


def test_a_message_with_too_many_parts_from_an_acp_agent_is_reported_and_answered() -> None:
    peer = acp()
    assert only(Noise, peer.updates(acp_peer.tool_call("t", rawInput=MANY))).told
    params = {"sessionId": SESSION, "toolCall": {"toolCallId": "t", "rawInput": MANY}, "options": OPTIONS}
    told = peer.says({"id": "q", "method": "session/request_permission", "params": params})
    assert [type(one) for one in told] == [Noise]
    assert [(one["id"], one["error"]["code"]) for one in peer.sent] == [("q", jsonrpc.INVALID_PARAMS)]
    assert only(TurnFinished, peer.ends(_meta=MANY)).stop_reason == "end_turn"


def test_a_line_with_too_many_parts_from_claude_is_reported_and_answered() -> None:
    peer = claude()
    assert only(Noise, peer.says(claude_peer.whole("m1", claude_peer.tool_use("t", given=MANY)))).told
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t", "input": MANY}
    told = peer.says({"type": "control_request", "request_id": "theirs-1", "request": request})
    assert {type(one) for one in told} == {Noise}
    (answer,) = peer.sent
    assert (answer["response"]["subtype"], answer["response"]["request_id"]) == ("error", "theirs-1")
    ended = peer.says(claude_peer.result(result="done", permission_denials=MANY))
    assert only(TurnFinished, ended).stop_reason == "end_turn"
    assert only(AssistantText, ended).delta == "done"
