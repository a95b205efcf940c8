"""Stores jobs and their runs. A decision is stored only if the job has not changed since it was read.

Above: the verbs for jobs, and the scheduler. Below: core/jobs.py, which decides; the store. If two callers decide at
the same time (a person and the scheduler, or two servers), the second gets a Conflict, reads again and decides again.
There are no locks besides this optimistic concurrency.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.core.clock import seconds
from perdure.core.errors import UNREADABLE, Conflict, Refused, StoreDamaged
from perdure.core.jobs import Decided, Job, JobSpec, Last, Run
from perdure.core.schedule import Schedule
from perdure.runtime.jobs.zones import zone
from perdure.runtime.log.log import Log
from perdure.stores.base import JobRow, RunRow

logger = logging.getLogger(__name__)

LOOK_BACK_RUNS = 20


class Facts(NamedTuple):
    """The facts for a decision about a job."""

    job: Job
    opened: list[Run]
    last: Last
    now_ms: int
    known: Run | None
    """The run with the id that the caller asked for, if it exists."""

    @property
    def schedule(self) -> Schedule:
        """Raises Refused for an unknown time zone."""
        return schedule_of(self.job.spec, self.job.created_ms)


Make = Callable[[Facts], Decided | None]


class Ledger:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._store = log.store
        self.on_change: Callable[[], None] = lambda: None
        self.decided_here: set[str] = set()
        """Jobs for which this node has created or changed a run. At most one entry per job."""

    def now_ms(self) -> int:
        return int(self._log.now() * 1000)

    async def all(self) -> list[Job]:
        return [job for row in await self._store.jobs() if (job := self._read(row)) is not None]

    async def load(self, job_id: str) -> Job:
        return (await self._load(job_id))[0]

    async def exists(self, job_id: str) -> bool:
        """Whether the job exists, even if it can't be read."""
        try:
            return await self._store.load_job(job_id) is not None
        except StoreDamaged:
            return True

    async def _load(self, job_id: str) -> tuple[Job, int]:
        broken = Refused("damaged", f"Job {job_id!r} is damaged and can't be read. Remove it and add it again.")
        try:
            row = await self._store.load_job(job_id)
        except StoreDamaged as error:
            raise broken from error
        if row is None:
            raise Refused("not_found", f"There is no job {job_id!r}. `perdure jobs` lists them.")
        if (job := self._read(row)) is None:
            raise broken
        return job, row.revision

    async def add(self, job: Job) -> None:
        """Raises Conflict if a job with this id exists."""
        await self._put(job, 1, None, Decided(job))

    async def decide(self, job_id: str, make: Make, run_id: str | None = None) -> Job:
        """Decide on a job and store the result; on a conflict, read and decide again. Returns the new job."""
        while True:
            job, revision = await self._load(job_id)
            opened = [run for row in await self._store.open_runs(job_id) if (run := run_of(row)) is not None]
            known = None if run_id is None else await self.run(job_id, run_id)
            decided = make(Facts(job, opened, await self._last(job_id), self.now_ms(), known))
            if decided is None:
                return job
            try:
                await self._put(decided.job, revision + 1, revision, decided)
            except Conflict:
                continue
            return decided.job

    async def remove(self, job_id: str) -> None:
        await self._store.remove_job(job_id, self._log.generation)
        self._log.quarantine.forget_job(job_id)
        self.on_change()

    async def runs(
        self, job_id: str, limit: int, before: tuple[int, str] | None = None, *, held: bool = False
    ) -> list[Run]:
        rows = await self._store.list_runs(job_id, limit=limit, before=before, held=held)
        return [run for row in rows if (run := run_of(row)) is not None]

    async def run(self, job_id: str, run_id: str) -> Run | None:
        row = await self._store.load_run(job_id, run_id)
        return None if row is None else run_of(row)

    async def opened(self) -> list[Run]:
        return [run for row in await self._store.open_runs() if (run := run_of(row)) is not None]

    async def trim(self, job_id: str, keep: int) -> None:
        await self._store.trim_runs(job_id, keep, self._log.generation)

    async def newest(self, job_id: str) -> list[Run]:
        """The newest runs, then the newest with a session, in case the first ones were all skipped."""
        newest = await self.runs(job_id, LOOK_BACK_RUNS)
        return [*newest, *await self.runs(job_id, LOOK_BACK_RUNS, held=True)]

    async def _last(self, job_id: str) -> Last:
        for run in await self.newest(job_id):
            if run.outcome not in (None, "skipped"):
                found = await self.run(job_id, run.id)
                return Last(str(run.outcome), found.result if found is not None else "")
        return Last()

    async def _put(self, job: Job, revision: int, expect: int | None, decided: Decided) -> None:
        row = JobRow(job.id, revision, job.start_ms, msgspec.json.encode(job))
        new, changed = ([row_of(run) for run in runs] for runs in (decided.new, decided.changed))
        await self._store.put_job(row, self._log.generation, expect=expect, new=new, changed=changed)
        if new or changed:
            self.decided_here.add(job.id)
        self.on_change()

    def _read(self, row: JobRow) -> Job | None:
        try:
            return msgspec.json.decode(row.body, type=Job)
        except UNREADABLE as error:
            self._log.quarantine.add("job", row.job_id, None, str(error))
            return None


def schedule_of(spec: JobSpec, created_ms: int) -> Schedule:
    """Raises Refused for an unknown time zone."""
    first = created_ms + (spec.every_s or 0) * 1000
    return Schedule(
        cron=spec.cron,
        every_s=spec.every_s,
        zone=zone(spec.time_zone),
        starts_ms=first if spec.starts_at is None else int(seconds(spec.starts_at) * 1000),
        until_ms=None if spec.until is None else int(seconds(spec.until) * 1000),
    )


def row_of(run: Run) -> RunRow:
    body = msgspec.json.encode(replace(run, session_id=None, detail="", text="", result=""))
    said = (text.encode("utf-8", "surrogatepass") for text in (run.detail, run.text, run.result))
    return RunRow(run.job_id, run.id, run.due_ms, run.is_open, run.session_id, body, *said)


def run_of(row: RunRow) -> Run | None:
    """The run of a row; None if it can't be read."""
    try:
        run = msgspec.json.decode(row.body, type=Run)
        said = [text.decode("utf-8", "surrogatepass") for text in (row.detail, row.message, row.result)]
    except UNREADABLE as error:
        logger.warning("job %s: could not read run %s; skipping it: %s", row.job_id, row.run_id, error)
        return None
    return replace(run, session_id=row.session_id, detail=said[0], text=said[1], result=said[2])
