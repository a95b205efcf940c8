"""Validates imported turns. Pure.

Above: the verb that imports sessions, and the readers of session files. Below: events. Imported data is not trusted
beyond what can be checked: it may describe what was said and done, but it never grants anything.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.core import events as ev
from perdure.core.clock import seconds, stamp
from perdure.core.elements import MARKS, count_values
from perdure.core.errors import Refused
from perdure.core.history import TOLD
from perdure.core.images import checked
from perdure.core.validation import what_is_wrong

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""An id is part of URLs and of paths on disk."""
_WRITTEN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
"""A time in the format of stored events."""
LAST_TIME_S = 253_402_300_800
"""The end of the year 9999. Times before 1970 are refused too."""
MAX_NUMBER = 2**53
MAX_EVENTS = 300_000
"""Of an imported session, which is one commit and in memory until then."""
MAX_EVENT_BYTES = 48 * 1024 * 1024
"""Of one event, including the attachments of its message."""
MAX_EVENT_VALUES = 64 * 1024
"""Values in the lists and objects of one event."""
MAX_VALUES = 512 * 1024
"""Values in the lists and objects of all events, not counting the first `PLAIN_VALUES` of each event."""
PLAIN_VALUES = 10
LESS = "Shorten it, or leave its turn out."
FIGURES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "context_used")
TAKEN: dict[str, type[ev.Event]] = {str(kind.__struct_config__.tag): kind for kind in TOLD}


def check_id(session_id: str, what: str = "id") -> None:
    if not SESSION_ID.fullmatch(session_id):
        raise Refused("invalid", f"{what} must be 1 to 100 letters, digits, - and _, not {session_id!r}.")


def check_count(events: int) -> None:
    if events > MAX_EVENTS:
        raise Refused(
            "too_large",
            f"The session has more than {MAX_EVENTS:,} events. Join the pieces of its texts, or leave out turns.",
        )


