"""What an ACP agent's error reply means for the turn and for its native session.

Above: turns.py. Below: jsonrpc failures. Agents have no codes for this, only sentences, most of them their model
provider's: the patterns below are such sentences.
"""

import re

from perdure.drivers.jsonrpc import NEEDS_LOGIN, RESOURCE_NOT_FOUND, Failure

_TOO_LONG = re.compile(
    r"(prompt|input|conversation|request) is too (long|large)"
    r"|context[ _](length|window|limit)"
    r"|maximum (context|prompt) length"
    r"|exceed\w* the (maximum|model'?s)[^.]{0,40}(tokens|context)"
    r"|too many (input )?tokens",
    re.IGNORECASE,
)
"""The native history no longer fits the model, and will not fit next time."""

_CORRUPT = re.compile(
    r"tool_use\W{1,3}(ids?|blocks?) (were|was|found|must|without)"
    r"|unexpected .{0,12}tool_use_id"
    r"|tool_calls?\W.{0,60}must be followed by"
    r"|roles must alternate"
    r"|invalid .{0,12}signature. in .{0,12}thinking"
    r"|(history|session|transcript) is corrupt",
    re.IGNORECASE,
)
"""The provider refuses the history itself: every later turn would fail the same way."""

_FORGOTTEN = re.compile(r"(session|thread)( \S+)? (was )?not found|unknown session", re.IGNORECASE)
"""The agent doesn't know the session that it opened itself."""


def prompt_fault(failure: Failure) -> tuple[str, bool]:
    """A code for the failed turn, and whether the native session is lost with it."""
    text = failure.sentence
    if failure.code == NEEDS_LOGIN:
        return "needs_login", False
    if _TOO_LONG.search(text):
        return "context_too_long", True
    if _CORRUPT.search(text):
        return "history_corrupt", True
    if failure.code == RESOURCE_NOT_FOUND or _FORGOTTEN.search(text):
        return "session_lost", True
    return "agent_error", False
