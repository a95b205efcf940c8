"""Classification of an ACP agent's error reply: what it means for the turn and for the native session.

Above: turns.py. Below: jsonrpc failures. Agents have no codes for this, only sentences, most of them from their model
provider. The patterns below match them.
"""

import re
from typing import NamedTuple

from perdure.drivers.jsonrpc import NEEDS_LOGIN, RESOURCE_NOT_FOUND, Failure
from perdure.drivers.sentences import reset_after_s, reset_at

TOO_MANY_REQUESTS = 429

_TOO_LONG = re.compile(
    r"(prompt|input|conversation|request) is too (long|large)"
    r"|context[ _](length|window|limit)"
    r"|maximum (context|prompt) length"
    r"|exceed\w* the (maximum|model'?s)[^.]{0,40}(tokens|context)"
    r"|too many (input )?tokens",
    re.IGNORECASE,
)
"""The native history no longer fits the model's context, and won't fit next time either."""

_CORRUPT = re.compile(
    r"tool_use\W{1,3}(ids?|blocks?) (were|was|found|must|without)"
    r"|unexpected .{0,12}tool_use_id"
    r"|tool_calls?\W.{0,60}must be followed by"
    r"|roles must alternate"
    r"|invalid .{0,12}signature. in .{0,12}thinking"
    r"|(history|session|transcript) is corrupt",
    re.IGNORECASE,
)
"""The provider rejects the history itself. Every later turn would fail the same way."""

_FORGOTTEN = re.compile(r"(session|thread)( \S+)? (was )?not found|unknown session", re.IGNORECASE)
"""The agent no longer knows the session that it opened."""

_LIMIT = re.compile(
    r"(usage|weekly|daily|session) limit (is )?(reached|exceeded)"
    r"|usage_limit"
    r"|(hit|reached|exceeded) your [\w ,-]{0,40}(limit|quota)"
    r"|exhausted your [\w ,-]{0,40}(capacity|quota|limit)"
    r"|quota (exceeded|will reset)"
    r"|resource[ _](has been )?exhausted",
    re.IGNORECASE,
)
"""A quota is exhausted."""
_TOO_FAST = re.compile(r"rate[ _]limit|too many requests", re.IGNORECASE)


class Fault(NamedTuple):
    """The error code of the turn, whether the native session is lost too, and when to retry."""

    code: str
    poisoned: bool = False
    retry_after_s: float | None = None
    retry_at: float | None = None


def turn_fault(failure: Failure) -> Fault:
    text = failure.text
    if failure.code == NEEDS_LOGIN:
        return Fault("needs_login")
    if _TOO_LONG.search(text):
        return Fault("context_too_long", poisoned=True)
    if _CORRUPT.search(text):
        return Fault("history_corrupt", poisoned=True)
    if failure.code == RESOURCE_NOT_FOUND or _FORGOTTEN.search(text):
        return Fault("session_lost", poisoned=True)
    if _LIMIT.search(text):
        return _until_reset("usage_limit", f"{text} {failure.raw}")
    if failure.code == TOO_MANY_REQUESTS or _TOO_FAST.search(text):
        return _until_reset("rate_limited", f"{text} {failure.raw}")
    return Fault("agent_error")


def _until_reset(code: str, text: str) -> Fault:
    after_s = reset_after_s(text)
    return Fault(code, retry_after_s=after_s, retry_at=reset_at(text) if after_s is None else None)
