"""Reads session files, TeamHQ's and our own, into the body of an import request. Pure.

Above: `perdure import`. Below: session_files.py, which defines the layout; history_building.py, which builds turns from
lines. Metadata of any age can be read: newer fields have defaults. Invalid input raises `Broken` with the line and the
problem.
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from perdure.core.errors import Refused
from perdure.core.imported import time_of
from perdure.core.validation import what_is_wrong
from perdure.surfaces.history_building import Broken, Building
from perdure.surfaces.session_files import OWN

__all__ = ["Broken", "Metadata", "import_body", "read_metadata", "read_turns"]

Json = dict[str, Any]
INTERRUPTED = "Server restarted while session was running"


class Own(Struct, kw_only=True):
    """Fields of a session that only Perdure has."""

    title: str = ""
    summary: str = ""
    labels: list[str] = []
    archived: bool = False
    agent: str | None = None
    workdir: str | None = None
    model: str | None = None
    mode: str | None = None
    config: Json = {}
    limits: Json = {}
    parent: str | None = None
    created_at: str | None = None


class Metadata(Struct, kw_only=True, rename="camel"):
    """A session's `.json`. The first group of fields always existed; the others were added later."""

    id: str
    project_id: str
    status: Literal["running", "completed", "stopped", "timed-out", "failed"]
    started_at: str
    ended_at: str | None = None
    duration_ms: float | None = None
    event_count: int = 0
    exit_code: int | None = None
    error: str | None = None
    pid: int | None = None

    conversation_id: str | None = None
    cli_session_id: str | None = None
    turn_count: int = 1
    state: Literal["processing", "idle", "ended"] = "processing"
    own: Own | None = field(name=OWN, default=None)


def read_metadata(raw: bytes) -> Metadata:
    try:
        found = msgspec.json.decode(raw, type=Metadata)
    except msgspec.ValidationError as error:
        raise Broken(None, what_is_wrong(error, Metadata)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(None, f"not valid JSON: {error}") from error
    for name, given in (("startedAt", found.started_at), ("endedAt", found.ended_at)):
        if given is not None:
            _check_time(name, given)
    # The same value under two names. Older files have one of them, or neither.
    found.conversation_id = found.conversation_id or found.cli_session_id
    found.cli_session_id = found.conversation_id
    if found.status != "running":
        found.state = "ended"
    elif found.state == "ended":
        found.state = "idle"
    return found


def _check_time(name: str, given: str) -> None:
    try:
        time_of(given, name)
    except Refused as refusal:
        raise Broken(None, refusal.detail.rstrip(".")) from refusal


def read_turns(metadata: Metadata, lines: Iterable[bytes]) -> list[Json]:
    """The session's turns as events. An unfinished turn ends with the session's status. If the session had not ended
    either, the turn has failed, and keeps its partial answer."""
    building = Building(metadata.id)
    for number, raw in enumerate(lines, 1):
        if raw.strip():
            building.take(number, _line(number, raw))
    ends = {"completed": "end_turn", "stopped": "cancelled", "timed-out": "timed_out"}
    error = INTERRUPTED if metadata.status == "running" else metadata.error
    building.finish(ends.get(metadata.status, "failed"), error, metadata.ended_at)
    return building.events()


def _line(number: int, raw: bytes) -> Json:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(number, f"not valid JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("type"), str) or not isinstance(found.get("data"), dict):
        raise Broken(number, "an event must be an object with id, timestamp, type and data")
    try:
        found["timestamp"] = time_of(str(found.get("timestamp")), "timestamp")
    except Refused as refusal:
        raise Broken(number, refusal.detail.rstrip(".")) from refusal
    return found


def import_body(metadata: Metadata, events: list[Json]) -> Json:
    """The body of `POST /api/import` without the project and the agent, which depend on the target server. Model, mode
    and config apply only to the original agent."""
    own = metadata.own or Own()
    return {
        "id": metadata.id,
        "created_at": own.created_at or metadata.started_at,
        "events": events,
        "title": own.title,
        "summary": own.summary,
        "model": own.model,
        "mode": own.mode,
        "config": own.config,
        "limits": own.limits,
        "labels": own.labels,
        "archived": own.archived,
        "parent": own.parent,
        "status": metadata.status,
        "state": metadata.state,
        "ended_at": metadata.ended_at,
        "error": metadata.error,
        "workdir": own.workdir,
    }
