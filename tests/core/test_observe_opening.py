"""What a process says while it opens its session, and what is told of one that never did."""

from typing import Any

from perdure.core import commands as cmd
from perdure.core import observations as ob
from perdure.core.observe import observe
from tests.core.stage import Stage, attached, resuming, types

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


def test_a_new_session_under_the_id_of_an_earlier_one_holds_what_was_said_in_it_and_nothing_else() -> None:
    stage = attached()
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.do(cmd.EditMessage(turn=1, message_id="m", text="other words"))
    stage.send()
    stage.open("n1")
    assert stage.state.bindings["alpha"].confirmed is False
    stage.finish()
    # Its process was told the history as it is now.
    stage.send()
    assert stage.state.turn is not None and stage.state.turn.context == "live"


def test_an_id_is_given_out_by_a_new_session_and_not_by_one_that_is_opened_again_or_says_more_of_itself() -> None:
    def given(stage: Stage, *facts: Any) -> list[str]:
        found = observe(stage.state, stage.launch_id, facts, stage.world()).given
        return [native.native_session_id for native in found]

    more: dict[str, Any] = {"models": {"currentModelId": "m"}}
    stage = Stage()
    stage.send()
    stage.launch()
    assert given(stage, ob.SessionOpened("n1", False), ob.SessionOpened("n1", False, **more)) == ["n1"]
    again = resuming()
    assert given(again, ob.SessionOpened("n1", True), ob.SessionOpened("n1", True, **more)) == []
    # Some open a copy instead.
    assert given(again, ob.SessionOpened("n2", True)) == ["n2"]
    refused = resuming()
    refused.see(ob.ResumeRefused("No such session.", reopens=True))
    assert given(refused, ob.SessionOpened("n1", False)) == ["n1"]
