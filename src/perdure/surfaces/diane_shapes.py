"""A session in Diane's terms: the shapes, and the conversion from the API's own shape. Pure.

Above: http/diane.py, and the MCP tools, whose session tools are Diane's. Below: a session as the API shows it. The
lists of models and modes come from the agent: their keys are converted to snake_case, and their values are passed on
unread.
"""

import re
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from perdure.core.clock import seconds

Status = Literal["active", "idle", "disconnected", "closed"]
STATUSES: tuple[Status, ...] = ("active", "idle", "disconnected", "closed")
IDLE_AFTER_S = 300
BUSY = ("accepted", "processing")
"""Both are `active` for Diane. A message that another surface sent can be waiting for a slot (`accepted`)."""


class DianeModels(Struct, kw_only=True):
    current_model_id: str
    available_models: list[dict[str, Any]]


class DianeModes(Struct, kw_only=True):
    current_mode_id: str
    available_modes: list[dict[str, Any]]


class DianeListed(Struct, kw_only=True):
    """A session in a list. Empty values are omitted."""

    session_id: str
    agent_name: str
    agent_key: str
    status: Status
    workdir: str
    turn_count: int
    created_at: str
    last_active_at: str
    model_id: str | UnsetType = UNSET
    mode_id: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET


class DianeSession(DianeListed, kw_only=True):
    """A session with the models and modes that its agent offers, if any."""

    models: DianeModels | UnsetType = UNSET
    modes: DianeModes | UnsetType = UNSET


class DianeStatus(Struct, kw_only=True):
    status: Literal["active", "idle", "disconnected", "closed", "cancelled"]


class DianeClosed(Struct, kw_only=True):
    status: Literal["closed"] = "closed"


def status_of(session: dict[str, Any], now_s: float) -> Status:
    """The status in Diane's terms. A session whose agent is being started for a turn is `active`."""
    if session["state"] == "ended":
        return "closed"
    if session["state"] in BUSY:
        return "active"
    if session["attached"] != "live":
        return "disconnected"
    return "idle" if now_s - seconds(session["last_active_at"]) >= IDLE_AFTER_S else "active"


def _listed(session: dict[str, Any], now_s: float) -> dict[str, Any]:
    running = 1 if session["state"] in BUSY else 0
    return {
        "session_id": session["id"],
        "agent_name": session["agent"],
        "agent_key": f"{session['agent']}@{session['workdir']}",
        "status": status_of(session, now_s),
        "workdir": session["workdir"],
        "turn_count": session["turn_count"] - running,
        "created_at": session["created_at"],
        "last_active_at": session["last_active_at"],
        "model_id": session["model"] or _current(session["models"], "currentModelId") or UNSET,
        "mode_id": session["mode"] or _current(session["modes"], "currentModeId") or UNSET,
        "title": session["title"] or UNSET,
        "summary": session["summary"] or UNSET,
    }


def listed(session: dict[str, Any], now_s: float) -> DianeListed:
    return DianeListed(**_listed(session, now_s))


def shown(session: dict[str, Any], now_s: float) -> DianeSession:
    fields = _listed(session, now_s)
    models, modes = session["models"], session["modes"]
    if models is not None:
        fields["models"] = DianeModels(
            current_model_id=fields["model_id"] or "", available_models=_entries(models, "availableModels")
        )
    if modes is not None:
        fields["modes"] = DianeModes(
            current_mode_id=fields["mode_id"] or "", available_modes=_entries(modes, "availableModes")
        )
    return DianeSession(**fields)


def _current(offered: dict[str, Any] | None, key: str) -> str:
    found = (offered or {}).get(key)
    return found if isinstance(found, str) else ""


def _entries(offered: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = offered.get(key)
    entries = found if isinstance(found, list) else []
    return [{_snake(name): value for name, value in entry.items()} for entry in entries if isinstance(entry, dict)]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda found: "_" + found.group(), name).lower()
