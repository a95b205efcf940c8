"""Permission requests and questions: asked, answered in every way, and waiting while the server is dead."""

import pytest

from tests.end_to_end.claude.columns import REAL, Stage
from tests.model.log import user_texts

pytestmark = pytest.mark.timeout(240)


@pytest.mark.smoke
def test_a_denied_tool_does_not_run_and_its_reason_reaches_the_agent(stage: Stage) -> None:
    session = stage.serve().session()
    stage.server.send(session, stage.words.asks)
    prompt = stage.answer(session, option_id="reject_once", reason="not on a Sunday")
    assert prompt["kind"] == "permission" and prompt["tool_id"]
    assert [option["kind"] for option in prompt["options"]] == ["allow_once", "allow_always", "reject_once"]
    stage.idle(session)
    assert stage.at(session, 1)["stop_reason"] == "end_turn"
    (result,) = stage.events(session, "tool_result")
    assert result["is_error"] and "not on a Sunday" in result["content"]
    assert result["outcome"] == "denied" and result["waited_ms"] > 0
    assert not (stage.workdir / "made-by-the-tool").exists()
    assert stage.server.text(session, 1).endswith("done")
    assert "permission_denied" not in stage.codes(session)
    # An agent that gets a replay must not take the tool for done.
    stage.turn(session, "say more", fresh=True)
    assert any("(denied, not done)" in path.read_text("utf-8") for path in stage.native_files(session))


def test_an_allowed_tool_runs_and_one_allowed_for_the_session_does_not_ask_again(stage: Stage) -> None:
    session = stage.serve().session()
    stage.server.send(session, stage.words.asks)
    stage.answer(session, option_id="allow_once")
    stage.idle(session)
    assert (stage.workdir / "made-by-the-tool").exists() == stage.column.real
    stage.server.send(session, stage.words.asks)
    stage.answer(session, option_id="allow_always")
    stage.idle(session)
    outcomes = [event["outcome"] for event in stage.events(session, "prompt_resolved")]
    assert outcomes == ["allowed", "allowed"]
    stage.kill_agent(session)
    stage.turn(session, stage.words.asks)
    asked = [event for event in stage.events(session, "prompt_resolved") if event["by"] == "person"]
    assert len(asked) == 2
    results = stage.events(session, "tool_result")
    assert results and not any(result["is_error"] for result in results)
    assert not (stage.workdir / ".claude").exists()


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_tool_runs_with_the_input_that_the_person_changed(stage: Stage) -> None:
    session = stage.serve().session()
    stage.server.send(session, "bash touch as-asked\nresult")
    prompt = stage.server.prompt(session, 60)
    assert prompt["input"]["command"] == "touch as-asked"
    stage.answer(session, option_id="allow_once", input={**prompt["input"], "command": "touch as-changed; echo new"})
    stage.idle(session)
    assert [path.name for path in stage.workdir.iterdir()] == ["as-changed"]
    assert "new" in stage.server.text(session, 1)


def test_a_question_is_shown_with_its_choices_and_the_answer_reaches_the_agent(stage: Stage) -> None:
    session = stage.serve().session()
    stage.server.send(session, "ask Which colour? | red | blue" + ("\nresult" if stage.column.real else ""))
    prompt = stage.server.prompt(session, 60)
    (question,) = prompt["questions"]
    assert (prompt["kind"], question["question"]) == ("question", "Which colour?")
    assert [option["label"] for option in question["options"]] == ["red", "blue"]
    stage.answer(session, answers={question["question_id"]: "blue"})
    stage.idle(session)
    assert stage.at(session, 1)["stop_reason"] == "end_turn"
    assert "blue" in stage.server.text(session, 1)
    assert [event["outcome"] for event in stage.events(session, "prompt_resolved")] == ["answered"]


def test_a_prompt_survives_the_death_of_the_server_and_can_be_answered_later(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, "say one")
    stage.server.send(session, stage.words.asks)
    before = stage.server.prompt(session, 60)
    stage.server.kill()
    stage.server.restart()
    assert stage.server.prompt(session) == before
    stage.answer(session, option_id="allow_once")
    stage.idle(session)
    assert stage.at(session, 2)["stop_reason"] == "end_turn"
    assert stage.server.text(session, 2).endswith("done")
    assert (stage.workdir / "made-by-the-tool").exists() == stage.column.real
    assert stage.recalled(session) == ["say one", stage.words.asks]


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_rule_of_the_project_answers_without_asking(stage: Stage) -> None:
    rules = 'permissions = [ { tool = "Bash", pattern = "touch ok*", action = "allow" }, '
    rules += '{ tool = "Bash", action = "deny" } ]'
    session = stage.serve(project=rules).session(project="here")
    stage.turn(session, "bash touch ok-1\nbash touch other\nsay done")
    assert [path.name for path in stage.workdir.iterdir()] == ["ok-1"]
    resolved = stage.events(session, "prompt_resolved")
    assert [(event["by"], event["outcome"]) for event in resolved] == [("rule", "allowed"), ("rule", "denied")]
    done, denied = stage.events(session, "tool_result")
    assert (done["outcome"], denied["outcome"]) == (None, "denied")
    assert denied["waited_ms"] == 0, "no prompt waited"
    assert user_texts(stage.model.log.asked[-1]) == ["bash touch ok-1\nbash touch other\nsay done"]
