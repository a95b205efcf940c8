"""`perdure migrate` with real servers, real databases and real kills."""

import asyncio
import base64
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure.stores.transfer import Progress
from perdure.surfaces.cli import main
from perdure.surfaces.cli.migrate import Shown
from tests.cluster import NodeProcess
from tests.harness import NO_LIMITS, SOURCE, LiveServer, eventually
from tests.stores.moving import ask, dump, files, fill, home
from tests.surfaces.conftest import ServerProcess

LIMIT_S = 120
TEXTS = ["say remember the zebra", "say and the ünïcorn"]
ONE_SLOT = "[server]\nslots = 1\nproject_slots = 0\nagent = 'rehearsal'\n"
# A command that takes longer than a second, as on a busy machine, prints these lines to stderr.
PROGRESS = re.compile(r"^(Checking for \d+ s whether .*|[\d,]+ of [\d,]+ sessions?, .*)\n", re.MULTILINE)


def migrate(data: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "perdure", "migrate", "--data", str(data), *arguments]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}
    return subprocess.Popen(
        command, env={**kept, "PYTHONPATH": SOURCE}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def migrated(data: Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code, stdout, and stderr without progress lines."""
    process = migrate(data, *arguments)
    said, wrong = process.communicate(timeout=LIMIT_S)
    return process.returncode, said, PROGRESS.sub("", wrong)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = home(tmp_path / "data").path
    asyncio.run(fill(made, 3, sessions=3, steps=20))
    return made


# Words ------------------------------------------------------------------------------------------------------------


def test_invalid_arguments_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--to", "sqlite"], ["--to", "mysql://db/x"], ["--from", "postgresql://a/b", "--to", "x"], []):
        assert main(["migrate", "--data", str(tmp_path), *arguments]) == 2
    assert "is not a PostgreSQL URL" in capsys.readouterr().err


def test_a_directory_without_a_database_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--data", str(tmp_path / "none"), "--to", "postgresql://127.0.0.1:9/x"]) == 1
    assert f"There is no database in {tmp_path / 'none'}." in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_an_unreachable_database_is_reported_with_the_advice_to_retry(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "--data", str(data), "--to", "postgresql://127.0.0.1:9/x"]) == 1
    said = capsys.readouterr().err
    assert "can't be reached" in said and "Run the same command again" in said


def test_progress_is_shown_only_after_a_short_delay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("perdure.surfaces.cli.migrate.time.monotonic", lambda: now[0])
    shown = Shown()
    shown.progress(Progress(1, 10, 500, 5_000))
    assert capsys.readouterr().err == ""
    now[0] += 2
    shown.progress(Progress(2, 10, 1_000, 5_000))
    shown.progress(Progress(3, 10, 1_500, 5_000))
    assert capsys.readouterr().err == "2 of 10 sessions, 1,000 of 5,000 events, 500 events/s, about 8.0 s left\n"


# Moving -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.needs("postgresql")
def test_moving_there_and_back_reports_each_step(data: Path, tmp_path: Path, postgres_url: str) -> None:
    before = dump(data / "perdure.db")
    secret = postgres_url.replace("://postgres@", "://postgres:secret@")
    code, said, wrong = migrated(data, "--to", secret)
    assert (code, wrong) == (0, "")
    count = len(before["events"])
    assert said.startswith(f"Moved 3 sessions, {count} events and 3 jobs in ")
    assert f"Start the server with: perdure serve --data {data} --database {postgres_url}\n" in said
    assert "secret" not in said + (data / "migrated.json").read_text()
    assert migrated(data, "--to", postgres_url)[1].startswith("Everything was already moved on 20")
    assert migrated(data, "--to", postgres_url, "--verify") == (
        0,
        f"The databases match: 3 sessions, {count} events.\n",
        "",
    )
    other = tmp_path / "other"
    code, said, wrong = migrated(other, "--from", postgres_url, "--to", "sqlite")
    assert (code, wrong) == (0, "") and f"Start the server with: perdure serve --data {other}\n" in said
    assert not (other / "migrated.json").exists()
    assert files(other) == files(data)
    assert {table: rows for table, rows in dump(other / "perdure.db").items() if table != "documents"} == {
        table: rows for table, rows in before.items() if table != "documents"
    }
    code, said, wrong = migrated(data, "--from", postgres_url, "--to", "sqlite")
    assert code == 1 and "The target already has sessions" in wrong


@pytest.mark.long
@pytest.mark.needs("postgresql")
def test_verify_names_a_flipped_byte(data: Path, postgres_url: str) -> None:
    assert migrated(data, "--to", postgres_url)[0] == 0
    ask(postgres_url, "UPDATE events SET body = set_byte(body, 4, get_byte(body, 4) # 64) WHERE seq = 2")
    code, said, wrong = migrated(data, "--to", postgres_url, "--verify")
    assert (code, said) == (1, "")
    assert "Session s_001, table events: the row with seq 2 differs in body.\n" in wrong
    assert wrong.endswith("perdure: The databases differ.\n")


@pytest.mark.full
@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("way", ["to postgresql", "to sqlite"])
def test_a_migration_continues_after_a_kill_at_any_moment(tmp_path: Path, postgres_url: str, way: str) -> None:
    data, total = home(tmp_path / "data").path, 30
    asyncio.run(fill(data, 5, sessions=total, steps=400))
    before, place, arguments = dump(data / "perdure.db"), data, ["--to", postgres_url]
    if way == "to sqlite":
        assert migrated(data, *arguments)[0] == 0
        place, arguments = tmp_path / "other", ["--from", postgres_url, "--to", "sqlite"]
    chance = random.Random(way)

    def moved() -> int:
        if way == "to postgresql":
            return len(ask(postgres_url, "SELECT 1 FROM heads"))
        path = place / "perdure.db"
        return len(list((place / "attachments").glob("*"))) if path.exists() else 0

    most = total if way == "to postgresql" else moved_files(data)
    kills = 0
    for least in sorted(chance.sample(range(most), 5)):
        with migrate(place, *arguments) as process:
            eventually(partial(is_far, process, moved, least), f"{least} are moved", LIMIT_S)
            process.kill()
            process.communicate(timeout=LIMIT_S)
        kills += process.returncode == -signal.SIGKILL
    assert kills
    code, _, wrong = migrated(place, *arguments)
    assert (code, wrong) == (0, "")
    assert migrated(data, "--to", postgres_url, "--verify")[0] == 0
    if way == "to sqlite":
        after = dump(place / "perdure.db")
        assert all(after[table] == rows for table, rows in before.items() if table != "documents")
        assert files(place) == files(data)


def is_far(process: subprocess.Popen[str], moved: Callable[[], int], least: int) -> bool:
    return process.poll() is not None or moved() >= least


def moved_files(data: Path) -> int:
    return len(list((data / "attachments").glob("*")))


# Servers ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.needs("postgresql")
def test_a_running_server_is_not_disturbed(server: ServerProcess, postgres_url: str) -> None:
    ran = server.run("migrate", "--to", postgres_url)
    assert ran.returncode == 1 and ran.stdout == ""
    assert f"Another server is using {server.data} (pid " in ran.stderr
    assert f"{server.url}). Stop it first" in ran.stderr
    assert server.get("/api/health")["status"] == "ok"


class StopsAgents(LiveServer):
    """Stop the server and end running turns."""

    def _begin(self, *arguments: str) -> Any:
        return super()._begin(*arguments, "--stop-agents")


@pytest.fixture
def first(tmp_path: Path) -> Iterator[LiveServer]:
    server = StopsAgents(tmp_path / "data", ONE_SLOT).start()
    yield server
    server.destroy()


@pytest.fixture
def node(tmp_path: Path, postgres_url: str) -> Iterator[NodeProcess]:
    made = NodeProcess(tmp_path / "data", NO_LIMITS, postgres_url)
    yield made
    if made.process is not None:
        made.finish()


@pytest.mark.full
@pytest.mark.needs("postgresql")
def test_conversations_continue_after_the_move(first: LiveServer, node: NodeProcess, postgres_url: str) -> None:
    talked, attached, waiting = first.create(), first.create(), first.create()
    answer = first.send(talked, TEXTS[0], message_id="the-first")
    first.wait_idle(talked)
    first.turn(talked, TEXTS[1])
    sent = {"name": "notes.txt", "data": base64.b64encode(b"of all colours").decode()}
    first.turn(attached, "say look", attachments=[sent])
    said_with = next(event for event in first.log(attached) if event["type"] == "user_message")
    file = said_with["attachments"][0]["file"]
    job = first.post("/api/jobs", {"name": "Report", "message": "say report", "cron": "@yearly"}, expect=201)
    first.post(f"/api/jobs/{job['id']}/run", expect=202)
    eventually(lambda: ended(first), "the job's run has ended")
    # The only slot is taken, so these wait. Stopping ends the turn that holds it.
    first.send(talked, "sleep 1000")
    first.send(waiting, "say at last")
    first.send(waiting, "say and then", when_busy="queue")
    assert first.session(waiting)["state"] == "accepted"
    usage, logs = first.get("/api/usage"), {name: first.log(name) for name in (attached, waiting)}
    first.stop()

    code, said, wrong = migrated(first.data, "--to", postgres_url)
    assert (code, wrong) == (0, "") and said.startswith("Moved 4 sessions, ")
    node.start()
    assert node.recalled(talked)[:2] == TEXTS
    assert node.send(talked, TEXTS[0], message_id="the-first") == answer
    assert [each["id"] for each in node.get("/api/sessions?q=zebra")["sessions"]] == [talked]
    assert node.http.get(f"/api/sessions/{attached}/attachments/{file}").content == b"of all colours"
    assert node.log(attached)[: len(logs[attached])] == logs[attached]
    node.wait(waiting, lambda session: session["state"] == "idle" and session["turn_count"] == 2)
    assert [node.text(waiting, turn) for turn in (1, 2)] == ["at last", "and then"]
    assert node.log(waiting)[: len(logs[waiting])] == logs[waiting]
    assert [each["id"] for each in node.get("/api/jobs")["jobs"]] == [job["id"]]
    assert ended(node)
    assert node.get("/api/usage")["total"]["turns"] >= usage["total"]["turns"] >= 4
    refused = migrated(first.data.parent / "other", "--from", postgres_url, "--to", "sqlite")
    assert refused[0] == 1 and "A server is using this database: node " in refused[2]


def ended(server: LiveServer) -> bool:
    runs = server.get("/api/jobs/report/runs")["runs"]
    return [run["state"] for run in runs] == ["ended"]
