"""Scheduled jobs and their runs.

Above: SqliteStore. Below: the tables `jobs` and `job_runs`. Columns hold what the store queries; only the runtime reads
the bodies.
"""

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from perdure.core.errors import Conflict, StoreDamaged
from perdure.stores.base import JobRow, RunRow
from perdure.stores.sqlite_group import check_generation, read_generation
from perdure.stores.sqlite_owners import count, is_count, name_of, number

logger = logging.getLogger(__name__)

_JOB = f"CAST(job_id AS BLOB), {number('revision')}, {number('start_at')}, CAST(body AS BLOB)"
_RUN = f"""
    CAST(job_id AS BLOB), CAST(run_id AS BLOB), {number("due_at")}, {number("is_open")}, CAST(session_id AS BLOB),
    CAST(body AS BLOB), CAST(detail AS BLOB)"""
_SAID = "CAST(message AS BLOB), CAST(result AS BLOB)"
_JOBS = f"SELECT {_JOB} FROM jobs ORDER BY job_id"  # noqa: S608  no user input
_ONE = f"SELECT {_JOB} FROM jobs WHERE job_id = ?"  # noqa: S608  no user input
_DUE = f"SELECT {_JOB} FROM jobs WHERE start_at IS NOT NULL ORDER BY start_at LIMIT ?"  # noqa: S608  no user input
_OPEN = f"SELECT {_RUN}, {_SAID} FROM job_runs WHERE is_open = 1"  # noqa: S608  no user input
_RUNS = f"""
    SELECT {_RUN} FROM job_runs WHERE job_id = ?1 AND (?2 IS NULL OR (due_at, run_id) < (?2, ?3))
        AND (NOT ?5 OR session_id IS NOT NULL)
    ORDER BY due_at DESC, run_id DESC LIMIT ?4"""  # noqa: S608  no user input
_RUN_OF = f"SELECT {_RUN}, {_SAID} FROM job_runs WHERE job_id = ? AND run_id = ?"  # noqa: S608  no user input
_REVISION = "SELECT revision FROM jobs WHERE job_id = ?"
_PUT = "INSERT OR REPLACE INTO jobs (job_id, revision, start_at, body) VALUES (?, ?, ?, ?)"
_NEW = """
    INSERT INTO job_runs (job_id, run_id, due_at, is_open, session_id, body, detail, message, result)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
_CHANGED = """
    UPDATE job_runs SET due_at = ?3, is_open = ?4, session_id = ?5, body = ?6, detail = ?7, message = ?8, result = ?9
    WHERE job_id = ?1 AND run_id = ?2"""
_TRIM = """
    DELETE FROM job_runs WHERE rowid IN (
        SELECT rowid FROM job_runs WHERE job_id = ?1 AND is_open = 0 AND (session_id IS NOT NULL) = ?2
        ORDER BY due_at DESC, run_id DESC LIMIT -1 OFFSET ?3)"""
_TOUCH = """
    UPDATE jobs SET revision = revision + 1 WHERE job_id IN (SELECT job_id FROM job_runs WHERE session_id = ?)"""
_FORGET = "UPDATE job_runs SET session_id = NULL, detail = NULL, message = NULL, result = NULL WHERE session_id = ?"


def put_job(
    connection: sqlite3.Connection,
    row: JobRow,
    generation: int,
    expect: int | None,
    new: Sequence[RunRow],
    changed: Sequence[RunRow],
) -> None:
    check_generation(generation, read_generation(connection))
    found = connection.execute(_REVISION, (row.job_id,)).fetchone()
    if (None if found is None else found[0]) != expect:
        raise Conflict(f"job {row.job_id} was changed in the meantime")
    connection.execute(_PUT, (row.job_id, row.revision, row.start_at, row.body))
    connection.executemany(_NEW, map(_values, new))
    connection.executemany(_CHANGED, map(_values, changed))


def remove_job(connection: sqlite3.Connection, job_id: str, generation: int) -> None:
    check_generation(generation, read_generation(connection))
    connection.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM job_runs WHERE job_id = ?", (job_id,))


def trim_runs(connection: sqlite3.Connection, job_id: str, keep: int, generation: int) -> None:
    check_generation(generation, read_generation(connection))
    for has_session in (False, True):
        connection.execute(_TRIM, (job_id, has_session, keep))


def forget_session(connection: sqlite3.Connection, session_id: str) -> None:
    """Clear what runs store about an erased session. Bumps the revision, so that a concurrent decision conflicts and
    reads again."""
    connection.execute(_TOUCH, (session_id,))
    connection.execute(_FORGET, (session_id,))


def load_job(connection: sqlite3.Connection, job_id: str) -> JobRow | None:
    row = connection.execute(_ONE, (job_id,)).fetchone()
    return None if row is None else _job(row)


def jobs(connection: sqlite3.Connection) -> list[JobRow]:
    return _readable(_job, connection.execute(_JOBS))


def due_jobs(connection: sqlite3.Connection, limit: int) -> list[JobRow]:
    return _readable(_job, connection.execute(_DUE, (limit,)))


def open_runs(connection: sqlite3.Connection, job_id: str | None) -> list[RunRow]:
    if job_id is None:
        return _readable(_run, connection.execute(_OPEN))
    return _readable(_run, connection.execute(f"{_OPEN} AND job_id = ?", (job_id,)))


def list_runs(
    connection: sqlite3.Connection, job_id: str, limit: int, before: tuple[int, str] | None, held: bool
) -> list[RunRow]:
    due_at, run_id = before or (None, None)
    return _readable(_run, connection.execute(_RUNS, (job_id, due_at, run_id, limit, held)))


def load_run(connection: sqlite3.Connection, job_id: str, run_id: str) -> RunRow | None:
    row = connection.execute(_RUN_OF, (job_id, run_id)).fetchone()
    return None if row is None else _run(row)


def _values(row: RunRow) -> tuple[Any, ...]:
    said = (row.detail, row.message, row.result)
    return (row.job_id, row.run_id, row.due_at, row.is_open, row.session_id, row.body, *said)


def _readable(made: Any, rows: Any) -> list[Any]:
    """Convert rows, and skip unreadable ones."""
    found = []
    for row in rows.fetchall():
        try:
            found.append(made(row))
        except StoreDamaged as error:
            logger.warning("job %r: skipping an unreadable row: %s", row[0], error)
    return found


def _job(row: tuple[Any, ...]) -> JobRow:
    job_id, revision, start_at, body = row
    if start_at is not None and not is_count(start_at):
        raise StoreDamaged(f"invalid start time of a job: {start_at!r}")
    return JobRow(name_of(job_id), count(revision), start_at, body)


def _run(row: tuple[Any, ...]) -> RunRow:
    job_id, run_id, due_at, is_open, session_id, body, *said = row
    session = None if session_id is None else name_of(session_id)
    return RunRow(
        *(name_of(job_id), name_of(run_id), count(due_at), bool(count(is_open)), session, body),
        *(text or b"" for text in said),
    )
