"""The claude drivers: permission requests, questions and their answers; model and mode."""

from typing import Any

import pytest

from perdure.core.events import Config, PendingPrompt, System, ToolUse
from perdure.drivers.base import (
    CancelTurn,
    PromptWithdrawn,
    SendAnswer,
    SendConfig,
    SendInput,
    StartSession,
    TurnBegun,
    TurnFinished,
)
from tests.drivers.claude_peer import Peer, all_of, failed, init, only, result, start, system, tool_use, whole

RULE = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "localSettings"}
FOLDER = {"type": "addDirectories", "directories": ["/srv/lib"], "destination": "session"}
MODE = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
QUESTIONS = [
    {"question": "Which colour?", "header": "Colour", "options": [{"label": "Red", "description": "warm"}]},
    {"question": "Which sizes?", "multiSelect": True, "options": [{"label": "S"}, {"label": "L"}]},
]


@pytest.fixture
def peer() -> Peer:
    peer = Peer()
    peer.send_input()
    return peer


def answer(peer: Peer, prompt: PendingPrompt, **given: Any) -> Any:
    peer.order(SendAnswer(prompt.prompt_id, given))
    return peer.answer


# Permissions --------------------------------------------------------------------------------------------------------


def test_an_approval_returns_the_input(peer: Peer) -> None:
    prompt = peer.asked(given={"command": "ls"})
    assert (prompt.kind, prompt.tool, prompt.tool_id, prompt.title) == ("permission", "Bash", "t1", "Bash: ls")
    assert answer(peer, prompt, option_id="allow_once") == {"behavior": "allow", "updatedInput": {"command": "ls"}}


def test_a_person_may_change_the_input(peer: Peer) -> None:
    prompt = peer.asked()
    told = answer(peer, prompt, option_id="allow_once", input={"command": "pwd"})
    assert told["updatedInput"] == {"command": "pwd"}


def test_always_lasts_for_the_session_and_never_writes_the_projects_settings(peer: Peer) -> None:
    prompt = peer.asked(permission_suggestions=[RULE, FOLDER, MODE])
    assert [option.kind for option in prompt.options] == ["allow_once", "allow_always", "reject_once"]
    told = answer(peer, prompt, option_id="allow_always")
    assert told["updatedPermissions"] == [{**RULE, "destination": "session"}, FOLDER]


def test_a_change_of_mode_is_labelled_as_one(peer: Peer) -> None:
    prompt = peer.asked("Edit", {"file_path": "/srv/site/a"}, permission_suggestions=[MODE])
    assert prompt.options[1].name == "Allow all edits in this session"
    assert answer(peer, prompt, option_id="allow_always")["updatedPermissions"] == [MODE]


@pytest.mark.parametrize(
    ("suggested", "words"),
    [
        ([RULE, FOLDER, MODE], ["Bash", "access to /srv/lib"]),
        ([{**RULE, "rules": [{"toolName": "Bash", "ruleContent": "touch *"}]}], ["Bash(touch *)"]),
        ([MODE], ["all edits in this session"]),
        ([{**MODE, "mode": "new"}], ["mode new"]),
        ([{**FOLDER, "directories": "odd"}], []),
    ],
)
def test_always_names_everything_that_it_covers(peer: Peer, suggested: Any, words: list[str]) -> None:
    prompt = peer.asked(permission_suggestions=suggested)
    assert prompt.covers == words
    assert [rule for rule in prompt.always if not rule.startswith("Bash")] == [], "only rules go to a command line"


def test_always_is_offered_only_with_a_suggestion(peer: Peer) -> None:
    assert [option.kind for option in peer.asked().options] == ["allow_once", "reject_once"]


def test_a_denial_says_why_and_may_interrupt(peer: Peer) -> None:
    prompt = peer.asked()
    told = answer(peer, prompt, option_id="reject_once", reason="not now", interrupt=True)
    assert told == {"behavior": "deny", "message": "not now", "interrupt": True}
    assert peer.requests("interrupt") == []
    assert only(TurnFinished, peer.says(failed("[diagnostic]"))).stop_reason == "cancelled"


