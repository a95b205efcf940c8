"""Builds the events of finished turns from the lines of a session's `.ndjson`. Pure.

Above: session_reading.py. Below: the lines, TeamHQ's or our own. Our lines contain the original event. For TeamHQ's
lines the turns are reconstructed: a turn starts with `turn_start`, or in older files with the first line. A line after
the end of a turn, such as an error, still belongs to it.
"""

import re
from collections.abc import Callable
from typing import Any

from perdure.core.clock import ms_between
from perdure.core.imported import TAKEN
from perdure.surfaces.session_files import OWN, SAID

Json = dict[str, Any]

NOT_KEPT = "(The first message was not kept.)"
CHATTER = re.compile(r"Agent initialized|Turn \d+ completed.*|Session .*")
"""Status messages of TeamHQ's server. Turns and states already contain the information."""
MAX_NUMBER = 2**53
TURN_FAILED = re.compile(r"Turn \d+ failed \(exit code (\d+)\)")


class Broken(Exception):
    """An invalid file: the line, if it has several, and the problem."""

    def __init__(self, line: int | None, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


class Building:
    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._turns: dict[int, list[Json]] = {}
        self._last = 0
        self._open = False
        self._at = ""
        self._line = 0
        self._message: str | None = None
        self._message_turn = 0
        self._tools: list[tuple[str, str]] = []
        self._tool_count = 0
        self._block = 0
        self._takes: dict[str, Callable[[Json], None]] = {
            "user_message": self._user_message,
            "turn_start": self._turn_start,
            "assistant_text": self._text,
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "system": self._system,
            "error": self._error,
            "turn_end": self._turn_end,
            "waiting_for_input": self._waiting,
        }

    def take(self, number: int, line: Json) -> None:
        self._line, self._at = number, line["timestamp"]
        if isinstance(line.get(OWN), dict):
            self._take_own(line[OWN], line["data"])
        elif line["type"] in self._takes:
            self._takes[line["type"]](line["data"])

    def finish(self, stop_reason: str, error: str | None, at: str | None) -> None:
        """At the end of the file, end a turn that is still open."""
        self._at = at or self._at
        if self._message is not None and not self._open:
            self._begin(self._message_turn or self._last + 1)
        if self._open:
            if stop_reason == "failed":
                self._add({"type": "error", "message": error or "The turn failed.", "code": "imported"})
            self._end({"stop_reason": stop_reason})

    def events(self) -> list[Json]:
        """The events of the visible turns, in order, without prompts that were never closed."""
        return [event for turn in self._turns.values() for event in _closed(turn)]

    # Our own ---------------------------------------------------------------------------------------------------------

    def _take_own(self, own: Json, data: Json) -> None:
        kind, turn = own.get("type"), own.get("turn")
        if not isinstance(turn, int) or (kind not in TAKEN and kind != "history_changed"):
            raise Broken(self._line, f"`{OWN}` must be an event of a turn")
        if kind == "history_changed":
            self._change(turn, own)
            return
        event = {**own, "at": self._at}
        name, told = SAID.get(kind, ("", ""))
        if name and name not in event:
            event[name] = data.get(told)
        if turn != self._last:
            self._begin_numbered(turn)
        if self._open:
            self._turns[turn].append(event)
            self._open = kind != "turn_end"
        elif kind != "turn_end" and turn in self._turns:
            self._turns[turn].insert(-1, event)

    def _change(self, turn: int, own: Json) -> None:
        """Apply a history change: an edited message, or a rewind of this turn and all later turns."""
        if own.get("change") != "edit":
            self._turns = {number: events for number, events in self._turns.items() if number < turn}
        for event in self._turns.get(turn, []):
            if event["type"] == "user_message" and isinstance(own.get("text"), str):
                event["text"] = own["text"]

    def _begin_numbered(self, turn: int) -> None:
        if self._open:
            self._end({"stop_reason": "failed"})
        if turn <= self._last:
            raise Broken(self._line, f"turn {turn} follows turn {self._last}")
        self._turns[turn] = []
        self._last, self._open = turn, True
        self._tools, self._tool_count, self._block = [], 0, 0

    # TeamHQ's --------------------------------------------------------------------------------------------------------

    def _user_message(self, data: Json) -> None:
        if self._open:
            self._end({"stop_reason": "end_turn"})
        self._message = self._words(data, "message")
        self._message_turn = self._number(data) or 0

    def _turn_start(self, data: Json) -> None:
        if self._open:
            self._end({"stop_reason": "end_turn"})
        if isinstance(data.get("message"), str):
            self._message = data["message"]
        self._begin(self._number(data) or self._last + 1)

    def _begin(self, turn: int) -> None:
        self._begin_numbered(turn)
        message_id = f"{self._session_id}.{turn}.message"
        text, self._message, self._message_turn = self._message, None, 0
        self._add({"type": "user_message", "message_id": message_id, "text": text or NOT_KEPT, "agent": ""})
        start = {"run_id": "", "message_id": message_id, "agent": "", "context": "fresh", "context_reason": "imported"}
        self._add({"type": "turn_start", **start})

    def _add(self, event: Json) -> None:
        """Add an event to the open turn, or to the one that has just ended. The first line of an old file starts a
        turn."""
        if not self._last:
            self._begin(1)
        turn = self._turns.get(self._last, [])
        if self._open:
            turn.append({**event, "turn": self._last, "at": self._at})
        elif turn:
            turn.insert(-1, {**event, "turn": self._last, "at": turn[-1]["at"]})

    def _text(self, data: Json) -> None:
        self._add({"type": "assistant_text", "block": self._block, "delta": self._words(data, "text")})

    def _tool_use(self, data: Json) -> None:
        if not self._last:
            self._begin(1)
        self._tool_count += 1
        self._block += 1
        tool_id, name = f"{self._last}-{self._tool_count}", self._words(data, "tool") or "unknown"
        self._tools.append((tool_id, name))
        self._add({"type": "tool_use", "tool_id": tool_id, "name": name, "input": data.get("input")})

    def _tool_result(self, data: Json) -> None:
        """Assign a result to the oldest open tool of this name: the line has no tool id."""
        name = data.get("tool")
        found = next((tool for tool in self._tools if tool[1] == name), self._tools[0] if self._tools else None)
        if found is None:
            self._tool_use({"tool": name if isinstance(name, str) else ""})
            found = self._tools[-1]
        self._tools.remove(found)
        self._add({"type": "tool_result", "tool_id": found[0], "content": self._words(data, "output")})

    def _system(self, data: Json) -> None:
        message = self._words(data, "message")
        if self._open and not CHATTER.fullmatch(message):
            self._add({"type": "system", "message": message, "code": "imported"})

    def _error(self, data: Json) -> None:
        message = self._words(data, "message")
        if CHATTER.fullmatch(message):
            return
        detail = data.get("detail")
        error = {"type": "error", "message": message, "code": "imported"}
        self._add(error | ({"detail": detail} if isinstance(detail, str) else {}))
        failed = TURN_FAILED.fullmatch(message)
        if failed and not self._open and self._last in self._turns:
            self._turns[self._last][-1].update(stop_reason="failed", exit_code=int(failed.group(1)))

    def _turn_end(self, data: Json) -> None:
        if not self._open:
            if self._last:
                return
            self._begin(self._number(data) or 1)
        code, cost, duration = (_number(data.get(name)) for name in ("exitCode", "costUsd", "durationMs"))
        end: Json = {"stop_reason": "end_turn"}
        if code:
            end |= {"exit_code": int(code), "stop_reason": "failed"}
        if duration is not None:
            end["duration_ms"] = max(0, round(duration))
        if cost is not None and cost >= 0:
            end["cost_usd"] = float(cost)
        self._end(end)

    def _waiting(self, data: Json) -> None:
        if self._open:
            self._end({"stop_reason": "end_turn"})

    def _end(self, end: Json) -> None:
        began = self._turns[self._last][0]["at"]
        self._add({"type": "turn_end", "duration_ms": ms_between(began, self._at), **end})
        self._open = False

    # Values --------------------------------------------------------------------------------------------------------

    def _words(self, data: Json, name: str) -> str:
        found = data.get(name, "")
        if not isinstance(found, str):
            raise Broken(self._line, f"data.{name} must be a string")
        return found

    def _number(self, data: Json) -> int | None:
        found = data.get("turnNumber")
        if found is None:
            return None
        if not isinstance(found, int) or isinstance(found, bool) or found <= self._last:
            raise Broken(self._line, f"data.turnNumber must be an integer greater than {self._last}")
        return found


def _closed(turn: list[Json]) -> list[Json]:
    closed = [event.get("prompt_id") for event in turn if event["type"] == "prompt_resolved"]
    return [event for event in turn if event["type"] != "pending_prompt" or event.get("prompt_id") in closed]


def _number(value: Any) -> int | float | None:
    """The value if it is a sensible number, else None: a bad figure is no reason to reject a history."""
    sensible = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER
    return value if sensible else None
