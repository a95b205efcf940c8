"""Turn an agent's error message into one sentence for people, and find out when an exhausted quota resets.

Above: the faults of each driver. Below: nothing. Agents pass on messages of their model provider, often as JSON inside
text inside JSON. People see only the words; the full text is stored as the error's detail. Pure: a time given as a
duration stays a duration.
"""

import json
import re
from datetime import datetime
from typing import Any, NamedTuple

NO_REASON = "The agent gave no reason"
SENTENCE_CHARS = 400
DETAIL_CHARS = 4000
NESTED_MAX = 4
"""How many levels of nested JSON to unwrap."""
RESET_MAX_S = 31 * 24 * 3600.0

_WORDS = ("message", "error", "details", "detail", "reason", "msg", "errors")
"""Fields that may contain the message, in order of preference."""
_FILLER = re.compile(r"^\s*Internal error\s*[:.-]+\s*", re.IGNORECASE)
_JSONRPC_CODE = re.compile(r"\s*\(?\bcode:?\s*-3[12]\d{3}\b\)?|\s*\(?-3[12]\d{3}\)?(?!\d)")
_EPOCH = re.compile(r"\|\d{9,13}\b")
_QUOTED = re.compile(r"""['"]message['"]\s*:\s*(?P<mark>['"])(?P<words>(?:\\.|(?!(?P=mark)).)+)(?P=mark)""", re.DOTALL)
_UNIT = r"(?:milliseconds?|ms|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_SPAN = re.compile(rf"(\d+(?:\.\d+)?)\s*({_UNIT})", re.IGNORECASE)
_AFTER = re.compile(
    rf"(?:try again|retry|resets?|available)(?: again)? (?:in|after) ((?:\d+(?:\.\d+)?\s*{_UNIT}[\s,]*(?:and )?)+)",
    re.IGNORECASE,
)
_DELAY = re.compile(
    r"""(?:retryDelay|retry_after|resets_in_s|resets_in_seconds)\\*["']?\s*:\s*\\*["']?(\d+(?:\.\d+)?)"""
)
_RESET_NUMBER = re.compile(r"""\|(\d{9,13})\b|resets?_?at\\*["']?\s*:\s*\\*["']?(\d{9,13})(?![\d-])""", re.IGNORECASE)
_RESET_WRITTEN = re.compile(
    r"""(?:resets?|available|try again|retry|until)(?:[_ ]?at| on| after)?\\*["']?\s*:?\s*\\*["']?"""
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d))",
    re.IGNORECASE,
)
LAST_SECOND = 10**11
"""A larger timestamp is in milliseconds."""
_SECONDS = {"m": 60.0, "d": 86400.0, "h": 3600.0, "s": 1.0}


class Said(NamedTuple):
    """One sentence for people, and the original text if it says more."""

    sentence: str
    detail: str | None


def said(text: str) -> Said:
    sentence = plain(text)
    raw = text.strip()[:DETAIL_CHARS]
    return Said(sentence, raw if raw and raw != sentence else None)


def plain(text: str) -> str:
    """Return only the words: without JSON and protocol codes, on one line, of limited length."""
    for _ in range(NESTED_MAX):
        shorter = _without_json(text)
        if shorter == text:
            break
        text = shorter
    text = " ".join(_JSONRPC_CODE.sub("", _EPOCH.sub("", text)).split())
    while (shorter := _FILLER.sub("", text)) != text and shorter:
        text = shorter
    # Remove the remains of what was cut out.
    text = text.strip(" :") if "]" in text else text.strip(" :[")
    if not text:
        return NO_REASON
    return text if len(text) <= SENTENCE_CHARS else text[: SENTENCE_CHARS - 1].rstrip() + "…"


def _without_json(text: str) -> str:
    """Replace the first JSON value in the text with the words that it contains."""
    start = min((found for found in (text.find("{"), text.find("[{")) if found >= 0), default=-1)
    if start < 0:
        return text
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
        words = _words(value)
    except (ValueError, RecursionError):
        # A Python repr, or truncated JSON. It still contains the message; drop what follows it.
        quoted = _QUOTED.search(text, start)
        if quoted is None:
            return text
        words, end = quoted["words"], len(text)
    before, after = text[:start].rstrip(" -:([\n"), text[end:].lstrip(" ])}\n")
    return " ".join(part for part in (f"{before}:" if before and words else before, words, after) if part)


def _words(value: Any) -> str:
    """Return the message in a decoded error."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return next((words for words in map(_words, value) if words), "")
    if isinstance(value, dict):
        return next((words for words in (_words(value[key]) for key in _WORDS if key in value) if words), "")
    return ""


def reset_after_s(text: str) -> float | None:
    """Return the seconds until a quota resets, if the text says so. Ignores times of day: their time zone is
    unknown."""
    found = _AFTER.search(text)
    if found is not None:
        total = sum(float(count) * _unit_s(unit) for count, unit in _SPAN.findall(found[1]))
    else:
        delay = _DELAY.search(text)
        if delay is None:
            return None
        total = float(delay[1])
    return total if total <= RESET_MAX_S else None


def reset_at(text: str) -> float | None:
    """Return the time at which a quota resets, in seconds since 1970, if the text has an unambiguous one."""
    number = _RESET_NUMBER.search(text)
    if number is not None:
        moment = float(number[1] or number[2])
        return moment / 1000 if moment > LAST_SECOND else moment
    written = _RESET_WRITTEN.search(text)
    if written is None:
        return None
    try:
        return datetime.fromisoformat(written[1].replace("Z", "+00:00").replace("z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def _unit_s(unit: str) -> float:
    unit = unit.lower()
    return 0.001 if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]]
