"""Errors of the model's API reach the user as a sentence, in bounded time, and the session stays usable."""

import pytest

from tests.end_to_end.claude.columns import COLUMNS, REAL, Stage
from tests.end_to_end.victims import until_said

pytestmark = pytest.mark.timeout(240)
ONLY_REAL = pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)


def limit_turns(stage: Stage, seconds: int) -> None:
    changed = stage.server.http.patch("/api/projects/here", json={"limits": {"turn_timeout_s": seconds}})
    assert changed.status_code == 200, changed.text


@ONLY_REAL
def test_every_api_error_is_reported_and_the_session_continues(stage: Stage) -> None:
    session = stage.serve().session()
    said = ["say one"]
    stage.turn(session, "say one")
    expected = {
        "fail 401": ("needs_login", "log in"),
        "fail 400": ("agent_error", "400"),
        "fail 529": ("api_unavailable", "529"),
        "fail 500": ("api_unavailable", "500"),
    }
    for text, (code, words) in expected.items():
        turn = stage.turn(session, text)
        said.append(text)
        assert turn["stop_reason"] == "failed"
        error = stage.events(session, "error")[-1]
        assert (error["code"], error["turn"]) == (code, turn["turn"]), error
        assert words in error["message"], error
        assert error["message"] not in stage.server.text(session, turn["turn"])
    assert "api_retry" in stage.codes(session)
    assert stage.recalled(session) == said


@ONLY_REAL
def test_an_unreachable_model_fails_the_turn_and_the_next_one_works_when_it_is_back(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, "say one")
    port = stage.model.port
    stage.model.stop()
    turn = stage.turn(session, "say two")
    assert turn["stop_reason"] == "failed"
    error = stage.events(session, "error")[-1]
    assert error["code"] in ("api_unavailable", "agent_error") and "onnect" in error["message"], error
    stage.model.start(port)
    assert stage.recalled(session) == ["say one", "say two"]


@ONLY_REAL
def test_a_stalled_stream_is_ended_by_the_turn_timeout_and_keeps_its_output(stage: Stage) -> None:
    session = stage.serve().session(project="here")
    stage.turn(session, "say one")
    number = stage.server.send(session, "say half\nstall")["turn"]
    until_said(stage.server, session, number, "half")
    # Only now, because a busy machine may take any time to get this far.
    limit_turns(stage, 1)
    stage.idle(session)
    assert (stage.at(session, number)["stop_reason"], stage.server.text(session, number)) == ("timed_out", "half")
    assert stage.events(session, "error")[-1]["code"] == "turn_timeout"
    limit_turns(stage, 0)
    assert stage.recalled(session) == ["say one", "say half\nstall"]


@ONLY_REAL
def test_an_answer_that_was_cut_off_is_requested_again_and_shown_once(stage: Stage) -> None:
    session = stage.serve().session()
    turn = stage.turn(session, "say half\ncut\nsay end")
    assert turn["stop_reason"] == "end_turn"
    assert stage.server.text(session, 1).endswith("half\nend")
    assert stage.recalled(session) == ["say half\ncut\nsay end"]


@pytest.mark.smoke
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_step_limit_is_reported_as_such(stage: Stage) -> None:
    tool = "bash pwd\nbash pwd\nsay never" if stage.column.real else "tool Look here\nsay never"
    limited = f'[agents.{stage.column.name}.options]\nextra_args = ["--max-turns", "1"]'
    session = stage.serve(agent=limited).session()
    turn = stage.turn(session, tool)
    assert turn["stop_reason"] == "max_turns"
    assert "never" not in stage.server.text(session, 1)
    assert stage.recalled(session) == [tool]
