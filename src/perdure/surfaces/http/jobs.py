"""Scheduled jobs over HTTP.

Above: routes.py. Below: the verbs for jobs.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.jobs import Missed, Outcome, Overlap, Trigger
from perdure.runtime.verbs.jobs import Jobs
from perdure.surfaces.http.endpoint import MAX_LIMIT, NEXT_PAGE, PAGE_SIZE, Endpoint, between
from perdure.surfaces.http.fields import NON_BLANK, Labels, Name, NonBlankText, PathText
from perdure.surfaces.http.requests import body_of, reply, whole_number

Cron = Annotated[str, Meta(min_length=1, max_length=200)]
EverySeconds = Annotated[int, Meta(ge=1, le=315_360_000)]
ZoneName = Annotated[str, Meta(min_length=1, max_length=100)]
Moment = Annotated[str, Meta(min_length=1, max_length=40)]
MaxRuns = Annotated[int, Meta(ge=1, le=1_000_000)]
JitterSeconds = Annotated[int, Meta(ge=0, le=86_400)]
MissedMax = Annotated[int, Meta(ge=1, le=100)]
MaxFailures = Annotated[int, Meta(ge=1, le=1_000)]
KeepSessions = Annotated[int, Meta(ge=0, le=1_000)]
KeepDays = Annotated[int, Meta(ge=1, le=3_650)]

# Request bodies -----------------------------------------------------------------------------------------------------


class ScheduleBody(Struct, kw_only=True):
    """When a job is due: a cron expression or an interval."""

    cron: Cron | None = None
    """Five fields (minute, hour, day of month, month, day of week), or @hourly, @daily, @weekly, @monthly, @yearly."""
    every_s: EverySeconds | None = None
    """Seconds between two runs, counted from `starts_at`."""
    time_zone: ZoneName | UnsetType = UNSET
    """An IANA name. Default: the server's time zone."""
    starts_at: Moment | None = None
    """No run before this time. Without a UTC offset, it is in the job's time zone."""
    until: Moment | None = None
    """No run after this time."""


class JobBody(ScheduleBody, kw_only=True):
    """A new job."""

    name: Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema=NON_BLANK)]
    message: NonBlankText
    """A template with the placeholders {job}, {due}, {date}, {run}, {last_outcome} and {last_result}."""
    max_runs: MaxRuns | None = None
    """End the job after this many scheduled runs."""
    jitter_s: JitterSeconds = 0
    """Delay each run by a random time of up to this many seconds."""
    missed: Missed = "once"
    """What to do about runs that were due while the server was down."""
    missed_max: MissedMax = 10
    """With missed = "all": the maximum number of missed runs to catch up on, newest first."""
    overlap: Overlap = "wait"
    """What to do when a run is due and the previous one has not ended."""
    session: Name = "new"
    """`new`: a new session for each run. `same`: one session for all runs. Or the id of a session."""
    agent: Name | None = None
    model: Name | None = None
    mode: Name | None = None
    project: Name | None = None
    workdir: PathText | None = None
    labels: Labels = []
    max_failures: MaxFailures = 5
    """Pause the job after this many failed runs in a row."""
    keep_sessions: KeepSessions | None = None
    """Keep the sessions of this many of the newest runs and erase the rest. Null: keep all."""
    keep_days: KeepDays | None = None
    """Erase the sessions of runs that ended more than this many days ago."""


class JobChanges(Struct, kw_only=True):
    """Omitted fields don't change. Null resets a setting. `cron` replaces `every_s`, and vice versa."""

    name: Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema=NON_BLANK)] | UnsetType = UNSET
    message: NonBlankText | UnsetType = UNSET
    cron: Cron | UnsetType | None = UNSET
    every_s: EverySeconds | UnsetType | None = UNSET
    time_zone: ZoneName | UnsetType | None = UNSET
    starts_at: Moment | UnsetType | None = UNSET
    until: Moment | UnsetType | None = UNSET
    max_runs: MaxRuns | UnsetType | None = UNSET
    jitter_s: JitterSeconds | UnsetType | None = UNSET
    missed: Missed | UnsetType | None = UNSET
    missed_max: MissedMax | UnsetType | None = UNSET
    overlap: Overlap | UnsetType | None = UNSET
    session: Name | UnsetType | None = UNSET
    agent: Name | UnsetType | None = UNSET
    model: Name | UnsetType | None = UNSET
    mode: Name | UnsetType | None = UNSET
    project: Name | UnsetType | None = UNSET
    workdir: PathText | UnsetType | None = UNSET
    labels: Labels | UnsetType | None = UNSET
    max_failures: MaxFailures | UnsetType | None = UNSET
    keep_sessions: KeepSessions | UnsetType | None = UNSET
    keep_days: KeepDays | UnsetType | None = UNSET


class RunNowBody(Struct, kw_only=True):
    run_id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """Makes the request idempotent: a repeated request with the same id starts no second run."""


# Responses ---------------------------------------------------------------------------------------------------------


