"""Captures of real agents, played to the acp driver: nothing is lost, and nothing stays open."""

import json
from typing import ClassVar

import pytest

from perdure.core.events import AssistantText, PendingPrompt, PromptOption, ToolResult, ToolUse
from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import (
    Noise,
    PromptWithdrawn,
    ResumeRefused,
    SendInput,
    SessionOpened,
    StartSession,
    TurnFinished,
)
from tests.conformance.drivers import LAUNCH_ID, DriverConformance, Run, Scenario, make, play
from tests.drivers import captures

CAPTURES = [name for name in captures.names() if name != "kimi-start"]


def runs(name: str) -> list[tuple[captures.Play, Run]]:
    return [(session, play(AcpDriver(), session.moves)) for session in captures.plays(name)]


def reopened(name: str) -> tuple[captures.Play, Run]:
    """Return the first session of a capture that was loaded or resumed."""
    for session, run in runs(name):
        start = session.moves[0]
        if isinstance(start, StartSession) and start.native_session_id is not None:
            return session, run
    raise AssertionError(f"{name} resumes no session")


@pytest.mark.parametrize("name", CAPTURES)
def test_every_answered_prompt_ends_exactly_once(name: str) -> None:
    seen = 0
    for session, run in runs(name):
        ended = [event.turn for event in run.observations if isinstance(event, TurnFinished)]
        assert ended == list(range(1, session.replied + 1))
        seen += len(ended)
    assert seen > 0


@pytest.mark.parametrize("name", CAPTURES)
def test_the_text_of_a_turn_is_what_the_agent_wrote(name: str) -> None:
    for session, run in runs(name):
        texts = dict.fromkeys(session.texts, "")
        for event in run.observations:
            if isinstance(event, AssistantText):
                assert event.turn is not None
                texts[event.turn] += event.delta
        assert texts == session.texts


@pytest.mark.parametrize("name", CAPTURES)
def test_every_tool_of_a_finished_turn_is_announced_and_closed_once(name: str) -> None:
    for session, run in runs(name):
        done = range(1, session.replied + 1)
        used = [(e.turn, e.tool_id) for e in run.observations if isinstance(e, ToolUse) and e.turn in done]
        ended = [(e.turn, e.tool_id) for e in run.observations if isinstance(e, ToolResult) and e.turn in done]
        assert sorted(used) == sorted(ended)
        assert len(set(used)) == len(used)


@pytest.mark.parametrize("name", CAPTURES)
def test_every_request_of_an_agent_gets_one_answer_and_no_permission_request_an_error(name: str) -> None:
    for session, run in runs(name):
        messages = [json.loads(line) for line in run.lines]
        answers = [message["id"] for message in messages if "method" not in message]
        open_at_the_end = len([e for e in run.observations if isinstance(e, PendingPrompt)]) if session.busy else 0
        assert session.requests - open_at_the_end <= len(answers) <= session.requests
        asked = [json.loads(move) for move in session.moves if isinstance(move, bytes)]
        permissions = {m["id"] for m in asked if m.get("method") == "session/request_permission"}
        assert not [m for m in messages if "error" in m and m["id"] in permissions]


@pytest.mark.parametrize("name", CAPTURES)
def test_only_one_prompt_is_in_flight(name: str) -> None:
    for session in captures.plays(name):
        conversation, in_flight = AcpDriver().begin(LAUNCH_ID), 0
        for move in session.moves:
            step = make(conversation, move)
            in_flight -= sum(isinstance(event, TurnFinished) for event in step.observations)
            in_flight += sum(json.loads(line).get("method") == "session/prompt" for line in step.lines)
            assert in_flight in (0, 1)


def test_a_replay_that_continues_after_the_reply_is_not_the_new_turn() -> None:
    session, run = reopened("gemini-load3-next-minute")
    assert next(event for event in run.observations if isinstance(event, SessionOpened)).resumed
    assert session.texts == {1: "RECALLED: PELICAN"}
    assert not [event for event in run.observations if isinstance(event, ToolUse)]


