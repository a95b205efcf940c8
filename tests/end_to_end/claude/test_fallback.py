"""A process that does not respond is replaced, a refused session is replayed, and a usage limit is waited for.

The unresponsive processes are the real program, or the rehearsal agent, with a shell between it and its input.
"""

import pytest

from tests.end_to_end.claude.columns import DIALECT, REAL, STREAMING, SUBSCRIBER, Column, Stage
from tests.end_to_end.victims import none_left
from tests.harness import no_holes
from tests.model.log import user_texts

pytestmark = pytest.mark.timeout(240)

MUTE = "exec cat > /dev/null"
"""Reads everything and answers nothing, not even the handshake."""
GO_ON = "Go on: the usage limit has reset."


def deaf_after(lines: int) -> str:
    """The program receives this many lines, the handshake being the first, and then nothing more."""
    return f'{{ sed -u {lines}q; cat > /dev/null; }} | "$@"; exit $?'


def deaf_with_last_words(lines: int) -> str:
    """It reports that it is idle, late, when the message that it does not receive is already there."""
    idle = """{"type": "system", "subtype": "session_state_changed", "state": "idle"}"""
    last = f"sed -u 1q > /dev/null; echo '{idle}' >&3; cat > /dev/null"
    return f'exec 3>&1; {{ sed -u {lines}q; {last}; }} | "$@" 3>&-; exit $?'


def only(*columns: Column) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("column", columns, ids=lambda column: column.name)


def only_once(stage: Stage, fault: str) -> str:
    """Only the first process does this."""
    note = stage.home / "fault-was-here"
    return f"if [ ! -e {note} ]; then touch {note}; {fault}; fi"


def fell_back_once(stage: Stage, session: str) -> None:
    (fallback,) = stage.events(session, "driver_fallback")
    assert (fallback["from"], fallback["to"]) == ("claude-stream", "claude-resume")
    assert not stage.events(session, "error")
    assert {event["stop_reason"] for event in stage.events(session, "turn_end")} == {"end_turn"}
    no_holes(stage.server.log(session))


@only(*STREAMING)
def test_a_process_that_never_opens_its_session_is_replaced_by_one_per_turn(stage: Stage) -> None:
    stage.preface = only_once(stage, MUTE)
    session = stage.serve(server="start_timeout_s = 15").session()
    assert stage.turn(session, "say one")["stop_reason"] == "end_turn"
    assert stage.server.text(session, 1) == "one"
    stage.suspended(session)
    assert stage.turn(session, "say two")["stop_reason"] == "end_turn"
    assert stage.recalled(session) == ["say one", "say two"]
    fell_back_once(stage, session)
    assert stage.contexts(session)[1:] == ["resumed", "resumed"]


@only(*STREAMING)
def test_a_prewarmed_process_that_never_opens_fails_no_turn(stage: Stage) -> None:
    stage.preface = only_once(stage, MUTE)
    session = stage.serve(server="start_timeout_s = 15").session()
    stage.until(session, "agent_detached")
    assert stage.turn(session, "say one")["stop_reason"] == "end_turn"
    assert stage.recalled(session) == ["say one"]
    assert stage.contexts(session) == ["fresh", "live"]
    assert not stage.events(session, "driver_fallback", "context_fallback")
    assert not [event for event in stage.events(session, "error") if event["turn"] is not None]


@only(*STREAMING)
def test_a_process_that_ignores_its_first_message_is_replaced(stage: Stage) -> None:
    stage.preface = only_once(stage, deaf_after(1))
    session = stage.serve(server="stuck_s = 8").session()
    assert stage.turn(session, "say one")["stop_reason"] == "end_turn"
    assert stage.recalled(session) == ["say one"]
    fell_back_once(stage, session)


@only(*STREAMING)
def test_a_process_that_becomes_unresponsive_between_turns_is_replaced_without_loss(stage: Stage) -> None:
    stage.preface = deaf_after(3)
    session = stage.serve(server="stuck_s = 8").session()
    for number, text in enumerate(("one", "two", "three", "four"), 1):
        assert stage.turn(session, f"say {text}")["stop_reason"] == "end_turn"
        assert stage.server.text(session, number) == text
    assert stage.recalled(session) == ["say one", "say two", "say three", "say four"]
    fell_back_once(stage, session)
    (fallback,) = stage.events(session, "driver_fallback")
    assert stage.contexts(session)[:2] == ["fresh", "live"]
    assert fallback["seq"] < stage.events(session, "turn_end")[2]["seq"]
    if stage.column.real:
        # The input of the unresponsive process is not in the history twice.
        assert user_texts(stage.model.log.asked[-1]).count("say three") == 1


@only(*STREAMING)
def test_late_output_of_the_last_turn_is_not_an_answer_to_the_next_message(stage: Stage) -> None:
    stage.preface = only_once(stage, deaf_with_last_words(2))
    session = stage.serve(server="stuck_s = 8").session()
    stage.turn(session, "say one")
    assert stage.turn(session, "say two")["stop_reason"] == "end_turn"
    assert stage.recalled(session) == ["say one", "say two"]
    fell_back_once(stage, session)


