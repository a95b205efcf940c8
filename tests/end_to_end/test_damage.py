"""A store that is unavailable for some time, an unreadable launch, a copied directory: everything else keeps
working."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.victims import until_said
from tests.harness import NO_LIMITS, LiveServer, eventually, no_holes

# Long enough to still be running when it is checked on a busy machine.
STREAM = "stream 400 20\nsay end"
STREAMED = "".join(f"w{n} " for n in range(400)) + "\nend"
HANGING = "say half\nhang"
ASKING = "permit Deploy\nsay end"


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    """A server whose data a test may damage."""
    return make_server()


def test_a_database_locked_by_another_process_only_delays_writes(server: LiveServer) -> None:
    session = server.create()
    server.send(session, STREAM)
    until_said(server, session, 1, "w3 ")
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        eventually(lambda: "store unavailable" in server.log_tail(), "the server finds the store locked", 60)
        other.execute("ROLLBACK")
    assert server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(session, 1) == STREAMED
    no_holes(server.log(session))
    assert server.recalled(session) == [STREAM]


def test_an_unreadable_launch_fails_only_its_own_turn(server: LiveServer) -> None:
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


def launch_of(server: LiveServer, session: str) -> Path:
    """The folder of the session's launch."""
    with closing(sqlite3.connect(server.data / "perdure.db")) as database:
        (name,) = database.execute(
            "SELECT launch_id FROM launches JOIN sessions USING (session_key) WHERE session_id = ?", (session,)
        ).fetchone()
    return server.data / "launches" / str(name)


def damaged(server: LiveServer) -> dict[str, str]:
    """What the server has quarantined: ids, and what is wrong with each."""
    return {one["id"]: one["what"] for one in server.get("/api/server")["damaged"]}


def named(server: LiveServer, id_: str) -> bool:
    return id_ in damaged(server)


def doctor(server: LiveServer, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "perdure", "--data", str(server.data), "doctor", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=server.start_environment)


def failed_with(server: LiveServer, session: str) -> str:
    """The error message of the last turn."""
    assert server.wait_idle(session, 20)["turns"][-1]["stop_reason"] == "failed"
    return str([event for event in server.log(session) if event["type"] == "error"][-1]["message"])


@pytest.mark.parametrize("file", ["in", "out"])
def test_a_launch_with_a_missing_file_fails_its_own_turn_and_the_server_starts(server: LiveServer, file: str) -> None:
    broken, sound = server.create(), server.create()
    server.send(broken, HANGING)
    until_said(server, broken, 1, "^half$")
    server.send(sound, STREAM)
    until_said(server, sound, 1, "w3 ")
    folder = launch_of(server, broken)
    server.kill()
    (folder / file).unlink()
    server.restart()
    assert f"the file {folder / file} was removed" in failed_with(server, broken)
    assert server.text(broken, 1) == "half"
    assert server.wait_idle(sound)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(sound, 1) == STREAMED
    # Nothing is lost: the rest of the launch is in the quarantine, with its row.
    eventually(lambda: folder.name in damaged(server), "the launch is named")
    aside = server.data / "quarantine" / folder.name
    assert (aside / "spec.json").is_file()
    assert broken in (aside / f"damage-{broken}.json").read_text()
    assert not folder.exists()
    assert server.recalled(broken) == [HANGING]
    assert "Traceback" not in server.errors.read_text()
    server.http.delete(f"/api/sessions/{broken}?purge=true").raise_for_status()
    assert not aside.exists()


@pytest.mark.parametrize("file", ["in", "out"])
def test_removing_a_file_of_a_running_turn_fails_it_immediately(server: LiveServer, file: str) -> None:
    session = server.create()
    server.send(session, HANGING)
    until_said(server, session, 1, "^half$")
    folder = launch_of(server, session)
    (folder / file).unlink()
    assert f"the file {folder / file} was removed" in failed_with(server, session)
    assert server.turn(session, "say two")["stop_reason"] == "end_turn"
    assert "Traceback" not in server.errors.read_text()


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("mine")


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00{garbage")


def cut(path: Path) -> None:
    os.truncate(path, 0)


PIECES = ("spec.json", "lock", "out", "in", "err", "pid.json")
DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder replaced by a file": (replace_by_file, ""),
    "folder removed": (shutil.rmtree, ""),
    **{f"{name} replaced by a folder": (replace_by_folder, name) for name in PIECES},
    **{f"{name} is garbage": (fill_with_garbage, name) for name in PIECES[:2]},
    **{f"{name} cut": (cut, name) for name in PIECES},
}
"""The change, and the file of the launch folder."""
NAMED = ("folder replaced by a file", "out replaced by a folder", "in replaced by a folder", "out cut")


