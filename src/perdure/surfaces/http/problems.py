"""Errors as problem documents (RFC 9457), made in this one place."""

import logging
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import STATUS_OF_CODE, Refused, StoreBusy, StoreDamaged, StoreFull, StoreUnavailable

logger = logging.getLogger(__name__)

TITLES = {
    "invalid": "The request is not valid",
    "unauthorized": "A token is needed",
    "forbidden": "This is not allowed",
    "not_found": "There is no such thing",
    "turn_active": "A turn is running",
    "no_turn_active": "No turn is running",
    "session_ended": "The session has ended",
    "slots_full": "No slot is free",
    "queue_full": "Too many messages wait",
    "prompt_resolved": "The prompt was answered already",
    "conflict": "This does not fit what is there",
    "too_large": "The request is too large",
    "rate_limited": "Too many requests",
    "agent_unavailable": "The agent can't be started",
    "unavailable": "Not available now",
    "damaged": "What is stored is damaged",
    "internal": "Perdure failed",
}


STORE_BUSY_RETRY_S = 1
"""How long a client should wait when too much waits to be written."""


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
    """The store did not keep a fact. That is no bug of ours: it may do so in a moment, or when there is room."""
    if isinstance(error, StoreBusy):
        words = "The server has more to store than its disk takes now. Try again in a moment; this was not taken."
        return refused(Refused("unavailable", words, retry_after_s=STORE_BUSY_RETRY_S))
    if isinstance(error, StoreUnavailable):
        logger.warning("the database can't be used: %s", error)
        words = "The database can't be used now. Try again in a moment; this was not taken."
        return refused(Refused("unavailable", words, retry_after_s=STORE_BUSY_RETRY_S))
    if isinstance(error, StoreFull):
        return problem("unavailable", "The disk is full. Make room and try again; this was not taken.")
    if isinstance(error, StoreDamaged):
        return problem("damaged", f"{error}. Run `perdure doctor --deep` on the server, which says what to do.", 500)
    logger.error("the store failed: %s", error)
    return problem("unavailable", "The store can't be used now. Try again; the server's log says what is wrong.")


def on_unreadable(_: Request, error: Exception) -> Response:
    """What a request brings is checked where it comes in; so this was stored, and is not as it was written."""
    logger.error("something that is stored can't be read: %s: %s", type(error).__name__, error)
    return problem("damaged", "What is stored is damaged here. Run `perdure doctor --deep` on the server.", 500)
