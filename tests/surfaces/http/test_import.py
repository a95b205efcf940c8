"""Importing a session from elsewhere: complete, only once, and without starting anything."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core.imported import MAX_EVENT_BYTES, MAX_EVENTS
from perdure.surfaces.http.sessions import Session
from tests.attack import forget_peak, peak_mb, resident_mb, somebody_else
from tests.harness import LiveServer, eventually, is_loaded
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

Json = dict[str, Any]
T = "2026-02-07T12:00:{:02d}.000Z"


def turn(number: int, text: str, answer: str, **end: Any) -> list[Json]:
    """One finished turn, as events."""
    at = T.format(number * 10)
    return [
        {"type": "user_message", "turn": number, "at": at, "message_id": f"m{number}", "text": text, "agent": ""},
        {
            "type": "turn_start", "turn": number, "at": at, "run_id": "", "message_id": f"m{number}", "agent": "",
            "context": "fresh", "context_reason": "imported",
        },
        {"type": "assistant_text", "turn": number, "at": T.format(number * 10 + 2), "block": 0, "delta": answer},
        {
            "type": "turn_end", "turn": number, "at": T.format(number * 10 + 3), "stop_reason": "end_turn",
            "duration_ms": 3000, **end,
        },
    ]  # fmt: skip


def body(name: str, events: list[Json] | None = None, **fields: Any) -> Json:
    given = turn(1, "say one", "one") + turn(2, "say two", "two") if events is None else events
    return {"id": name, "created_at": T.format(0), "events": given, **fields}


def take_in(server: LocalServer, given: Json) -> Json:
    found: Json = server.post("/api/import", given, expect=201)
    msgspec.convert(found, Session)
    return found


def test_a_session_is_imported_with_its_turns_and_times(server: LocalServer) -> None:
    made = take_in(server, body("plain", title="Kept", summary="What it was", labels=["old"], archived=True))
    assert (made["id"], made["title"], made["summary"]) == ("plain", "Kept", "What it was")
    assert (made["labels"], made["archived"]) == (["old"], True)
    assert (made["state"], made["status"], made["attached"], made["turn_count"]) == ("idle", "running", "suspended", 2)
    assert (made["created_at"], made["started_at"]) == (T.format(0), T.format(10))
    assert made["native_session_id"] is None and made["pid"] is None
    assert [(t["turn"], t["run_id"], t["agent"]) for t in made["turns"]] == [
        (1, "plain.1", "rehearsal"),
        (2, "plain.2", "rehearsal"),
    ]
    assert [(t["started_at"], t["ended_at"], t["duration_ms"]) for t in made["turns"]] == [
        (T.format(10), T.format(13), 3000),
        (T.format(20), T.format(23), 3000),
    ]
    assert [t["message"]["text"] for t in server.transcript("plain")] == ["say one", "say two"]
    assert [server.text("plain", number) for number in (1, 2)] == ["one", "two"]
    assert [event["seq"] for event in server.log("plain")] == list(range(1, made["event_count"] + 1))
    found = server.get("/api/sessions?q=two")["sessions"]
    assert "plain" in [entry["id"] for entry in found]


def test_an_imported_idle_session_continues_and_its_agent_gets_the_whole_history(server: LocalServer) -> None:
    take_in(server, body("going-on"))
    assert server.recalled("going-on") == ["say one", "say two"]
    assert server.session("going-on")["turns"][2]["context"] == "fresh"
    assert server.recalled("going-on") == ["say one", "say two", "recall"]


def test_the_model_the_mode_and_other_options_are_stored_and_applied_to_the_agent(server: LocalServer) -> None:
    chosen: Json = {
        "model": "rehearsal-2",
        "mode": "auto",
        "config": {"effort": "high"},
        "limits": {"idle_timeout_s": 77},
    }
    made = take_in(server, body("chosen", **chosen))
    assert {name: made[name] for name in chosen} == chosen
    server.turn("chosen", "say three")
    shown = server.session("chosen")
    assert {name: shown[name] for name in chosen} == chosen
    now = {option["id"]: option["currentValue"] for option in shown["config_options"]}
    assert now == {"mode": "auto", "model": "rehearsal-2", "effort": "high"}


@pytest.mark.parametrize(
    "given",
    [{"model": ""}, {"mode": 5}, {"config": []}, {"config": {"effort": ["high"]}}, {"limits": {"idle_timeout_s": -1}}],
)
def test_invalid_options_are_refused(server: LocalServer, given: Json) -> None:
    assert is_problem(server.http.post("/api/import", json=body("odd", **given)), 400, "invalid")


def test_without_a_title_the_first_message_becomes_the_title(server: LocalServer) -> None:
    assert take_in(server, body("untitled"))["title"] == "say one"


def test_a_session_without_turns_can_be_imported(server: LocalServer) -> None:
    made = take_in(server, body("empty", []))
    assert (made["turn_count"], made["turns"], made["state"]) == (0, [], "idle")
    assert server.turn("empty", "say first")["turn"] == 1


@pytest.mark.parametrize("status", ["completed", "stopped", "timed-out", "failed"])
def test_an_ended_session_is_ended_after_its_import(server: LocalServer, status: str) -> None:
    given = body(f"ended-{status}", status=status, state="ended", ended_at=T.format(40), error="It broke")
    made = take_in(server, given)
    assert (made["state"], made["status"], made["ended_at"]) == ("ended", status, T.format(40))
    assert made["duration_ms"] == 30_000
    assert made["error"] == ("It broke" if status == "failed" else None)
    answer = server.http.post(f"/api/sessions/{made['id']}/messages", json={"text": "say x"})
    assert is_problem(answer, 409, "session_ended")


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        ("idle", "stopped", "Server restarted between turns"),
        ("processing", "failed", "Server restarted while session was running"),
    ],
)
def test_if_a_restart_ends_sessions_an_imported_running_session_is_ended(
    make_server: Callable[..., LocalServer], state: str, status: str, reason: str
) -> None:
    server = make_server(on_restart="end")
    made = take_in(server, body("left", state=state))
    assert (made["state"], made["status"]) == ("ended", status)
    assert [event["reason"] for event in server.log("left") if event["type"] == "session_end"] == [reason]


def test_importing_a_session_twice_is_a_conflict(server: LocalServer) -> None:
    take_in(server, body("once"))
    before = server.log("once")
    assert is_problem(server.http.post("/api/import", json=body("once", [])), 409, "conflict")
    server.evict("once")
    assert is_problem(server.http.post("/api/import", json=body("once", [])), 409, "conflict")
    assert server.log("once") == before


def test_only_one_of_several_concurrent_imports_of_a_session_succeeds(server: LocalServer) -> None:
    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            sent = body(f"at-once-{number}")
            answers = list(pool.map(lambda _, sent=sent: server.http.post("/api/import", json=sent), range(4)))
            said = sorted((answer.status_code, answer.text) for answer in answers)
            assert [status for status, _ in said] == [201, 409, 409, 409], said
            assert Path(server.session(sent["id"])["workdir"]).is_dir()


def test_a_session_is_imported_into_its_project(server: LocalServer, tmp_path: Path) -> None:
    project = server.post("/api/projects", {"name": "kept", "path": str(tmp_path)}, expect=201)["id"]
    made = take_in(server, body("in-project", project=project, workdir="/no/such/place"))
    assert (made["project"], made["workdir"]) == (project, str(tmp_path))
    assert is_problem(server.http.post("/api/import", json=body("x", project="nothing")), 404, "not_found")
    assert is_problem(server.http.post("/api/import", json=body("x", agent="nobody")), 404, "not_found")
    assert is_problem(server.http.get("/api/sessions/x"), 404, "not_found")


def test_a_missing_directory_is_replaced_by_a_new_workspace(server: LocalServer, tmp_path: Path) -> None:
    assert take_in(server, body("here", workdir=str(tmp_path)))["workdir"] == str(tmp_path)
    own = take_in(server, body("elsewhere", workdir="/no/such/place"))["workdir"]
    assert own.endswith("/elsewhere") and Path(own).is_dir()


def test_the_cost_of_imported_turns_is_counted(server: LocalServer) -> None:
    events = turn(1, "say one", "one", usage={"input_tokens": 1000, "output_tokens": 20}, cost_usd=0.5)
    made = take_in(server, body("costly", events))
    assert made["usage"]["input_tokens"] == 1000 and made["turns"][0]["cost_usd"] == 0.5
    assert "costly" in str(server.get("/api/usage?group_by=session"))


def test_a_permission_granted_before_the_import_is_not_granted_here(server: LocalServer) -> None:
    events = turn(1, "permit Deploy", "allowed")
    asked = {
        "type": "pending_prompt", "turn": 1, "at": T.format(11), "prompt_id": "p", "kind": "permission",
        "title": "Deploy", "tool": "Deploy", "options": [{"option_id": "a", "name": "A", "kind": "allow_always"}],
    }  # fmt: skip
    answered = {
        "type": "prompt_resolved", "turn": 1, "at": T.format(11), "prompt_id": "p", "by": "person",
        "outcome": "allowed", "delivered": True, "answer": {"option_id": "a", "kind": "allow_always"},
    }  # fmt: skip
    assert is_problem(
        server.http.post("/api/import", json=body("g", [*events[:2], asked, *events[2:]])), 400, "invalid"
    )
    take_in(server, body("granted", [*events[:2], answered, *events[2:]]))
    server.send("granted", "permit Deploy")
    assert server.prompt("granted")["title"]
    server.post("/api/sessions/granted/stop")


@pytest.mark.one_server
def test_the_files_of_a_message_are_stored_or_nothing_is_imported(server: LocalServer) -> None:
    def with_files(name: str, *files: Json) -> Json:
        first, *rest = turn(1, "say one", "one")
        return body(name, [{**first, "attachments": list(files)}, *rest])

    folder = server.data / "attachments"
    data = {"name": "a.txt", "data": "aGVsbG8=", "file": "../../token", "path": "/elsewhere"}
    take_in(server, with_files("filed", data))
    [kept] = server.transcript("filed")[0]["message"]["attachments"]
    assert server.http.get(f"/api/sessions/filed/attachments/{kept['file']}").content == b"hello"
    assert kept["path"] == str(folder / "filed" / kept["file"])
    stale = {"name": "b.png", "path": "/elsewhere", "file": "b.png", "mime_type": "image/png", "size": 5}
    take_in(server, with_files("stale", stale))
    assert "file" not in server.transcript("stale")[0]["message"]["attachments"][0]
    assert server.recalled("stale") == ["say one"]
    for broken in ({"name": "c"}, {"name": "c", "data": "!"}, {"path": "/x", "name": 7}):
        answer = server.http.post("/api/import", json=with_files("broken", data, broken))
        assert is_problem(answer, 400, "invalid")
        assert not (folder / "broken").exists()


GOOD = turn(1, "say one", "one")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([{"type": "agent_launched", "turn": 1}], "number 1: type must be one of"),
        ([{}], "number 1: type must be one of"),
        ([*GOOD[:3], 7], "number 4: this must be an object, not a whole number"),
        (GOOD[:3], "turn 1 has no turn_end"),
        (GOOD[1:2] + GOOD[1:], "number 2: turn 1 has already begun"),
        (GOOD[:1] + GOOD[2:], "number 2: turn 1 must continue with turn_start"),
        (GOOD + GOOD, "number 5: expected the start of a turn"),
        (turn(2, "x", "y") + GOOD, "number 5: expected the start of a turn"),
        (GOOD[:3] + turn(2, "x", "y"), "number 4: turn 1 has no turn_end"),
        ([{**GOOD[0], "at": "yesterday"}, *GOOD[1:]], "number 1: at must be a time"),
        ([{**GOOD[0], "turn": 0}, *GOOD[1:]], "number 1: turn must be a whole number"),
        ([{**GOOD[0], "text": 7}, *GOOD[1:]], "number 1: text must be text, not a whole number"),
        (
            [*GOOD[:3], {**GOOD[3], "stop_reason": "tired"}],
            "number 4: stop_reason can't be 'tired': use cancelled, end_turn, ",
        ),
        ([*GOOD[:3], {**GOOD[3], "duration_ms": 2**63}], "number 4: duration_ms must be a number"),
        ([*GOOD[:3], {**GOOD[3], "usage": {"input_tokens": "x"}}], "number 4: input_tokens must be a number"),
        ([*GOOD[:3], {**GOOD[3], "usage": {"input_tokens": 2**70}}], "number 4: input_tokens must be a number"),
    ],
)
def test_an_invalid_history_is_refused_with_the_position_of_the_error(
    server: LocalServer, events: list[Any], words: str
) -> None:
    answer = server.http.post("/api/import", json=body("bad", events))
    assert is_problem(answer, 400, "invalid") and words in answer.json()["error"]
    assert is_problem(server.http.get("/api/sessions/bad"), 404, "not_found")


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '"\\ud800"', '"\xff"'])
def test_an_unreadable_event_is_refused(server: LocalServer, text: str) -> None:
    given = msgspec.json.encode(body("bad", GOOD)).replace(b'"say one"', text.encode("latin-1"))
    assert is_problem(server.http.post("/api/import", content=given), 400, "invalid")


@pytest.mark.parametrize("name", ["..", "a/b", "-x", "a b", "x" * 101, "\u00fc"])
def test_an_invalid_session_id_is_refused(server: LocalServer, name: str) -> None:
    assert is_problem(server.http.post("/api/import", json=body(name)), 400, "invalid")


@pytest.mark.smoke
def test_an_imported_session_survives_a_restart(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    take_in(server, body("lasting"))
    server.stop()
    server.start()
    assert server.text("lasting", 2) == "two"
    assert server.recalled("lasting") == ["say one", "say two"]


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    "element", [pytest.param("0", marks=pytest.mark.smoke), "{}", '{"type":""}', "[]", '""', "[[],[]]"]
)
def test_a_long_list_of_invalid_events_is_refused_and_uses_little_more_memory_than_its_size(
    own: LiveServer, element: str
) -> None:
    given = b'{"id":"x","created_at":"%b","events":[' % T.format(0).encode()
    given += element.encode() + (b"," + element.encode()) * (19_000_000 // (len(element) + 1)) + b"]}"
    before = resident_mb(own)
    answer = own.http.post("/api/import", content=given)
    print(f"{len(given)} bytes: {before} MB, peak {peak_mb(own)}")
    assert answer.status_code == 400 and "events, number 1" in answer.json()["detail"], answer.text
    assert peak_mb(own) < before + 100


@pytest.mark.needs("linux")
@pytest.mark.parametrize("element", ["0", "{}", "[]", '""', '{"":0}', "[[],[]]"])
@pytest.mark.parametrize("place", ["attachments", "input", "unknown"])
def test_a_long_list_inside_an_event_is_refused_and_uses_little_more_memory_than_its_size(
    own: LiveServer, place: str, element: str
) -> None:
    first, start, text, end = turn(1, "say one", "one")
    tool = {"type": "tool_use", "turn": 1, "at": T.format(11), "tool_id": "t", "name": "x", "input": {"a": "JUNK"}}
    number, holder = {
        "attachments": (1, {**first, "attachments": "JUNK"}),
        "input": (3, tool),
        "unknown": (3, {**text, "nobody_knows_it": "JUNK"}),
    }[place]
    events = [holder, start, end] if number == 1 else [first, start, holder, end]
    junk = b"[" + element.encode() + (b"," + element.encode()) * (18_000_000 // (len(element) + 1)) + b"]"
    given = msgspec.json.encode(body("x", events)).replace(b'"JUNK"', junk)
    before = resident_mb(own)
    forget_peak(own)
    with somebody_else(own) as waits:
        answer = own.http.post("/api/import", content=given)
    print(f"{len(given)} bytes: {before} MB, peak {peak_mb(own)}, then {resident_mb(own)}; {waits}")
    assert is_problem(answer, 413, "too_large") and f"events, number {number}: " in answer.json()["detail"], answer.text
    assert peak_mb(own) < before + 100
    eventually(lambda: resident_mb(own) < before + 20, lambda: f"{before} MB before, {resident_mb(own)} after")
    assert waits.longest_s < 1 or is_loaded()


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    ("inside", "count"), [({"a": [{}] * 30_000}, 200), ({str(one): {} for one in range(16)}, 80_000)]
)
def test_too_many_lists_and_objects_in_total_are_refused(own: LiveServer, inside: Json, count: int) -> None:
    first, start, _, end = turn(1, "say one", "one")
    tool = {
        "type": "tool_use",
        "turn": 1,
        "at": T.format(11),
        "tool_id": "t",
        "name": "x",
        "input": inside,
    }
    piece = b"," + msgspec.json.encode(tool)
    given = msgspec.json.encode(body("x", [first, start, end])).replace(
        msgspec.json.encode(start), msgspec.json.encode(start) + piece * count
    )
    before = resident_mb(own)
    answer = own.http.post("/api/import", content=given)
    print(f"{len(given)} bytes: {before} MB, peak {peak_mb(own)}")
    assert is_problem(answer, 413, "too_large") and "too many values" in answer.json()["detail"], answer.text
    assert peak_mb(own) < before + 150


def test_commas_and_brackets_in_a_long_text_do_not_count_as_a_list(server: LocalServer) -> None:
    text = 'a, "b", [c], {d}\\\n' * 20_000
    take_in(server, body("wordy", turn(1, "say one", text)))
    assert server.text("wordy", 1) == text


@pytest.mark.needs("linux")
def test_an_oversized_event_is_refused_with_its_position(own: LiveServer) -> None:
    answer = own.http.post("/api/import", json=body("x", turn(1, "say one", "y" * (MAX_EVENT_BYTES + 1))))
    assert is_problem(answer, 413, "too_large") and "events, number 3: it is larger" in answer.json()["detail"]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("field", ["labels", "attachments", "answers"])
def test_a_long_list_in_any_request_is_refused_and_uses_little_more_memory_than_its_size(
    own: LiveServer, field: str
) -> None:
    session = own.create()
    path = {
        "labels": "/api/import",
        "attachments": f"/api/sessions/{session}/messages",
        "answers": f"/api/sessions/{session}/prompts/p",
    }[field]
    given = b'{"id":"x","created_at":"","events":[],"text":"a","%b":[{}' % field.encode() + b",{}" * 6_000_000 + b"]}"
    before = resident_mb(own)
    answer = own.http.post(path, content=given)
    print(f"{before} MB, peak {peak_mb(own)}")
    assert is_problem(answer, 413, "too_large")
    assert peak_mb(own) < before + 100


@pytest.mark.needs("linux")
def test_too_many_events_are_refused_with_the_limit(own: LiveServer) -> None:
    first, *rest = turn(1, "say one", "one")
    piece = msgspec.json.encode(rest[1])
    written = b",".join([msgspec.json.encode(first), msgspec.json.encode(rest[0]), *[piece] * MAX_EVENTS])
    given = b'{"id":"x","created_at":"%b","events":[' % T.format(0).encode() + written + b"]}"
    before = resident_mb(own)
    answer = own.http.post("/api/import", content=given)
    print(f"{len(given)} bytes: {before} MB, peak {peak_mb(own)}")
    assert is_problem(answer, 413, "too_large") and f"{MAX_EVENTS:,} events" in answer.json()["detail"]
    assert own.http.get("/api/sessions/x").status_code == 404
