"""Scheduled jobs over HTTP: the resource, responses, refusals, and runs of erased sessions."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http import jobs as shapes
from tests.harness import eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

Json = dict[str, Any]
DAILY: Json = {"name": "Daily report", "message": "say report {run}", "cron": "0 9 * * *", "time_zone": "Europe/Berlin"}


def add(server: LocalServer, **given: Any) -> Json:
    made: Json = server.post("/api/jobs", {**DAILY, **given}, expect=201)
    msgspec.convert(made, shapes.Job)
    return made


def runs(server: LocalServer, job: str) -> list[Json]:
    found = server.get(f"/api/jobs/{job}/runs?limit=1000")
    msgspec.convert(found, shapes.JobRuns)
    listed: list[Json] = found["runs"]
    return listed


def over(server: LocalServer, job: str, number: int) -> list[Json]:
    """The runs, newest first, as soon as this many have ended."""

    def look() -> list[Json] | None:
        found = runs(server, job)
        return found if sum(run["state"] == "ended" for run in found) >= number else None

    found: list[Json] = eventually(look, lambda: str(runs(server, job)))
    return found


def test_a_job_is_added_listed_changed_and_removed(server: LocalServer) -> None:
    job = add(server)
    assert job["id"] == "daily-report" and job["schedule"] == "At 09:00 every day" and job["state"] == "active"
    assert len(job["next_runs"]) == 5
    assert {datetime.fromisoformat(due).strftime("%H:%M") for due in job["next_runs"]} == {"09:00"}
    assert job["id"] in [each["id"] for each in server.get("/api/jobs")["jobs"]]
    changed = server.http.patch(f"/api/jobs/{job['id']}", json={"every_s": 3_600, "overlap": "skip"}).json()
    assert (changed["cron"], changed["schedule"], changed["overlap"]) == (None, "Every hour", "skip")
    assert server.http.delete(f"/api/jobs/{job['id']}").status_code == 204
    assert is_problem(server.http.get(f"/api/jobs/{job['id']}"), 404, "not_found")


def test_a_job_can_be_sent_back_as_received(server: LocalServer) -> None:
    job = add(server, labels=["a"], max_runs=9, workdir=None)
    known = {field.name for field in msgspec.structs.fields(shapes.JobChanges)}
    given = {name: value for name, value in job.items() if name in known}
    again = server.http.patch(f"/api/jobs/{job['id']}", json=given)
    assert again.status_code == 200 and {**again.json(), "last_run": None} == job


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("get", ""),
        ("patch", ""),
        ("delete", ""),
        ("post", "/pause"),
        ("post", "/resume"),
        ("post", "/run"),
        ("get", "/runs"),
    ],
)
def test_the_error_for_a_missing_job_names_it(server: LocalServer, verb: str, path: str) -> None:
    answer = server.http.request(verb, f"/api/jobs/nothing{path}", json={} if verb in ("post", "patch") else None)
    assert is_problem(answer, 404, "not_found") and "There is no job 'nothing'" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "often"}, "cron"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"workdir": "/nowhere"}, "workdir"),
        ({"every_s": 0, "cron": None}, "every_s"),
        ({"missed": "sometimes"}, "missed"),
        ({"keep_days": 0}, "keep_days"),
        ({"until": "soon"}, "until"),
        ({"session": "s_nowhere"}, "session"),
        ({"message": " "}, "message"),
        ({"project": "nothing"}, "project"),
        ({"agent": "nobody"}, "agent"),
    ],
)
def test_a_validation_error_names_its_field(server: LocalServer, given: Json, field: str) -> None:
    before = server.get("/api/jobs")
    answer = server.http.post("/api/jobs", json={**DAILY, **given})
    status, code = (404, "not_found") if field in ("project", "agent") else (400, "invalid")
    assert is_problem(answer, status, code) and answer.json()["fields"] == [field]
    assert server.get("/api/jobs") == before


def test_a_schedule_can_be_previewed_before_a_job_is_created(server: LocalServer) -> None:
    shown = server.post("/api/jobs/preview", {"cron": "*/20 * * * *", "time_zone": "Asia/Kathmandu"}, expect=200)
    msgspec.convert(shown, shapes.SchedulePreview)
    assert (shown["schedule"], shown["time_zone"]) == ("Every 20th minute of every hour", "Asia/Kathmandu")
    assert len(shown["next_runs"]) == 5 and all(due.endswith("+05:45") for due in shown["next_runs"])
    refused = server.http.post("/api/jobs/preview", json={"cron": "* * * *"})
    assert is_problem(refused, 400, "invalid")


def test_a_job_runs_on_its_schedule_until_its_last_run(server: LocalServer) -> None:
    job = add(server, cron=None, every_s=1, max_runs=3)
    found = over(server, job["id"], 3)
    assert [run["outcome"] for run in found] == ["completed"] * 3
    assert [server.text(run["session_id"], run["turn"]) for run in found] == ["report 3", "report 2", "report 1"]
    assert all(run["duration_ms"] is not None for run in found)
    shown = server.get(f"/api/jobs/{job['id']}")
    assert (shown["state"], shown["next_run_at"], shown["next_runs"], shown["run_count"]) == ("ended", None, [], 3)
    assert shown["last_run"] == found[0]


def test_the_history_is_paginated_without_gaps(server: LocalServer) -> None:
    job = add(server)["id"]
    for number in range(5):
        server.post(f"/api/jobs/{job}/run", {"run_id": f"r{number}"}, expect=202)
        over(server, job, number + 1)
    found: list[Json] = []
    cursor = ""
    while True:
        page = server.get(f"/api/jobs/{job}/runs?limit=2{cursor}")
        found += page["runs"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == runs(server, job) and len(found) == 5
    assert is_problem(server.http.get(f"/api/jobs/{job}/runs?cursor=x"), 400, "invalid")


def test_a_manual_run_starts_once_for_each_run_id(server: LocalServer) -> None:
    job = add(server)["id"]
    first = server.post(f"/api/jobs/{job}/run", {"run_id": "mine"}, expect=202)
    msgspec.convert(first, shapes.JobRun)
    assert server.post(f"/api/jobs/{job}/run", {"run_id": "mine"}, expect=202)["id"] == first["id"]
    (run,) = over(server, job, 1)
    assert (run["trigger"], run["outcome"]) == ("manual", "completed")
    paused = server.post(f"/api/jobs/{job}/pause", expect=200)
    assert (paused["state"], paused["paused_by"], paused["next_run_at"]) == ("paused", "person", None)
    server.post(f"/api/jobs/{job}/run", expect=202)
    over(server, job, 2)
    assert server.post(f"/api/jobs/{job}/resume", expect=200)["state"] == "active"


def test_the_history_keeps_no_data_of_an_erased_session(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    job = add(server, message="say walnut and the rest")["id"]
    server.post(f"/api/jobs/{job}/run", expect=202)
    (run,) = over(server, job, 1)
    session = run["session_id"]
    assert server.http.delete(f"/api/sessions/{session}?purge=true").status_code == 200
    (left,) = eventually(lambda: [found for found in runs(server, job) if found["session_id"] is None], "it is erased")
    assert left == {**run, "session_id": None}
    follower = server.post(f"/api/jobs/{job}/run", expect=202)
    assert follower["id"] != run["id"]
    assert {found["outcome"] for found in over(server, job, 2)} == {"completed"}
