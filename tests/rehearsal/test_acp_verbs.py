"""Every verb, as an ACP client sees it from a real process."""

import json
import os
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsal.client import Client
from tests.rehearsal.conftest import Launch
from tests.rehearsal.listener import WAIT_LIMIT_S


def test_a_message_without_verbs_gets_a_greeting(agent: Client) -> None:
    answer = agent.say(agent.open(), "Good morning! What can you do?")
    assert "rehearsal agent" in answer
    assert "```" in answer


def test_say_comes_in_several_deltas(agent: Client) -> None:
    session = agent.open()
    assert agent.say(session, "say hello  there, wörld \ud83d") == "hello  there, wörld \ud83d"
    assert len(agent.updates("agent_message_chunk")) == 4
    assert agent.say(session, "say hello") == "hello"
    assert len(agent.updates("agent_message_chunk")) == 2


def test_a_newline_separates_the_text_of_two_verbs(agent: Client) -> None:
    assert agent.say(agent.open(), "say one\nthink hm\nsay two") == "one\ntwo"
    assert agent.said("agent_thought_chunk") == "hm"


def test_stream_says_numbered_words_at_its_pace(agent: Client) -> None:
    session = agent.open()
    assert agent.say(session, "stream 3") == "w0 w1 w2 "
    began = time.monotonic()
    agent.say(session, "stream 11 20")
    assert time.monotonic() - began >= 0.2
    assert [update["content"]["text"] for update in agent.updates()] == [f"w{number} " for number in range(11)]


def test_a_plan_is_completed_entry_by_entry(agent: Client) -> None:
    agent.say(agent.open(), "plan read; write;; check ")
    states = [[entry["status"] for entry in update["entries"]] for update in agent.updates("plan")]
    assert states[0] == ["pending"] * 3
    assert states[2] == ["completed", "in_progress", "pending"]
    assert states[-1] == ["completed"] * 3
    assert [entry["content"] for entry in agent.updates("plan")[0]["entries"]] == ["read", "write", "check"]


def test_a_tool_starts_runs_and_ends_under_its_own_id(agent: Client) -> None:
    session = agent.open()
    agent.say(session, "tool Bash ls -l\ntool Other")
    calls = agent.updates("tool_call")
    assert [(call["name"], call["kind"], call["status"]) for call in calls] == [
        ("Bash", "execute", "pending"),
        ("Other", "other", "pending"),
    ]
    assert calls[0]["rawInput"] == {"command": "ls -l"}
    changes = [one for one in agent.updates("tool_call_update") if one["toolCallId"] == calls[0]["toolCallId"]]
    assert [change["status"] for change in changes] == ["in_progress", "completed"]
    assert changes[-1]["content"][0]["content"]["text"] == "ls -l"
    assert calls[0]["toolCallId"] != calls[1]["toolCallId"]


def test_edit_changes_a_file_and_shows_the_diff(agent: Client, workdir: Path) -> None:
    session = agent.open()
    agent.say(session, "edit notes.txt")
    end = agent.updates("tool_call_update")[-1]
    path = os.path.realpath(workdir / "notes.txt")
    assert end["content"] == [{"type": "diff", "path": path, "oldText": None, "newText": "rehearsed 1\n"}]
    assert end["locations"] == [{"path": path}]
    agent.say(session, "edit ../outside.txt")
    assert agent.updates("tool_call_update")[-1]["status"] == "failed"
    assert not (workdir.parent / "outside.txt").exists()


@pytest.mark.parametrize(
    ("option", "said", "status"),
    [
        ("allow_once", "allowed Deploy", "completed"),
        ("reject_once", "denied Deploy", "failed"),
        ("nonsense", "denied Deploy", "failed"),
    ],
)
def test_permit_asks_and_continues_accordingly(agent: Client, option: str, said: str, status: str) -> None:
    request = agent.start(agent.open(), "permit Deploy\nsay after")
    question = agent.asked()
    kinds = ["allow_once", "allow_always", "reject_once", "reject_always"]
    assert question["method"] == "session/request_permission"
    assert [one["kind"] for one in question["params"]["options"]] == kinds
    assert question["params"]["toolCall"]["toolCallId"] == agent.updates("tool_call")[0]["toolCallId"]
    agent.choose(question, option)
    assert agent.reply_to(request)["result"]["stopReason"] == "end_turn"
    assert agent.said() == f"{said}\nafter"
    assert agent.updates("tool_call_update")[-1]["status"] == status


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"result": {"outcome": {"outcome": "cancelled"}}}, "cancelled Deploy"),
        ({"result": {}}, "cancelled Deploy"),
        ({"error": {"code": -32603, "message": "no"}}, "denied Deploy"),
    ],
)
def test_an_unanswered_permission_request_is_not_granted(agent: Client, reply: dict[str, Any], said: str) -> None:
    request = agent.start(agent.open(), "permit Deploy")
    agent.send({"id": agent.asked()["id"], **reply})
    agent.reply_to(request)
    assert agent.said() == said


@pytest.mark.parametrize(("option", "said"), [("allow_always", "allowed Deploy"), ("reject_always", "denied Deploy")])
def test_always_is_remembered_for_that_tool_of_that_session(agent: Client, option: str, said: str) -> None:
    session, other = agent.open(), agent.open()
    request = agent.start(session, "permit Deploy")
    agent.choose(agent.asked(), option)
    agent.reply_to(request)
    assert agent.say(session, "permit Deploy") == said
    for asked_again, verb in ((session, "permit Other"), (other, "permit Deploy")):
        request = agent.start(asked_again, verb)
        agent.choose(agent.asked(), "allow_once")
        assert agent.reply_to(request)["result"]["stopReason"] == "end_turn"


