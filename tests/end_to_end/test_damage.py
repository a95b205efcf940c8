"""A store that is away for a while, a launch that can't be read, a copied directory: all else goes on."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.end_to_end.victims import until_said
from tests.harness import NO_LIMITS, LiveServer, eventually, no_holes

# Long enough to be still under way when it is looked at on a busy machine.
STREAM = "stream 400 20\nsay end"
STREAMED = "".join(f"w{n} " for n in range(400)) + "\nend"
HANGING = "say half\nhang"
ASKING = "permit Deploy\nsay end"


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    """One whose data may be damaged."""
    return make_server()


def test_a_database_that_somebody_else_locks_only_delays_what_is_stored(server: LiveServer) -> None:
    session = server.create()
    server.send(session, STREAM)
    until_said(server, session, 1, "w3 ")
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        eventually(lambda: "waits for the store" in server.log_tail(), "the server finds the store locked", 60)
        other.execute("ROLLBACK")
    assert server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(session, 1) == STREAMED
    no_holes(server.log(session))
    assert server.recalled(session) == [STREAM]


def test_a_launch_that_can_not_be_read_fails_its_own_turn_and_no_other(server: LiveServer) -> None:
    broken, sound = server.create(), server.create()
    server.send(broken, HANGING)
    until_said(server, broken, 1, "^half$")
    server.send(sound, STREAM)
    until_said(server, sound, 1, "w3 ")
    server.kill()
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        of_it = "session_key = (SELECT session_key FROM sessions WHERE session_id = ?)"
        database.execute(f"UPDATE launches SET driver_state = X'00' WHERE {of_it}", (broken,))
    (server.data / "launches" / "a-folder-of-nobody").mkdir()
    server.restart()
    assert server.wait_idle(sound)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(sound, 1) == STREAMED
    turn = server.wait_idle(broken)["turns"][0]
    assert turn["stop_reason"] == "failed"
    assert server.text(broken, 1) == "half"
    assert server.recalled(broken) == [HANGING]
    assert not (server.data / "launches" / "a-folder-of-nobody").exists()


@pytest.mark.smoke
def test_a_server_on_a_copy_of_the_data_leaves_the_agents_of_the_first_alone(
    server: LiveServer, make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    session = server.create()
    server.send(session, ASKING)
    prompt = server.prompt(session)
    copied = tmp_path / "copied"
    shutil.copytree(server.data, copied, ignore=shutil.ignore_patterns("sock", "perdure.db*"))
    with (
        closing(sqlite3.connect(server.data / "perdure.db")) as database,
        closing(sqlite3.connect(copied / "perdure.db")) as copy,
    ):
        database.backup(copy)
    second = make_server(NO_LIMITS, "copied")
    turn = second.wait_idle(session)["turns"][0]
    assert turn["stop_reason"] == "failed"
    assert second.recalled(session) == [ASKING]
    server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)
    assert server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(session, 1).endswith("end")
