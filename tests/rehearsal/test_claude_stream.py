"""The stream-json of the Claude dialect: its lines have the order and keys of the real `claude` command."""

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rehearsal.claude_client import (
    DRIVEN,
    PARTIAL,
    STREAMS,
    Host,
    Line,
    command,
    environment,
    kinds,
)
from tests.rehearsal.listener import WAIT_LIMIT_S

Launch = Callable[..., Host]

EVENT = "stream_event/"
BLOCK = [EVENT + "content_block_start", EVENT + "content_block_delta"]
STOP = [EVENT + "content_block_stop"]
END = [EVENT + "message_delta", EVENT + "message_stop"]
CALL = ["system/status", EVENT + "message_start"]
TEXT = [*BLOCK, "assistant/text", *STOP]
ANSWER = [*CALL, *TEXT, *END]
PLAIN_TURN = ["system/init", *ANSWER, "result/success"]

ENDING_KEYS = [
    "stop_reason",
    "session_id",
    "total_cost_usd",
    "usage",
    "modelUsage",
    "permission_denials",
    "terminal_reason",
    "fast_mode_state",
    "uuid",
]
SUCCESS_KEYS = [
    *[
        "type",
        "subtype",
        "is_error",
        "api_error_status",
        "duration_ms",
        "duration_api_ms",
        "ttft_ms",
        "ttft_stream_ms",
        "time_to_request_ms",
        "num_turns",
        "result",
    ],
    *ENDING_KEYS,
]
ABORTED_KEYS = [*["type", "subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns"], *ENDING_KEYS, "errors"]


@pytest.fixture
def launch(tmp_path: Path, workdir: Path) -> Iterator[Launch]:
    """Starts a process. All processes of one test share their memory on disk."""
    with ExitStack() as stack:

        def start(*flags: str, cwd: Path = workdir, **more: str) -> Host:
            return stack.enter_context(Host(tmp_path / "memory", cwd, *flags, **more))

        yield start


def of(host: Host, name: str) -> Line:
    return next(line for line in host.seen if line["type"] == name)


def test_three_turns_have_the_order_of_the_real_one(launch: Launch) -> None:
    host = launch(*PARTIAL)
    for text in ("say first answer", "say second answer", "recall"):
        result = host.turn(text)
        assert kinds(host.seen) == PLAIN_TURN
    assert result["result"].startswith("recall 3\n")
    assert host.end() == 0


def test_the_lines_have_the_keys_of_the_real_one_in_its_order(launch: Launch) -> None:
    host = launch(*PARTIAL)
    result = host.turn("say hello world")
    assert list(result) == SUCCESS_KEYS
    assert list(of(host, "assistant")) == [
        "type",
        "message",
        "parent_tool_use_id",
        "session_id",
        "uuid",
        "request_id",
    ]
    assert list(of(host, "assistant")["message"]) == [
        "id",
        "type",
        "role",
        "model",
        "content",
        "stop_reason",
        "stop_sequence",
        "usage",
        "context_management",
    ]
    deltas = [line for line in host.seen if line.get("event", {}).get("type") == "content_block_delta"]
    assert {tuple(line) for line in deltas} == {("type", "event", "session_id", "parent_tool_use_id", "uuid")}
    assert "".join(line["event"]["delta"]["text"] for line in deltas) == "hello world" == result["result"]
    assert len(deltas) > 1
    assert len({line["session_id"] for line in host.seen}) == 1
    init = of(host, "system")
    assert init["cwd"] == str(Path(init["cwd"]).resolve())
    assert "AskUserQuestion" not in init["tools"]


def test_without_partial_messages_only_whole_blocks_are_sent(launch: Launch) -> None:
    host = launch(*STREAMS)
    host.turn("think hmm\nsay hello")
    assert kinds(host.seen) == ["system/init", "assistant/thinking", "assistant/text", "result/success"]


def test_nothing_is_written_before_the_first_message_except_for_initialize(launch: Launch) -> None:
    host = launch()
    response = host.control("initialize", hooks=None)
    assert kinds(host.seen) == ["control_response"]
    assert [model["value"] for model in response["response"]["models"]] == ["default", "rehearsal-1", "rehearsal-2"]
    assert response["response"]["pid"] == host.process.pid
    assert "pending_permission_requests" in host.control("initialize")
    assert host.end() == 0


