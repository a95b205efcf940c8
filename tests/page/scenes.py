"""A server with some data of every kind, and the path to each of the page's views.

Above: the tests of all views. Below: the harness. The data is what a user has after a day.
"""

from pathlib import Path
from typing import NamedTuple

from tests.harness import LiveServer, eventually

WORK = """think The middleware checks the token in three places; one is enough.
plan read the middleware; move the check; run the tests
tool Bash grep -rn check_token src
edit src/auth.py
edit src/auth.py
tool Read src/middleware.py
usage 18200 2140
say The check now lives in **one** place, `src/auth.py`. Two callers are left to change."""
TABLE = "say | file | lines | covered | - see the [plan](https://example.org/plan) for the rest of it"


class Day(NamedTuple):
    """Sessions by what they show."""

    work: str
    waiting: str
    asking: str
    running: str
    failed: str
    team: str
    job: str


def a_day(server: LiveServer, folder: Path) -> Day:
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text("# Site\n")
    rules = [
        {"tool": "Bash", "pattern": "git status*", "action": "allow"},
        {"tool": "Bash", "pattern": "rm *", "action": "deny"},
    ]
    server.post("/api/projects", {"name": "Site", "path": str(folder), "permissions": rules}, expect=201)
    work = server.create(title="Auth refactor", project="Site", labels=["backend"])
    server.turn(work, WORK)
    server.turn(work, "Hello, what can you do?")
    server.turn(work, TABLE)
    failed = server.create(title="Nightly build", agent="rehearsal-stream")
    server.turn(failed, "say Building the image\ncrash 2")
    waiting = server.create(title="Release 2.4")
    server.send(waiting, "tool Bash npm test\nedit CHANGELOG.md\npermit Deploy")
    asking = server.create(title="Docs")
    server.send(asking, "ask Which style do you want? | Short | Thorough, with examples for each of the settings")
    running = server.create(title="Flaky tests")
    server.send(running, "plan reproduce; bisect; fix\nsay Running the suite again.\nhang")
    team = server.create(title="Version 3", project="Site")
    server.turn(
        team,
        "say I split it.\ndelegate reviewer Look for what is missing in the notes\ndelegate ../outside Write there",
    )
    guide = server.create(title="Migration guide", agent="rehearsal-stream", parent=team)
    server.turn(guide, "delegate writer Begin the guide\nsay A first version is there.")
    server.turn(server.create(title="Examples of each step", parent=guide), "say Three examples.")
    server.create(title="Announcement", parent=team)
    for session in (waiting, asking):
        server.prompt(session)
    eventually(lambda: server.session(running)["state"] == "processing", "the last session works")
    return Day(work, waiting, asking, running, failed, team, some_jobs(server))


def some_jobs(server: LiveServer) -> str:
    """Create a job that has run, one paused after failures and one paused by the user. Returns the first."""
    nightly = {"name": "Nightly tests", "message": "say Run {run} on {date}: 412 passed.", "cron": "0 2 * * *"}
    job = str(server.post("/api/jobs", {**nightly, "labels": ["backend"]}, expect=201)["id"])
    failing = {"name": "Import of the news", "message": "say Reading\ncrash 2", "agent": "rehearsal-stream"}
    stuck = server.post("/api/jobs", {**failing, "every_s": 3600, "max_failures": 1}, expect=201)["id"]
    for each in (job, stuck):
        server.post(f"/api/jobs/{each}/run", expect=202)
    weekly = {"name": "Weekly report", "message": "say Report", "cron": "30 9 * * 1", "time_zone": "Asia/Tokyo"}
    paused = server.post("/api/jobs", weekly, expect=201)["id"]
    server.post(f"/api/jobs/{paused}/pause", expect=200)
    eventually(lambda: server.get(f"/api/jobs/{job}")["last_run"]["outcome"] == "completed", "the job has run")
    eventually(lambda: server.get(f"/api/jobs/{stuck}")["state"] == "paused", "the job is paused")
    return job


def paths(day: Day) -> dict[str, str]:
    """The path of every view, by name."""
    return {
        "new": "/new",
        "inbox": "/inbox",
        "session": f"/s/{day.work}",
        "waiting": f"/s/{day.waiting}",
        "failed": f"/s/{day.failed}",
        "team": f"/s/{day.team}",
        "search": "/search?q=token",
        "usage": "/usage",
        "jobs": "/jobs",
        "job": f"/jobs/{day.job}",
        "newjob": "/jobs/new",
        "agents": "/settings/agents",
        "projects": "/settings/projects",
        "settings": "/settings",
        "inspector": f"/s/{day.work}/events",
    }
