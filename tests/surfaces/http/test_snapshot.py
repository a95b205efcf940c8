"""A snapshot has everything that a page needs to start, consistent with the events up to its number."""

import msgspec

from perdure.core.view import LIVE_TEXT_CHARS
from perdure.surfaces.http.messages import Queue
from perdure.surfaces.http.prompts import Prompts
from perdure.surfaces.http.sessions import Session
from tests.harness import eventually
from tests.surfaces.http.local import LocalServer

FIELDS = {
    "seq",
    "type",
    "at",
    "session_id",
    "turn",
    "session",
    "visible_turns",
    "parts",
    "text",
    "text_offset",
    "tools",
}
FIELDS |= {"pending_prompts", "queue", "last_event_at"}
TOOL_FIELDS = {"tool_id", "name", "kind", "title", "status", "input", "parent_tool_id"}


def snapshot(server: LocalServer, session: str) -> dict[str, object]:
    with server.watch(session) as stream:
        identity, kind, data = next(stream.frames())
    assert kind == "snapshot"
    assert identity == str(data["seq"])
    return dict(data)


def test_a_new_session_has_an_empty_snapshot(server: LocalServer) -> None:
    session = server.create(title="mine")
    data = snapshot(server, session)
    assert set(data) >= FIELDS
    assert (data["turn"], data["text"], data["text_offset"], data["visible_turns"]) == (None, "", 0, [])
    assert data["parts"] == data["tools"] == data["pending_prompts"] == data["queue"] == []
    shown = msgspec.convert(data["session"], Session)
    assert (shown.id, shown.title, shown.turns) == (session, "mine", [])


def test_a_snapshot_during_a_turn_has_text_tools_prompts_and_queue(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say before")
    server.send(session, "say beginning\ntool Bash ls\nsay middle\npermit Deploy\nsay end")
    prompt = server.prompt(session)
    server.send(session, "say later", when_busy="queue", message_id="later")
    data = snapshot(server, session)
    events = server.log(session)[: int(str(data["seq"]))]
    deltas = [event["delta"] for event in events if event["type"] == "assistant_text" and event["turn"] == 2]
    assert data["text"] == "".join(deltas)
    assert data["visible_turns"] == [1, 2]
    assert data["turn"] == 2
    assert data["pending_prompts"] == [prompt]
    assert [(entry["message_id"], entry["text"]) for entry in data["queue"]] == [("later", "say later")]  # type: ignore[attr-defined]
    msgspec.convert({"queue": data["queue"]}, Queue)
    msgspec.convert({"prompts": data["pending_prompts"]}, Prompts)
    tools = data["tools"]
    assert isinstance(tools, list)
    assert all(set(tool) == TOOL_FIELDS for tool in tools)
    assert tools[0]["name"] == "Bash" and tools[0]["status"] == "completed"
    shown = msgspec.convert(data["session"], Session)
    assert (shown.state, shown.turn_count, shown.pending_prompts, shown.queue_length) == ("processing", 2, 1, 1)
    assert [turn.turn for turn in shown.turns] == [1, 2]
    assert shown.turns[1].stop_reason is None
    server.post(f"/api/sessions/{session}/stop")


def test_the_parts_of_a_snapshot_match_the_transcript(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "think hm\nsay one\nplan a; b\ntool Bash ls\nedit notes.txt\nsay two")
    data = snapshot(server, session)
    assert data["parts"] == server.transcript(session)[-1]["parts"]
    assert data["text"] == server.text(session, 1)


def test_a_snapshot_of_a_very_long_turn_has_only_its_last_part(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "\n".join(f"say {n}\nbig 90000" for n in range(9)))
    data = snapshot(server, session)
    whole = server.text(session, 1)
    offset, text = int(str(data["text_offset"])), str(data["text"])
    assert len(whole) > 2 * LIVE_TEXT_CHARS
    assert offset > 0
    assert LIVE_TEXT_CHARS <= len(text) <= 2 * LIVE_TEXT_CHARS
    assert text == whole[offset:]


def test_a_snapshot_after_a_reload_is_the_same(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one\ntool Bash ls\nsay two")
    server.post(f"/api/sessions/{session}/stop")
    eventually(lambda: server.ask(lambda: session not in server.server.engine.runners), "the agent is gone")
    before = snapshot(server, session)
    server.compacted()
    server.evict(session)
    after = snapshot(server, session)
    assert {**after, "at": ""} == {**before, "at": ""}
