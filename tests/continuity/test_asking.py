"""Prompts of real agents: allowed, denied, cancelled while they wait, two at the same time, and questions with
choices."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.continuity.agents import Agent
from tests.continuity.stage import Stage
from tests.harness import eventually
from tests.model.log import all_text

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def makes(agent: Agent, tmp_path: Path) -> str:
    """What the model does to create the file `made`, which needs a permission."""
    if agent.asks == "never":
        pytest.skip(f"{agent.name} never asks")
    return agent.makes(tmp_path / "work" / "made")


def outcomes(stage: Stage, session: str) -> list[str]:
    return [event["outcome"] for event in stage.events(session, "prompt_resolved")]


def test_an_allowed_tool_runs(stage: Stage, makes: str) -> None:
    session = stage.asking_session()
    text = f"{makes}\nsay done"
    number = stage.send(session, text)
    prompt = stage.prompt(session)
    assert prompt["kind"] == "permission" and prompt["title"]
    stage.choose(session, prompt, "allow_once")
    stage.ended(session, number)
    assert (stage.workdir / "made").exists()
    assert stage.text(session, number).endswith("done")
    assert outcomes(stage, session) == ["allowed"]
    assert stage.recalled(session) == text.split("\n")


def test_a_denied_tool_does_not_run_and_the_conversation_continues(stage: Stage, makes: str) -> None:
    session = stage.asking_session()
    text = f"{makes}\nsay done"
    number = stage.send(session, text)
    stage.choose(session, stage.prompt(session), "reject_once")
    # Some agents tell the model and continue, some end the turn there.
    stage.ended(session, number, "end_turn", "cancelled")
    assert not (stage.workdir / "made").exists()
    assert outcomes(stage, session) == ["denied"]
    [result] = stage.events(session, "tool_result")
    assert result["outcome"] == "denied" and result["waited_ms"] > 0
    assert stage.recalled(session) == text.split("\n")
    # An agent that gets a replay must not take the tool for done.
    fresh = stage.server.send(session, "say more", fresh=True)["turn"]
    stage.ended(session, fresh)
    stage.model.log.wait(lambda request: "(denied, not done)" in all_text(request))


def test_a_turn_is_cancelled_while_it_asks(stage: Stage, makes: str) -> None:
    session = stage.asking_session()
    text = f"{makes}\nsay done"
    number = stage.send(session, text)
    stage.prompt(session)
    stage.abort(session)
    stage.ended(session, number, "cancelled")
    assert not (stage.workdir / "made").exists()
    assert outcomes(stage, session) == ["cancelled"]
    assert stage.recalled(session) == text.split("\n")


def test_two_tools_of_one_answer_each_ask_and_run(stage: Stage, agent: Agent, makes: str) -> None:
    session = stage.asking_session()
    together = json.dumps([agent.makes(stage.workdir / name) for name in ("made-1", "made-2")])
    number = stage.send(session, f"together {together}\nsay done")
    answered: list[str] = []

    def waiting() -> Any:
        found = stage.server.get(f"/api/sessions/{session}/prompts")["prompts"]
        return [prompt for prompt in found if prompt["prompt_id"] not in answered]

    if agent.asks_at_once:
        eventually(lambda: len(waiting()) == 2, "two prompts wait at the same time", 180)
    for _ in range(2):
        # The newest first, as a user may do.
        prompt = eventually(waiting, "a prompt waits", 180)[-1]
        answered.append(prompt["prompt_id"])
        stage.choose(session, prompt, "allow_once")
    stage.ended(session, number)
    assert outcomes(stage, session) == ["allowed", "allowed"]
    assert {path.name for path in stage.workdir.glob("made-*")} == {"made-1", "made-2"}


def test_a_question_is_shown_with_its_choices_and_the_answer_reaches_the_model(stage: Stage, agent: Agent) -> None:
    if not agent.question:
        pytest.skip(f"{agent.name} puts no questions over ACP")
    session = stage.session()
    stage.turn(session, "say one")
    for config_id, value in agent.question_settings.items():
        stage.configure(session, config_id, value)
    number = stage.send(session, f"{agent.question}\nresult")
    prompt = stage.prompt(session)
    question = prompt["questions"][0]
    assert (prompt["kind"], question["question"]) == ("question", "Which colour?")
    assert {"red", "blue"} <= {option["label"] for option in question["options"]}
    stage.answer(session, prompt, answers={question["question_id"]: "blue"})
    stage.ended(session, number)
    assert "blue" in stage.text(session, number)
    assert outcomes(stage, session) == ["answered"]
