"""Diane's prompts: a turn in one call, as a run or as a stream of events, even if the client disconnects."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http.diane_stream import PromptViewer
from perdure.surfaces.http.runs import Run
from perdure.surfaces.sse import Frames
from tests.harness import WAIT_S, eventually
from tests.surfaces.http.diane_client import Diane
from tests.surfaces.http.local import PATHS, TOKEN, LocalServer
from tests.surfaces.http.test_access import is_problem


@pytest.fixture
def diane(server: LocalServer) -> Diane:
    return Diane(server)


@pytest.fixture
def session(diane: Diane) -> str:
    return str(diane.start()["session_id"])


def said(run: Any) -> str:
    (message,) = run["output"]
    (part,) = message["parts"]
    assert (message["role"], part["content_type"]) == ("agent", "text/plain")
    return str(part["content"])


def texts(events: list[tuple[str, Any]]) -> str:
    return "".join(data["content"]["text"] for name, data in events if name == "agent_message_chunk")


# A run ----------------------------------------------------------------------------------------------------------------


def test_a_prompt_returns_its_run(diane: Diane, session: str) -> None:
    run = diane.prompt(session, "tool Read auth.go\nsay I've refactored the middleware")
    assert set(run) == {
        "run_id",
        "agent_name",
        "session_id",
        "status",
        "output",
        "turn_number",
        "created_at",
        "finished_at",
    }
    assert (run["agent_name"], run["session_id"], run["turn_number"]) == ("rehearsal", session, 1)
    assert (run["status"], said(run)) == ("completed", "I've refactored the middleware")
    assert run["created_at"] <= run["finished_at"]
    assert run["run_id"] == diane.server.session(session)["turns"][0]["run_id"]
    msgspec.convert(run, Run)


def test_a_follow_up_is_the_next_turn_of_the_same_conversation(diane: Diane, session: str) -> None:
    first = diane.prompt(session, "say refactored")
    second = diane.prompt(session, "recall")
    assert (first["turn_number"], second["turn_number"]) == (1, 2)
    assert first["run_id"] != second["run_id"]
    assert "say refactored" in said(second)
    assert diane.get(session)["turn_count"] == 2


def test_a_failed_prompt_returns_a_run_with_its_error_and_its_output_so_far(diane: Diane, session: str) -> None:
    run = diane.prompt(session, "say partly\ncrash 3")
    assert run["status"] == "failed" and "partly" in said(run)
    assert set(run["error"]) == {"code", "message"} and run["error"]["code"] == "agent_exited"
    assert diane.prompt(session, "say better")["status"] == "completed"


def test_an_answer_of_any_length_is_complete(diane: Diane, session: str) -> None:
    assert said(diane.prompt(session, "stream 5000")).split() == [f"w{number}" for number in range(5000)]


@pytest.mark.parametrize("body", [{}, {"prompt": ""}, {"prompt": " \n"}, {"prompt": 1}, {"prompt": None}, [], "text"])
def test_an_empty_prompt_is_refused(diane: Diane, session: str, body: Any) -> None:
    answer = diane.server.http.post(f"{diane.sessions}/{session}/prompt", json=body)
    assert is_problem(answer, 400, "invalid")


def test_a_prompt_to_a_busy_session_is_refused_without_side_effects(diane: Diane, session: str) -> None:
    diane.server.send(session, "hang")
    for query in ({}, {"stream": "true"}):
        answer = diane.server.http.post(f"{diane.sessions}/{session}/prompt", json={"prompt": "say no"}, params=query)
        assert is_problem(answer, 409, "turn_active")
    diane.server.wait(session, lambda found: found["state"] == "processing")


# Cancelling -----------------------------------------------------------------------------------------------------------


def test_cancel_ends_the_waiting_call_as_cancelled_and_leaves_the_session_usable(diane: Diane, session: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(diane.prompt, session, "say so far\nhang")
        diane.server.wait(session, lambda found: found["state"] == "processing" and found["pid"])
        cancelled = diane.server.post(f"{diane.sessions}/{session}/cancel", expect=200)
        run = waiting.result(WAIT_S)
    assert cancelled == {"status": "cancelled"}
    assert run["status"] == "cancelled" and "error" not in run
    assert diane.prompt(session, "say again")["status"] == "completed"


def test_cancel_is_harmless_while_nothing_runs(diane: Diane, session: str) -> None:
    assert diane.server.post(f"{diane.sessions}/{session}/cancel", expect=200) == {"status": "active"}
    diane.close(session)
    assert diane.server.post(f"{diane.sessions}/{session}/cancel", expect=200) == {"status": "closed"}


def test_closing_a_session_ends_the_waiting_call_as_cancelled(diane: Diane, session: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(diane.prompt, session, "hang")
        diane.server.wait(session, lambda found: found["state"] == "processing")
        diane.close(session)
        assert waiting.result(WAIT_S)["status"] == "cancelled"


# Waiting --------------------------------------------------------------------------------------------------------------


def test_a_permission_request_keeps_the_call_open_until_it_is_answered(diane: Diane, session: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(diane.prompt, session, "permit Deploy\nsay done")
        prompt = diane.server.prompt(session)
        assert not waiting.done()
        answer = {"option_id": next(each["option_id"] for each in prompt["options"] if each["kind"] == "allow_once")}
        diane.server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answer, expect=200)
        run = waiting.result(WAIT_S)
    assert run["status"] == "completed" and said(run).endswith("done")


@contextmanager
def calling(diane: Diane, session: str, text: str, query: str = "") -> Iterator[None]:
    """A call whose client disconnects at the end, with or without a response."""
    body = json.dumps({"prompt": text}).encode()
    head = f"POST {diane.sessions}/{session}/prompt{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", diane.server.port), WAIT_S) as connection:
        connection.sendall(head.encode() + body)
        yield


@pytest.mark.one_server
@pytest.mark.parametrize("query", ["", "?stream=true"])
def test_a_client_that_disconnects_cancels_nothing(diane: Diane, session: str, query: str) -> None:
    with calling(diane, session, "ask Ready? | yes | no", query):
        prompt = diane.server.prompt(session)
    nobody_waits(diane.server, session)
    answers = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    diane.server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answers, expect=200)
    assert diane.server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"


def nobody_waits(server: LocalServer, session: str) -> None:
    eventually(lambda: not server.viewers(session), "the call is let go of")


def test_a_server_that_stops_ends_waiting_calls_with_an_error_and_the_turn_continues(
    make_server: Callable[..., LocalServer],
) -> None:
    diane = Diane(make_server())
    session = diane.start()["session_id"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            diane.server.http.post, f"{diane.sessions}/{session}/prompt", json={"prompt": "ask Ready? | yes | no"}
        )
        prompt = diane.server.prompt(session)
        diane.server.stop()
        assert is_problem(waiting.result(WAIT_S), 503, "unavailable")
    diane.server.start()
    answers = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    diane.server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answers, expect=200)
    assert diane.server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"


# Streaming ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", list(PATHS))
def test_a_streamed_prompt_reports_events_and_ends_with_done(
    make_server: Callable[..., LocalServer], path: str
) -> None:
    diane = Diane(make_server(path))
    session = diane.start()["session_id"]
    events = diane.streamed(session, "say I'll start by\nthink hm\ntool Reading auth.go\nplan a; b\nsay I've updated")
    names = [name for name, _ in events]
    assert names[0] == "agent_message_chunk" and names[-1] == "done" and names.count("done") == 1
    assert {"agent_thought_chunk", "tool_call", "tool_call_update", "plan"} <= set(names)
    assert texts(events) == "I'll start by\nI've updated"
    content = events[0][1]["content"]
    assert events[0][1] == {"content": {"type": "text", "text": content["text"]}}
    run_id = diane.server.session(session)["turns"][0]["run_id"]
    assert events[-1][1] == {"run_id": run_id, "stop_reason": "end_turn", "turn_number": 1}


def test_a_tool_is_running_until_it_completes(diane: Diane, session: str) -> None:
    events = diane.streamed(session, "tool Reading auth.go")
    call = next(data for name, data in events if name == "tool_call")
    assert call["status"] == "running" and "Reading" in call["title"]
    updates = [data for name, data in events if name == "tool_call_update"]
    assert {update["tool_call_id"] for update in updates} == {call["tool_call_id"]}
    assert updates[-1]["status"] == "completed"


def test_a_stream_shows_the_prompt_that_it_waits_for(diane: Diane, session: str) -> None:
    with diane.prompting(session, "permit Deploy") as events:
        asked = next(data for name, data in events if name == "pending_prompt")
        option = next(each["option_id"] for each in asked["options"] if each["kind"] == "reject_once")
        path = f"/api/sessions/{session}/prompts/{asked['prompt_id']}"
        diane.server.post(path, {"option_id": option}, expect=200)
        rest = list(events)
    resolved = next(data for name, data in rest if name == "prompt_resolved")
    assert (resolved["prompt_id"], resolved["outcome"]) == (asked["prompt_id"], "denied")
    assert rest[-1][0] == "done"


def test_the_stream_of_a_failed_turn_says_why_and_ends_with_done(diane: Diane, session: str) -> None:
    events = diane.streamed(session, "say partly\ncrash")
    assert events[-2][0] == "error" and set(events[-2][1]) == {"code", "message", "detail"}
    assert events[-1][1]["stop_reason"] == "failed"


def test_the_stream_of_a_closed_session_ends_with_done(diane: Diane, session: str) -> None:
    with diane.prompting(session, "say soon\nhang") as events:
        next(data for name, data in events if name == "agent_message_chunk")
        diane.close(session)
        assert list(events)[-1][1]["stop_reason"] == "cancelled"


def test_a_stream_has_heartbeats_and_reports_only_its_own_turn(diane: Diane, session: str) -> None:
    diane.prompt(session, "say before")
    with diane.server.http.stream(
        "POST", f"{diane.sessions}/{session}/prompt", params={"stream": "true"}, json={"prompt": "hang"}
    ) as answer:
        assert b"\n: \n" in b"\n" + next(answer.iter_raw())
    assert diane.server.post(f"{diane.sessions}/{session}/cancel", expect=200) == {"status": "cancelled"}


class HaltingPipe:
    """A connection that is full after each write and accepts the next one a moment later."""

    def __init__(self, viewer: PromptViewer) -> None:
        self._viewer = viewer
        self.received = b""
        self.closed = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.received += data
        self._viewer.pause_writing()
        asyncio.get_running_loop().call_soon(self._viewer.resume_writing)

    def close(self) -> None:
        self.closed.set()

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closed.is_set()


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_slow_reader_gets_everything_even_if_it_is_no_longer_in_memory(
    diane: Diane, session: str, in_memory: bool
) -> None:
    server = diane.server
    accepted = server.send(session, "say first\nstream 3000\ntool Read\nsay last")
    server.wait_idle(session)
    diane.prompt(session, "say another turn")
    if not in_memory:
        server.post(f"/api/sessions/{session}/stop")
        server.evict(session)

    async def told() -> bytes:
        hub, sessions = server.server.hub, server.server.sessions
        viewer = PromptViewer(hub, sessions, await sessions.log.open(session), accepted)
        pipe = HaltingPipe(viewer)
        viewer.begin(pipe)
        async with asyncio.timeout(WAIT_S):
            await pipe.closed.wait()
        viewer.connection_lost(None)
        return pipe.received

    events = [(frame.event, json.loads(frame.data)) for frame in Frames().feed(server.run(told()))]
    assert texts(events) == server.text(session, 1)
    assert [name for name, _ in events].count("done") == 1 and events[-1][0] == "done"