class JobRun(Struct, kw_only=True):
    id: str
    job_id: str
    due_at: str
    trigger: Trigger
    state: Literal["waiting", "starting", "running", "ended"]
    outcome: Outcome | None
    detail: str
    """Why the run was skipped, failed or was cancelled."""
    session_id: str | None
    """Null if the run has no session, or if it was erased."""
    turn: int | None
    message_id: str | None
    started_at: str | None
    ended_at: str | None
    duration_ms: int | None
    cost_usd: float | None


class JobRuns(Struct):
    runs: list[JobRun]
    next_cursor: str | None


class Job(Struct, kw_only=True):
    id: str
    name: str
    message: str
    cron: str | None
    every_s: int | None
    time_zone: str
    starts_at: str | None
    until: str | None
    max_runs: int | None
    jitter_s: int
    missed: Missed
    missed_max: int
    overlap: Overlap
    session: str
    agent: str | None
    model: str | None
    mode: str | None
    project: str | None
    workdir: str | None
    labels: list[str]
    max_failures: int
    keep_sessions: int | None
    keep_days: int | None
    state: Literal["active", "paused", "ended"]
    paused_by: Literal["person", "failures"] | None
    reason: str
    """Why the server paused it."""
    schedule: str
    """The schedule in words."""
    created_at: str
    next_run_at: str | None
    """Includes the jitter."""
    next_runs: list[str]
    """The next five due times, in the job's time zone."""
    run_count: int
    failures: int
    """The number of consecutive failed runs."""
    backoff_until: str | None
    session_id: str | None
    """With session = "same": the session of all runs."""
    last_run: JobRun | None


class JobList(Struct):
    jobs: list[Job]


class SchedulePreview(Struct, kw_only=True):
    schedule: str
    time_zone: str
    next_runs: list[str]


# Handlers -----------------------------------------------------------------------------------------------------------


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


async def list_jobs(request: Request) -> Response:
    return reply({"jobs": await _jobs(request).all()})


async def create_job(request: Request) -> Response:
    body: dict[str, Any] = msgspec.to_builtins(await body_of(request, JobBody))
    return reply(await _jobs(request).create(body), 201)


async def preview_schedule(request: Request) -> Response:
    return reply(_jobs(request).preview(msgspec.to_builtins(await body_of(request, ScheduleBody))))


async def get_job(request: Request) -> Response:
    return reply(await _jobs(request).get(request.path_params["job_id"]))


async def change_job(request: Request) -> Response:
    body: dict[str, Any] = msgspec.to_builtins(await body_of(request, JobChanges))
    return reply(await _jobs(request).change(request.path_params["job_id"], body))


async def delete_job(request: Request) -> Response:
    await _jobs(request).remove(request.path_params["job_id"])
    return Response(status_code=204)


async def pause_job(request: Request) -> Response:
    return reply(await _jobs(request).pause(request.path_params["job_id"]))


async def resume_job(request: Request) -> Response:
    return reply(await _jobs(request).resume(request.path_params["job_id"]))


async def run_job(request: Request) -> Response:
    body = await body_of(request, RunNowBody)
    return reply(await _jobs(request).run(request.path_params["job_id"], body.run_id), 202)


async def list_job_runs(request: Request) -> Response:
    limit = whole_number(request, "limit", 50, low=1, high=MAX_LIMIT)
    cursor = request.query_params.get("cursor")
    runs, following = await _jobs(request).runs(request.path_params["job_id"], limit, cursor)
    return reply({"runs": runs, "next_cursor": following})


# Endpoints ----------------------------------------------------------------------------------------------------------

J = "/api/jobs/{job_id}"
JOBS = [
    Endpoint("GET", "/api/jobs", list_jobs, "List the scheduled jobs", answers={200: JobList}),
    Endpoint(
        "POST",
        "/api/jobs",
        create_job,
        "Schedule a job",
        body=JobBody,
        answers={201: Job},
        refusals=("not_found", "conflict", "too_large"),
    ),
    # Before the paths with a job's id.
    Endpoint(
        "POST",
        "/api/jobs/preview",
        preview_schedule,
        "Describe a schedule in words, with its next times",
        body=ScheduleBody,
        answers={200: SchedulePreview},
    ),
    Endpoint("GET", J, get_job, "Get a job", answers={200: Job}, refusals=("not_found",)),
    Endpoint(
        "PATCH",
        J,
        change_job,
        "Change a job",
        body=JobChanges,
        answers={200: Job},
        refusals=("not_found", "too_large"),
    ),
    Endpoint(
        "DELETE",
        J,
        delete_job,
        "Delete a job and the list of its runs; their sessions stay",
        answers={204: None},
        refusals=("not_found",),
    ),
    Endpoint("POST", f"{J}/pause", pause_job, "Pause a job", answers={200: Job}, refusals=("not_found",)),
    Endpoint("POST", f"{J}/resume", resume_job, "Resume a paused job", answers={200: Job}, refusals=("not_found",)),
    Endpoint(
        "POST",
        f"{J}/run",
        run_job,
        "Run a job now",
        body=RunNowBody,
        answers={202: JobRun},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "GET",
        f"{J}/runs",
        list_job_runs,
        "List the runs of a job, newest first",
        query={
            "limit": (int, PAGE_SIZE, between(1, MAX_LIMIT)),
            "cursor": (str, NEXT_PAGE),
        },
        answers={200: JobRuns},
        refusals=("not_found",),
    ),
]