def test_a_replay_is_dropped_even_if_the_prompt_is_already_waiting() -> None:
    session, _ = reopened("gemini-load3-next-minute")
    first_input = next(move for move in session.moves if isinstance(move, SendInput))
    moves = [move for move in session.moves if move is not first_input]
    run = play(AcpDriver(), [moves[0], first_input, *moves[1:]])
    assert "".join(e.delta for e in run.observations if isinstance(e, AssistantText)) == "RECALLED: PELICAN"
    assert len([event for event in run.observations if isinstance(event, TurnFinished)]) == 1


def test_a_refused_load_is_reported_with_its_reason() -> None:
    refused = [e for _, run in runs("gemini-resume") for e in run.observations if isinstance(e, ResumeRefused)]
    assert refused and "No previous sessions found" in refused[0].reason


def test_a_resume_that_creates_another_session_is_refused() -> None:
    refused = [e for _, run in runs("hermes-resume") for e in run.observations if isinstance(e, ResumeRefused)]
    assert [event.reason for event in refused if "a different session" in event.reason]


def test_permissions_of_all_agents_offer_an_allowing_and_a_rejecting_option() -> None:
    prompts = [
        (name, event)
        for name in CAPTURES
        for _, run in runs(name)
        for event in run.observations
        if isinstance(event, PendingPrompt) and event.kind == "permission"
    ]
    assert len({name.split("-")[0] for name, _ in prompts}) >= 7
    for name, event in prompts:
        kinds = {option.kind for option in event.options}
        assert "allow_once" in kinds and "reject_once" in kinds, name
        assert event.tool_id and event.tool and event.title, name
        assert all(isinstance(option, PromptOption) for option in event.options)
    vibe = [event for name, event in prompts if name == "vibe-perm"]
    assert all(event.input is not None for event in vibe), "vibe's request has only the id of its tool"


def test_a_permission_request_that_the_agent_cancels_is_withdrawn() -> None:
    for name in ("claude-perm", "codex-perm"):
        assert [e for _, run in runs(name) for e in run.observations if isinstance(e, PromptWithdrawn)]


def test_a_question_of_claude_or_codex_is_one_question_with_choices() -> None:
    for name in ("claude-elicit", "codex-elicit-plan"):
        asked = [e for _, run in runs(name) for e in run.observations if isinstance(e, PendingPrompt) and e.questions]
        (question,) = asked[0].questions
        assert question.question == "Which colour?"
        assert question.header == "Colour"
        assert [option.label for option in question.options][:2] == ["Red", "Blue"]


def test_a_banner_instead_of_the_protocol_is_noise() -> None:
    banner = next(entry["msg"]["nonjson_stdout"] for entry in captures.entries("kimi-start") if entry["dir"] == "!")
    run = play(AcpDriver(), [StartSession("/srv/site"), banner.rstrip("\n").encode(), b"another line"])
    told = [event for event in run.observations if isinstance(event, Noise) and event.told]
    assert len(told) == 1 and "no longer maintained" in told[0].sample


def test_the_stored_state_stays_small() -> None:
    for name in CAPTURES:
        for session in captures.plays(name):
            assert len(session.conversation.dump()) < 16_000, name


class TestConformance(DriverConformance):
    driver = AcpDriver()
    scenarios: ClassVar[list[Scenario]] = captures.scenarios()
    scenarios.sort(key=lambda scenario: len(scenario.moves))
    scenarios.append(Scenario("plain text", next(s.moves for s in scenarios if s.name.startswith("hermes-basic"))))


def test_the_launch_is_part_of_every_prompt_id() -> None:
    found = [e for _, run in runs("claude-perm") for e in run.observations if isinstance(e, PendingPrompt)]
    assert found and all(event.prompt_id.startswith(LAUNCH_ID) for event in found)