def test_a_cancelled_prompt_is_a_denial(peer: Peer) -> None:
    assert answer(peer, peer.asked(), cancel=True)["behavior"] == "deny"


def test_an_answer_is_sent_once(peer: Peer) -> None:
    prompt = peer.asked()
    answer(peer, prompt, option_id="allow_once")
    peer.order(SendAnswer(prompt.prompt_id, {"option_id": "reject_once"}))
    assert peer.sent == []


def test_an_invalid_answer_leaves_the_prompt_open(peer: Peer) -> None:
    prompt = peer.asked()
    peer.order(SendAnswer(prompt.prompt_id, {"option_id": "perhaps"}))
    assert peer.sent == []
    assert answer(peer, prompt, option_id="allow_once")["behavior"] == "allow"


def test_a_request_that_the_agent_cancels_is_withdrawn_and_not_answered(peer: Peer) -> None:
    prompt = peer.asked()
    seen = peer.says({"type": "control_cancel_request", "request_id": "theirs-1"})
    assert seen == [PromptWithdrawn(prompt.prompt_id)]
    peer.order(SendAnswer(prompt.prompt_id, {"option_id": "allow_once"}))
    assert peer.sent == []


def test_an_interrupt_withdraws_open_prompts(peer: Peer) -> None:
    prompt = peer.asked()
    assert peer.order(CancelTurn(1)) == [PromptWithdrawn(prompt.prompt_id)]
    assert peer.says({"type": "control_cancel_request", "request_id": "theirs-1"}) == []


def test_a_tool_of_a_sub_agent_is_announced_by_its_permission_request(peer: Peer) -> None:
    peer.says(system("task_started", task_id="a1", tool_use_id="t0"))
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1", "input": {}, "agent_id": "a1"}
    seen = peer.says({"type": "control_request", "request_id": "x", "request": request})
    assert only(ToolUse, seen).parent_tool_id == "t0"
    assert all_of(ToolUse, peer.says(whole("s", tool_use("t1"), parent="t0"))) == []


def test_a_question_between_turns_starts_a_turn_that_ends_when_the_agent_is_idle(peer: Peer) -> None:
    peer.says(result())
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t9", "input": {}}
    seen = peer.says({"type": "control_request", "request_id": "theirs-1", "request": request})
    assert only(TurnBegun, seen)
    idle = system("session_state_changed", state="idle")
    assert peer.says(idle) == []
    answer(peer, only(PendingPrompt, seen), option_id="allow_once")
    assert only(TurnFinished, peer.says(idle)).turn == 0


def test_withdrawing_a_question_between_turns_ends_the_turn_it_started(peer: Peer) -> None:
    peer.says(result())
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t9", "input": {}}
    peer.says({"type": "control_request", "request_id": "theirs-1", "request": request})
    peer.order(SendInput(2, "m2", "go on"))
    assert peer.sent == []
    seen = peer.says({"type": "control_cancel_request", "request_id": "theirs-1"})
    assert only(PromptWithdrawn, seen) and only(TurnFinished, seen).turn == 0
    assert [message["type"] for message in peer.sent] == ["user"]


def test_withdrawing_a_question_does_not_end_a_turn_with_other_work(peer: Peer) -> None:
    taken_back = {"type": "control_cancel_request", "request_id": "theirs-1"}
    peer.asked()
    assert all_of(TurnFinished, peer.says(taken_back)) == []
    peer.says(result(), start("a"))
    peer.asked(tool_use_id="t2")
    assert all_of(TurnFinished, peer.says(taken_back)) == []


