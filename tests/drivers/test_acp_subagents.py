"""Output of an ACP agent's sub-agents: it belongs to the call that started them."""

from typing import Any

import pytest

from perdure.core.events import AssistantText, AssistantThinking, ToolResult, ToolUpdate, ToolUse
from perdure.drivers.acp.tools import KEPT_WORDS_CHARS
from tests.drivers.acp_peer import Peer, all_of, only, text, thought, tool_call, tool_update


def inside(tool_id: str) -> dict[str, Any]:
    return {"_meta": {"claudeCode": {"parentToolUseId": tool_id}}}


@pytest.fixture
def peer() -> Peer:
    """Return a turn in which a sub-agent has been started."""
    peer = Peer()
    peer.open()
    peer.send_input()
    peer.updates(tool_call("a", title="Review", kind="think", status="pending"))
    return peer


def test_text_of_a_sub_agent_is_progress_of_its_call_and_not_the_answer(peer: Peer) -> None:
    seen = peer.updates(text("I look.", **inside("a")), thought("hm", **inside("a")), text("The answer."))
    assert only(ToolUpdate, seen).content == "I look."
    assert [event.delta for event in all_of(AssistantText, seen)] == ["The answer."]
    assert all_of(AssistantThinking, seen) == []


def test_pieces_of_one_message_are_joined_and_the_next_message_replaces_them(peer: Peer) -> None:
    pieces = [text("I ", messageId="1", **inside("a")), text("look.", messageId="1", **inside("a"))]
    seen = peer.updates(*pieces, text("Done.", messageId="2", **inside("a")))
    assert [event.content for event in all_of(ToolUpdate, seen)] == ["I ", "I look.", "Done."]
    long = text("x" * KEPT_WORDS_CHARS + "end", messageId="2", **inside("a"))
    shown = only(ToolUpdate, peer.updates(long)).content or ""
    assert len(shown) == KEPT_WORDS_CHARS and shown.endswith("xend")


def test_a_long_message_in_small_deltas_is_reported_periodically(peer: Peer) -> None:
    seen = peer.updates(*[text(f"word{number} ", **inside("a")) for number in range(2_000)])
    told = [event.content or "" for event in all_of(ToolUpdate, seen)]
    assert "word1999 ".startswith(told[-1].split()[-1][:5]) and len(told[-1]) > KEPT_WORDS_CHARS * 7 // 8
    assert sum(map(len, told)) < 10 * len("word1999 ") * 2_000
    # After a tool call of its own, the sub-agent starts a new text.
    peer.updates(tool_call("t", **inside("a")))
    assert only(ToolUpdate, peer.updates(text("Found.", **inside("a")))).content == "Found."


def test_text_for_a_finished_or_unknown_call_is_dropped(peer: Peer) -> None:
    peer.updates(tool_update("a", status="completed"))
    assert peer.updates(text("late", **inside("a")), text("who?", **inside("b"))) == []


def test_its_tools_have_the_call_as_their_parent_and_their_own_outcome(peer: Peer) -> None:
    seen = peer.updates(
        tool_call("t", kind="execute", title="ls", **inside("a")),
        tool_update("t", status="failed", **inside("a")),
        tool_update("a", status="completed"),
    )
    assert only(ToolUse, seen).parent_tool_id == "a"
    assert [(event.tool_id, event.status) for event in all_of(ToolResult, seen)] == [
        ("t", "failed"),
        ("a", "completed"),
    ]
