"""Classification of the end of a turn: done, cancelled, refused or failed, and whether the native session is lost too.

Above: turns.py and handshake.py. Below: nothing. `is_error` decides, never the subtype, which is "success" for many
failures. The reasons have no codes, only sentences, which the patterns below match.
"""

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from perdure.core.events import StopReason
from perdure.drivers.claude import wire

_TOO_LONG = re.compile(
    r"(prompt|input|conversation|request) is too (long|large)"
    r"|exceeds? (the )?context (limit|window)"
    r"|context[ _](length|window|limit)"
    r"|request too large"
    r"|too many (input )?tokens",
    re.IGNORECASE,
)
"""The native history no longer fits the model's context, and won't fit next time either."""

_CORRUPT = re.compile(
    r"tool_use\W{1,3}(ids?|blocks?) (were|was|found|must|without)"
    r"|unexpected .{0,12}tool_use_id"
    r"|roles must alternate"
    r"|invalid .{0,12}signature. in .{0,12}thinking"
    r"|thinking.{0,30} blocks.{0,60}cannot be modified"
    r"|could not process image"
    r"|image .{0,20}exceeds",
    re.IGNORECASE,
)
"""The provider rejects the history itself. Every later turn would fail the same way."""

_LIMIT = re.compile(
    r"usage limit reached"
    r"|(hit|reached) your [\w ,-]{0,40}limit"
    r"|(hour|daily|weekly|session|usage|opus|sonnet) limit (reached|resets)"
    r"|out of extra usage",
    re.IGNORECASE,
)
_RESETS_AT = re.compile(r"limit reached\|(\d{9,13})")
_LOGIN = re.compile(
    r"not logged in|please run /login|invalid (api key|authentication)|oauth .{0,30}(expired|revoked)", re.IGNORECASE
)
_GONE = re.compile(r"no conversation found|--resume requires a valid session", re.IGNORECASE)
_IN_USE = re.compile(r"session id \S+ is already in use", re.IGNORECASE)

_CODES = {
    "authentication_failed": "needs_login",
    "billing_error": "billing",
    "rate_limit": "rate_limited",
    "server_error": "api_unavailable",
    "overloaded": "api_unavailable",
}


OUTSIDE = ("needs_login", "billing", "rate_limited", "usage_limit", "api_unavailable")
"""Failures of the model's API only. The agent keeps the message, and its session stays intact."""


class Verdict(NamedTuple):
    stop_reason: StopReason
    code: str | None = None
    message: str | None = None
    poisoned: bool = False


def verdict(result: dict[str, Any], cancelled: bool, fault: str) -> Verdict:
    """Return how the turn of this `result` ended. `fault` is the kind of error in its last message."""
    failed = result.get("is_error") is True
    if wire.string(result, "terminal_reason").startswith("aborted") or (failed and cancelled):
        return Verdict("cancelled")
    if wire.string(result, "subtype") == "error_max_turns":
        return Verdict("max_turns")
    if failed:
        return failure(sentence(result), fault)
    if result.get("stop_reason") == "refusal":
        return Verdict("refusal")
    return Verdict("max_turns" if result.get("stop_reason") == "max_tokens" else "end_turn")


def failure(text: str, fault: str) -> Verdict:
    if _TOO_LONG.search(text):
        return Verdict("failed", "context_too_long", text, poisoned=True)
    if _CORRUPT.search(text):
        return Verdict("failed", "history_corrupt", text, poisoned=True)
    if _GONE.search(text):
        return Verdict("failed", "session_lost", text, poisoned=True)
    if _LIMIT.search(text):
        return Verdict("failed", "usage_limit", text)
    if _LOGIN.search(text):
        return Verdict("failed", "needs_login", _with_advice(text))
    code = _CODES.get(fault, "agent_error")
    return Verdict("failed", code, _with_advice(text) if code == "needs_login" else text)


def _with_advice(text: str) -> str:
    return f"{text.rstrip('.')}. Start claude in a terminal, log in with /login, or give the agent a valid API key"


def sentence(result: dict[str, Any]) -> str:
    """Return the text of a failure to show to people."""
    errors = result.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    text = first if isinstance(first, str) and first else wire.string(result, "result")
    return text or f"the agent gave no reason ({wire.string(result, 'subtype') or 'no subtype'})"


def start_failure(text: str) -> tuple[str, bool]:
    """Return an error code for a process that opened no session, and whether the only reason is a lost session."""
    if _GONE.search(text):
        return "session_lost", True
    if _IN_USE.search(text):
        return "session_in_use", False
    return ("needs_login" if _LOGIN.search(text) else "session_refused"), False


def is_start_failure(line: str) -> bool:
    """Return whether a line of plain text, outside the protocol, says that there will be no session."""
    return _GONE.search(line) is not None or _IN_USE.search(line) is not None


def resets_at(text: str) -> int | None:
    """Return the time at which an exhausted quota resets, in seconds since 1970, if the sentence has it."""
    found = _RESETS_AT.search(text)
    return unix_time_s(int(found.group(1))) if found is not None else None


def unix_time_s(value: Any) -> int | None:
    """Return seconds since 1970, also from milliseconds; None if the date is implausible."""
    count = wire.whole(value)
    if count is not None and count > 10**11:
        count //= 1000
    return count if count is not None and 10**9 <= count < 10**11 // 4 else None


def moment(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")