def test_with_any_damage_to_launch_files_each_turn_ends_and_the_server_starts(server: LiveServer) -> None:
    sound = server.create()
    broken = {what: server.create() for what in DAMAGE}
    for session in broken.values():
        server.send(session, HANGING)
    server.send(sound, STREAM)
    for session in broken.values():
        until_said(server, session, 1, "^half$")
    until_said(server, sound, 1, "w3 ")
    folders = {what: launch_of(server, session) for what, session in broken.items()}
    server.kill()
    for what, folder in folders.items():
        act, name = DAMAGE[what]
        act(folder / name)
    (server.data / "launches" / "a-stray-file").write_text("mine")
    (server.data / "quarantine").mkdir(exist_ok=True)
    (server.data / "quarantine" / "a-stray-file").write_text("mine")
    server.restart()
    assert server.wait_idle(sound)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(sound, 1) == STREAMED
    for what in NAMED:
        assert str(folders[what]) in failed_with(server, broken[what]), what
        is_named = partial(named, server, folders[what].name)
        eventually(is_named, f"{what}: the launch is named")
        assert (server.data / "quarantine" / folders[what].name).is_dir()
        assert not folders[what].exists()
    for what, session in broken.items():
        if server.session(session)["state"] == "processing":
            server.post(f"/api/sessions/{session}/abort")
        assert server.wait_idle(session)["turns"][0]["stop_reason"] in ("failed", "cancelled"), what
        assert server.turn(session, "say two")["stop_reason"] == "end_turn", what
    assert "Traceback" not in server.errors.read_text()
    assert (server.data / "launches" / "a-stray-file").read_text() == "mine"
    assert "a-stray-file" not in damaged(server)
    (server.data / "launches" / "a-stray-file").unlink()


def test_truncating_the_output_of_a_running_turn_fails_it_immediately(server: LiveServer) -> None:
    session = server.create()
    server.send(session, HANGING)
    until_said(server, session, 1, "^half$")
    folder = launch_of(server, session)
    os.truncate(folder / "out", 10)
    assert f"the file {folder / 'out'} was truncated" in failed_with(server, session)
    assert server.turn(session, "say two")["stop_reason"] == "end_turn"
    assert "Traceback" not in server.errors.read_text()


@pytest.mark.parametrize("value", ["'text'", "X'FF00'"])
def test_a_session_whose_row_has_another_id_is_reported_without_endless_retries(server: LiveServer, value: str) -> None:
    broken, sound = server.create(), server.create()
    server.turn(sound, "say one")
    server.send(broken, HANGING)
    until_said(server, broken, 1, "^half$")
    server.kill()
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        database.execute(f"UPDATE sessions SET session_id = {value} WHERE session_id = ?", (broken,))
    server.restart()
    eventually(lambda: damaged(server), "the row is named")
    assert server.recalled(sound) == ["say one"]
    assert server.http.get(f"/api/sessions/{broken}").status_code == 404
    assert len(server.errors.read_text().split("\n")) < 50
    assert "Traceback" not in server.errors.read_text()
    server.destroy()


@pytest.mark.parametrize("name", ["launches", "attachments", "boot.json", "token"])
def test_a_start_on_a_file_of_the_wrong_kind_names_it_and_says_what_to_do(server: LiveServer, name: str) -> None:
    server.stop()
    path = server.data / name
    kept = path.with_name("kept")
    if path.exists():
        path.rename(kept)
    if name in ("boot.json", "token"):
        path.mkdir()
    else:
        path.write_text("mine")
    with pytest.raises(AssertionError, match=rf"(?s)exit code 1.*perdure: {path} must be a .*Move it away") as refused:
        server.restart()
    assert "Traceback" not in str(refused.value)
    path.rmdir() if path.is_dir() else path.unlink()
    if kept.exists():
        kept.rename(path)
    server.restart()


