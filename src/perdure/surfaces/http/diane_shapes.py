"""Diane's words for sessions: what its requests carry, what it is answered, and how ours are turned into these. Pure.

Above: diane.py. Below: a session as the API shows it. What an agent lists of its models and modes is passed on with
its names in snake_case and otherwise unread.
"""

import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from perdure.core.clock import seconds
from perdure.surfaces.http import bodies

Status = Literal["active", "idle", "disconnected", "closed"]
STATUSES: tuple[Status, ...] = ("active", "idle", "disconnected", "closed")
IDLE_AFTER_S = 300
BUSY = ("accepted", "processing")
"""Another surface may leave a message that waits for a slot: Diane has one word for that and for a running turn."""


class DianeSessionBody(Struct, kw_only=True):
    """A new session. Without a workdir it gets a directory of its own."""

    workdir: Annotated[str, Meta(max_length=4096, extra_json_schema={"pattern": r"^(/[^\u0000]*)?$"})] = ""
    title: bodies.TitleText = ""
    parent: bodies.Name | None = None
    """The session that starts this one; not of Diane."""


class DianePromptBody(Struct, kw_only=True):
    prompt: bodies.SaidText
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)


class DianeModels(Struct, kw_only=True):
    current_model_id: str
    available_models: list[dict[str, Any]]


class DianeModes(Struct, kw_only=True):
    current_mode_id: str
    available_modes: list[dict[str, Any]]


class DianeListed(Struct, kw_only=True):
    """A session in a list. What is empty is left out."""

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
    """A session, with what its agent offers, if it offers it."""

    models: DianeModels | UnsetType = UNSET
    modes: DianeModes | UnsetType = UNSET


class DianeStatus(Struct, kw_only=True):
    status: Literal["active", "idle", "disconnected", "closed", "cancelled"]


class DianeClosed(Struct, kw_only=True):
    status: Literal["closed"] = "closed"


def status_of(session: dict[str, Any], now_s: float) -> Status:
    """In Diane's words. A session whose process is about to be started for a turn is as good as alive."""
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
