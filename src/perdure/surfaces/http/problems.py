"""Error responses: problem documents as in RFC 9457.

Above: the guard, app.py and large_responses.py. Below: the errors of core.
"""

import logging
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import STATUS_OF_CODE, Refused, StoreBusy, StoreDamaged, StoreFull, StoreUnavailable

logger = logging.getLogger(__name__)

TITLES = {
    "invalid": "Invalid request",
    "unauthorized": "Authentication required",
    "forbidden": "Not allowed",
    "not_found": "Not found",
    "turn_active": "A turn is running",
    "no_turn_active": "No turn is running",
    "session_ended": "The session has ended",
    "slots_full": "No free slot",
    "queue_full": "The queue is full",
    "prompt_resolved": "The prompt was already answered",
    "conflict": "Conflict with the current state",
    "files_changed": "Files were changed by somebody else",
    "merge_conflict": "The branches conflict",
    "no_repository": "Not in a git repository",
    "too_large": "Request too large",
    "rate_limited": "Too many requests",
    "agent_unavailable": "The agent can't be started",
    "unavailable": "Temporarily unavailable",
    "damaged": "Stored data is damaged",
    "internal": "Internal error",
}
STORE_BUSY_RETRY_S = 1


class Problem(Struct, kw_only=True):
    type: str
    title: str
    status: int
    detail: str
    code: str
    error: str
    """The same as `detail`."""


def problem(code: str, detail: str, status: int | None = None, **facts: Any) -> Response:
    body = {
        "type": f"about:blank#{code}",
        "title": TITLES[code],
        "status": status or STATUS_OF_CODE[code],
        "detail": detail,
        "code": code,
        "error": detail,
        **facts,
    }
    return Response(
        msgspec.json.encode(body), status_code=status or STATUS_OF_CODE[code], media_type="application/problem+json"
    )


def refused(refusal: Refused) -> Response:
    response = problem(refusal.code, refusal.detail, **refusal.facts)
    if refusal.code == "unauthorized":
        response.headers["www-authenticate"] = "Bearer"
    if "retry_after_s" in refusal.facts:
        response.headers["retry-after"] = str(refusal.facts["retry_after_s"])
    return response


def on_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refused(error)


def on_store_error(_: Request, error: Exception) -> Response:
    return store_problem(error)


def store_problem(error: Exception) -> Response:
    """The response if the store has failed. Not a bug: the cause is the disk or the database."""
    if isinstance(error, StoreBusy):
        detail = "The disk is too slow for the current load. Try again in a moment; nothing was saved."
        return refused(Refused("unavailable", detail, retry_after_s=STORE_BUSY_RETRY_S))
    if isinstance(error, StoreUnavailable):
        logger.warning("database unavailable, request refused: %s", error)
        detail = "The database is unavailable. Try again in a moment; nothing was saved."
        return refused(Refused("unavailable", detail, retry_after_s=STORE_BUSY_RETRY_S))
    if isinstance(error, StoreFull):
        return problem("unavailable", "The disk is full. Free some space and try again; nothing was saved.")
    if isinstance(error, StoreDamaged):
        return problem("damaged", f"{error}. Run `perdure doctor --deep` on the server to see what to do.", 500)
    logger.error("store failed, request refused: %s", error)
    return problem("unavailable", "The store is unavailable. Try again; the server's log has the cause.")


def on_unreadable(_: Request, error: Exception) -> Response:
    """Requests are validated before they are stored, so data that can't be decoded here was damaged in the store."""
    logger.error("stored data can't be decoded, request refused: %s: %s", type(error).__name__, error)
    return problem("damaged", "Stored data is damaged. Run `perdure doctor --deep` on the server.", 500)