@pytest.mark.parametrize("column", ["machine_state", "public", "both"])
def test_a_damaged_session_is_quarantined_and_all_others_continue(server: LiveServer, column: str) -> None:
    broken, sound = server.create(title="the broken one"), server.create()
    server.turn(broken, "say one")
    server.send(sound, ASKING)
    prompt = server.prompt(sound)
    server.kill()
    columns = "machine_state = X'7B00', public = X'7B00'" if column == "both" else f"{column} = X'7B00'"
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        database.execute(f"UPDATE sessions SET {columns} WHERE session_id = ?", (broken,))
    server.restart()
    server.post(f"/api/sessions/{sound}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)
    assert server.wait_idle(sound)["turns"][0]["stop_reason"] == "end_turn"
    listed = [entry["id"] for entry in server.get("/api/sessions")["sessions"]]
    if column == "public":
        # Only the list entry was damaged, and it is rebuilt.
        assert sorted(listed) == sorted([broken, sound])
        assert server.recalled(broken) == ["say one"]
        return
    assert sound in listed
    eventually(lambda: broken in damaged(server), "the session is named")
    assert server.get("/api/health")["damaged"] == 1
    answer = server.http.get(f"/api/sessions/{broken}")
    assert (answer.status_code, answer.json()["code"]) == (410, "damaged")
    assert "perdure doctor --deep" in answer.json()["detail"]
    refused = server.post(f"/api/sessions/{broken}/messages", {"text": "say two"}, expect=410)
    assert refused["code"] == "damaged"
    assert "Traceback" not in server.errors.read_text()
    looked = doctor(server)
    assert looked.returncode == 1
    assert f"session {broken}" in looked.stdout and sound not in looked.stdout
    with closing(sqlite3.connect(server.data / "perdure.db")) as database:
        rows = "SELECT COUNT(*) FROM events JOIN sessions USING (session_key) WHERE session_id = ?"
        assert database.execute(rows, (broken,)).fetchone()[0] > 5
    server.http.delete(f"/api/sessions/{broken}?purge=true").raise_for_status()
    assert server.get("/api/health")["damaged"] == 0


@pytest.mark.parametrize("running", [True, False])
def test_the_doctor_reads_every_row_and_says_what_to_do_about_unreadable_ones(
    server: LiveServer, running: bool
) -> None:
    session, other = server.create(), server.create()
    server.turn(session, "say one")
    server.turn(other, "say two")
    job = server.post("/api/jobs", {"name": "tick", "message": "say hello", "cron": "@yearly"}, expect=201)["id"]
    server.post(f"/api/jobs/{job}/run", expect=202)
    eventually(lambda: server.get(f"/api/jobs/{job}")["last_run"]["outcome"], "the job runs")
    server.stop()
    assert "every page and row is readable" in doctor(server, "--deep").stdout
    of_it = "session_key = (SELECT session_key FROM sessions WHERE session_id = ?)"
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        database.execute(f"UPDATE events SET body = X'7B' WHERE type = 'turn_start' AND {of_it}", (session,))
        database.execute(f"UPDATE turns SET public = X'80' WHERE {of_it}", (session,))
        database.execute("UPDATE job_runs SET body = X'80'")
        database.execute("UPDATE jobs SET revision = 'x'")
        database.execute(f"DELETE FROM events WHERE seq = 3 AND {of_it}", (other,))
        database.execute("DELETE FROM phrases_index_data WHERE id > 10")
    if running:
        server.restart()
    quick, deep = doctor(server), doctor(server, "--deep")
    assert "problem   session" not in quick.stdout
    assert deep.returncode == 1
    assert f"session {session}: a row of table events can't be read" in deep.stdout
    assert f"session {session}: a row of table turns can't be read" in deep.stdout
    assert all(f"a row of table {table} can't be read" in deep.stdout for table in ("jobs", "job_runs"))
    assert f"session {other}: its log should have events 1 to" in deep.stdout
    assert "search index" in deep.stdout
    assert "Restore a backup" in deep.stdout
    assert "Traceback" not in deep.stderr
    if not running:
        server.restart()
    assert server.http.get(f"/api/jobs/{job}").status_code == 410
    assert server.http.delete(f"/api/jobs/{job}").status_code == 204
    if not running:
        return
    assert server.http.get(f"/api/sessions/{session}/transcript").status_code == 410
    assert f"problem   session {session}: " in doctor(server).stdout, (
        "damage that the server found is reported immediately"
    )


def test_an_unreadable_event_is_refused_with_a_sentence_in_every_endpoint(server: LiveServer) -> None:
    session = server.create(agent="rehearsal-resume")
    server.turn(session, "say zero")
    server.turn(session, "say one")
    server.stop()
    of_it = "session_key = (SELECT session_key FROM sessions WHERE session_id = ?)"
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        database.execute(f"UPDATE events SET body = X'7BFF' WHERE type = 'assistant_text' AND {of_it}", (session,))
        database.execute(f"UPDATE turns SET public = X'80' WHERE {of_it}", (session,))
    server.restart()
    for path in (f"/api/sessions/{session}", f"/api/sessions/{session}/transcript"):
        answer = server.http.get(path)
        assert answer.status_code in (410, 500) and answer.json()["code"] == "damaged", answer.text
        assert "perdure doctor --deep" in answer.json()["detail"]
    sound = server.create()
    assert server.turn(sound, "say two")["stop_reason"] == "end_turn"
    assert "Traceback" not in server.errors.read_text()
    server.http.delete(f"/api/sessions/{session}?purge=true").raise_for_status()
