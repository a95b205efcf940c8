"""The fast path for lines that are a piece of text: it must have the same result as the full decoder."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.drivers.acp import AcpDriver, conversation
from perdure.drivers.acp import state as memory
from perdure.drivers.acp.conversation import AcpConversation
from perdure.drivers.base import Step
from tests.drivers.acp_peer import SESSION, Peer

texts = st.text(st.sampled_from('ab "\\\n\u00e9\U0001f600\ud83d'), max_size=6)
kinds = st.sampled_from(["agent_message_chunk", "agent_thought_chunk", "user_message_chunk", "tool_call", "plan"])
metas = st.sampled_from([None, {}, {"claudeCode": {"parentToolUseId": "t"}}, {"usage": {"inputTokens": 1}}])


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    content: Any = draw(
        st.one_of(
            st.builds(lambda text: {"type": "text", "text": text}, texts),
            st.builds(lambda text: {"text": text, "annotations": [{"deep": [1]}]}, texts),
            st.sampled_from(
                [None, [], "text", {"type": "image", "data": "aGk=", "mimeType": "image/png"}, {"text": 1}]
            ),
        )
    )
    update: dict[str, Any] = {"sessionUpdate": draw(kinds), "content": content}
    if draw(st.booleans()):
        update["messageId"] = draw(st.sampled_from(["m1", "m2", 3, None, [], 1.5]))
    if draw(st.integers(0, 4)) == 0:
        update["_meta"] = draw(metas)
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "method": draw(st.sampled_from(["session/update"] * 9 + ["session/other"])),
        "params": {"sessionId": draw(st.sampled_from([SESSION] * 9 + ["another"])), "update": update},
    }
    if draw(st.integers(0, 9)) == 0:
        message["id"] = draw(st.sampled_from([7, "7", None]))
    line = json.dumps(message, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 19)) == 0 else line


def working() -> bytes:
    """Return the state of a conversation with an input in flight."""
    peer = Peer()
    peer.open()
    peer.send_input()
    return peer.dump


def played(dump: bytes, batches: list[list[bytes]]) -> list[tuple[Step, bytes]]:
    talk = AcpDriver().restore(dump)
    assert isinstance(talk, AcpConversation)
    steps = []
    for batch in batches:
        step = talk.receive(batch)
        assert talk.dump() == memory.dump(talk._state), "the cached dump must be current"
        steps.append((step, talk.dump()))
    return steps


@given(batches=st.lists(st.lists(lines(), max_size=4), max_size=6))
def test_the_fast_path_has_the_same_result_as_the_full_decoder(batches: list[list[bytes]]) -> None:
    dump = working()
    shortly = played(dump, batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation, "PLAIN_MAX_BYTES", -1)
        with_care = played(dump, batches)
    assert shortly == with_care