class Room:
    """The remaining budget of values. A value of a few bytes in JSON can take a hundred bytes in memory."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def take(self, raw: bytes, number: int) -> None:
        """Check the raw JSON of an event before it is decoded. Raises Refused."""
        if len(raw) > MAX_EVENT_BYTES:
            raise Refused("too_large", f"events, number {number}: it is larger than {MAX_EVENT_BYTES} bytes. {LESS}")
        if sum(raw.count(mark) for mark in MARKS) <= PLAIN_VALUES:
            return
        values = count_values(raw, MAX_EVENT_VALUES)
        if values > MAX_EVENT_VALUES:
            raise too_many_values(number)
        self._left -= max(0, values - PLAIN_VALUES)
        if self._left < 0:
            raise Refused("too_large", f"events, number {number}: the events up to here have too many values. {LESS}")


def too_many_values(number: int) -> Refused:
    what = f"it has more than {MAX_EVENT_VALUES:,} values in its lists and objects"
    return Refused("too_large", f"events, number {number}: {what}. {LESS}")


def time_of(given: str, what: str) -> str:
    """A time in the format of stored events."""
    try:
        moment = seconds(given)
    except (ValueError, OverflowError, OSError):
        moment = -1.0
    if not 0 <= moment < LAST_TIME_S:
        raise Refused("invalid", f"{what} must be a time such as 2026-02-07T12:00:00.000Z, not {given!r}.")
    return given if _WRITTEN.fullmatch(given) else stamp(moment)


def finished_turns(given: Iterable[dict[str, Any]], agent: str) -> list[ev.Event]:
    """The events of complete turns, in order. `agent` is used for turns that name none."""
    found: list[ev.Event] = []
    last, open_turn, begun = 0, 0, False
    asked: set[str] = set()
    for number, entry in enumerate(given, 1):
        check_count(number)
        event = event_of(entry, number)
        turn = event.turn or 0
        if isinstance(event, ev.UserMessage | ev.TurnStart) and not event.agent:
            event.agent = agent
        if not open_turn:
            if turn <= last or not isinstance(event, ev.UserMessage | ev.TurnStart):
                raise _wrong(
                    number, f"expected the start of a turn: user_message or turn_start, with a turn above {last}"
                )
            last, open_turn, begun = turn, turn, isinstance(event, ev.TurnStart)
        elif turn != open_turn:
            raise _wrong(number, f"turn {open_turn} has no turn_end")
        elif not begun:
            # A turn that was cancelled or failed before it began has no turn_start.
            if not isinstance(event, ev.TurnStart | ev.Error | ev.TurnEnd):
                raise _wrong(number, f"turn {open_turn} must continue with turn_start")
            begun = isinstance(event, ev.TurnStart)
            open_turn = 0 if isinstance(event, ev.TurnEnd) else open_turn
        elif isinstance(event, ev.UserMessage | ev.TurnStart):
            raise _wrong(number, f"turn {open_turn} has already begun")
        elif isinstance(event, ev.PendingPrompt):
            asked.add(event.prompt_id)
        elif isinstance(event, ev.PromptResolved):
            asked.discard(event.prompt_id)
        elif isinstance(event, ev.TurnEnd):
            if asked:
                # An imported prompt can't be answered here.
                raise _wrong(number, f"turn {open_turn} ends with a prompt that has no prompt_resolved")
            open_turn = 0
        found.append(event)
    if open_turn:
        raise Refused("invalid", f"events: turn {open_turn} has no turn_end. Only finished turns can be imported.")
    return found


def event_of(entry: dict[str, Any], number: int) -> ev.Event:
    kind = TAKEN.get(str(entry.get("type")))
    if kind is None:
        raise _wrong(number, f"type must be one of {', '.join(TAKEN)}")
    try:
        event: ev.Event = msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise _wrong(number, what_is_wrong(error, kind)) from error
    if not 0 < (event.turn or 0) < 2**31:
        raise _wrong(number, "turn must be a whole number, 1 or more")
    event.at = time_of(event.at, f"events, number {number}: at")
    if isinstance(event, ev.TurnEnd):
        _check_figures(event, number)
    elif isinstance(event, ev.PromptResolved):
        event.answer = _words(event.answer or {}) or None
    elif isinstance(event, ev.Image):
        event = checked(event)
    elif isinstance(event, ev.ToolResult) and not 0 <= event.waited_ms <= MAX_NUMBER:
        raise _wrong(number, f"waited_ms must be a number from 0 to {MAX_NUMBER}")
    return event


def _words(answer: dict[str, Any]) -> dict[str, Any]:
    """The parts of an answer to a prompt that can be shown."""
    said: dict[str, Any] = {}
    if isinstance(answer.get("reason"), str):
        said["reason"] = answer["reason"]
    if isinstance(answer.get("answers"), dict):
        said["answers"] = {question: given for question, given in answer["answers"].items() if _is_said(given)}
    return said


def _is_said(given: Any) -> bool:
    return all(isinstance(text, str) for text in (given if isinstance(given, list) else [given]))


def _check_figures(event: ev.TurnEnd, number: int) -> None:
    """Figures are summed, so they must be valid numbers. Unknown figures are dropped."""
    if event.usage is not None:
        event.usage = {name: event.usage[name] for name in FIGURES if event.usage.get(name) is not None}
    given = {"duration_ms": event.duration_ms, "cost_usd": event.cost_usd, "input_bytes": event.input_bytes}
    for name, value in {**given, **(event.usage or {})}.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= MAX_NUMBER):
            raise _wrong(number, f"{name} must be a number from 0 to {MAX_NUMBER}")
    if event.exit_code is not None and abs(event.exit_code) > MAX_NUMBER:
        raise _wrong(number, "exit_code is too large")


def _wrong(number: int, what: str) -> Refused:
    return Refused("invalid", f"events, number {number}: {what}.")