def test_cost_adds_up_over_a_process_and_restarts_in_the_next(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*PARTIAL, "--session-id", session)
    first, second = host.turn("usage 1000 100"), host.turn("usage 1000 100")
    assert first["usage"]["input_tokens"] == second["usage"]["input_tokens"] == 1000
    assert first["usage"]["output_tokens"] == 100
    assert second["total_cost_usd"] == pytest.approx(2 * first["total_cost_usd"])
    assert second["modelUsage"]["rehearsal-1"]["inputTokens"] == 2000
    host.end()
    again = launch(*PARTIAL, "--resume", session)
    assert again.turn("usage 1000 100")["total_cost_usd"] == pytest.approx(first["total_cost_usd"])


def test_a_good_resume_replays_nothing_and_remembers_all(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*PARTIAL, "--session-id", session)
    assert host.turn("say one")["session_id"] == session
    assert host.end() == 0
    again = launch(*PARTIAL, "--resume", session)
    assert again.recalled() == ["say one", "recall"]
    assert kinds(again.seen) == PLAIN_TURN
    assert again.turn("say more")["session_id"] == session
    assert kinds(again.seen) == PLAIN_TURN


def test_a_resume_of_an_unknown_session_is_one_result_and_exit_code_1(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*PARTIAL, "--resume", session)
    assert kinds(list(host.lines())) == ["result/error_during_execution"]
    result = host.seen[0]
    assert list(result) == [key for key in ABORTED_KEYS if key not in ("terminal_reason", "fast_mode_state")]
    assert (result["num_turns"], result["is_error"], result["session_id"]) == (0, True, session)
    assert result["errors"] == [f"No conversation found with session ID: {session}"]
    assert host.end() == 1
    assert host.errors.decode() == f"No conversation found with session ID: {session}\n"


def test_a_session_without_a_turn_is_never_stored(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*DRIVEN, "--session-id", session)
    host.control("initialize")
    assert host.end() == 0
    assert launch(*DRIVEN, "--resume", session).result()["is_error"] is True
    assert launch(*DRIVEN, "--session-id", session).turn("say x")["session_id"] == session


def test_an_interrupt_in_the_middle_of_text_preserves_the_text_so_far(launch: Launch) -> None:
    host = launch()
    host.say("stream 100000 20")
    host.said("w3 ")
    assert host.control("interrupt")["subtype"] == "success"
    result = host.result()
    order = ["system/init", *CALL, *BLOCK, "control_response/", "assistant/text", "user/text"]
    assert kinds(host.seen) == [one.rstrip("/") for one in [*order, "result/error_during_execution"]]
    assert list(result) == ABORTED_KEYS
    assert (result["terminal_reason"], result["num_turns"], result["stop_reason"]) == ("aborted_streaming", 2, None)
    assert host.blocks("text")[0]["text"].startswith("w0 w1 w2 w3 ")
    assert host.blocks("text")[1]["text"] == "[Request interrupted by user]"
    assert host.recalled() == ["stream 100000 20", "recall"]
    assert kinds(host.seen) == PLAIN_TURN


def test_an_interrupt_before_the_first_word_has_no_message(launch: Launch) -> None:
    host = launch()
    host.say("hang")
    host.until(lambda line: line.get("status") == "requesting")
    host.control("interrupt")
    assert host.result()["num_turns"] == 2
    order = ["system/init", "system/status", "control_response", "user/text", "result/error_during_execution"]
    assert kinds(host.seen) == order


def test_an_interrupt_while_nothing_runs_is_harmless(launch: Launch) -> None:
    host = launch()
    assert host.control("interrupt")["subtype"] == "success"
    assert host.turn("say on")["result"] == "on"


def test_messages_that_wait_become_one_turn(launch: Launch) -> None:
    host = launch(*PARTIAL, "--replay-user-messages")
    first, second, third = (str(uuid.uuid4()) for _ in range(3))
    host.say("stream 100000 20", uuid=first)
    host.said("w1 ")
    host.say("say SECOND", uuid=second)
    host.say("recall", uuid=third)
    host.control("interrupt")
    host.result()
    host.seen.clear()
    assert host.result()["result"] == 'SECOND\nrecall 2\n- "stream 100000 20"\n- "say SECOND\\nrecall"'
    assert kinds(host.seen) == [
        "user",
        "system/init",
        *CALL,
        *BLOCK,
        "user",
        "assistant/text",
        *STOP,
        *END,
        "result/success",
    ]
    echoes = [line for line in host.seen if line.get("isReplay")]
    assert [(echo["message"]["content"], echo["uuid"]) for echo in echoes] == [
        ("say SECOND", second),
        ("say SECOND\nrecall", third),
    ]
    assert host.turn("say on")["result"] == "on"


