"""Single-shot sessions: they end with their turn, and permission requests without a rule are denied."""

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


def test_a_finished_single_shot_turn_ends_the_session_and_detaches_the_agent() -> None:
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
def test_a_single_shot_session_ends_however_its_turn_ends(end: Any) -> None:
    stage = single_run()
    stage.see(end)
    assert (stage.state.phase, stage.state.status, stage.state.waiting_until) == ("ended", "completed", None)
    assert types(stage.log).count("turn_end") == types(stage.log).count("session_end") == 1


def test_an_aborted_single_shot_session_ends_with_its_turn() -> None:
    stage = single_run_aborting()
    events = stage.finish("cancelled")
    assert last(events, ev.TurnEnd).stop_reason == "cancelled"
    assert stage.state.status == "completed"


def test_a_single_shot_session_without_a_process_ends_too() -> None:
    stage = Stage(single_shot=True)
    stage.send()
    stage.do(cmd.GiveUpTurn(code="agent_unavailable", message="It can't be started."))
    assert stage.state.phase == "ended"


def test_a_single_shot_session_processes_its_queue_before_it_ends() -> None:
    stage = single_run()
    waiting = stage.queue()
    assert last(stage.finish(), ev.TurnStart).message_id == waiting
    stage.finish()
    assert stage.state.phase == "ended"


def test_a_permission_request_without_a_person_is_denied() -> None:
    stage = single_run()
    stage.ask()
    assert resolved(stage) == ("server", "denied")


def test_a_request_without_a_deny_option_is_cancelled() -> None:
    stage = single_run()
    stage.ask(options=[ALLOW])
    assert resolved(stage) == ("server", "cancelled")


def test_a_question_without_a_person_is_cancelled() -> None:
    stage = single_run()
    stage.ask(kind="question", options=[], questions=[ev.Question("q1", "Which?")])
    assert resolved(stage) == ("server", "cancelled")


def test_the_sessions_rules_are_checked_before_those_of_the_project() -> None:
    stage = run_with(Rule("Bash", "*", "allow"))
    stage.rules = [Rule("Bash", "*", "deny")]
    stage.ask()
    assert resolved(stage) == ("rule", "allowed")
    stage = run_with(Rule("Read", "*", "deny"))
    stage.rules = [Rule("Bash", "*", "allow")]
    stage.ask()
    assert resolved(stage) == ("rule", "allowed")


def test_without_a_person_ask_means_deny() -> None:
    stage = run_with(Rule("Bash", "*", "ask"))
    stage.ask()
    assert resolved(stage) == ("server", "denied")
