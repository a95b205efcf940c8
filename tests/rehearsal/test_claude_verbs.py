"""Every verb in the Claude dialect: tools, permissions, questions and failures."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perdure.core.transcript_text import Entry, wrap
from perdure.rehearsal.claude_sessions import NAME_LIMIT_CHARACTERS, folder_of
from tests.rehearsal.claude_client import DRIVEN, PARTIAL, STREAMS, Host, Line, kinds
from tests.rehearsal.test_claude_stream import ANSWER, BLOCK, CALL, END, STOP

Launch = Callable[..., Host]

USE = [*CALL, *BLOCK, "assistant/tool_use"]
ASKED = ["system/init", *USE, "control_request/can_use_tool", *STOP, *END]


@pytest.fixture
def launch(tmp_path: Path, workdir: Path) -> Iterator[Launch]:
    """Starts a process. All processes of one test share their memory on disk."""
    with ExitStack() as stack:

        def start(*flags: str, **more: str) -> Host:
            return stack.enter_context(Host(tmp_path / "memory", workdir, *flags, **more))

        yield start


@pytest.fixture
def host(launch: Launch) -> Host:
    return launch(*DRIVEN)


def results(host: Host) -> list[Any]:
    return [line.get("tool_use_result") for line in host.seen if line["type"] == "user"]


def test_text_before_and_after_a_tool_is_two_messages(host: Host) -> None:
    result = host.turn("say before\ntool Bash made it\nsay after")
    order = ["system/init", *CALL, *BLOCK, "assistant/text", *STOP, *BLOCK, "assistant/tool_use", *STOP, *END]
    assert kinds(host.seen) == [*order, "user/tool_result", *ANSWER, "result/success"]
    assert (result["num_turns"], result["result"]) == (2, "\nafter")
    ids = [line["message"]["id"] for line in host.seen if line["type"] == "assistant"]
    assert ids[0] == ids[1] != ids[2]
    use, shown = host.blocks("tool_use")[0], host.blocks("tool_result")[0]
    assert use["input"]["command"] == "made it"
    assert shown == {"tool_use_id": use["id"], "type": "tool_result", "content": "made it", "is_error": False}
    assert results(host)[0]["stdout"] == "made it"


def test_a_turn_that_ends_with_a_tool_has_an_empty_answer(host: Host) -> None:
    assert host.turn("tool Grep x")["result"] == ""
    assert kinds(host.seen)[-5:] == [*CALL, *END, "result/success"]
    assert results(host) == [{"text": "x"}]


def test_a_thought_is_a_block_with_a_signature(host: Host) -> None:
    host.turn("think let me see\nsay done")
    assert host.blocks("thinking")[0]["thinking"] == "let me see"
    estimates = [line["estimated_tokens"] for line in host.seen if line.get("subtype") == "thinking_tokens"]
    assert estimates == sorted(estimates) and len(estimates) == 3
    assert host.blocks("text")[0]["text"] == "done"


def test_a_plan_is_a_list_of_todos_that_are_completed(host: Host) -> None:
    host.turn("plan read; write")
    written = [[todo["status"] for todo in use["input"]["todos"]] for use in host.blocks("tool_use")]
    assert written[0] == ["pending", "pending"]
    assert written[-1] == ["completed", "completed"]
    told = results(host)
    assert told[0]["oldTodos"] == []
    assert [one["oldTodos"] for one in told[1:]] == [one["newTodos"] for one in told[:-1]]


def test_an_edit_is_a_write_with_a_patch(host: Host, workdir: Path) -> None:
    host.turn("edit notes.txt\nedit notes.txt")
    path = str(workdir.resolve() / "notes.txt")
    assert [use["input"] for use in host.blocks("tool_use")] == [
        {"file_path": path, "content": "rehearsed 1\n"},
        {"file_path": path, "content": "rehearsed 1\nrehearsed 2\n"},
    ]
    created, updated = results(host)
    assert (created["type"], created["structuredPatch"], created["originalFile"]) == ("create", [], None)
    assert updated["type"] == "update"
    assert updated["originalFile"] == "rehearsed 1\n"
    lines = [" rehearsed 1", "+rehearsed 2"]
    assert updated["structuredPatch"] == [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 2, "lines": lines}]
    assert Path(path).read_text() == "rehearsed 1\nrehearsed 2\n"


def test_a_written_file_has_a_patch_with_the_changed_lines(host: Host, workdir: Path) -> None:
    (workdir / "notes.txt").write_text("a\nb\nc\nd\ne\nf\n")
    host.turn("write notes.txt a | b | c | d2 | e | f")
    [written] = results(host)
    lines = [" a", " b", " c", "-d", "+d2", " e", " f"]
    assert written["structuredPatch"] == [{"oldStart": 1, "oldLines": 6, "newStart": 1, "newLines": 6, "lines": lines}]


def test_an_edit_outside_of_the_directory_fails(host: Host) -> None:
    host.turn("edit ../outside.txt")
    shown = host.blocks("tool_result")[0]
    assert shown["is_error"] is True
    assert results(host) == [f"Error: {shown['content']}"]


def test_a_granted_permission_lets_the_tool_run(host: Host) -> None:
    host.say("permit Deploy")
    request = host.asked()
    asked = request["request"]
    assert list(asked) == ["subtype", "tool_name", "display_name", "input", "permission_suggestions", "tool_use_id"]
    assert asked["tool_name"] == "Deploy"
    host.allow(request)
    result = host.result()
    assert kinds(host.seen) == [*ASKED, "user/tool_result", *ANSWER, "result/success"]
    assert asked["tool_use_id"] == host.blocks("tool_use")[0]["id"] == host.blocks("tool_result")[0]["tool_use_id"]
    assert (result["result"], result["permission_denials"], result["num_turns"]) == ("allowed Deploy", [], 2)


@pytest.mark.parametrize(
    ("response", "told"),
    [
        ({"behavior": "deny", "message": "no, because reasons"}, "no, because reasons"),
        ({"behavior": "allow"}, "Tool permission request failed: ZodError"),
        ({"behavior": "maybe"}, "Tool permission request failed: ZodError"),
        ({}, "Tool permission request failed: ZodError"),
    ],
)
def test_a_denied_permission_fails_the_tool_and_the_turn_continues(host: Host, response: Line, told: str) -> None:
    host.say("permit Deploy")
    request = host.asked()
    host.answer(request, response)
    result = host.result()
    assert kinds(host.seen) == [*ASKED, "user/tool_result", *ANSWER, "result/success"]
    shown = host.blocks("tool_result")[0]
    assert list(shown) == ["type", "content", "is_error", "tool_use_id"]
    assert shown["content"].startswith(told)
    assert results(host)[0] == f"Error: {shown['content']}"
    assert result["result"] == "denied Deploy"
    assert [one["tool_name"] for one in result["permission_denials"]] == ["Deploy"]
    assert host.turn("say on")["permission_denials"] == []


def test_an_error_response_of_the_host_fails_the_tool(host: Host) -> None:
    host.say("permit Deploy")
    failed = {"subtype": "error", "request_id": host.asked()["request_id"], "error": "host exploded"}
    host.send({"type": "control_response", "response": failed})
    host.result()
    assert host.blocks("tool_result")[0]["content"] == "Tool permission request failed: Error: host exploded"


def test_a_denial_may_interrupt_the_turn(host: Host) -> None:
    host.say("permit Deploy\nsay never")
    host.answer(host.asked(), {"behavior": "deny", "message": "stop", "interrupt": True})
    result = host.result()
    assert kinds(host.seen) == [*ASKED, "user/tool_result", "user/text", "result/error_during_execution"]
    assert (result["terminal_reason"], result["stop_reason"], result["num_turns"]) == ("aborted_tools", "tool_use", 3)
    assert host.blocks("tool_result")[0]["content"].startswith("The user doesn't want to proceed")
    assert host.blocks("text")[-1]["text"] == "[Request interrupted by user for tool use]"
    assert host.turn("say on")["result"] == "on"


@pytest.mark.parametrize("verb", ["permit Deploy", "ask Which? | A | B"])
def test_an_interrupt_withdraws_the_question_first(host: Host, verb: str) -> None:
    host.say(verb)
    request = host.asked()
    host.control("interrupt")
    result = host.result()
    withdrawn = ["control_cancel_request", "control_response", "user/tool_result", "user/text"]
    assert kinds(host.seen) == [*ASKED, *withdrawn, "result/error_during_execution"]
    assert result["terminal_reason"] == "aborted_tools"
    assert len(result["permission_denials"]) == 1
    host.allow(request)
    assert host.turn("say on")["result"] == "on"


def test_a_question_fails_when_it_can_no_longer_be_answered(host: Host) -> None:
    host.say("permit Deploy\npermit Again\nsay done")
    host.asked()
    host.close_input()
    assert host.result()["result"] == "\ndenied Again\ndone"
    closed = "Tool permission request failed: Error: Tool permission stream closed before response received"
    assert [block["content"] for block in host.blocks("tool_result")] == [closed, closed]
    assert host.end() == 0


def test_a_rule_added_by_an_answer_applies_to_later_requests(host: Host) -> None:
    host.say("permit Deploy")
    rule = {"type": "addRules", "rules": [{"toolName": "Deploy"}], "behavior": "allow", "destination": "session"}
    mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    host.allow(host.asked(), updatedPermissions=[rule, mode])
    host.result()
    modes = [line["permissionMode"] for line in host.seen if line.get("subtype") == "status" and not line["status"]]
    assert modes == ["acceptEdits"]
    assert host.turn("permit Deploy\npermit Write")["result"] == "\nallowed Write"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--permission-mode", "bypassPermissions"], "allowed Deploy"),
        (["--dangerously-skip-permissions"], "allowed Deploy"),
        (["--permission-mode", "dontAsk"], "denied Deploy"),
        (["--allowedTools", "Deploy"], "allowed Deploy"),
        (["--disallowedTools", "Deploy", "--permission-mode", "bypassPermissions"], "denied Deploy"),
    ],
)
def test_flags_decide_without_asking(launch: Launch, flags: list[str], said: str) -> None:
    host = launch(*DRIVEN, *flags, IS_SANDBOX="1")
    assert host.turn("permit Deploy")["result"] == said
    assert "control_request/can_use_tool" not in kinds(host.seen)
    assert ("system/permission_denied" in kinds(host.seen)) == ("dontAsk" in flags)


def test_without_a_prompt_tool_nothing_is_asked(launch: Launch) -> None:
    host = launch(*PARTIAL)
    assert host.turn("permit Deploy")["result"] == "denied Deploy"
    assert "haven't granted it yet" in host.blocks("tool_result")[0]["content"]
    assert host.turn("ask Which? | A")["result"].startswith("no answer")
    assert "No such tool available: AskUserQuestion" in host.blocks("tool_result")[0]["content"]


def test_a_question_is_asked_as_a_tool_and_answered_in_its_input(host: Host) -> None:
    host.say("ask Which colour? | Red | Blue")
    request = host.asked()
    asked = request["request"]
    assert list(asked) == ["subtype", "tool_name", "display_name", "input", "tool_use_id"]
    question = asked["input"]["questions"][0]
    assert list(question) == ["question", "header", "options", "multiSelect"]
    assert [option["label"] for option in question["options"]] == ["Red", "Blue"]
    given = {**asked["input"], "answers": {question["question"]: "Blue"}}
    host.answer(request, {"behavior": "allow", "updatedInput": given})
    assert host.result()["result"] == "answer: Blue"
    assert kinds(host.seen) == [*ASKED, "user/tool_result", *ANSWER, "result/success"]
    assert host.blocks("tool_result")[0]["content"] == (
        'Your questions have been answered: "Which colour?"="Blue". You can now continue with these answers in mind.'
    )
    assert results(host)[0]["answers"] == {"Which colour?": "Blue"}


def test_a_question_may_stay_unanswered(host: Host) -> None:
    host.say("ask Which?")
    host.allow(host.asked())
    assert host.result()["result"] == "no answer: empty"
    host.say("ask Which?")
    host.answer(host.asked(), {"behavior": "deny", "message": "User declined to answer"})
    assert host.result()["result"] == "no answer: declined"


def test_a_question_is_asked_in_every_mode(launch: Launch) -> None:
    host = launch(*DRIVEN, "--permission-mode", "bypassPermissions", IS_SANDBOX="1")
    host.say("ask Which? | A")
    assert host.asked()["request"]["tool_name"] == "AskUserQuestion"


def test_recall_includes_messages_of_a_transcript(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*DRIVEN, "--session-id", session)
    entries = [Entry("user", 1, "", "hello"), Entry("assistant", 1, "other", "say no")]
    assert host.turn(wrap(entries, "say new"))["result"] == "new"
    assert host.recalled() == ["hello", "say new", "recall"]
    host.end()
    assert launch(*DRIVEN, "--resume", session).recalled() == ["hello", "say new", "recall", "recall"]


def test_limit_is_a_failure_with_the_time_of_the_reset(host: Host) -> None:
    result = host.turn("say so\nlimit 90\nsay never")
    assert kinds(host.seen)[-4:] == ["assistant/text", "rate_limit_event", "assistant/text", "result/success"]
    event = next(line for line in host.seen if line["type"] == "rate_limit_event")
    assert event["rate_limit_info"]["status"] == "rejected"
    assert 60 < event["rate_limit_info"]["resetsAt"] - time.time() <= 91
    assert (result["is_error"], result["api_error_status"]) == (True, 429)
    assert result["result"].startswith("You've hit your session limit · resets ")
    shown = [line for line in host.seen if line["type"] == "assistant"][-1]
    assert (shown["message"]["model"], shown["error"]) == ("<synthetic>", "rate_limit")
    assert host.turn("say again")["result"] == "again"


def test_poison_fails_every_later_turn_also_after_a_resume_and_in_a_fork(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*DRIVEN, "--session-id", session)
    assert host.turn("poison\nsay still in this turn")["is_error"] is False
    for _ in range(2):
        result = host.turn("say x")
        assert (result["subtype"], result["is_error"], result["result"]) == ("success", True, "Prompt is too long")
        assert kinds(host.seen) == ["system/init", "system/status", "assistant/text", "result/success"]
    assert host.end() == 1
    for flags in ((), ("--fork-session",)):
        again = launch(*DRIVEN, "--resume", session, *flags)
        assert again.turn("say x")["result"] == "Prompt is too long"
    assert launch(*DRIVEN).turn("say fine")["result"] == "fine"


def test_reject_resume_refuses_one_resume(launch: Launch) -> None:
    session = str(uuid.uuid4())
    host = launch(*DRIVEN, "--session-id", session)
    host.turn("reject-resume")
    host.end()
    refused = launch(*DRIVEN, "--resume", session)
    assert refused.result()["errors"] == [f"No conversation found with session ID: {session}"]
    assert refused.end() == 1
    assert launch(*DRIVEN, "--resume", session).recalled() == ["reject-resume", "recall"]


def test_crash_exits_immediately_with_its_code(launch: Launch) -> None:
    host = launch(*DRIVEN)
    host.say("say last words\ncrash 7\nsay never")
    assert [line["type"] for line in host.lines()][-1] == "stream_event"
    assert host.end() == 7


def test_garbage_is_written_and_the_turn_continues(host: Host) -> None:
    assert host.turn("say before\ngarbage\nsay after")["result"] == "before\nafter"
    assert len(host.noise) > 5
    assert host.turn("say on")["result"] == "on"


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_big_is_one_line_of_that_size(host: Host, size: int) -> None:
    host.say(f"big {size}")
    host.until(lambda line: line.get("event", {}).get("type") == "content_block_delta")
    assert host.longest_line_bytes == size
    text = host.result()["result"]
    assert text == "x" * len(text)


def test_stderr_is_flooded(host: Host) -> None:
    assert host.turn("stderr 1000\nsay done")["result"] == "done"
    assert host.end() == 0
    assert host.errors.count(b"\n") == 1000


def test_a_spawned_child_is_in_its_own_session(host: Host) -> None:
    child = int(str(host.turn("spawn 30")["result"]).split()[1])
    try:
        assert os.getsid(child) == child
    finally:
        os.kill(child, 9)


def test_text_is_written_as_javascript_would(host: Host) -> None:
    assert host.turn("say zwei ö \u2028 \u0085 🙂")["result"] == "zwei ö \u2028 \u0085 🙂"
    assert host.noise == []


def test_a_message_without_verbs_gets_a_greeting(launch: Launch) -> None:
    host = launch(*STREAMS, "--model", "m")
    assert "rehearsal agent** (`m`, mode `default`)" in host.turn("Hello?")["result"]


def test_the_folder_of_a_directory_is_named_as_the_real_one_names_it() -> None:
    assert folder_of("/m", "/srv/na me.d_é-x") == "/m/claude/-srv-na-me-d---x"
    long = folder_of("/m", "/" + "x" * 500)
    assert len(os.path.basename(long)) < NAME_LIMIT_CHARACTERS + 20
    assert long != folder_of("/m", "/" + "x" * 501)
