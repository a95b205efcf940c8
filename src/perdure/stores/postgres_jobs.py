"""Scheduled jobs and their runs.

Above: PostgresStore. Below: the tables `jobs` and `job_runs`. Columns hold what the store queries; only the runtime
reads the bodies.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from psycopg.types.json import Jsonb

from perdure.core.errors import Conflict
from perdure.stores.base import JobRow, RunRow
from perdure.stores.postgres_connections import Connection, Row, ask, cleaned

_JOB = "job_id, revision, start_at, body"
_RUN = "job_id, run_id, due_at, is_open, session_id, body, detail"
_JOBS = f"SELECT {_JOB} FROM jobs ORDER BY job_id"  # noqa: S608  no user input
_ONE = f"SELECT {_JOB} FROM jobs WHERE job_id = %s"  # noqa: S608  no user input
_DUE = f"SELECT {_JOB} FROM jobs WHERE start_at IS NOT NULL ORDER BY start_at LIMIT %s"  # noqa: S608  no user input
_OPEN = f"SELECT {_RUN}, message, result FROM job_runs WHERE is_open"  # noqa: S608  no user input
_RUNS = f"""
    SELECT {_RUN} FROM job_runs WHERE job_id = %s AND (%s::bigint IS NULL OR (due_at, run_id) < (%s::bigint, %s))
        AND (NOT %s OR session_id IS NOT NULL)
    ORDER BY due_at DESC, run_id DESC LIMIT %s"""  # noqa: S608  no user input
_RUN_OF = f"SELECT {_RUN}, message, result FROM job_runs WHERE job_id = %s AND run_id = %s"  # noqa: S608  no user input
_PUT = "SELECT perdure_put_job_v1(%s, %s, %s, %s, %s, %s, %s)"
_REMOVE = "SELECT perdure_remove_job_v1(%s)"
_TRIM = """
    DELETE FROM job_runs USING (
        SELECT run_id, row_number() OVER (PARTITION BY session_id IS NULL ORDER BY due_at DESC, run_id DESC) AS number
        FROM job_runs WHERE job_id = %s AND NOT is_open) AS ended
    WHERE job_runs.job_id = %s AND job_runs.run_id = ended.run_id AND ended.number > %s"""


async def put_job(
    connection: Connection, row: JobRow, expect: int | None, new: Sequence[RunRow], changed: Sequence[RunRow]
) -> None:
    runs = [Jsonb([_values(run) for run in some], dumps=msgspec.json.encode) for some in (new, changed)]
    rows = await ask(connection, _PUT, row.job_id, row.revision, row.start_at, row.body, expect, *runs)
    if not rows[0][0]:
        raise Conflict(f"job {row.job_id} was changed in the meantime")


async def remove_job(connection: Connection, job_id: str) -> None:
    await ask(connection, _REMOVE, job_id)


async def trim_runs(connection: Connection, job_id: str, keep: int) -> None:
    await ask(connection, _TRIM, job_id, job_id, keep)


async def load_job(connection: Connection, job_id: str) -> JobRow | None:
    rows = await ask(connection, _ONE, job_id)
    return JobRow(*rows[0]) if rows else None


async def jobs(connection: Connection) -> list[JobRow]:
    return [JobRow(*row) for row in await ask(connection, _JOBS)]


async def due_jobs(connection: Connection, limit: int) -> list[JobRow]:
    return [JobRow(*row) for row in await ask(connection, _DUE, limit)]


async def open_runs(connection: Connection, job_id: str | None) -> list[RunRow]:
    if job_id is None:
        return [_run(row) for row in await ask(connection, _OPEN)]
    return [_run(row) for row in await ask(connection, f"{_OPEN} AND job_id = %s", job_id)]


async def list_runs(
    connection: Connection, job_id: str, limit: int, before: tuple[int, str] | None, held: bool
) -> list[RunRow]:
    due_at, run_id = before or (None, None)
    return [_run(row) for row in await ask(connection, _RUNS, job_id, due_at, due_at, run_id, held, limit)]


async def load_run(connection: Connection, job_id: str, run_id: str) -> RunRow | None:
    rows = await ask(connection, _RUN_OF, job_id, run_id)
    return _run(rows[0]) if rows else None


def _values(row: RunRow) -> dict[str, Any]:
    return {name: cleaned(value) for name, value in msgspec.structs.asdict(row).items()}


def _run(row: Row) -> RunRow:
    job_id, run_id, due_at, is_open, session_id, body, *said = row
    return RunRow(job_id, run_id, due_at, is_open, session_id, body, *(text or b"" for text in said))
