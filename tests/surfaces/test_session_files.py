"""Sessions as files: reading restores the same turns, also from TeamHQ files of any age."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import Refused
from perdure.core.imported import finished_turns
from perdure.surfaces.history_building import NOT_KEPT
from perdure.surfaces.session_files import folder_name, lines_of
from perdure.surfaces.session_reading import Broken, Metadata, import_body, read_metadata, read_turns

Json = dict[str, Any]
TIME = "2026-02-07T12:00:00.000Z"
OLD: Json = {
    # As written by the first version of TeamHQ.
    "id": "3f2c",
    "projectId": "site",
    "status": "completed",
    "startedAt": TIME,
    "endedAt": "2026-02-07T12:05:23.000Z",
    "durationMs": 323000,
    "eventCount": 3,
    "exitCode": 0,
    "error": None,
    "pid": None,
}


def metadata(**fields: Any) -> Metadata:
    return read_metadata(json.dumps({**OLD, **fields}).encode())


def lines(*events: tuple[str, Json]) -> list[bytes]:
    return [
        json.dumps({"id": number, "timestamp": TIME, "type": kind, "data": data}).encode()
        for number, (kind, data) in enumerate(events)
    ]


def turns(events: list[Json]) -> list[list[Json]]:
    """The events by turn, without common fields. The server accepts them."""
    finished_turns([dict(event) for event in events], "claude")
    found: dict[int, list[Json]] = {}
    for event in events:
        found.setdefault(event["turn"], []).append(event)
    return list(found.values())


def said(turn: list[Json]) -> tuple[str, str, str]:
    """The message, the answer, and how it ended."""
    text = "".join(event["delta"] for event in turn if event["type"] == "assistant_text")
    return turn[0]["text"], text, turn[-1]["stop_reason"]


# Metadata -------------------------------------------------------------------------------------------------------------


def test_old_metadata_without_the_newer_fields_still_loads() -> None:
    found = metadata()
    assert (found.conversation_id, found.cli_session_id, found.turn_count) == (None, None, 1)
    assert found.state == "ended", "a completed session is not processing, whatever the default"
    assert metadata(status="running").state == "processing"


@pytest.mark.parametrize("name", ["conversationId", "cliSessionId"])
def test_the_native_session_id_has_two_names(name: str) -> None:
    found = metadata(**{name: "abc"})
    assert found.conversation_id == found.cli_session_id == "abc"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "must be an object"),
        (b"{}", "id is missing"),
        (json.dumps({**OLD, "status": "asleep"}).encode(), "status can't be 'asleep': use "),
        (json.dumps({**OLD, "startedAt": "soon"}).encode(), "startedAt must be a time"),
        (json.dumps({**OLD, "turnCount": "two"}).encode(), "turnCount must be a whole number, not text"),
        (b"\xff\xfe", "not valid JSON"),
    ],
)
def test_metadata_that_cannot_be_read_says_why(raw: bytes, words: str) -> None:
    with pytest.raises(Broken) as broken:
        read_metadata(raw)
    assert words in broken.value.what and broken.value.line is None


# TeamHQ's events ------------------------------------------------------------------------------------------------------


def test_a_session_of_two_turns_is_read() -> None:
    found = turns(
        read_turns(
            metadata(),
            lines(
                ("system", {"message": "Session started"}),
                ("turn_start", {"turnNumber": 1}),
                ("system", {"message": "Agent initialized"}),
                ("assistant_text", {"text": "I'll start", "delta": True}),
                ("assistant_text", {"text": " by looking.", "delta": True}),
                ("tool_use", {"tool": "Bash", "input": {"command": "ls"}}),
                ("tool_result", {"tool": "Bash", "output": "a\nb", "truncated": False}),
                ("assistant_text", {"text": "Done."}),
                ("system", {"message": "Turn 1 completed (2m 3s, cost: $0.10)"}),
                ("turn_end", {"turnNumber": 1, "exitCode": 0, "durationMs": 123000, "costUsd": 0.1}),
                ("waiting_for_input", {"turnNumber": 1}),
                ("user_message", {"message": "Now tests", "turnNumber": 2}),
                ("turn_start", {"turnNumber": 2}),
                ("assistant_text", {"text": "Trying", "delta": True}),
                ("turn_end", {"turnNumber": 2, "exitCode": 1}),
                ("error", {"message": "Turn 2 failed (exit code 1)"}),
                ("waiting_for_input", {"turnNumber": 2}),
                ("system", {"message": "Session stopped by user"}),
            ),
        )
    )
    assert [said(turn) for turn in found] == [
        (NOT_KEPT, "I'll start by looking.Done.", "end_turn"),
        ("Now tests", "Trying", "failed"),
    ]
    first, second = found
    assert [event["type"] for event in first] == [
        "user_message",
        "turn_start",
        "assistant_text",
        "assistant_text",
        "tool_use",
        "tool_result",
        "assistant_text",
        "turn_end",
    ]
    assert (first[4]["name"], first[4]["input"], first[5]["content"]) == ("Bash", {"command": "ls"}, "a\nb")
    assert first[4]["tool_id"] == first[5]["tool_id"]
    assert first[2]["block"] == first[3]["block"] != first[6]["block"]
    assert (first[-1]["duration_ms"], first[-1]["cost_usd"]) == (123000, 0.1)
    assert [event["type"] for event in second][-2:] == ["error", "turn_end"]
    assert second[-1]["exit_code"] == 1


def test_a_file_without_turn_markers_is_read_as_one_turn() -> None:
    events = lines(
        ("system", {"message": "Session started"}),
        ("assistant_text", {"text": "Hello."}),
        ("system", {"message": "Session completed (5m 23s)"}),
    )
    assert [said(turn) for turn in turns(read_turns(metadata(), events))] == [(NOT_KEPT, "Hello.", "end_turn")]


def test_the_first_message_is_read_from_turn_start() -> None:
    events = lines(("turn_start", {"turnNumber": 1, "message": "Kick off"}), ("turn_end", {"turnNumber": 1}))
    assert said(turns(read_turns(metadata(), events))[0]) == ("Kick off", "", "end_turn")


def test_a_result_belongs_to_the_oldest_open_tool_with_its_name() -> None:
    events = lines(
        ("turn_start", {"turnNumber": 1}),
        ("tool_use", {"tool": "Bash", "input": {}}),
        ("tool_use", {"tool": "Read", "input": {}}),
        ("tool_use", {"tool": "Bash", "input": {}}),
        ("tool_result", {"tool": "Read", "output": "r"}),
        ("tool_result", {"tool": "Bash", "output": "b1"}),
        ("tool_result", {"tool": "Bash", "output": "b2"}),
        ("tool_result", {"tool": "Late", "output": "l"}),
    )
    [turn] = turns(read_turns(metadata(), events))
    names = {event["tool_id"]: event["name"] for event in turn if event["type"] == "tool_use"}
    results = [(event["tool_id"], event["content"]) for event in turn if event["type"] == "tool_result"]
    assert results == [("1-2", "r"), ("1-1", "b1"), ("1-3", "b2"), ("1-4", "l")]
    assert list(names.values()) == ["Bash", "Read", "Bash", "Late"]


@pytest.mark.parametrize(
    ("status", "end", "error"),
    [
        ("completed", "end_turn", None),
        ("stopped", "cancelled", None),
        ("timed-out", "timed_out", None),
        ("failed", "failed", "It broke"),
        ("running", "failed", "Server restarted while session was running"),
    ],
)
def test_an_unfinished_turn_ends_as_its_session_did(status: str, end: str, error: str | None) -> None:
    found = metadata(status=status, error="It broke" if status == "failed" else None)
    [turn] = turns(read_turns(found, lines(("turn_start", {"turnNumber": 1}), ("assistant_text", {"text": "half"}))))
    assert said(turn) == (NOT_KEPT, "half", end)
    assert [event["message"] for event in turn if event["type"] == "error"] == ([error] if error else [])


def test_a_session_without_events_has_no_turns() -> None:
    assert read_turns(metadata(), [b"", b"  "]) == []


def test_unknown_types_are_skipped() -> None:
    events = lines(("turn_start", {"turnNumber": 1}), ("a_new_one", {"x": 1}), ("turn_end", {}))
    assert len(turns(read_turns(metadata(), events))) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "an event must be an object"),
        (b'{"type": "system"}', "an event must be an object"),
        (b'{"type": "system", "data": {}}', "timestamp must be a time"),
        (b'{"type": "system", "data": {}, "timestamp": "now"}', "timestamp must be a time"),
        (b'{"type": "assistant_text", "data": {"text": 5}, "timestamp": "%s"}' % TIME.encode(), "data.text must be"),
        (b'{"type": "turn_start", "data": {"turnNumber": 1}, "timestamp": "%s"}' % TIME.encode(), "turnNumber must be"),
        (b'{"type": "x", "data": {}, "perdure": {}, "timestamp": "%s"}' % TIME.encode(), "must be an event of a turn"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, words: str) -> None:
    good = lines(("turn_start", {"turnNumber": 1}))
    with pytest.raises(Broken) as broken:
        read_turns(metadata(), [*good, line])
    assert broken.value.line == 2 and words in broken.value.what


KINDS = ["system", "error", "turn_start", "turn_end", "user_message", "assistant_text", "tool_use", "tool_result"]
DATA = st.fixed_dictionaries(
    {},
    optional={
        "turnNumber": st.integers(-1, 9),
        "message": st.sampled_from(["hello", "Turn 1 failed (exit code 2)", "Session failed", ""]),
        "text": st.text(max_size=5),
        "tool": st.sampled_from(["Bash", "Read", ""]),
        "output": st.text(max_size=5),
        "exitCode": st.none() | st.integers(-1, 3) | st.text(max_size=2),
        "costUsd": st.floats(),
        "durationMs": st.floats() | st.booleans(),
    },
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*KINDS, "waiting_for_input", "unknown"]), DATA), max_size=12),
    st.sampled_from(["completed", "stopped", "timed-out", "failed", "running"]),
)
def test_any_lines_are_reported_as_broken_or_become_turns_that_a_server_accepts(
    events: list[tuple[str, Json]], status: str
) -> None:
    try:
        found = read_turns(metadata(status=status), lines(*events))
    except Broken:
        return
    finished_turns(found, "claude")


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_reported_as_broken(raw: bytes) -> None:
    for read in (read_metadata, lambda bytes_: read_turns(metadata(), bytes_.split(b"\n"))):
        try:
            read(raw)
        except Broken:
            continue


# Our own files --------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
BETWEEN = st.one_of(
    st.builds(lambda text: {"type": "assistant_text", "block": 0, "delta": text}, TEXT),
    st.builds(lambda text: {"type": "assistant_thinking", "block": 1, "delta": text}, TEXT),
    st.builds(lambda name: {"type": "tool_use", "tool_id": "t", "name": name, "input": {"a": name}}, TEXT),
    st.builds(
        lambda text, failed: {"type": "tool_result", "tool_id": "t", "content": text, "is_error": failed},
        st.none() | TEXT,
        st.booleans(),
    ),
    st.builds(lambda text: {"type": "tool_update", "tool_id": "t", "title": text}, TEXT),
    st.builds(lambda text: {"type": "plan", "entries": [{"content": text}]}, TEXT),
    st.builds(lambda text: {"type": "system", "message": text, "code": "silence"}, TEXT),
    st.builds(
        lambda text, detail: {"type": "error", "message": text, "code": "agent_exited", "detail": detail},
        TEXT | st.just("It ended by itself (exit code 3)."),
        st.none() | TEXT,
    ),
)

ASKED: Json = {"type": "pending_prompt", "prompt_id": "p", "kind": "question", "title": "Which?"}
CLOSED: Json = {"type": "prompt_resolved", "prompt_id": "p", "by": "person", "outcome": "answered", "delivered": True}


@st.composite
def histories(draw: st.DrawFn) -> list[Json]:
    """The log of a session with finished turns, with gaps where turns were rewound."""
    found: list[Json] = [{"type": "session_created", "session": {}}]
    turn = 0
    for _ in range(draw(st.integers(0, 3))):
        turn += draw(st.integers(1, 2))
        agent = draw(st.sampled_from(["claude", "codex"]))
        message = {"type": "user_message", "message_id": f"m{turn}", "text": draw(TEXT), "agent": agent}
        start = {"type": "turn_start", "run_id": f"s.{turn}", "message_id": f"m{turn}", "agent": agent}
        start |= {"context": draw(st.sampled_from(["live", "fresh"])), "context_reason": "first"}
        end: Json = {"type": "turn_end", "stop_reason": draw(st.sampled_from(["end_turn", "failed", "cancelled"]))}
        end |= {"exit_code": draw(st.none() | st.integers(0, 3)), "duration_ms": draw(st.integers(0, 9))}
        end |= {"cost_usd": draw(st.none() | st.just(0.5)), "usage": draw(st.none() | st.just({"input_tokens": 3}))}
        asked = draw(st.sampled_from([[], [ASKED, {**CLOSED, "answer": {"answers": {"q": "A"}}}]]))
        events = [message, start, *draw(st.lists(BETWEEN, max_size=6)), *asked, end]
        found += [{**event, "turn": turn} for event in events]
        found.append({"type": "waiting_for_input", "turn": turn})
        found.append({"type": "agent_attached", "turn": None})
    return [{"seq": number, "at": TIME, "session_id": "s", **event} for number, event in enumerate(found, 1)]


def kept(event: Json) -> bool:
    return event["type"] not in ("session_created", "waiting_for_input", "agent_attached")


def plain(event: Json) -> Json:
    return {key: value for key, value in event.items() if key not in ("seq", "session_id")}


@settings(deadline=None)
@given(histories())
def test_an_exported_log_reads_back_as_the_same_turns(log: list[Json]) -> None:
    written = [json.dumps(line).encode() for line in lines_of(log)]
    found = read_turns(metadata(), written)
    assert found == [plain(event) for event in log if kept(event)]
    finished_turns([dict(event) for event in found], "claude")


@settings(deadline=None)
@given(histories())
def test_an_exported_log_can_be_read_by_a_teamhq_client(log: list[Json]) -> None:
    for line in lines_of(log):
        assert {"id", "timestamp", "type", "data"} <= set(line)
    without = [json.dumps({k: v for k, v in line.items() if k != "perdure"}).encode() for line in lines_of(log)]
    theirs = [said(turn) for turn in turns(read_turns(metadata(), without))]
    ours = [said(turn) for turn in turns([plain(event) for event in log if kept(event)])]
    # TeamHQ has no marker for a stopped turn, and a file without any turn has lost its first message.
    assert [(a, b) for a, b, _ in theirs] == [(a or NOT_KEPT, b) for a, b, _ in ours]


def test_rewound_turns_are_omitted_and_edited_messages_have_their_new_text() -> None:
    log: list[Json] = []
    for turn in (1, 2):
        log += [
            {"type": "user_message", "turn": turn, "message_id": f"m{turn}", "text": f"say {turn}", "agent": "claude"},
            {"type": "turn_start", "turn": turn, "run_id": "r", "message_id": f"m{turn}", "agent": "claude"}
            | {"context": "fresh", "context_reason": "first"},
            {"type": "turn_end", "turn": turn, "stop_reason": "end_turn", "exit_code": None, "cost_usd": None}
            | {"duration_ms": 1},
        ]
    log.append({"type": "history_changed", "turn": 2, "change": "rewind", "bumped": [], "text": None})
    log.append({"type": "history_changed", "turn": 1, "change": "edit", "bumped": [], "text": "say better"})
    log = [{"seq": number, "at": TIME, "session_id": "s", **event} for number, event in enumerate(log, 1)]
    written = [json.dumps(line).encode() for line in lines_of(log)]
    found = read_turns(metadata(), written)
    assert [said(turn)[0] for turn in turns(found)] == ["say better"]
    later = lines(("turn_start", {"turnNumber": 3, "message": "added by TeamHQ"}), ("turn_end", {"turnNumber": 3}))
    found = read_turns(metadata(), [*written, *later])
    assert [said(turn)[0] for turn in turns(found)] == ["say better", "added by TeamHQ"]


def test_an_import_has_the_final_state_of_the_session() -> None:
    body = import_body(metadata(status="running", state="idle", perdure={"title": "T", "labels": ["a"]}), [])
    assert (body["id"], body["status"], body["state"], body["title"], body["labels"]) == (
        "3f2c",
        "running",
        "idle",
        "T",
        ["a"],
    )
    assert body["created_at"] == TIME and body["ended_at"] == OLD["endedAt"]


@settings(deadline=None)
@given(st.text(max_size=20))
def test_a_project_always_maps_to_one_folder_name(project: str) -> None:
    name = folder_name(project or "p")
    assert "/" not in name and name not in (".", "..", "") and not name.startswith(".") and "\x00" not in name
    assert folder_name(None) == "no-project"


def test_a_server_refuses_an_invalid_history() -> None:
    with pytest.raises(Refused):
        finished_turns([{"type": "turn_start"}], "claude")