def test_other_requests_are_answered_with_an_error(peer: Peer) -> None:
    peer.says({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback"}})
    (message,) = peer.sent
    assert (message["response"]["subtype"], message["response"]["request_id"]) == ("error", "h")


def test_a_denial_without_a_request_is_reported_once(peer: Peer) -> None:
    denied = {"tool_name": "Bash", "tool_use_id": "t1"}
    seen = peer.says(system("permission_denied", **denied), result(permission_denials=[denied]))
    assert only(System, seen).code == "permission_denied"


# Questions ----------------------------------------------------------------------------------------------------------


def test_questions_are_asked_with_their_choices_and_answered_by_their_text(peer: Peer) -> None:
    prompt = peer.asked("AskUserQuestion", {"questions": QUESTIONS})
    one, other = prompt.questions
    assert (prompt.kind, prompt.options) == ("question", [])
    assert (one.question_id, one.header, one.options[0].label, one.multiple) == ("q1", "Colour", "Red", False)
    assert other.multiple
    told = answer(peer, prompt, answers={"q1": "teal", "q2": ["S", "L"]})
    answers = {"Which colour?": "teal", "Which sizes?": "S, L"}
    assert told == {"behavior": "allow", "updatedInput": {"questions": QUESTIONS, "answers": answers}}


def test_a_question_may_stay_unanswered(peer: Peer) -> None:
    prompt = peer.asked("AskUserQuestion", {"questions": QUESTIONS})
    assert answer(peer, prompt, answers={"q2": "S"})["updatedInput"]["answers"] == {"Which sizes?": "S"}


def test_a_question_that_is_cancelled_is_denied(peer: Peer) -> None:
    assert answer(peer, peer.asked("AskUserQuestion", {"questions": QUESTIONS}), cancel=True)["behavior"] == "deny"


def test_a_malformed_question_becomes_a_permission_request(peer: Peer) -> None:
    assert peer.asked("AskUserQuestion", {"questions": "what?"}).kind == "permission"


# Model and mode -----------------------------------------------------------------------------------------------------


def test_model_and_mode_are_requested_and_reported_once_they_apply(peer: Peer) -> None:
    peer.order(SendConfig("model", "claude-sonnet-5"))
    assert peer.sent[0]["request"] == {"subtype": "set_model", "model": "claude-sonnet-5"}
    assert only(Config, peer.replies("set_model")).value == "claude-sonnet-5"
    peer.order(SendConfig("mode", "acceptEdits"))
    assert only(Config, peer.replies("set_permission_mode", {"mode": "acceptEdits"})).value == "acceptEdits"
    assert peer.says(system("status", permissionMode="acceptEdits")) == []


@pytest.mark.parametrize(
    ("config_id", "value"),
    [
        ("mode", "bogus"),
        ("mode", 3),
        ("mode", "bypassPermissions"),
        ("model", "--x"),
        ("model", None),
        ("colour", "red"),
    ],
)
def test_invalid_values_that_the_agent_would_accept_are_refused(peer: Peer, config_id: str, value: Any) -> None:
    assert only(System, peer.order(SendConfig(config_id, value))).code == "config_refused"
    assert peer.sent == []


def test_a_model_must_be_listed_or_look_like_one() -> None:
    peer = Peer()
    peer.open(models=[{"value": "opus"}])
    for value, accepted in (("opus", True), ("claude-opus-9", True), ("gpt", False)):
        peer.order(SendConfig("model", value))
        assert bool(peer.sent) == accepted


def test_a_refusal_by_the_agent_is_reported_with_its_reason(peer: Peer) -> None:
    peer.order(SendConfig("mode", "auto"))
    assert "not launched" in only(System, peer.replies("set_permission_mode", error="was not launched with it")).message


def test_a_setting_requested_before_the_session_is_open_waits_for_it() -> None:
    peer = Peer()
    peer.order(StartSession("/srv/site", mode="bogus"))
    peer.order(SendConfig("mode", "plan"))
    assert peer.sent == []
    told = only(System, peer.replies("initialize"))
    assert "bogus" in told.message
    assert peer.sent[0]["request"] == {"subtype": "set_permission_mode", "mode": "plan"}


def test_a_default_model_is_named_so_that_a_resume_keeps_it(peer: Peer) -> None:
    assert only(Config, peer.says(init(model="claude-opus-5[1m]"))).value == "claude-opus-5[1m]"
    assert peer.says(init(model="claude-opus-5[1m]")) == []


def test_a_model_that_was_chosen_is_not_renamed() -> None:
    peer = Peer()
    peer.open(StartSession("/srv/site", model="opus"))
    peer.order(SendInput(1, "m1", "go"))
    assert peer.says(init(model="claude-opus-5", permissionMode="default")) == []
