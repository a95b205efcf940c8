"""The verbs for scheduled jobs: add, show, change, pause, resume, run, remove.

Above: surfaces. Below: the ledger, which stores jobs; the sessions' verbs, which check agents, projects and
directories. A job that can't work is refused here. If it stops working later, its history of runs shows why.
"""

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.core.clock import stamp
from perdure.core.errors import Conflict, Refused
from perdure.core.jobs import (
    OF_THE_SCHEDULE,
    Decided,
    Job,
    JobSpec,
    Run,
    longest_chars,
    paused,
    planned,
    respecified,
    resumed,
    run_now,
)
from perdure.core.schedule import Schedule, check_cron, in_words
from perdure.runtime.jobs.ledger import Facts, Ledger, schedule_of
from perdure.runtime.jobs.zones import local_zone, zone
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import Sessions, new_id

__all__ = ["JobSpec", "Jobs"]

MAX_JOBS = 1_000
SHOWN_RUNS = 5
FIRST_YEAR, LAST_YEAR = 1970, 2200
RESERVED = ("new", "preview")
"""Ids that would collide with paths of the page or the API."""
OF_A_NEW_SESSION = ("model", "mode", "project", "workdir", "labels")


class Jobs:
    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self._ledger = ledger
        self._sessions = sessions

    # Creating and changing ------------------------------------------------------------------------------------------

    async def create(self, given: dict[str, Any]) -> dict[str, Any]:
        now_ms = self._ledger.now_ms()
        spec = await self._checked(msgspec.convert({"time_zone": local_zone(), **given}, JobSpec))
        _refuse_never(schedule_of(spec, now_ms), now_ms)
        if len(known := await self._ledger.all()) >= MAX_JOBS:
            raise Refused("conflict", f"There are already {MAX_JOBS:,} jobs. Remove one first.")
        base = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:60] or "job"
        taken, number = {*RESERVED, *(job.id for job in known)}, 1
        while True:
            job_id = base if number == 1 else f"{base}-{number}"
            number += 1
            if job_id in taken:
                continue
            job = Job(id=job_id, spec=spec, created_ms=now_ms, after_ms=now_ms)
            try:
                await self._ledger.add(planned(job, schedule_of(spec, now_ms)))
            except Conflict:
                continue  # another request has just added one with this id
            return await self.get(job_id)

    async def change(self, job_id: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Change these fields; None restores a field's default."""
        for one, other in (("cron", "every_s"), ("every_s", "cron")):
            if changes.get(one) is not None:
                changes = {other: None, **changes}
        if changes.get("session") not in (None, "new", "same"):
            changes = {**dict.fromkeys(OF_A_NEW_SESSION), **changes}
        is_kept = False
        while not is_kept:
            job = await self._ledger.load(job_id)
            merged = {**msgspec.to_builtins(job.spec), **changes}
            merged = {name: value for name, value in merged.items() if value is not None}
            spec = await self._checked(msgspec.convert({"time_zone": local_zone(), **merged}, JobSpec))
            # A job that has ended can still be renamed.
            if any(getattr(spec, name) != getattr(job.spec, name) for name in OF_THE_SCHEDULE):
                _refuse_never(schedule_of(spec, job.created_ms), self._ledger.now_ms())

            def made(facts: Facts, before: JobSpec = job.spec, spec: JobSpec = spec) -> Decided | None:
                nonlocal is_kept
                is_kept = facts.job.spec == before
                schedule = schedule_of(spec, facts.job.created_ms)
                return Decided(respecified(facts.job, spec, schedule, facts.now_ms)) if is_kept else None

            await self._ledger.decide(job_id, made)
        return await self.get(job_id)

    async def remove(self, job_id: str) -> None:
        """Remove a job. Its sessions stay, and a run that has started continues."""
        if await self._ledger.exists(job_id):
            await self._ledger.remove(job_id)
        else:
            await self._ledger.load(job_id)

    async def pause(self, job_id: str) -> dict[str, Any]:
        def made(facts: Facts) -> Decided | None:
            if facts.job.paused_by == "person":
                return None
            return paused(facts.job, facts.opened, "person", "", facts.now_ms)

        await self._ledger.decide(job_id, made)
        return await self.get(job_id)

    async def resume(self, job_id: str) -> dict[str, Any]:
        def made(facts: Facts) -> Decided | None:
            if facts.job.paused_by is None:
                return None
            return Decided(resumed(facts.job, facts.schedule, facts.now_ms))

        await self._ledger.decide(job_id, made)
        return await self.get(job_id)

    async def run(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Run it now. Idempotent if the caller gives a `run_id`."""
        key = f"manual-{run_id or new_id('r')}"
        begun: list[Run] = []

        def made(facts: Facts) -> Decided | None:
            if facts.known is not None:
                begun[:] = [facts.known]
                return None
            decided, run = run_now(facts.job, facts.schedule, facts.opened, facts.last, facts.now_ms, key)
            if run.outcome == "skipped":
                raise Refused("conflict", f"{run.detail} Try again when it has ended, or set overlap to interrupt.")
            begun[:] = [run]
            return decided

        await self._ledger.decide(job_id, made, run_id=key)
        return public_run(begun[0])

    # Reading --------------------------------------------------------------------------------------------------------

    async def all(self) -> list[dict[str, Any]]:
        return [await self._public(job) for job in await self._ledger.all()]

    async def get(self, job_id: str) -> dict[str, Any]:
        return await self._public(await self._ledger.load(job_id))

    async def runs(self, job_id: str, limit: int, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """A job's runs, newest first, and the cursor for older ones."""
        await self._ledger.load(job_id)
        due_ms, _, run_id = (cursor or "").partition(".")
        if cursor is not None and not (due_ms.isascii() and due_ms.isdigit() and len(due_ms) <= 15):
            raise Refused("invalid", "cursor must be the next_cursor of the previous page.", fields=["cursor"])
        found = await self._ledger.runs(job_id, limit + 1, None if cursor is None else (int(due_ms), run_id))
        last = found[limit - 1] if len(found) > limit else None
        return [public_run(run) for run in found[:limit]], None if last is None else f"{last.due_ms}.{last.id}"

    def preview(self, given: dict[str, Any]) -> dict[str, Any]:
        """Explain a schedule without creating a job."""
        now_ms = self._ledger.now_ms()
        spec = _timed(msgspec.convert({"time_zone": local_zone(), **given, "name": "", "message": ""}, JobSpec), now_ms)
        schedule = schedule_of(spec, now_ms)
        _refuse_never(schedule, now_ms)
        return {
            "schedule": in_words(spec.cron, spec.every_s),
            "time_zone": spec.time_zone,
            "next_runs": _shown(schedule, now_ms, SHOWN_RUNS),
        }

    async def _public(self, job: Job) -> dict[str, Any]:
        runs = await self._ledger.newest(job.id)
        last = next((run for run in runs if run.outcome != "skipped"), runs[0] if runs else None)
        reason = job.paused_reason
        if job.paused_by == "failures" and last is not None and last.outcome == "failed":
            reason = f"{reason} {last.detail}".strip()
        next_runs: list[str] = []
        if job.state == "active":
            left = SHOWN_RUNS if job.spec.max_runs is None else job.spec.max_runs - job.scheduled_count
            with contextlib.suppress(Refused):  # its time zone no longer exists; the job pauses when it is due
                next_runs = _shown(schedule_of(job.spec, job.created_ms), job.after_ms, min(SHOWN_RUNS, left))
        return {
            "id": job.id,
            **msgspec.to_builtins(job.spec),
            "state": job.state,
            "paused_by": job.paused_by,
            "reason": reason,
            "schedule": in_words(job.spec.cron, job.spec.every_s),
            "created_at": stamp(job.created_ms / 1000),
            "next_run_at": _stamped(job.start_ms),
            "next_runs": next_runs,
            "run_count": job.run_count,
            "failures": job.failures,
            "backoff_until": _stamped(job.backoff_until_ms),
            "session_id": job.session_id,
            "last_run": None if last is None else public_run(last),
        }

    # Checking -------------------------------------------------------------------------------------------------------

    async def _checked(self, spec: JobSpec) -> JobSpec:
        """Validate a job and normalise its times."""
        spec = _timed(spec, self._ledger.now_ms())
        if not spec.message.strip():
            raise Refused("invalid", "message must not be empty.", fields=["message"])
        limit = self._sessions.facts.settings.max_message_bytes
        self._sessions.check_size(Outgoing(text=spec.message))
        if longest_chars(spec) > limit:
            what = f"With its placeholders filled in, the message can exceed max_message_bytes ({limit}). Shorten it."
            raise Refused("too_large", what, fields=["message"])
        if spec.project is not None:
            with _about("project"):
                self._sessions.projects.find(spec.project)
        if spec.agent is not None:
            with _about("agent"):
                self._sessions.agents.settings(spec.agent)
        if spec.session in ("new", "same"):
            _, workdir, _ = self._sessions.place(spec.project, spec.workdir, spec.agent)
            self._sessions.workspaces.path(workdir, "new")
            return spec
        if given := [name for name in OF_A_NEW_SESSION if getattr(spec, name)]:
            what = f"{given[0]} is for new sessions only. Leave it out, or set session to new."
            raise Refused("invalid", what, fields=[given[0]])
        if not await self._sessions.exists(spec.session):
            what = f"There is no session {spec.session!r}. Give the id of a session, or new, or same."
            raise Refused("invalid", what, fields=["session"])
        return spec


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    """Name the field that a refusal is about."""
    try:
        yield
    except Refused as refusal:
        raise Refused(refusal.code, refusal.detail, **{**refusal.facts, "fields": [field]}) from refusal


def _refuse_never(schedule: Schedule, now_ms: int) -> None:
    if schedule.first_after(now_ms) is None:
        raise Refused("invalid", "The job would never run: until is before its first run.", fields=["until"])


def _timed(spec: JobSpec, now_ms: int) -> JobSpec:
    """Validate the schedule and convert its times to UTC."""
    if (spec.cron is None) == (spec.every_s is None):
        raise Refused("invalid", "Give either cron or every_s.", fields=["cron", "every_s"])
    where = zone(spec.time_zone)
    if spec.cron is not None:
        check_cron(spec.cron, where, now_ms)
    return replace(
        spec,
        starts_at=_moment(spec.starts_at, "starts_at", spec.time_zone),
        until=_moment(spec.until, "until", spec.time_zone),
    )


def _moment(given: str | None, name: str, time_zone: str) -> str | None:
    """A time in UTC; one without an offset is in the job's time zone."""
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone(time_zone))
        if FIRST_YEAR <= moment.year <= LAST_YEAR:
            return stamp(moment.timestamp())
        raise ValueError(f"not from {FIRST_YEAR} to {LAST_YEAR}")
    except (ValueError, OverflowError) as error:
        example = "2026-12-31T18:00 or 2026-12-31T18:00:00Z"
        raise Refused(
            "invalid", f"{name} {given!r} is not a time. Use one such as {example}.", fields=[name]
        ) from error


def _shown(schedule: Schedule, after_ms: int, number: int) -> list[str]:
    found = islice(schedule.after(after_ms), number)
    return [datetime.fromtimestamp(ms / 1000, UTC).astimezone(schedule.zone).isoformat("T", "seconds") for ms in found]


def public_run(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "job_id": run.job_id,
        "due_at": stamp(run.due_ms / 1000),
        "trigger": run.trigger,
        "state": run.state,
        "outcome": run.outcome,
        "detail": run.detail,
        "session_id": run.session_id,
        "turn": run.turn,
        "message_id": run.message_id,
        "started_at": _stamped(run.started_ms),
        "ended_at": _stamped(run.ended_ms),
        "duration_ms": run.duration_ms,
        "cost_usd": run.cost_usd,
    }


def _stamped(ms: int | None) -> str | None:
    return None if ms is None else stamp(ms / 1000)