@only(*STREAMING)
def test_the_replacement_survives_a_restart_of_the_server_and_the_loss_of_its_native_session(stage: Stage) -> None:
    stage.preface = deaf_after(2)
    session = stage.serve(server="stuck_s = 8").session()
    stage.turn(session, "say one")
    stage.turn(session, "say two")
    stage.suspended(session)
    stage.server.kill()
    stage.server.restart()
    for path in stage.native_files(session):
        path.unlink()
    assert stage.turn(session, "say three")["stop_reason"] == "end_turn"
    assert "No conversation found" in stage.events(session, "context_fallback")[-1]["reason"]
    assert stage.recalled(session) == ["say one", "say two", "say three"]
    fell_back_once(stage, session)


@pytest.mark.smoke
@only(*DIALECT)
def test_a_refused_native_session_is_replayed_in_a_new_one(stage: Stage) -> None:
    session = stage.serve(limits="idle_timeout_s = 1").session()
    stage.turn(session, "say one\nreject-resume")
    old = stage.native_id(session)
    stage.suspended(session)
    assert stage.turn(session, "say two")["stop_reason"] == "end_turn"
    assert len(stage.events(session, "context_fallback")) == 1
    assert not stage.events(session, "error", "driver_fallback")
    assert stage.native_id(session) != old
    assert stage.recalled(session) == ["say one\nreject-resume", "say two"]


# Turns that nobody asked for -----------------------------------------------------------------------------------------

LETS_ALL_RUN = 'permissions = [ { tool = "Bash", action = "allow" } ]'
BACKGROUND = (
    'tool Bash {"command": "for i in $(seq 600); do [ -e go ] && break; sleep 0.05; done; touch gone", '
    '"description": "waits", "run_in_background": true}\nsay begun'
)


@only(*(column for column in REAL if column.streams))
def test_a_background_command_that_ends_starts_a_turn_of_the_agent(stage: Stage) -> None:
    session = stage.serve(limits="idle_timeout_s = 1", project=LETS_ALL_RUN).session(project="here")
    assert stage.turn(session, BACKGROUND)["stop_reason"] == "end_turn"
    # A process with a background command is not idle, so it outlives its idle timeout.
    stage.turn(session, "say meanwhile")
    (stage.workdir / "go").touch()
    began = stage.until(session, "turn_start", lambda event: event["origin"] == "agent")
    stage.until(session, "turn_end", lambda event: event["turn"] == began["turn"])
    own = stage.at(session, began["turn"])
    assert own["stop_reason"] == "end_turn" and own["turn"] == 3
    assert (stage.workdir / "gone").exists()
    # Now it is idle.
    stage.suspended(session)
    assert stage.recalled(session) == [BACKGROUND, "say meanwhile"]
    no_holes(stage.server.log(session))


@only(*(column for column in REAL if not column.streams))
def test_a_background_command_ends_with_the_process_of_its_turn(stage: Stage) -> None:
    session = stage.serve(server="eof_grace_s = 1", project=LETS_ALL_RUN).session(project="here")
    assert stage.turn(session, BACKGROUND)["stop_reason"] == "end_turn"
    none_left(stage.server)
    assert not (stage.workdir / "gone").exists()
    assert stage.recalled(session) == [BACKGROUND]


# Usage limits --------------------------------------------------------------------------------------------------------


def limited(stage: Stage, limits: str) -> str:
    return stage.serve(limits=limits, env=SUBSCRIBER if stage.column.real else {}).session()


def test_a_session_continues_when_the_usage_limit_has_reset(stage: Stage) -> None:
    session = limited(stage, 'on_limit = "continue"')
    stage.turn(session, "say one")
    assert stage.turn(session, "limit 3")["stop_reason"] == "failed"
    assert stage.events(session, "error")[-1]["code"] == "usage_limit"
    waited = stage.until(session, "waiting_until", lambda event: event["until"] is None)
    assert waited["reason"] == "over"
    goes_on = stage.until(session, "turn_end", lambda event: event["turn"] == 3)
    assert goes_on["stop_reason"] == "end_turn"
    assert [turn["text"] for turn in stage.events(session, "user_message")] == ["say one", "limit 3", GO_ON]
    assert stage.recalled(session) == ["say one", "limit 3", GO_ON]


def test_a_wait_for_the_usage_limit_is_cancelled_by_an_abort_or_a_message(stage: Stage) -> None:
    session = limited(stage, 'on_limit = "continue"')
    stage.turn(session, "limit 3000")
    until = stage.server.session(session)["waiting_until"]
    assert until is not None and until == stage.events(session, "waiting_until")[-1]["until"]
    stage.abort(session)
    assert stage.server.session(session)["waiting_until"] is None
    stage.turn(session, "limit 3000")
    assert stage.turn(session, "say enough")["stop_reason"] == "end_turn"
    assert stage.server.session(session)["waiting_until"] is None
    reasons = [event["reason"] for event in stage.events(session, "waiting_until")]
    assert reasons == ["usage_limit", "aborted", "usage_limit", "message"]
    assert stage.recalled(session) == ["limit 3000", "limit 3000", "say enough"]
