"""Turn records: a finished turn as one row, so that histories are read by turn and not by event.

Above: the journal has a RecordedView of its newest turn; records.py makes the record in the step that ends the turn,
and reading.py reads it. Below: view.py, and history.py, which joins text deltas.

A record is a cache of the log and never a source. It contains the events that a history or a fork reads, with the
deltas of each text block joined. Folding a record gives the same result as folding the log. A turn that is too long for
a record is read from the log.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.core import events as ev
from perdure.core.errors import UNREADABLE
from perdure.core.history import READ, TOLD, Gathered
from perdure.core.view import TextPart, TurnView, size_of

RECORD_MAX_BYTES = 256 * 1024
"""The size of a turn's events as JSON. Reading a longer turn from the log costs little more than its text."""
RECORD_MAX_EVENTS = 1_000
COMPRESSION_LEVEL = 1
"""Fast, because the session waits while its record is made."""

_TEXT = (ev.AssistantText, ev.AssistantThinking)
_OF_A_TOOL = (ev.ToolUse, ev.ToolUpdate, ev.ToolResult)
_decoder = msgspec.json.Decoder(list[ev.AnyEvent])

BROKEN = (*UNREADABLE, zlib.error)
"""What `read_record` raises for a damaged record."""


class TurnRecord(msgspec.Struct, frozen=True):
    """A turn's record. Without a body: the turn has no record any more. `size` is that of the events as JSON."""

    turn: int
    size: int = 0
    body: bytes | None = None


class RecordedView(TurnView):
    """The journal's view of its newest turn, plus the events for the turn's record. Text is in memory only once: the
    record is made from the view's parts."""

    def __init__(self, turn: int | None) -> None:
        super().__init__(turn)
        self._told: list[TextPart | ev.Event] | None = []
        """The parts and events of the record, in order. None: the turn has ended, or is too long for a record."""
        self._told_bytes = 0
        """The size of the events, without text. The view's parts share most of it."""
        self._text_part: TextPart | None = None
        self._of_tools_at: dict[str, int] = {}
        """The index in `_told` of each tool's last event."""

    @property
    def size(self) -> int:
        return super().size + self._told_bytes

    def fold(self, event: ev.Event) -> None:
        if type(event) is ev.AssistantText and event.turn == self.turn:
            self._text("text", event.block, event.delta)  # a shortcut: most events are text
        else:
            TurnView.fold(self, event)
        told = self._told
        if told is None or event.turn != self.turn:
            return
        if isinstance(event, _TEXT):
            # Checked first, because most events are text. It was folded above, so the last part is a TextPart.
            part = self.parts[-1]
            part.at = event.at  # type: ignore[union-attr]
            if part is self._text_part:
                return
            assert isinstance(part, TextPart)
            self._text_part = part
            told.append(part)
        elif isinstance(event, READ):
            self._keep(told, event)
        over = isinstance(event, ev.TurnEnd)
        if over or len(told) > RECORD_MAX_EVENTS or self._told_bytes > RECORD_MAX_BYTES:
            self._told, self._text_part, self._of_tools_at, self._told_bytes = None, None, {}, 0

    def _keep(self, told: list[TextPart | ev.Event], event: ev.Event) -> None:
        index = self._of_tools_at.get(event.tool_id) if isinstance(event, _OF_A_TOOL) else None
        if index is not None and isinstance(event, ev.ToolUpdate):
            before = told[index]
            if isinstance(before, ev.ToolUpdate):
                # A long-running tool may repeat its whole output with every update.
                told[index] = joined = _both(before, event)
                self._told_bytes += size_of(joined) - size_of(before)
                return
        if isinstance(event, _OF_A_TOOL):
            self._of_tools_at[event.tool_id] = len(told)
        self._told_bytes += size_of(event)
        told.append(event)

    def told(self) -> list[ev.Event] | None:
        """The turn's events so far; None if it is too long, or had already ended."""
        if self._told is None:
            return None
        texts = [part for part in self._told if isinstance(part, TextPart)]
        if any(part.offset for part in texts) or sum(part.length for part in texts) > RECORD_MAX_BYTES:
            return None
        return [self._said(item) if isinstance(item, TextPart) else item for item in self._told]

    def _said(self, part: TextPart) -> ev.Event:
        kind = ev.AssistantText if part.kind == "text" else ev.AssistantThinking
        return kind(at=part.at, turn=self.turn, block=part.block, delta=part.text())


def _both(before: ev.ToolUpdate, event: ev.ToolUpdate) -> ev.ToolUpdate:
    """Two updates of a tool merged into one. Null fields have not changed."""
    names = ("content", "diff", "locations", "title", "input")
    unchanged: dict[str, Any] = {name: getattr(before, name) for name in names if getattr(event, name) is None}
    return msgspec.structs.replace(event, **unchanged)


def records_of(view: RecordedView, events: Iterable[ev.Event], running: int | None) -> Iterator[TurnRecord]:
    """The records that a step creates or invalidates: for turns that end in it, and for turns that get more events
    after their end. `view` is the view before the step, `running` the turn that runs after it."""
    by_turn: dict[int, list[ev.Event]] = defaultdict(list)
    ended: set[int] = set()
    for event in events:
        if event.turn is not None and isinstance(event, READ):
            by_turn[event.turn].append(event)
            if isinstance(event, ev.TurnEnd):
                ended.add(event.turn)
    for turn, said in by_turn.items():
        if turn in ended:
            before = view.told() if turn == view.turn else [] if _begins(said[0]) else None
            yield TurnRecord(turn) if before is None else record_of(turn, [*before, *said])
        elif turn != running and any(isinstance(event, TOLD) for event in said):
            # Changes to the history don't invalidate a record: readers apply them separately.
            yield TurnRecord(turn)


def _begins(event: ev.Event) -> bool:
    """Whether this is the first event of its turn. Some imported turns have no message."""
    return isinstance(event, ev.UserMessage) or (isinstance(event, ev.TurnStart) and event.taken_over)


def record_of(turn: int, events: Iterable[ev.Event]) -> TurnRecord:
    """The record of a turn with these events; without a body if they are too large or too many."""
    gathered = Gathered()
    gathered.add(event for event in events if isinstance(event, READ))
    joined = gathered.all()
    text_chars = sum(len(event.delta) for event in joined if isinstance(event, _TEXT))
    if text_chars > RECORD_MAX_BYTES or len(joined) > RECORD_MAX_EVENTS:
        return TurnRecord(turn)
    body = b"[" + b",".join(ev.encode(event) for event in joined) + b"]"
    if len(body) > RECORD_MAX_BYTES:
        return TurnRecord(turn)
    return TurnRecord(turn, len(body), zlib.compress(body, COMPRESSION_LEVEL))


def read_record(body: bytes) -> list[ev.AnyEvent]:
    """The events of a record. Raises one of BROKEN."""
    return _decoder.decode(zlib.decompress(body))
