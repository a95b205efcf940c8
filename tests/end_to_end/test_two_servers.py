"""One data directory, one server at a time: a second one is refused, and the next one continues where the last one
stopped."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.config import Config
from perdure.runtime.data.directory import DataDirectory
from perdure.server import Server
from tests.end_to_end.victims import none_left, until_said
from tests.harness import SOURCE, WAIT_S, LiveServer, eventually, marked_processes


@pytest.mark.smoke
def test_a_second_server_on_the_same_data_refuses_and_harms_nothing(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "stream 100 10\nsay end")
    second = subprocess.run(
        [sys.executable, "-m", "perdure", "serve", "--port", "0", "--data", str(server.data)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert second.returncode != 0
    assert "Another server is using" in second.stderr and "Traceback" not in second.stderr
    assert server.url in second.stderr
    server.wait_idle(session)
    assert server.text(session, 1) == "".join(f"w{n} " for n in range(100)) + "\nend"


async def test_a_server_starts_while_a_read_only_command_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker = os.open(tmp_path / "lock", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(looker, fcntl.LOCK_SH)
    tries: list[int] = []
    really_open = DataDirectory.open

    def opened(directory: DataDirectory) -> None:
        tries.append(1)
        if len(tries) == 10:
            os.close(looker)
        really_open(directory)

    monkeypatch.setattr(DataDirectory, "open", opened)
    server = Server(data=tmp_path, port=0, config=Config(), token="test-token-of-the-tests")
    await server.start()
    await server.stop()
    assert len(tries) == 10


def test_a_graceful_shutdown_ends_idle_agents_and_leaves_running_turns_to_their_keepers(
    server: LiveServer,
) -> None:
    idle, running, asking = server.create(), server.create(), server.create()
    server.turn(idle, "say one")
    server.send(asking, "permit Deploy\nsay done")
    prompt = server.prompt(asking)
    server.send(running, "say begun\nstream 200 10\nsay end")
    until_said(server, running, 1, "^begun")
    assert server.stop() == 0
    # A keeper and an agent for each of the two running turns.
    eventually(lambda: len(marked_processes(server.data)) <= 4, "the idle agent ends")
    assert len(marked_processes(server.data)) in (2, 3, 4)
    server.restart()
    assert server.session(idle)["attached"] == "suspended"
    server.wait_idle(running)
    turn = server.transcript(running)[0]
    assert turn["stop_reason"] == "end_turn"
    assert server.text(running, 1) == "begun\n" + "".join(f"w{n} " for n in range(200)) + "\nend"
    server.post(f"/api/sessions/{asking}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)
    server.wait_idle(asking)
    assert server.text(asking, 1).endswith("done")
    assert server.recalled(idle) == ["say one"]


def test_a_turn_that_ends_without_a_server_is_complete_for_the_next_one(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say begun\nsleep 1\nsay end\ncrash")
    until_said(server, session, 1, "^begun")
    server.kill()
    eventually(lambda: not marked_processes(server.data), "agent and keeper end on their own")
    server.restart()
    server.wait_idle(session)
    assert server.text(session, 1) == "begun\nend"


def test_a_restart_ends_all_sessions_if_configured(make_server: Callable[..., LiveServer]) -> None:
    server = make_server('[server]\nslots = 0\nproject_slots = 0\non_restart = "end"\n')
    idle, running = server.create(), server.create()
    server.turn(idle, "say one")
    server.send(running, "say half\nhang")
    until_said(server, running, 1, "^half$")
    server.kill()
    server.restart()
    ends = {}
    for session, status in ((idle, "stopped"), (running, "failed")):
        found = server.session(session)
        assert (found["state"], found["status"]) == ("ended", status)
        ends[session] = server.log(session)[-1]["reason"]
        assert found["error"] == ends[session]
    assert ends == {
        idle: "Server restarted between turns",
        running: "Server restarted while session was running",
    }
    assert server.text(running, 1) == "half"
    none_left(server)


def test_orphaned_processes_of_unknown_launches_are_ended_at_startup(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "spawn 300\nhang")
    until_said(server, session, 1, "spawned")
    server.kill()
    install = (server.data / "install").read_text().split()[0]
    stray = subprocess.Popen(
        ["sleep", "300"], env={"PERDURE_LAUNCH": f"{install}-000000000000", "PATH": "/usr/bin:/bin"}
    )
    server.restart()
    assert stray.wait(WAIT_S) != 0
    assert server.session(session)["state"] == "processing"