def test_mode_auto_allows_without_asking(agent: Client) -> None:
    session = agent.open()
    agent.ask_for("session/set_mode", sessionId=session, modeId="auto")
    assert agent.say(session, "permit Deploy") == "allowed Deploy"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"action": "accept", "content": {"answer": "Blue"}}, "answer: Blue"),
        ({"action": "accept", "content": {"answer": ["Red", "Blue"]}}, "answer: Red, Blue"),
        ({"action": "accept"}, "no answer: empty"),
        ({"action": "decline"}, "no answer: decline"),
    ],
)
def test_ask_shows_a_form_and_repeats_the_answer(agent: Client, reply: dict[str, Any], said: str) -> None:
    request = agent.start(agent.open(), "ask Which colour? | Red | Blue")
    question = agent.asked()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Which colour?"
    choices = question["params"]["requestedSchema"]["properties"]["answer"]["oneOf"]
    assert [choice["const"] for choice in choices] == ["Red", "Blue"]
    agent.send({"id": question["id"], "result": reply})
    agent.reply_to(request)
    assert agent.said() == said


def test_a_client_without_forms_gets_options_or_an_explanation(launch: Launch) -> None:
    agent = launch()
    agent.initialize()
    session = agent.open()
    for option, said in (("choice_1", "answer: Blue"), ("none", "no answer: declined")):
        request = agent.start(session, "ask Which colour? | Red | Blue")
        question = agent.asked()
        assert question["method"] == "session/request_permission"
        assert [one["name"] for one in question["params"]["options"]] == ["Red", "Blue", "No answer"]
        agent.choose(question, option)
        agent.reply_to(request)
        assert agent.said() == said
    assert agent.say(session, "ask Why?").startswith("no answer: ")


def test_sleep_is_silent_for_its_time(agent: Client) -> None:
    session = agent.open()
    began = time.monotonic()
    assert agent.say(session, "stream 2000\nsleep 0.2\nsay up").endswith("\nup")
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(("verb", "code"), [("crash", 1), ("crash 42", 42), ("crash 0", 0)])
def test_crash_exits_with_its_code_after_earlier_output(agent: Client, verb: str, code: int) -> None:
    agent.start(agent.open(), f"say last words\n{verb}\nsay never")
    with pytest.raises(EOFError):
        agent.receive(lambda _: False)
    assert agent.said() == "last words"
    assert agent.process.wait(WAIT_LIMIT_S) == code


def test_garbage_is_followed_by_a_valid_answer(agent: Client) -> None:
    assert agent.send_input(agent.open(), "garbage\nsay fine")["result"]["stopReason"] == "end_turn"
    assert agent.said() == "fine"
    assert len(agent.noise) >= 5
    with pytest.raises(UnicodeDecodeError):
        b"".join(agent.noise).decode()


@pytest.mark.parametrize("size", [1_000, 70_000, 3_000_000])
def test_big_is_one_line_of_exactly_that_size(agent: Client, size: int) -> None:
    session = agent.open()
    agent.longest_line_bytes = 0
    agent.say(session, f"big {size}")
    assert agent.longest_line_bytes == size


def test_stderr_is_flooded(agent: Client) -> None:
    assert agent.say(agent.open(), "stderr 5000\nsay done") == "done"
    assert agent.close() == 0
    assert agent.stderr_bytes > 5000 * 60


def test_spawn_starts_a_child_in_its_own_session(agent: Client) -> None:
    said = agent.say(agent.open(), "spawn 60")
    child = int(said.removeprefix("spawned "))
    try:
        assert os.getsid(child) == child
        assert agent.close() == 0
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_usage_is_reported_in_an_update_and_in_the_result(agent: Client) -> None:
    result = agent.send_input(agent.open(), "usage 120 34\nsay x")["result"]
    assert result["usage"] == {"inputTokens": 120, "outputTokens": 34, "totalTokens": 154}
    assert agent.updates("usage_update")[0]["used"] == 154


def test_limit_fails_with_the_time_of_the_reset(agent: Client) -> None:
    session = agent.open()
    error = agent.send_input(session, "say so\nlimit 90\nsay never")["error"]
    assert "limit" in error["message"]
    assert "90 seconds" in error["message"]
    left_s = datetime.fromisoformat(error["data"]["resets_at"]).timestamp() - time.time()
    assert 60 < left_s <= 90.1
    assert agent.said() == "so"
    assert agent.say(session, "say again") == "again"


def test_recall_lists_messages_and_never_answers(agent: Client) -> None:
    session = agent.open()
    agent.say(session, "say one")
    agent.say(session, 'A "quoted" remark\nsay zwei ö')
    lines = agent.say(session, "recall").split("\n")
    assert lines[0] == "recall 3"
    assert [json.loads(line.removeprefix("- ")) for line in lines[1:]] == [
        "say one",
        'A "quoted" remark\nsay zwei ö',
        "recall",
    ]
    assert "zwei ö" in lines[2]


def test_a_misused_verb_is_answered_and_the_rest_runs(agent: Client) -> None:
    answer = agent.say(agent.open(), "stream many\nsay still here")
    assert "`stream N [MS]`" in answer
    assert answer.endswith("\nstill here")
