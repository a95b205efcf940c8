"""Jobs with the server killed around each due time: each due time runs once, and its message reaches the model once."""

import random
import time
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.end_to_end.claude.columns import COLUMNS, TURN_WAIT_S, Stage
from tests.end_to_end.test_server_killed import pause
from tests.harness import eventually
from tests.model.log import user_texts
from tests.sizes import size

KILLS = size("JOB_KILLS", 50, fast=1)
EVERY_S = 3
EARLIEST_S, LATEST_S = -0.15, 0.6
"""When the server is killed, relative to the due time of a run."""
STREAMING = tuple(column for column in COLUMNS if column.streams)


@pytest.mark.smoke
@pytest.mark.timeout(900)
@pytest.mark.parametrize("column", STREAMING, ids=lambda column: column.name)
def test_each_due_time_runs_once_however_often_the_server_is_killed(stage: Stage) -> None:
    kills = KILLS if stage.column.real else min(KILLS, 10)
    server = stage.serve(alone=True).server
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    body = {
        "name": "tick",
        "message": "say run {run} of {job}",
        "every_s": EVERY_S,
        "max_runs": kills,
        "missed": "all",
        "missed_max": 100,
        "agent": stage.column.name,
        "workdir": str(stage.workdir),
    }
    created = seconds(server.post("/api/jobs", body, expect=201)["created_at"])
    done = 0
    while (due_at := server.get("/api/jobs/tick")["next_run_at"]) is not None:
        pause(max(0.0, seconds(due_at) - time.time() + chance.uniform(EARLIEST_S, LATEST_S)))
        server.kill()
        server.restart()
        done += 1
    assert done >= kills // 2, "restarts took so long that most due times passed without a kill"
    runs = eventually(lambda: ended(stage), lambda: str(server.get("/api/jobs/tick/runs?limit=1000")), TURN_WAIT_S)
    assert [run["outcome"] for run in runs] == ["completed"] * kills, (seed, runs)
    assert [round(seconds(run["due_at"]) - created, 3) for run in runs] == [EVERY_S * (at + 1) for at in range(kills)]
    said = [f"run {number} of tick" for number in range(1, kills + 1)]
    assert [server.text(run["session_id"], run["turn"]) for run in runs] == said
    found = server.get("/api/sessions?label=job:tick&limit=1000")["sessions"]
    assert {session["id"] for session in found} == {run["session_id"] for run in runs} and len(found) == kills
    assert {session["turn_count"] for session in found} == {1}
    if stage.column.real:
        asked = Counter(user_texts(request)[-1] for request in stage.model.log.all if request.asks)
        assert asked == {f"say {text}": 1 for text in said}


def seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def ended(stage: Stage) -> list[Any] | None:
    """All runs, oldest first, once all have ended."""
    runs = stage.server.get("/api/jobs/tick/runs?limit=1000")["runs"][::-1]
    return runs if all(run["state"] == "ended" for run in runs) else None
