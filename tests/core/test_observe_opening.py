"""Facts while a process opens its native session, and the error if it never does."""

from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import observations as ob
from perdure.core.errors import Refused
from perdure.core.observe import observe
from tests.core.stage import Stage, attached, resuming, types

MODES = {"currentModeId": "ask", "availableModes": []}


def launch_of(turn: int | None, agent: str) -> cmd.PrepareLaunch:
    return cmd.PrepareLaunch(
        turn=turn,
        launch_id="l1",
        agent=agent,
        driver="acp",
        native_session_id=None,
        workdir_id="1:2",
        fingerprint="bin",
    )


def warming() -> Stage:
    """A process that was started before any message, and has not opened its native session yet."""
    stage = Stage()
    stage.do(launch_of(None, "alpha"))
    return stage


def test_reporting_more_capabilities_makes_no_event() -> None:
    stage = attached()
    assert stage.state.attached is not None and stage.state.attached.native_session_id is not None
    native = stage.state.attached.native_session_id
    assert types(stage.see(ob.SessionOpened(native, False, capabilities={"version": "2"}))) == []
    assert types(stage.see(ob.SessionOpened(native, False, modes=MODES))) == ["agent_attached"]
    assert types(stage.see(ob.SessionOpened("another", False))) == ["agent_attached"]


@pytest.mark.parametrize("begins", [True, False])
def test_a_launch_is_refused_if_a_turn_has_begun_or_ended_since_it_was_planned(begins: bool) -> None:
    """A process that was started ahead, for another agent or context, must not get the turn's message."""
    stage = Stage()
    if begins:
        stage.send("go")
    with pytest.raises(Refused, match="since this launch was planned"):
        stage.do(launch_of(None if begins else 1, "beta"))


def test_a_process_that_exits_before_it_opened_a_session_is_reported_even_without_a_turn() -> None:
    stage = warming()
    events = stage.see(ob.AgentExited("exited", exit_code=3, stderr="no licence"))
    assert types(events) == ["agent_detached", "error"]
    assert stage.state.phase == "idle"
    error = events[-1]
    assert (getattr(error, "code", ""), getattr(error, "detail", "")) == ("agent_exited", "no licence")


def test_a_process_that_was_ended_on_purpose_causes_no_error() -> None:
    assert types(warming().see(ob.AgentExited("ended"))) == ["agent_detached"]


def test_a_temporary_start_failure_is_retried_once_with_another_process() -> None:
    stage = Stage()
    stage.send()
    failed = ob.StartFailed("initialize_refused", "the database is locked", passing=True)
    stage.launch()
    assert types(stage.see(failed)) == ["agent_detached", "context_fallback"]
    assert stage.state.phase == "working"
    stage.launch()
    assert "turn_end" in types(stage.see(failed))
    assert stage.state.phase == "idle"


def test_a_turn_that_the_agent_has_forgotten_is_replayed_with_the_next_message() -> None:
    stage = attached()
    stage.send()
    stage.see(ob.TurnFinished(stage.turn, "end_turn"))
    stage.send()
    stage.see(ob.TurnFinished(stage.turn, "cancelled", forgotten=True))
    stage.send()
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.context_reason) == ("fresh", "last_turn_not_confirmed")


def test_a_new_native_session_with_a_reused_id_starts_unconfirmed() -> None:
    stage = attached()
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.do(cmd.EditMessage(turn=1, message_id="m", text="other words"))
    stage.send()
    stage.open("n1")
    assert stage.state.bindings["alpha"].confirmed is False
    stage.finish()
    # Its process received the current history.
    stage.send()
    assert stage.state.turn is not None and stage.state.turn.context == "live"


def test_an_id_is_issued_by_a_new_native_session_and_not_by_a_reopened_one() -> None:
    def given(stage: Stage, *facts: Any) -> list[str]:
        found = observe(stage.state, stage.launch_id, facts, stage.world()).issued
        return [native.native_session_id for native in found]

    more: dict[str, Any] = {"models": {"currentModelId": "m"}}
    stage = Stage()
    stage.send()
    stage.launch()
    assert given(stage, ob.SessionOpened("n1", False), ob.SessionOpened("n1", False, **more)) == ["n1"]
    again = resuming()
    assert given(again, ob.SessionOpened("n1", True), ob.SessionOpened("n1", True, **more)) == []
    # Some agents open a copy instead.
    assert given(again, ob.SessionOpened("n2", True)) == ["n2"]
    refused = resuming()
    refused.see(ob.ResumeRefused("No such session.", reopens=True))
    assert given(refused, ob.SessionOpened("n1", False)) == ["n1"]
