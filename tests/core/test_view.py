"""Views of a turn: bounded text, tools, and snapshots."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import view as view_module
from perdure.core.view import (
    LIVE_IMAGE_CHARS,
    LIVE_OLD_TOOLS,
    LIVE_PARTS,
    LIVE_PARTS_BYTES,
    LIVE_PROMPTS,
    LIVE_TEXT_CHARS,
    LIVE_TOOLS_BYTES,
    PART_BYTES,
    TOOL_CONTENT_CHARS,
    TextPart,
    TurnView,
    public_session,
    snapshot,
    visible_turns,
)
from perdure.runtime.log.records import last_line
from tests.core.stage import SITUATIONS, Stage, asking, attached, busy, ended, idle, working

deltas = st.lists(
    st.tuples(st.sampled_from(("text", "thinking", "tool")), st.integers(0, 2), st.text(max_size=12)), max_size=40
)


def fold(view: TurnView, kind: str, block: int, delta: str) -> None:
    if kind == "text":
        view.fold(ev.AssistantText(turn=1, block=block, delta=delta))
    elif kind == "thinking":
        view.fold(ev.AssistantThinking(turn=1, block=block, delta=delta))
    else:
        view.fold(ev.ToolUse(turn=1, tool_id=f"t{block}", name="Bash"))


@given(deltas, st.integers(1, 30))
def test_the_text_of_a_live_view_is_the_end_of_the_whole_text_from_its_offset(
    given_deltas: list[tuple[str, int, str]], live_chars: int
) -> None:
    view, whole = TurnView(1, live_chars=live_chars), TurnView(1, live_chars=None)
    for kind, block, delta in given_deltas:
        fold(view, kind, block, delta)
        fold(whole, kind, block, delta)
        assert whole.text_offset == 0
        assert view.text() == whole.text()[view.text_offset :]
        kept = sum(part.length for part in view.parts if isinstance(part, TextPart))
        assert kept <= 2 * live_chars + len(delta)
    full = "".join(delta for kind, _, delta in given_deltas if kind == "text")
    assert whole.text() == full
    shown = "".join(part["text"] for part in view.show() if part["type"] == "text")
    assert shown == view.text()


@given(deltas)
def test_adjacent_deltas_of_one_block_are_one_part_and_nothing_is_reordered(
    given_deltas: list[tuple[str, int, str]],
) -> None:
    view = TurnView(1)
    for one in given_deltas:
        fold(view, *one)
    shown = [(part["type"], part.get("block")) for part in view.show()]
    texts = [entry for entry in shown if entry[0] != "tool"]
    assert len(view.tools) == len([entry for entry in shown if entry[0] == "tool"])
    assert [(kind, block) for kind, block, _ in given_deltas if kind != "tool"][:1] == texts[:1]
    for before, after in pairwise(shown):
        assert before != after or before[0] == "tool"


def test_a_tool_that_is_reported_twice_is_one_tool() -> None:
    view = TurnView(1)
    view.fold(ev.ToolUse(turn=1, tool_id="t", name="Bash", title="ls", input={"command": "ls"}))
    view.fold(ev.ToolUpdate(turn=1, tool_id="t", status="in_progress", content="a", title="ls -l"))
    view.fold(ev.ToolUse(turn=1, tool_id="t", name="Bash", kind="execute"))
    view.fold(ev.ToolResult(turn=1, tool_id="t", content="a b", locations=[{"path": "a"}]))
    [tool] = view.show()
    assert (tool["title"], tool["kind"], tool["status"], tool["content"]) == ("ls -l", "execute", "completed", "a b")
    assert (tool["input"], tool["is_error"]) == ({"command": "ls"}, False)


def test_an_unknown_tool_is_not_shown_and_long_output_is_cut_to_its_end() -> None:
    view = TurnView(1)
    view.fold(ev.ToolResult(turn=1, tool_id="none", content="x"))
    assert view.show() == []
    view.fold(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    view.fold(ev.ToolResult(turn=1, tool_id="t", content="x" * TOOL_CONTENT_CHARS + "end"))
    [tool] = view.show()
    assert (len(tool["content"]), tool["content"][-3:]) == (TOOL_CONTENT_CHARS, "end")


def test_events_of_another_turn_are_not_part_of_the_view() -> None:
    view = TurnView(2)
    view.fold(ev.AssistantText(turn=1, block=0, delta="old"))
    view.fold(ev.Error(turn=1, message="old", code="c"))
    assert (view.text(), view.show()) == ("", [])


def test_a_live_view_has_the_newest_images_and_a_transcript_all() -> None:
    live, whole = TurnView(1), TurnView(1, live_chars=None)
    for _ in range(10):
        image = ev.Image(turn=1, mime_type="image/png", size=3, data="A" * (LIVE_IMAGE_CHARS // 4))
        live.fold(image)
        whole.fold(image)
    assert [part["data"] is not None for part in live.show()] == [False] * 6 + [True] * 4
    assert 0 < live.size - LIVE_IMAGE_CHARS == whole.size - 10 * LIVE_IMAGE_CHARS // 4 < 10_000
    assert all(part["data"] is not None for part in whole.show())


LONG = "x" * 100_000
ANSWER = ev.PromptResolved(turn=1, prompt_id="p", by="person", outcome="answered", delivered=True)


@pytest.mark.parametrize(
    "event",
    [
        ev.AssistantText(turn=1, block=0, delta=LONG),
        ev.UserMessage(turn=1, message_id="m", text=LONG, agent="a"),
        ev.UserMessage(turn=1, message_id="m", text="look", agent="a", attachments=[{"data": LONG}]),
        ev.ToolUse(turn=1, tool_id="new", name="Write", input={"content": LONG}),
        ev.ToolUse(turn=1, tool_id="t", name="Write", input={"content": LONG}),
        ev.ToolUpdate(turn=1, tool_id="t", input=[[LONG]]),
        ev.ToolUpdate(turn=1, tool_id="t", input=[[]] * 1_000),
        ev.ToolResult(turn=1, tool_id="t", diff=[{"path": "a", "old_text": None, "new_text": LONG}]),
        ev.ToolUpdate(turn=1, tool_id="t", locations=[{"path": LONG}]),
        ev.PendingPrompt(turn=1, prompt_id="q", kind="permission", title="?", input={"content": LONG}),
        ev.Plan(turn=1, entries=[ev.PlanEntry(LONG)]),
        ev.System(turn=1, code="c", message=LONG),
        ev.Error(turn=1, code="c", message=LONG),
    ],
    ids=lambda event: type(event).__name__,
)
def test_the_size_of_a_view_counts_everything_once(event: ev.Event) -> None:
    view = TurnView(1, live_chars=None)
    view.fold(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    before = view.size
    view.fold(event)
    assert view.size >= before + len(LONG)
    if not isinstance(event, ev.AssistantText | ev.System | ev.Error):
        grown = view.size
        view.fold(event)
        assert view.size == grown


def test_an_answered_prompt_and_an_edited_message_have_their_current_size() -> None:
    view = TurnView(1)
    view.fold(ev.PendingPrompt(turn=1, prompt_id="p", kind="permission", title="?", input={"content": LONG}))
    view.fold(ANSWER)
    view.fold(ev.UserMessage(turn=1, message_id="m", text=LONG, agent="a"))
    view.fold(ev.HistoryChanged(turn=1, change="edit", bumped=[], text="short"))
    assert view.size < 10_000


def test_text_that_is_not_ascii_counts_with_its_size_in_memory() -> None:
    view = TurnView(1)
    view.fold(ev.AssistantText(turn=1, block=0, delta="x" * LIVE_TEXT_CHARS))
    assert view.size == LIVE_TEXT_CHARS + PART_BYTES
    view.fold(ev.AssistantText(turn=1, block=0, delta="\U0001f600"))
    assert view.size == 4 * (LIVE_TEXT_CHARS + 1) + PART_BYTES >= sys.getsizeof(view.text()) - 100


def test_a_live_view_has_the_inputs_of_the_newest_tools_and_a_transcript_all() -> None:
    live, whole = TurnView(1), TurnView(1, live_chars=None)
    for number in range(100):
        for view in (live, whole):
            view.fold(ev.ToolUse(turn=1, tool_id=f"t{number}", name="Write", input={"content": LONG}))
            view.fold(ev.ToolResult(turn=1, tool_id=f"t{number}", content="done", diff=[{"new_text": LONG}]))
            assert view is whole or view.size < 2 * LIVE_TOOLS_BYTES + 3 * len(LONG)
    shown = live.show()
    kept = [tool["input"] is not None for tool in shown]
    assert kept == sorted(kept) and LIVE_TOOLS_BYTES < 2 * kept.count(True) * len(LONG) < 2 * LIVE_TOOLS_BYTES
    assert ["diff" in tool for tool in shown] == ["content" in tool for tool in shown] == kept
    assert ["offset" not in tool for tool in shown] == kept, "a reader knows which are not whole"
    assert all("offset" not in tool and tool["input"] == {"content": LONG} for tool in whole.show())
    live.fold(ev.ToolUse(turn=1, tool_id="huge", name="Write", input={"content": LONG * 100}))
    assert live.size < LIVE_TOOLS_BYTES and len(live.tools) == 101


def test_only_the_current_plan_is_shown() -> None:
    view = TurnView(1)
    for status in ("pending", "completed"):
        view.fold(ev.Plan(turn=1, entries=[ev.PlanEntry("look", status)]))
    assert view.show() == [
        {"type": "plan", "entries": [{"content": "look", "status": "completed", "priority": "medium"}]}
    ]


def viewed(stage: Stage) -> dict[str, Any]:
    view = TurnView(stage.state.turn.turn if stage.state.turn else None)
    for event in stage.log:
        view.fold(event)
    shown = snapshot(stage.state, view, len(stage.log), [], "now")
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(shown))
    return decoded


def test_a_snapshot_of_any_situation_is_json_and_has_the_position() -> None:
    for situation in SITUATIONS:
        stage = situation()
        shown = viewed(stage)
        assert (shown["seq"], shown["type"], shown["session_id"]) == (len(stage.log), "snapshot", "s")
        assert shown["session"]["state"] in ("idle", "accepted", "processing", "ended")
        assert shown["visible_turns"] == list(range(1, stage.state.turn_count + 1))


def test_a_snapshot_shows_prompts_the_queue_and_the_message() -> None:
    assert [prompt["prompt_id"] for prompt in viewed(asking())["pending_prompts"]] == ["p1"]
    shown = viewed(busy())
    assert [(queued["message_id"], queued["text"]) for queued in shown["queue"]] == [("m2", "later")]
    assert shown["message"]["text"] == "hello"
    assert viewed(idle())["message"] is None


def test_a_session_shows_whether_its_process_is_attached() -> None:
    for stage, words in ((idle(), "suspended"), (attached(), "live"), (ended(), "ended")):
        assert public_session(stage.state, 1)["attached"] == words
    stage = attached()
    stage.do(cmd.DetachAgent("idle_timeout"))
    shown = public_session(stage.state, 1)
    assert (shown["attached"], shown["pid"], shown["native_session_id"]) == ("suspended", None, "n1")


def test_the_duration_of_an_ended_session_counts_from_its_first_turn() -> None:
    stage = working()
    stage.at_s = 90
    stage.do(cmd.EndSession("stopped", "person"))
    assert public_session(stage.state, 1)["duration_ms"] == 90_000
    assert public_session(idle().state, 1)["duration_ms"] is None
    assert visible_turns(stage.state) == [1]


def test_an_answered_prompt_shows_the_question_and_the_reason_for_a_denial() -> None:
    view = TurnView(1)
    view.fold(ev.PendingPrompt(turn=1, prompt_id="p", kind="permission", title="rm x"))
    answer = {"option_id": "no", "kind": "reject_once", "reason": "not that one"}
    resolved = ev.PromptResolved(turn=1, prompt_id="p", by="person", outcome="denied", delivered=True, answer=answer)
    view.fold(resolved)
    [part] = view.show()
    assert (part["title"], part["kind"], part["reason"]) == ("rm x", "permission", "not that one")
    assert "answer" not in part and "questions" not in part


# A turn with very many parts ------------------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.integers(0, 2), st.text(max_size=6)),
        st.tuples(st.just("thinking"), st.integers(0, 2), st.text(max_size=6)),
        st.tuples(st.sampled_from(("tool", "result")), st.integers(0, 5), st.just("")),
        st.tuples(st.sampled_from(("plan", "system", "image")), st.just(0), st.text(max_size=6)),
    ),
    max_size=80,
)


def step(view: TurnView, number: int, kind: str, block: int, text: str) -> None:
    if kind == "text" or kind == "thinking":
        fold(view, kind, block, text)
    elif kind == "tool":
        view.fold(ev.ToolUse(turn=1, tool_id=f"t{number}", name="Bash", title=text))
    elif kind == "result":
        view.fold(ev.ToolResult(turn=1, tool_id=f"t{max(0, number - block)}", content="done"))
    elif kind == "plan":
        view.fold(ev.Plan(turn=1, entries=[ev.PlanEntry(text)]))
    elif kind == "image":
        view.fold(ev.Image(turn=1, mime_type="image/png", size=3, data=text or None))
    else:
        view.fold(ev.System(turn=1, code="c", message=text))


@example([("text", 0, "0"), ("text", 1, ""), ("text", 0, "0"), *[("system", 0, "")] * 3], 1, 1, LIVE_PARTS_BYTES, 30)
@given(steps, st.integers(1, 6), st.integers(1, 3), st.sampled_from((600, LIVE_PARTS_BYTES)), st.integers(1, 30))
def test_a_live_view_shows_the_newest_parts_and_counts_the_dropped_ones(
    given_steps: list[tuple[str, int, str]], live_parts: int, old_parts: int, parts_bytes: int, live_chars: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_module, "LIVE_PARTS", live_parts)
        patch.setattr(view_module, "LIVE_OLD_TOOLS", old_parts)
        patch.setattr(view_module, "LIVE_PARTS_BYTES", parts_bytes)
        view, whole = TurnView(1, live_chars=live_chars), TurnView(1, live_chars=None)
        for number, (kind, block, text) in enumerate(given_steps):
            step(view, number, kind, block, text)
            step(whole, number, kind, block, text)
            assert len(view.parts) <= 2 * live_parts + old_parts + 1
            assert view.text() == whole.text()[view.text_offset :]
            if whole.parts and isinstance(last := whole.parts[-1], dict) and last["type"] != "image":
                assert view.parts[-1] == last
            kept_tools = [part["tool_id"] for part in view.parts if isinstance(part, dict) and part["type"] == "tool"]
            assert list(view.tools) == kept_tools
            assert view.size <= whole.size + 2 * PART_BYTES + 1_000
    assert view.parts_offset + len(view.parts) == len(whole.parts)
    notices = [part for part in whole.show() if part["type"] in ("system", "image")]
    assert view.notices_offset + sum(part["type"] in ("system", "image") for part in view.show()) == len(notices)
    thought = [part for part in whole.show() if part["type"] == "thinking"]
    kept = sum(len(part["text"]) for part in view.show() if part["type"] == "thinking")
    assert view.thinking_offset + kept == sum(len(part["text"]) for part in thought)
    assert whole.parts_offset == whole.notices_offset == whole.thinking_offset == 0
    assert last_line(view, ()) == last_line(whole, ()) or view.text_offset > 0


def test_the_plan_and_running_tools_survive_however_many_parts_follow() -> None:
    view = TurnView(1)
    view.fold(ev.Plan(turn=1, entries=[ev.PlanEntry("look")]))
    view.fold(ev.ToolUse(turn=1, tool_id="parent", name="Task"))
    for number in range(3 * LIVE_PARTS):
        view.fold(ev.ToolUse(turn=1, tool_id=f"t{number}", name="Bash", parent_tool_id="parent"))
        view.fold(ev.ToolResult(turn=1, tool_id=f"t{number}", content="done"))
    view.fold(ev.Plan(turn=1, entries=[ev.PlanEntry("look", "completed")]))
    view.fold(ev.ToolResult(turn=1, tool_id="parent", content="all done"))
    plan, parent, *others = view.show()
    assert plan["entries"][0]["status"] == "completed" and parent["content"] == "all done"
    assert view.parts_offset + len(others) == 3 * LIVE_PARTS
    assert len(others) <= 2 * LIVE_PARTS and others[-1]["tool_id"] == f"t{3 * LIVE_PARTS - 1}"


def test_the_last_line_is_that_of_a_part_that_was_dropped() -> None:
    view = TurnView(1)
    for block in range(LIVE_PARTS):
        view.fold(ev.AssistantText(turn=1, block=block, delta=f"word {block}"))
    view.fold(ev.AssistantText(turn=1, block=LIVE_PARTS, delta="\n \n"))
    for number in range(2 * LIVE_PARTS + 1):
        view.fold(ev.ToolUse(turn=1, tool_id=f"t{number}", name="Bash"))
        view.fold(ev.ToolResult(turn=1, tool_id=f"t{number}", content="done"))
    assert view.parts_offset and not any(part["type"] == "text" for part in view.show())
    assert last_line(view, ()) == f"word {LIVE_PARTS - 1}"
    assert view.text().startswith("word 0word 1") and view.text_offset == 0


def test_long_notices_are_bounded_in_bytes_and_prompts_in_number() -> None:
    view = TurnView(1)
    for number in range(200):
        view.fold(ev.System(turn=1, code="c", message=LONG))
        assert view.size < 2 * LIVE_PARTS_BYTES + 2 * len(LONG)
        view.fold(ev.System(turn=1, code="c", message=str(number)))
    assert view.show()[-1]["message"] == "199" and view.notices_offset == 400 - len(view.show()) > 0
    for number in range(3 * LIVE_PROMPTS):
        view.fold(ev.PendingPrompt(turn=1, prompt_id=f"p{number}", kind="permission", title="?"))
    size = view.size
    for number in range(3 * LIVE_PROMPTS):
        view.fold(ev.PendingPrompt(turn=1, prompt_id=f"p{number}", kind="permission", title="?"))
    assert view.size == size


MANY: dict[str, Callable[[int], list[ev.Event]]] = {
    "blocks of one word": lambda number: [ev.AssistantText(turn=1, block=number, delta="word ")],
    "thoughts": lambda number: [ev.AssistantThinking(turn=1, block=number, delta="word ")],
    "tools that are over": lambda number: [
        ev.ToolUse(turn=1, tool_id=f"t{number}", name="Bash", input={"command": "ls"}),
        ev.ToolResult(turn=1, tool_id=f"t{number}", content="a"),
    ],
    "tools that never end": lambda number: [ev.ToolUse(turn=1, tool_id=f"t{number}", name="Bash")],
    "system lines": lambda number: [ev.System(turn=1, code="c", message=f"line {number}")],
    "pictures": lambda number: [ev.Image(turn=1, mime_type="image/png", size=3, data="AAAA")],
    "prompts": lambda number: [
        ev.PendingPrompt(turn=1, prompt_id=f"p{number}", kind="permission", title="?"),
        ev.PromptResolved(turn=1, prompt_id=f"p{number}", by="person", outcome="allowed", delivered=True),
    ],
    "prompts that nobody answers": lambda number: [
        ev.PendingPrompt(turn=1, prompt_id=f"p{number}", kind="permission", title="?")
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", MANY)
def test_memory_is_flat_for_two_hundred_thousand_parts(kind: str) -> None:
    view, make = TurnView(1), MANY[kind]

    def grow(first: int, upto: int) -> int:
        for number in range(first, upto):
            for event in make(number):
                view.fold(event)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    # Trace only the last ones, because tracing is slow. In the end, hardly anything older is left.
    grow(0, 185_000)
    tracemalloc.start(1)
    try:
        small = grow(185_000, 192_500)
        large = grow(192_500, 200_000)
    finally:
        tracemalloc.stop()
    most = 2 * LIVE_PARTS + LIVE_OLD_TOOLS
    assert len(view.parts) <= most and len(view.tools) <= most
    assert large < 16 * 1024 * 1024 and large - small < 6 * 1024 * 1024
    assert large <= 2 * view.size + 1024 * 1024, "what it says of its size is about what it takes"
