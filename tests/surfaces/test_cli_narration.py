"""Narration of a session: everything exactly once, from events or snapshots."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.blocks import MAX_FENCE_LINES, Blocks
from perdure.surfaces.cli.narration import (
    Answered,
    Asked,
    Began,
    Busy,
    Changed,
    Ended,
    Finished,
    Line,
    Narrator,
    Piece,
    Rested,
    Said,
    Starts,
    Waits,
)
from perdure.surfaces.cli.output import age, duration, size
from perdure.surfaces.cli.prompts import NotUnderstood, choose, option_for
from perdure.surfaces.short_text import safe
from perdure.surfaces.stream import Event

Json = dict[str, Any]
AT = "2026-01-01T00:00:00Z"


def event(kind: str, turn: int | None = 1, /, **fields: Any) -> Event:
    data = {"type": kind, "turn": turn, "at": AT, **fields}
    return Event("1", 1, kind, turn, data, b"")


def message(turn: int = 1, text: str = "hello") -> Event:
    return event("user_message", turn, message_id=f"m{turn}", text=text, agent="a")


def change(change: str, turn: int, /, *bumped: str, text: str | None = None) -> Event:
    return event("history_changed", turn, change=change, bumped=list(bumped), text=text)


def notes(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces if isinstance(piece, Line) and piece.tone == "note"]


def snapshot(
    turn: int, parts: list[Json], *, state: str = "processing", offset: int = 0, prompts: Any = (),
    before: str = "", thinking: int = 0, notices: int = 0,
) -> Event:  # fmt: skip
    shown = {"state": state, "status": "running", "turns": [{"turn": turn, "agent": "a", "stop_reason": None}]}
    if state == "idle":
        shown["turns"][0]["stop_reason"] = "end_turn"  # type: ignore[index]
    text = before + "".join(part["text"] for part in parts if part["type"] == "text")
    return event(
        "snapshot", turn, session=shown, parts=parts, text=text, text_offset=offset, pending_prompts=list(prompts),
        thinking_offset=thinking, notices_offset=notices,
        message={"message_id": f"m{turn}", "text": "hello"},
    )  # fmt: skip


def text_part(text: str) -> Json:
    return {"type": "text", "block": 0, "text": text}


def tell(narrator: Narrator, *events: Event) -> list[Piece]:
    return [piece for one in events for piece in narrator.tell(one)]


def said(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Said))


@given(st.text(max_size=60), st.data())
def test_a_snapshot_in_the_middle_of_a_turn_adds_exactly_the_missed_text(text: str, data: st.DataObject) -> None:
    told = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, len(text)))
    narrator = Narrator(lambda turn: [])
    pieces = tell(narrator, message(), event("assistant_text", block=0, delta=text[:told]))
    pieces += tell(narrator, snapshot(1, [text_part(text[:cut]), text_part(text[cut:])]))
    pieces += tell(narrator, event("assistant_text", block=0, delta="!"))
    assert said(pieces) == text + "!"
    assert len([piece for piece in pieces if isinstance(piece, Began)]) == 1


def test_a_truncated_snapshot_reports_the_omitted_text() -> None:
    narrator = Narrator(lambda turn: [])
    tell(narrator, message(), event("assistant_text", block=0, delta="abc"))
    pieces = tell(narrator, snapshot(1, [text_part("xyz")], offset=10))
    assert said(pieces) == "xyz"
    assert Line("7 earlier characters are only in the transcript.", "note") in pieces


def test_missed_turns_are_fetched() -> None:
    missed = [
        {"turn": 1, "agent": "a", "message": None, "parts": [text_part("one and more")], "stop_reason": "end_turn"},
        {"turn": 2, "agent": "a", "message": {"message_id": "m2", "text": "again"}, "parts": [text_part("two")],
         "stop_reason": "end_turn"},
        {"turn": 3, "agent": "a", "message": None, "parts": [], "stop_reason": None},
    ]  # fmt: skip
    narrator = Narrator(lambda turn: [entry for entry in missed if int(str(entry["turn"])) >= turn])
    tell(narrator, message(), event("assistant_text", block=0, delta="one"))
    pieces = tell(narrator, snapshot(3, [text_part("three")]))
    assert [piece.text for piece in pieces if isinstance(piece, Said)] == [" and more", "two", "three"]
    assert [piece.turn for piece in pieces if isinstance(piece, Finished)] == [1, 2]


def test_tools_plans_errors_and_prompts_are_shown_once() -> None:
    tool: Json = {"tool_id": "t", "name": "Edit", "kind": "edit", "title": "Edit a.py", "input": None}
    result: Json = {"tool_id": "t", "status": "completed", "content": None, "locations": None, "is_error": False}
    result["diff"] = [{"path": "a.py", "old_text": "one\ntwo\n", "new_text": "one\n2\n3\n"}]
    prompt: Json = {"prompt_id": "p", "kind": "permission", "title": "Run it", "options": [], "questions": []}
    plan = [{"content": "read", "status": "pending"}, {"content": "write", "status": "pending"}]
    done = [{**plan[0], "status": "completed"}, plan[1]]
    narrator = Narrator(lambda turn: [])
    pieces = tell(
        narrator,
        message(),
        event("plan", entries=plan),
        event("tool_use", **tool),
        event("tool_result", **result),
        event("plan", entries=done),
        event("error", message="It broke.", code="x", detail=None),
        event("pending_prompt", **prompt),
    )
    part = {**tool, **result, "type": "tool", "started_at": AT, "ended_at": AT}
    parts = [{"type": "plan", "entries": done}, part, {"type": "error", "message": "It broke.", "detail": None}]
    again = tell(narrator, snapshot(1, parts, prompts=[prompt]))
    lines = [piece.text for piece in pieces if isinstance(piece, Line)]
    assert lines == ["hello", "[ ] read\n[ ] write", "Edited a.py +2 -1  0.0 s", "[x] read", "It broke."]
    assert [type(piece) for piece in pieces if isinstance(piece, Asked)] == [Asked]
    assert not [piece for piece in again if isinstance(piece, Line | Asked | Said)]
    after = tell(narrator, snapshot(1, parts, state="idle"))
    assert [piece for piece in after if isinstance(piece, Answered)] == [Answered("p", "server", "resolved")]
    assert isinstance(after[-1], Rested)


@pytest.mark.parametrize(
    ("ended", "line", "tone"),
    [
        ({"status": "failed", "outcome": "denied"}, "Denied: a.py", "note"),
        ({"status": "failed", "outcome": "interrupted"}, "Interrupted: a.py  1.0 s", "note"),
        ({"status": "failed"}, "Failed to edit a.py  1.0 s", "failed"),
        ({"status": "completed"}, "Edited a.py +1 -1  1.0 s", "tool"),
    ],
)
def test_failed_tools_are_not_shown_as_done_and_waiting_does_not_count_as_duration(
    ended: Json, line: str, tone: str
) -> None:
    tool: Json = {"tool_id": "t", "name": "Edit", "kind": "edit", "title": "Edit a.py", "input": None}
    diff = [{"path": "a.py", "old_text": "one", "new_text": "two"}]
    result: Json = {"tool_id": "t", "content": None, "diff": diff, "waited_ms": 60_000, "outcome": None, **ended}
    over = event("tool_result", **result)
    over.data["at"] = "2026-01-01T00:01:01.000Z"
    began = event("tool_use", **tool)
    began.data["at"] = "2026-01-01T00:00:00.000Z"
    pieces = tell(Narrator(lambda turn: []), message(), began, over)
    assert [piece for piece in pieces if isinstance(piece, Line)][1:] == [Line(line, tone)]  # type: ignore[arg-type]


def test_a_turn_that_began_with_a_replay_says_so_and_why_once() -> None:
    start: Json = {"agent": "a", "context": "fresh", "context_reason": "history_changed", "replayed": 2, "catch_up": 0}
    narrator = Narrator(lambda turn: [])
    pieces = tell(narrator, message(), event("turn_start", **start))
    again = snapshot(1, [])
    again.data["session"]["turns"][0].update(start)
    assert notes(pieces) == ["The conversation was replayed to a: the history has changed."]
    assert notes(tell(narrator, again)) == []
    assert notes(tell(Narrator(lambda turn: []), again)) == notes(pieces)
    assert notes(tell(Narrator(lambda turn: []), message(), event("turn_start", **{**start, "replayed": 0}))) == []


def test_a_tool_that_waits_for_an_answer_is_not_shown_as_working() -> None:
    tool: Json = {"name": "Edit", "kind": "edit", "title": "Edit: /srv/a.py", "input": {"file_path": "/srv/a.py"}}
    prompt: Json = {"prompt_id": "p", "kind": "permission", "title": "Edit", "tool_id": "t", "options": []}
    narrator = Narrator(lambda turn: [], "/srv")
    steps = (
        event("tool_use", tool_id="t", **tool),
        event("pending_prompt", **prompt),
        event("prompt_resolved", prompt_id="p", by="person", outcome="allowed"),
    )
    tell(narrator, message())
    busy = [[piece for piece in tell(narrator, step) if isinstance(piece, Busy)][-1].doing for step in steps]
    assert busy == [("Edit: a.py",), (), ("Edit: a.py",)]


def test_a_denial_is_shown_with_its_reason() -> None:
    denied = event(
        "prompt_resolved", prompt_id="p", by="person", outcome="denied", answer={"reason": "use\na constant"}
    )
    pieces = tell(Narrator(lambda turn: []), message(), denied)
    [answered] = [piece for piece in pieces if isinstance(piece, Answered)]
    told = wording.resolved(answered.by, answered.outcome, answered.reason)
    assert told == "Denied. Reason: use a constant"
    assert wording.resolved("rule", "allowed") == "Allowed by a rule."


def test_a_file_that_was_read_is_named_relative_to_the_working_directory() -> None:
    part: Json = {"name": "Read", "kind": "read", "title": "Read: /srv/a.py", "status": "completed"}
    assert wording.tool({**part, "input": {"file_path": "/srv/a.py"}}, "/srv") == "Read a.py"
    assert wording.tool({**part, "input": None, "locations": [{"path": "/srv/b.py"}]}, "/srv") == "Read b.py"
    assert wording.tool({**part, "input": None}, "/srv") == "Read: /srv/a.py"


def test_a_sub_agents_tools_are_marked() -> None:
    tool: Json = {"name": "Read", "kind": "read", "title": "Read a.py", "input": None}
    result: Json = {"status": "completed", "content": None, "diff": None, "locations": None, "is_error": False}
    pieces = tell(
        Narrator(lambda turn: []),
        message(),
        event("tool_use", tool_id="outer", **{**tool, "name": "Agent", "title": "Look around"}),
        event("tool_use", tool_id="inner", parent_tool_id="outer", **tool),
        event("tool_result", tool_id="inner", **result),
        event("tool_result", tool_id="outer", **result),
    )
    lines = [piece.text for piece in pieces if isinstance(piece, Line)]
    assert lines == ["hello", "Sub-agent: Read a.py  0.0 s", "Look around  0.0 s"]


def test_history_changes_say_what_changed_and_which_agents_get_a_replay() -> None:
    narrator = Narrator(lambda turn: [])
    pieces = tell(
        narrator,
        *(message(turn) for turn in (1, 2, 4, 5)),
        change("edit", 2, "a", "b", text="other\nwords"),
        change("rewind", 5),
        change("retry", 2),
        message(6),
        change("retry", 6),
        message(7),
        change("rewind", 1, "a"),
    )
    assert notes(pieces) == [
        'The message of turn 2 is now "other words". The next message replays the conversation to a and b.',
        "Turn 5 is no longer part of the conversation.",
        "Retrying turn 2. Turn 4 is no longer part of the conversation.",
        "Retrying turn 6.",
        "Turns 1 and 7 are no longer part of the conversation. The next message replays the conversation to a.",
    ]


def test_a_rewind_to_turns_that_were_never_seen_names_only_the_first() -> None:
    pieces = tell(Narrator(lambda turn: []), message(9), change("rewind", 3))
    assert notes(pieces) == ["Turn 3 and all later turns are no longer part of the conversation."]


def test_a_missed_rewind_is_shown_once_from_the_snapshot() -> None:
    narrator = Narrator(lambda turn: [])
    tell(narrator, message(1), message(2), message(3))
    after = snapshot(1, [], state="idle")
    after.data.update(turn=None, visible_turns=[1])
    pieces = tell(narrator, after, after)
    assert notes(pieces) == ["Turns 2 and 3 are no longer part of the conversation."]
    assert not [piece for piece in pieces if isinstance(piece, Began)]


def test_a_viewer_after_a_rewind_sees_the_last_remaining_turn() -> None:
    last = {"turn": 2, "agent": "a", "message": None, "parts": [text_part("two")], "stop_reason": "end_turn"}
    after = snapshot(1, [], state="idle")
    after.data.update(turn=None, visible_turns=[1, 2])
    assert said(tell(Narrator(lambda turn: [last] if turn == 2 else []), after, after)) == "two"


def test_the_context_of_a_turn_is_shown_once() -> None:
    start = event("turn_start", catch_up=2, agent="a")
    shorter = event("context_fallback", reason="too_long: 9 > 8", shorter=True)
    shortened = event("history_shortened", message="The conversation is too long.", digested=[1], left_out=[])
    narrator = Narrator(lambda turn: [])
    pieces = tell(narrator, message(), start, shorter, shortened)
    again = snapshot(1, [shorter.data, shortened.data])
    again.data["session"]["turns"][0]["catch_up"] = 2
    assert notes(pieces) == [
        "a gets the 2 turns that it missed.",
        "The conversation was too long for the agent (9 > 8). It gets a shorter version in the same turn.",
        "The conversation is too long.",
    ]
    assert notes(tell(narrator, again)) == []
    assert notes(tell(Narrator(lambda turn: []), again)) == notes(pieces)


def test_an_unknown_event_is_skipped_and_the_end_is_shown() -> None:
    narrator = Narrator(lambda turn: [])
    pieces = tell(narrator, event("from_the_future"), event("session_end", None, status="stopped", reason="stopped"))
    assert pieces == [Ended("stopped", "stopped")]


@given(
    st.lists(st.sampled_from(["a\n", "\n", "```\n", "```py\n", "- x\n", "  y\n", "b", "~~~\n"]), max_size=40), st.data()
)
def test_blocks_do_not_depend_on_how_the_text_is_split(lines: list[str], data: st.DataObject) -> None:
    text = "".join(lines)
    blocks, found = Blocks(), []
    position = 0
    while position < len(text):
        size = data.draw(st.integers(1, 7))
        found += blocks.feed(text[position : position + size])
        position += size
    whole = Blocks()
    assert found + blocks.finish() == whole.feed(text) + whole.finish()


@given(st.lists(st.sampled_from(["word\n", "\n", "- x\n", "  y\n", "z"]), max_size=40))
def test_blocks_lose_no_word(lines: list[str]) -> None:
    blocks = Blocks()
    found = blocks.feed("".join(lines)) + blocks.finish()
    assert "\n".join(found).split() == "".join(lines).split()


def test_a_block_ends_at_a_blank_line_but_not_inside_a_fence_or_a_list_item() -> None:
    blocks = Blocks()
    text = "one\n\n- item\n\n  more\n\n```py\nx\n\ny\n```\nlast"
    assert blocks.feed(text) == ["one", "- item\n\n  more", "```py\nx\n\ny\n```"]
    assert blocks.tail == "last"
    assert blocks.finish() == ["last"]


def test_a_long_fence_is_split_into_parts_with_the_same_opening_line() -> None:
    blocks = Blocks()
    found = blocks.feed("```py\n" + "".join(f"line {number}\n" for number in range(100)))
    assert max(block.count("\n") for block in found) <= MAX_FENCE_LINES + 1
    assert all(block.startswith("```py\n") and block.endswith("\n```") for block in found)
    assert blocks.tail.startswith("```py\n")


def test_an_answer_never_grants_more_than_it_says() -> None:
    once = {"option_id": "o", "name": "Once", "kind": "allow_once"}
    always = {"option_id": "w", "name": "Always", "kind": "allow_always"}
    assert option_for({"options": [once, always]}, "allow") == {"option_id": "o"}
    assert option_for({"options": [once, always]}, "always") == {"option_id": "w"}
    assert option_for({"options": [once, always]}, "deny") == {"cancel": True}
    with pytest.raises(NotUnderstood):
        option_for({"options": [always]}, "allow")
    with pytest.raises(NotUnderstood):
        option_for({"options": [once, {**once, "option_id": "o2"}]}, "allow")


def test_a_question_takes_numbers_labels_and_free_text() -> None:
    options = [{"label": "Red"}, {"label": "Green"}]
    assert choose({"options": options}, "2") == "Green"
    assert choose({"options": options}, "red") == "Red"
    assert choose({"options": options}, "neither, really") == "neither, really"
    assert choose({"options": options, "multiple": True}, "1, green") == ["Red", "Green"]


def test_text_cannot_control_the_terminal() -> None:
    assert safe("a\x1b[2J\x07b\r\nc\td\x9b31m\u202ee") == "a[2Jb\nc\td31me"


def test_figures_are_human_readable() -> None:
    assert [duration(ms) for ms in (None, 1240, 41_000, 125_000, 7_260_000)] == [
        "", "1.2 s", "41 s", "2 min 5 s", "2 h 1 min",
    ]  # fmt: skip
    assert [size(count) for count in (0, 999, 1234, 123_456, 5_600_000, 7_890_000_000)] == [
        "0 B", "999 B", "1.2 kB", "123 kB", "5.6 MB", "7.9 GB",
    ]  # fmt: skip
    assert age(None) == "" and age("2020-01-01T00:00:00Z").endswith(" d ago")
    assert wording.resolved("rule", "allowed") == "Allowed by a rule."


def test_a_turn_that_the_agent_starts_is_not_shown_as_the_users_message() -> None:
    begun = event("user_message", 2, message_id="m2", text="A background task ended.", agent="a", origin="agent")
    pieces = tell(Narrator(lambda turn: []), message(1), begun)
    assert [(piece.text, piece.tone) for piece in pieces if isinstance(piece, Line)] == [
        ("hello", "user"),
        ("A background task ended.", "note"),
    ]


def test_events_after_a_truncated_snapshot_are_shown_once() -> None:
    narrator = Narrator(lambda turn: [])
    line = {"type": "system", "code": "c", "at": ""}
    seen = tell(narrator, message(), event("assistant_text", 1, block=0, delta="one "))
    seen += tell(narrator, event("system", 1, code="c", message="first"))
    # The snapshot contains two of six notices and one of three texts; the first of each were already shown.
    parts = [{**line, "message": "fifth"}, text_part("three "), {**line, "message": "sixth"}]
    told = tell(narrator, snapshot(1, parts, before="one two ", notices=4, thinking=0))
    assert said(told) == "three "
    assert "4 earlier characters are only in the transcript." in notes(told)
    shown = " ".join(piece.text for piece in told if isinstance(piece, Line))
    assert "fifth" in shown and "sixth" in shown
    again = tell(narrator, snapshot(1, parts, before="one two ", notices=4, thinking=0))
    assert said(again) == "" and not any(isinstance(piece, Line) for piece in again)


# Turns that wait to begin --------------------------------------------------------------------------------------------


def waits(message: str = "Waiting for a free slot.") -> Event:
    return event("waiting_to_begin", code="slots_full", message=message)


def starts(context: str = "fresh") -> Event:
    return event("turn_start", run_id="s.1", message_id="m1", agent="a", context=context, context_reason="")


def ends(stop_reason: str) -> Event:
    return event("turn_end", stop_reason=stop_reason, duration_ms=0)


def of_the_wait(pieces: list[Piece]) -> list[Piece]:
    return [piece for piece in pieces if isinstance(piece, Waits | Starts | Finished)]


def test_a_wait_and_its_end_are_shown_once_for_each_reason() -> None:
    narrator = Narrator(lambda turn: [])
    told = tell(narrator, message(), waits(), waits(), waits("Waiting for another."), starts(), ends("end_turn"))
    assert of_the_wait(told) == [
        Waits("Waiting for a free slot."),
        Waits("Waiting for another."),
        Starts(),
        Finished(1, "end_turn", 0),
    ]


def test_a_turn_that_starts_immediately_shows_no_wait() -> None:
    told = tell(Narrator(lambda turn: []), message(), starts(), ends("cancelled"))
    assert of_the_wait(told) == [Finished(1, "cancelled", 0)]


def test_a_turn_that_ends_while_it_waits_is_shown_as_cancelled_before_it_started() -> None:
    told = tell(Narrator(lambda turn: []), message(), waits(), ends("cancelled"))
    assert of_the_wait(told) == [Waits("Waiting for a free slot."), Finished(1, "cancelled", 0, began=False)]
    assert wording.finished("cancelled", began=False) == "Cancelled before it started."


def of_a_wait(state: str, context: str | None, why: str | None) -> Event:
    shown = snapshot(1, [], state=state)
    shown.data["session"]["turns"][0]["context"] = context
    shown.data["session"]["waits_for"] = None if why is None else {"code": "slots_full", "message": why}
    return shown


def test_a_snapshot_shows_a_wait_and_its_end_as_events_do() -> None:
    narrator = Narrator(lambda turn: [])
    told = tell(narrator, of_a_wait("accepted", None, "Waiting for a free slot."))
    assert of_the_wait(told) == [Waits("Waiting for a free slot.")]
    assert of_the_wait(tell(narrator, of_a_wait("accepted", None, "Waiting for a free slot."))) == []
    assert of_the_wait(tell(narrator, of_a_wait("processing", "fresh", None))) == [Starts()]


def recorded(turn: int, **fields: Any) -> Event:
    facts = {"state": "ready", "reason": None, "files": 0, "added": 0, "removed": 0, **fields}
    return event("turn_changes", turn, session_id="s_1", **facts)


def test_a_turn_that_changed_files_is_one_piece() -> None:
    narrator = Narrator(lambda _: [])
    assert tell(narrator, recorded(1)) == []
    assert tell(narrator, recorded(2, files=1, added=12, removed=3)) == [Changed("s_1", 2, "1 file changed, +12 -3")]
    unknown = recorded(3, state="unavailable", reason="The repository is too large.", files=None)
    assert notes(tell(narrator, unknown)) == ["The changes of this turn are not known. The repository is too large."]


def test_an_operation_on_files_is_told_if_it_did_something() -> None:
    def told(outcome: str) -> list[Piece]:
        return tell(Narrator(lambda _: []), event("files_changed", None, outcome=outcome, message="Restored 2 files."))

    assert told("done") == [Line("Restored 2 files.", "note")]
    assert told("failed") == [Line("Restored 2 files.", "error")]
    assert told("conflict") == []
