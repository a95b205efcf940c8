"""Texts for scheduled jobs: schedule, state and outcomes of runs. Pure.

Above: jobs.py. Below: output.py. The current time is a parameter, so tests get the same text each time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from perdure.surfaces.cli.output import GAP_COLUMNS, LAST_COLUMNS, duration
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

MESSAGE_CHARS = 300
DETAIL_CHARS = 200
TRIGGERS = {"schedule": "", "missed": "missed", "manual": "manual"}
MISSED = {
    "skip": "skip missed runs",
    "once": "run once for all missed runs",
    "all": "run each missed run, at most the newest {missed_max}",
}
OVERLAPS = {
    "wait": "wait for the previous run to end",
    "skip": "skip the new run",
    "interrupt": "interrupt the previous run",
}
SESSIONS = {"new": "a new one for each run", "same": "one for all runs"}
_UNITS = ((60, 1, "s"), (60, 60, "min"), (48, 3600, "h"))
_DAY_S = 86_400


# Times --------------------------------------------------------------------------------------------------------------


def when(moment: str, time_zone: str, now: datetime) -> str:
    """A time in a time zone, and how far away it is: `Thu 19 Nov 2026, 09:00 CET (in 9 h)`."""
    return f"{clock_time(moment, time_zone)} ({away(moment, now)})"


def clock_time(moment: str, time_zone: str) -> str:
    there = _there(moment, time_zone)
    seconds = f":{there.second:02}" if there.second else ""
    return f"{there:%a} {there.day} {there:%b %Y, %H:%M}{seconds} {_zone_word(there)}"


def short_time(moment: str, time_zone: str, now: datetime) -> str:
    """For tables: to the minute, without the current year."""
    there = _there(moment, time_zone)
    year = "" if there.year == now.astimezone(there.tzinfo).year else f" {there.year}"
    return f"{there:%a} {there.day} {there:%b}{year}, {there:%H:%M} {_zone_word(there)}"


def away(moment: str, now: datetime) -> str:
    """The time until or since `moment`, in the largest unit that is not too coarse."""
    left_s = (datetime.fromisoformat(moment) - now).total_seconds()
    words = span(abs(left_s))
    if not words:
        return "now"
    return f"in {words}" if left_s > 0 else f"{words} ago"


def span(seconds: float) -> str:
    """A duration in one unit, rounded; empty below half a second."""
    for limit, unit_s, unit in _UNITS:
        number = round(seconds / unit_s)
        if number < limit:
            return f"{number} {unit}" if number else ""
    return f"{round(seconds / _DAY_S)} d"


def _there(moment: str, time_zone: str) -> datetime:
    found = datetime.fromisoformat(moment)
    return found.astimezone(_zone(time_zone, found.tzinfo or UTC))


def _zone(name: str, otherwise: tzinfo) -> tzinfo:
    """The zone, or `otherwise` (the offset in the server's time) if this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return otherwise


def _zone_word(moment: datetime) -> str:
    """`CET`; for a time zone whose abbreviation is only a number, `UTC-03`."""
    word = moment.strftime("%Z")
    return f"UTC{word}" if word[:1] in "+-" else word


# Jobs ---------------------------------------------------------------------------------------------------------------


def schedule_words(job: Json) -> str:
    """The schedule. Shows the time zone only for a cron expression, where it matters."""
    if job.get("cron") is None:
        return str(job["schedule"])
    return f"{job['schedule']}, {job['time_zone']} ({job['cron']})"


def state_words(job: Json, now: datetime) -> str:
    """The state in a word or two. `reason_words` explains a pause or a backoff."""
    return "backing off" if backs_off(job, now) else str(job["state"])


def backs_off(job: Json, now: datetime) -> bool:
    until = job.get("backoff_until")
    return job["state"] == "active" and until is not None and datetime.fromisoformat(until) > now


def reason_words(job: Json, now: datetime) -> str:
    """Why the job does not run as scheduled; empty if it does."""
    if job["state"] == "paused" and job["reason"]:
        return one_line(job["reason"], DETAIL_CHARS)
    if backs_off(job, now):
        failed = "a failed run" if job["failures"] == 1 else f"{job['failures']} failed runs in a row"
        return f"Skips runs until {when(job['backoff_until'], job['time_zone'], now)}, after {failed}."
    return ""


def place_words(job: Json) -> str:
    """Where the job's sessions work; empty if it uses an existing session."""
    if job["session"] not in SESSIONS:
        return ""
    if job["workdir"]:
        return str(job["workdir"]) + (f" (project {job['project']})" if job["project"] else "")
    if job["project"]:
        return f"the directory of project {job['project']}"
    return "a new folder for each session" if job["session"] == "new" else "a new folder"


def job_table(jobs: list[Json], now: datetime, columns: int | None) -> tuple[list[str], list[list[str]]]:
    """Headings and rows. A narrow terminal omits the last run, so that ids are never cut."""
    headings = ["job", "state", "next run", "last run", "schedule"]
    rows = [
        [
            job["id"],
            state_words(job, now),
            away(job["next_run_at"], now) if job["next_run_at"] else "",
            last_words(job, now),
            job["schedule"],
        ]
        for job in jobs
    ]
    widths = [max(len(row[number]) for row in [headings, *rows]) for number in range(len(headings) - 1)]
    if columns is not None and sum(widths) + GAP_COLUMNS * len(widths) + LAST_COLUMNS > columns:
        return [*headings[:3], *headings[4:]], [[*row[:3], *row[4:]] for row in rows]
    return headings, rows


def settings_rows(job: Json, now: datetime) -> Iterator[tuple[str, str]]:
    """The job's settings; empty ones are not shown."""
    zone = job["time_zone"]
    yield "name", one_line(job["name"], MESSAGE_CHARS)
    yield "state", state_words(job, now)
    yield "reason", reason_words(job, now)
    yield "schedule", schedule_words(job)
    yield "time zone", "" if job["cron"] is not None else zone
    yield "starts at", clock_time(job["starts_at"], zone) if job["starts_at"] else ""
    yield "until", clock_time(job["until"], zone) if job["until"] else ""
    yield "max runs", _number(job["max_runs"])
    yield "jitter", f"up to {span(job['jitter_s'])}" if job["jitter_s"] else ""
    yield "message", one_line(job["message"], MESSAGE_CHARS)
    yield "session", _session(job)
    yield "working directory", place_words(job)
    for field in ("agent", "model", "mode"):
        yield field, job[field] or ""
    yield "labels", ", ".join(job["labels"])
    yield "if missed", MISSED[job["missed"]].format(missed_max=job["missed_max"])
    yield "if overlapping", OVERLAPS[job["overlap"]]
    yield "pauses after", _counted(job["max_failures"], "failed run") + " in a row"
    yield "keeps", _kept(job)
    yield "runs so far", str(job["run_count"])


def _session(job: Json) -> str:
    given = str(job["session"])
    shared = f" ({job['session_id']})" if given == "same" and job["session_id"] else ""
    return SESSIONS.get(given, given) + shared


def _kept(job: Json) -> str:
    """How many of the job's sessions are kept; empty for all."""
    kept = []
    if job["keep_sessions"] is not None:
        kept.append(f"the newest {_counted(job['keep_sessions'], 'session')}")
    if job["keep_days"] is not None:
        kept.append(f"sessions for {_counted(job['keep_days'], 'day')}")
    return ", ".join(kept)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


# Runs ---------------------------------------------------------------------------------------------------------------

RUN_HEADINGS = ("due", "outcome", "trigger", "time", "cost", "session", "detail")


def run_table(runs: list[Json], time_zone: str, now: datetime) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, without columns that are empty for all runs."""
    rows = [_run_row(run, time_zone, now) for run in runs]
    shown = [number for number in range(len(RUN_HEADINGS)) if any(row[number] for row in rows)]
    return [RUN_HEADINGS[number] for number in shown], [[row[number] for number in shown] for row in rows]


def _run_row(run: Json, time_zone: str, now: datetime) -> list[str]:
    return [
        short_time(run["due_at"], time_zone, now),
        outcome_words(run),
        TRIGGERS[run["trigger"]],
        duration(run["duration_ms"]),
        "" if run["cost_usd"] is None else f"${run['cost_usd']:.2f}",
        run["session_id"] or "",
        one_line(run["detail"], DETAIL_CHARS),
    ]


def outcome_words(run: Json) -> str:
    """The outcome, or the state of a run that has not ended."""
    return str(run["outcome"] or run["state"])


def last_words(job: Json, now: datetime) -> str:
    run = job.get("last_run")
    if run is None:
        return ""
    # A job that is backing off may have skipped runs that are due later.
    is_past = datetime.fromisoformat(run["due_at"]) <= now
    return outcome_words(run) + (f" {away(run['due_at'], now)}" if is_past else "")