def test_three_messages_and_an_end_of_input_give_two_results(launch: Launch) -> None:
    host = launch(*STREAMS)
    messages = [{"role": "user", "content": text} for text in ("say A\nsleep 2", "say B", "say C")]
    lines = [json.dumps({"type": "user", "message": message}).encode() + b"\n" for message in messages]
    host.send_bytes(b"".join(lines))
    host.close_input()
    results = [line["result"] for line in host.lines() if line["type"] == "result"]
    assert results == ["A", "B\nC"]
    assert host.end() == 0


def test_a_message_that_arrives_while_a_tool_waits_joins_the_running_turn(launch: Launch) -> None:
    host = launch()
    host.say("permit Deploy")
    request = host.asked()
    host.say("say joined")
    host.allow(request)
    assert host.result()["result"] == "allowed Deploy\njoined"
    assert [kind for kind in kinds(host.seen) if kind.startswith("result")] == ["result/success"]
    assert host.recalled() == ["permit Deploy", "say joined", "recall"]


def test_a_queued_message_can_be_withdrawn(launch: Launch) -> None:
    host = launch()
    waiting = str(uuid.uuid4())
    host.say("stream 100000 20")
    host.said("w1 ")
    host.say("say never", uuid=waiting)
    assert host.control("cancel_async_message", message_uuid=waiting)["response"] == {"cancelled": True}
    assert host.control("cancel_async_message", message_uuid=waiting)["response"] == {"cancelled": False}
    host.control("interrupt")
    host.result()
    assert host.turn("say next")["result"] == "next"


def test_a_message_with_priority_now_ends_the_turn_with_a_success(launch: Launch) -> None:
    host = launch()
    host.say("say begun\nhang")
    host.said("gun")
    host.say("say NOW", priority="now")
    aborted, done = host.result(), host.result()
    assert (aborted["subtype"], aborted["is_error"], aborted["terminal_reason"]) == (
        "success",
        False,
        "aborted_streaming",
    )
    assert (aborted["result"], done["result"]) == ("begun", "NOW")


def test_a_message_that_needs_no_answer_is_only_remembered(launch: Launch) -> None:
    host = launch()
    assert host.turn("a note", shouldQuery=False)["num_turns"] == 0
    assert kinds(host.seen) == ["system/init", "result/success"]
    assert host.recalled() == ["a note", "recall"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b"this is not json\n",
            "Error parsing streaming input line: this is not json: SyntaxError: JSON Parse error: ",
        ),
        (b"\r\n", "Error parsing streaming input line: : SyntaxError: JSON Parse error: "),
        (
            b'{"type":"user"}\n',
            "TypeError: undefined is not an object (evaluating 't.message.role')\n",
        ),
        (b'{"type":"user","message":{"role":"system"}}\n', "Expected message role 'user', got 'system'\n"),
    ],
)
def test_one_malformed_line_ends_the_process(launch: Launch, line: bytes, message: str) -> None:
    host = launch()
    host.turn("say before")
    host.send_bytes(line)
    assert list(host.lines()) == []
    assert host.end() == 1
    assert message in host.errors.decode()


def test_blank_lines_and_unknown_types_are_ignored(launch: Launch) -> None:
    host = launch()
    host.send_bytes(b'\n{"type":"keep_alive"}\n{"type":"no_such_type"}\n7\n')
    host.send_bytes(b'{"type":"control_response","response":{"subtype":"success","request_id":"nobody"}}\n')
    host.send_bytes(b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"say blocks"}]}}\r\n')
    assert host.result()["result"] == "blocks"


def test_the_end_of_the_input_lets_the_turn_run_to_its_end(launch: Launch) -> None:
    host = launch()
    host.say("stream 20 20\nsay done")
    host.said("w1 ")
    host.close_input()
    assert host.result()["result"].endswith("w19 \ndone")
    assert host.end() == 0


def test_a_hang_ends_when_it_can_no_longer_be_interrupted(launch: Launch) -> None:
    host = launch()
    host.say("hang")
    host.close_input()
    assert host.result()["subtype"] == "error_during_execution"
    assert host.end() == 1


