"""What a process says while it opens its session, and what is told of one that never did."""

from perdure.core import commands as cmd
from perdure.core import observations as ob
from tests.core.stage import Stage, attached, types

MODES = {"currentModeId": "ask", "availableModes": []}


def warming() -> Stage:
    """A process that was started before there is a message, and has not opened its session yet."""
    stage = Stage()
    stage.do(
        cmd.PrepareLaunch(
            launch_id="l1", agent="alpha", driver="acp", native_session_id=None, workdir_id="1:2", fingerprint="bin"
        )
    )
    return stage


def test_an_agent_that_only_says_more_of_itself_leads_to_no_event() -> None:
    stage = attached()
    assert stage.state.attached is not None and stage.state.attached.native_session_id is not None
    native = stage.state.attached.native_session_id
    assert types(stage.see(ob.SessionOpened(native, False, capabilities={"version": "2"}))) == []
    assert types(stage.see(ob.SessionOpened(native, False, modes=MODES))) == ["agent_attached"]
    assert types(stage.see(ob.SessionOpened("another", False))) == ["agent_attached"]


def test_a_process_that_ends_before_it_opened_a_session_says_why_though_no_turn_waits() -> None:
    stage = warming()
    events = stage.see(ob.AgentExited("exited", exit_code=3, stderr="no licence"))
    assert types(events) == ["agent_detached", "error"]
    assert stage.state.phase == "idle"
    error = events[-1]
    assert (getattr(error, "code", ""), getattr(error, "detail", "")) == ("agent_exited", "no licence")


def test_one_that_was_ended_on_purpose_has_nothing_to_explain() -> None:
    assert types(warming().see(ob.AgentExited("ended"))) == ["agent_detached"]


def test_a_start_that_failed_in_passing_is_tried_again_once_with_another_process() -> None:
    stage = Stage()
    stage.send()
    failed = ob.StartFailed("initialize_refused", "the database is locked", passing=True)
    stage.launch()
    assert types(stage.see(failed)) == ["agent_detached", "context_fallback"]
    assert stage.state.phase == "working"
    stage.launch()
    assert "turn_end" in types(stage.see(failed))
    assert stage.state.phase == "idle"


def test_a_turn_that_the_agent_has_forgotten_is_told_again_with_the_next_message() -> None:
    stage = attached()
    stage.send()
    stage.see(ob.TurnFinished(stage.turn, "end_turn"))
    stage.send()
    stage.see(ob.TurnFinished(stage.turn, "cancelled", forgotten=True))
    stage.send()
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.context_reason) == ("fresh", "last_turn_not_confirmed")
