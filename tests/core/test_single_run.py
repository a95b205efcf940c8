"""A session of a single run: it ends with its turn, and what nobody can answer is denied."""

from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.permissions import Rule
from tests.core.stage import ALLOW, Stage, last, single_run, single_run_aborting, types


def run_with(*rules: Rule) -> Stage:
    stage = Stage(single_shot=True, permissions=rules)
    stage.send()
    stage.open()
    return stage


def resolved(stage: Stage) -> tuple[str, str]:
    found = last(stage.log, ev.PromptResolved)
    assert found.delivered and stage.state.prompts == {}
    return found.by, found.outcome


def test_a_run_that_is_finished_closes_its_session_and_lets_its_agent_go() -> None:
    stage = single_run()
    events = stage.finish()
    assert types(events) == ["turn_end", "agent_detached", "session_end"]
    assert (stage.state.phase, stage.state.status, stage.state.attached) == ("ended", "completed", None)


@pytest.mark.parametrize(
    "end",
    [
        ob.TurnFinished(1, "failed", "agent_error", "It broke."),
        ob.TurnFinished(1, "failed", "usage_limit", "Limit reached.", retry_at=1_900_000_000),
        ob.TurnFinished(1, "end_turn", leaves=True),
        ob.AgentExited("exited", exit_code=3, delivered=True),
        ob.StartFailed("needs_login", "Sign in."),
    ],
)
def test_a_run_is_over_however_its_turn_ends(end: Any) -> None:
    stage = single_run()
    stage.see(end)
    assert (stage.state.phase, stage.state.status, stage.state.waiting_until) == ("ended", "completed", None)
    assert types(stage.log).count("turn_end") == types(stage.log).count("session_end") == 1


def test_an_aborted_run_is_over_as_soon_as_its_turn_has_ended() -> None:
    stage = single_run_aborting()
    events = stage.finish("cancelled")
    assert last(events, ev.TurnEnd).stop_reason == "cancelled"
    assert stage.state.status == "completed"


def test_a_run_that_gets_no_process_is_over_too() -> None:
    stage = Stage(single_shot=True)
    stage.send()
    stage.do(cmd.GiveUpTurn(code="agent_unavailable", message="It can't be started."))
    assert stage.state.phase == "ended"


def test_a_message_that_waits_is_worked_before_the_run_is_over() -> None:
    stage = single_run()
    waiting = stage.queue()
    assert last(stage.finish(), ev.TurnStart).message_id == waiting
    stage.finish()
    assert stage.state.phase == "ended"


def test_a_permission_that_nobody_can_answer_is_denied() -> None:
    stage = single_run()
    stage.ask()
    assert resolved(stage) == ("server", "denied")


def test_where_nothing_can_be_refused_the_request_is_cancelled() -> None:
    stage = single_run()
    stage.ask(options=[ALLOW])
    assert resolved(stage) == ("server", "cancelled")


def test_a_question_that_nobody_can_answer_is_cancelled() -> None:
    stage = single_run()
    stage.ask(kind="question", options=[], questions=[ev.Question("q1", "Which?")])
    assert resolved(stage) == ("server", "cancelled")


def test_the_runs_own_rules_answer_first_and_the_projects_after_them() -> None:
    stage = run_with(Rule("Bash", "*", "allow"))
    stage.rules = [Rule("Bash", "*", "deny")]
    stage.ask()
    assert resolved(stage) == ("rule", "allowed")
    stage = run_with(Rule("Read", "*", "deny"))
    stage.rules = [Rule("Bash", "*", "allow")]
    stage.ask()
    assert resolved(stage) == ("rule", "allowed")


def test_to_ask_is_to_deny_where_nobody_is_there() -> None:
    stage = run_with(Rule("Bash", "*", "ask"))
    stage.ask()
    assert resolved(stage) == ("server", "denied")