def test_without_any_input_the_agent_exits_cleanly(launch: Launch) -> None:
    host = launch()
    assert host.end() == 0
    assert list(host.lines()) == []


@pytest.mark.parametrize("verb", ["", "stream 100000 20", "sleep 600", "permit Deploy"])
def test_sigterm_exits_immediately_without_output(launch: Launch, verb: str) -> None:
    session = str(uuid.uuid4())
    host = launch(*DRIVEN, "--session-id", session)
    host.turn("say ready")
    if verb:
        host.say(f"say begun\n{verb}")
        host.said("gun")
    assert host.signal(signal.SIGTERM) == 143
    assert "result" not in [line["type"] for line in host.lines()]
    expected = ["say ready", *([f"say begun\n{verb}"] if verb else []), "recall"]
    assert launch(*DRIVEN, "--resume", session).recalled() == expected


@pytest.mark.parametrize("verb", ["", "stream 100000 20", "sleep 600", "permit Deploy"])
def test_sigint_interrupts_and_exits_cleanly(launch: Launch, verb: str) -> None:
    host = launch()
    host.turn("say ready")
    if verb:
        host.say(f"say begun\n{verb}")
        host.said("gun")
    assert host.signal(signal.SIGINT) == 0
    results = [line["subtype"] for line in host.lines() if line["type"] == "result"]
    assert results == (["error_during_execution"] if verb else [])


def test_a_host_that_closes_only_stdout_does_not_stop_the_turn(tmp_path: Path, workdir: Path) -> None:
    reading, writing = os.pipe()
    message = {"type": "user", "message": {"role": "user", "content": "sleep 0.1\nstream 20000\nedit late.txt"}}
    agent = subprocess.Popen(
        command(*DRIVEN), cwd=workdir, stdin=subprocess.PIPE, stdout=writing, env=environment(tmp_path / "memory")
    )
    os.close(writing)
    os.close(reading)
    agent.communicate(json.dumps(message).encode() + b"\n", WAIT_LIMIT_S)
    assert agent.returncode == 0
    assert (workdir / "late.txt").exists()


def test_session_states_are_reported_on_request(launch: Launch) -> None:
    host = launch(CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS="1")
    host.say("permit Deploy")
    host.allow(host.asked())
    host.until(lambda line: line.get("state") == "idle")
    states = [line["state"] for line in host.seen if line.get("subtype") == "session_state_changed"]
    assert states == ["running", "requires_action", "running", "idle"]
    assert kinds(host.seen)[0] == "system/session_state_changed"
    assert kinds(host.seen)[-2:] == ["result/success", "system/session_state_changed"]


def test_models_and_modes_are_set_without_being_checked(launch: Launch) -> None:
    host = launch(*DRIVEN, "--model", "claude-x[1m]")
    assert "response" not in host.control("set_model", model="no-such-model")
    assert host.seen[0]["message"]["content"].endswith("Set model to no-such-model</local-command-stdout>")
    assert host.control("set_permission_mode", mode="acceptEdits")["response"] == {"mode": "acceptEdits"}
    refused = host.control("set_permission_mode", mode="bypassPermissions")
    assert "not launched with --dangerously-skip-permissions" in refused["error"]
    host.turn("say x")
    init = next(line for line in host.seen if line.get("subtype") == "init")
    assert (init["model"], init["permissionMode"]) == ("no-such-model", "acceptEdits")
    assert of(host, "assistant")["message"]["model"] == "no-such-model"
    host.control("set_model", model="default")
    host.turn("say y")
    assert of(host, "assistant")["message"]["model"] == "rehearsal-1"
    unknown = host.control("no_such_subtype")
    assert unknown["error"] == "Unsupported control request subtype: no_such_subtype"


def test_a_turn_stops_at_its_limit_of_calls_and_the_next_one_works(launch: Launch) -> None:
    host = launch(*DRIVEN, "--max-turns", "1")
    result = host.turn("tool Bash hi\nsay never")
    assert list(result) == ABORTED_KEYS
    assert (result["subtype"], result["terminal_reason"], result["num_turns"]) == ("error_max_turns", "max_turns", 2)
    assert result["errors"] == ["Reached maximum number of turns (1)"]
    assert host.turn("say after")["result"] == "after"
    assert host.end() == 0
