"""Every capture of the real agent is a test case: observations, sent lines, and rules that hold for all."""

import json
from typing import Any, ClassVar

import pytest

from perdure.core.events import AssistantText, PendingPrompt, ToolResult, ToolUse
from perdure.drivers.base import Noise, ResumeRefused, SendInput, TurnFinished
from perdure.drivers.claude import ClaudeResumeDriver, ClaudeStreamDriver
from tests.conformance.drivers import LAUNCH_ID, DriverConformance, Scenario, make
from tests.drivers import claude_captures as captures

CAPTURES = captures.names()
EXPECTED = captures.expected()


def test_no_capture_lacks_its_expected_events() -> None:
    assert list(EXPECTED) == CAPTURES
    assert len(CAPTURES) > 150


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_leads_to_the_expected_events(name: str) -> None:
    assert captures.summary(captures.played(name).seen) == EXPECTED[name]


@pytest.mark.parametrize("name", CAPTURES)
def test_with_a_process_per_turn_the_same_is_observed_and_each_turn_releases_its_process(name: str) -> None:
    found = captures.summary(captures.played(name, per_turn=True).seen)
    said = [line.replace(" leaves", "") for line in found if "code='background_ended'" not in line]
    assert said == EXPECTED[name]
    ends = [one for one in captures.played(name, per_turn=True).seen if isinstance(one, TurnFinished)]
    assert all(end.leaves for end in ends)


@pytest.mark.parametrize("name", CAPTURES)
def test_text_is_shown_once_and_whole(name: str) -> None:
    """In every successful turn, the shown text equals the text of the agent's whole messages."""
    play = captures.played(name)
    shown = dict.fromkeys(range(play.turn + 1), "")
    for one in play.seen:
        if isinstance(one, AssistantText) and one.turn is not None:
            shown[one.turn] += one.delta
    for turn, text in whole_texts(play).items():
        assert shown[turn] == text


def whole_texts(play: captures.Play) -> dict[int, str]:
    texts: dict[int, str] = {}
    turn = said = ""
    for move in play.moves:
        if isinstance(move, SendInput):
            turn, said = str(move.turn), ""
        message: Any = captures.as_json(move.decode()) if isinstance(move, bytes) else {}
        if message.get("type") == "assistant" and not message.get("parent_tool_use_id"):
            said += "".join(block["text"] for block in message["message"]["content"] if block["type"] == "text")
        elif message.get("type") == "result" and turn and "origin" not in message:
            if not message["is_error"]:
                texts[int(turn)] = said
            turn = said = ""
        elif message.get("type") == "result":
            said = ""
    return texts


@pytest.mark.parametrize("name", CAPTURES)
def test_every_tool_of_a_finished_turn_is_announced_and_closed_once(name: str) -> None:
    seen = captures.played(name).seen
    done = {one.turn for one in seen if isinstance(one, TurnFinished)}
    used = [(one.turn, one.tool_id) for one in seen if isinstance(one, ToolUse) and one.turn in done]
    ended = [(one.turn, one.tool_id) for one in seen if isinstance(one, ToolResult) and one.turn in done]
    assert sorted(used) == sorted(ended)
    assert len(set(used)) == len(used)


@pytest.mark.parametrize("name", CAPTURES)
def test_only_one_prompt_is_in_flight(name: str) -> None:
    conversation, in_flight = ClaudeStreamDriver().begin(LAUNCH_ID), 0
    for move in captures.played(name).moves:
        step = make(conversation, move)
        in_flight -= sum(
            isinstance(one, TurnFinished) and one.turn > 0 and one.input_bytes > 0 for one in step.observations
        )
        in_flight += sum(json.loads(line)["type"] == "user" for line in step.lines)
        assert in_flight in (0, 1)


def test_an_unknown_session_is_refused_and_not_a_failed_turn() -> None:
    for name in ("65-resume-unknown-uuid-stream", "146-resume-after-145", "160-resume-unknown-initialize-only"):
        (refused,) = captures.played(name).seen
        assert isinstance(refused, ResumeRefused)
        assert "No conversation found" in refused.reason and not refused.reopens


def test_only_plain_text_counts_as_noise_in_the_captures() -> None:
    for name in CAPTURES:
        noise = [one for one in captures.played(name).seen if isinstance(one, Noise)]
        assert not any(one.told for one in noise) or name == "02-single-text", name


def test_every_permission_can_be_allowed_and_denied() -> None:
    prompts = [one for name in CAPTURES for one in captures.played(name).seen if isinstance(one, PendingPrompt)]
    assert len(prompts) > 15
    for prompt in prompts:
        kinds = {option.kind for option in prompt.options}
        assert prompt.questions or {"allow_once", "reject_once"} <= kinds
        assert prompt.tool_id and prompt.tool and prompt.title


def test_the_stored_state_stays_small() -> None:
    for name in CAPTURES:
        assert len(captures.played(name).conversation.dump()) < 8_000, name


class TestConformance(DriverConformance):
    driver = ClaudeStreamDriver()
    scenarios: ClassVar[list[Scenario]] = [
        *captures.scenarios(),
        Scenario("plain text", captures.played("10-stream-3turns").moves),
    ]


class TestConformanceOfResume(DriverConformance):
    driver = ClaudeResumeDriver()
    scenarios: ClassVar[list[Scenario]] = [
        *(Scenario(name, captures.played(name, per_turn=True).moves) for name in CAPTURES[::6]),
        Scenario("plain text", captures.played("10-stream-3turns", per_turn=True).moves),
    ]
