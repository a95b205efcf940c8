"""A native session that is gone, or in use by another process: one visible turn, and the history is replayed."""

import subprocess

import pytest

from tests.end_to_end.claude.columns import REAL, Stage
from tests.harness import eventually

pytestmark = pytest.mark.timeout(240)


def test_a_native_session_whose_file_is_gone_causes_only_a_fallback(stage: Stage) -> None:
    session = stage.serve(limits="idle_timeout_s = 1").session()
    stage.turn(session, "say one")
    stage.suspended(session)
    old = stage.native_id(session)
    files = stage.native_files(session)
    assert files
    for path in files:
        path.unlink()
    turn = stage.turn(session, "say two")
    assert (turn["stop_reason"], stage.server.text(session, 2)) == ("end_turn", "two")
    (fallback,) = stage.events(session, "context_fallback")
    assert "No conversation found" in fallback["reason"] and not stage.events(session, "error")
    assert [event["turn"] for event in stage.events(session, "turn_end")] == [1, 2]
    assert stage.native_id(session) != old
    assert stage.recalled(session) == ["say one", "say two"]
    assert len(stage.events(session, "context_fallback")) == 1


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_native_session_in_use_by_another_process_still_gets_everything(stage: Stage) -> None:
    session = stage.serve(limits="idle_timeout_s = 1").session()
    stage.turn(session, "say one")
    stage.suspended(session)
    native = stage.native_id(session)
    eventually(lambda: not stage.processes_on(native), "the first process is gone")
    argv, env = stage.command()
    flags = ["-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"]
    with subprocess.Popen(
        [*argv, *flags, "--resume", native],
        env={"PATH": "/usr/bin:/bin", **env},
        cwd=stage.workdir,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        try:
            other.stdin.write(
                b'{"type":"control_request","request_id":"1","request":{"subtype":"initialize","hooks":null}}\n'
            )
            other.stdin.flush()
            assert b"control_response" in other.stdout.readline()
            for text in ("say two", "say three"):
                assert stage.turn(session, text)["stop_reason"] == "end_turn"
                ours = [pid for pid in stage.processes_on(stage.native_id(session)) if pid != other.pid]
                assert len(ours) <= 1
        finally:
            other.kill()
    assert stage.recalled(session) == ["say one", "say two", "say three"]


@pytest.mark.smoke
def test_a_native_session_never_has_two_of_our_processes(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, "say one")
    native = stage.native_id(session)
    most = 0
    for number in range(3):
        stage.server.send(session, f"say more {number}")
        while stage.server.session(session)["state"] == "processing":
            most = max(most, len(stage.processes_on(native)))
        stage.kill_agent(session)
    assert most == 1
    assert stage.recalled(session) == ["say one", "say more 0", "say more 1", "say more 2"]
