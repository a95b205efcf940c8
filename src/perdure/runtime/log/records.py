"""Rows that a step stores along with its events: turns, texts for search, the session's entry in lists.

Above: the log, which commits them together with the events and serves the rows of turns. Below: the decision's state
and the view of the running turn.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.core.slots import slot_project, takes_slot
from perdure.core.state import Session, Turn
from perdure.core.turn_record import RecordedView, records_of
from perdure.core.view import TextPart, TurnView, older_than, public_session, public_turn
from perdure.stores.base import Listed, Phrase, Spent, TurnRecord, TurnRow

MAX_PHRASE_CHARS = 1024 * 1024
"""Search covers at most this many characters of an agent's text in one turn, counted from the end."""

_json = msgspec.json.Encoder()


class DerivedRows(NamedTuple):
    turns: list[TurnRow]
    hidden: tuple[int, int] | None
    phrases: list[Phrase]
    records: list[TurnRecord]


def derived_rows(decision: Decision, view: RecordedView, last_turn: int) -> DerivedRows:
    """The rows that the decision's events add or change. `view` and `last_turn` don't include these events."""
    phrases: list[Phrase] = []
    hidden = None
    turn, said, said_bytes = view.turn, view.text(), 0
    sizes = {view.turn: len(view.message["text"].encode("utf-8", "surrogatepass")) if view.message else 0}
    for event in decision.events:
        if isinstance(event, ev.UserMessage):
            if event.turn != turn:
                turn, said, said_bytes = event.turn, "", 0
            sizes[event.turn] = len(event.text.encode("utf-8", "surrogatepass"))
            phrases.append(Phrase(event.turn or 0, "user", event.text))
        elif isinstance(event, ev.Title):
            phrases.append(Phrase(0, "title", event.title))
        elif isinstance(event, ev.SessionCreated) and event.session.get("title"):
            phrases.append(Phrase(0, "title", event.session["title"]))
        elif isinstance(event, ev.HistoryChanged) and event.text is not None:
            phrases.append(Phrase(event.turn or 0, "user", event.text))
        elif isinstance(event, ev.HistoryChanged) and event.turn is not None:
            hidden = (event.turn, last_turn)
        elif isinstance(event, ev.AssistantText) and turn == event.turn:
            said += event.delta[-MAX_PHRASE_CHARS:]
            if len(said) > 2 * MAX_PHRASE_CHARS:
                said_bytes += len(said[:-MAX_PHRASE_CHARS].encode("utf-8", "surrogatepass"))
                said = said[-MAX_PHRASE_CHARS:]
            said_bytes += len(event.delta[:-MAX_PHRASE_CHARS].encode("utf-8", "surrogatepass"))
        elif isinstance(event, ev.TurnEnd) and turn == event.turn and said:
            sizes[turn] = sizes.get(turn, 0) + said_bytes + len(said.encode("utf-8", "surrogatepass"))
            phrases.append(Phrase(event.turn or 0, "assistant", said[-MAX_PHRASE_CHARS:]))
    rows = []
    for changed in decision.turns.values():
        over = decision.counted and changed.ended_at is not None and changed.context is not None
        spent = _spent(changed, sizes.get(changed.turn, 0)) if over else None
        rows.append(TurnRow(changed.turn, True, _json.encode(public_turn(changed)), spent))
    running = decision.state.turn.turn if decision.state.turn is not None and decision.state.busy else None
    return DerivedRows(rows, hidden, phrases, list(records_of(view, decision.events, running)))


def turns_page(
    state: Session, rows: Sequence[TurnRow], limit: int, before: int | None = None
) -> tuple[list[Any], str | None]:
    """The public turns of these rows, and the cursor for older ones. The stored JSON of a row is passed on unchanged.
    The last turn comes from memory: it is newer than its row, or may have started while the rows were read."""
    turns: list[Any] = [msgspec.json.decode(row.public, type=msgspec.Raw) for row in rows]
    numbers = [row.turn for row in rows]
    current = state.turn
    if current is not None and rows and rows[-1].turn == current.turn:
        turns[-1] = public_turn(current)
    elif current is not None and state.busy and (before is None or current.turn < before):
        turns.append(public_turn(current))
        numbers.append(current.turn)
    return turns[-limit:], older_than(state, numbers[-limit:][0] if numbers else None)


def _spent(turn: Turn, said_bytes: int) -> Spent:
    usage = turn.usage or {}
    return Spent(
        started_at=turn.started_at,
        agent=turn.agent,
        model=turn.model,
        context=turn.context or "fresh",
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("cache_read_tokens"),
        cache_write_tokens=usage.get("cache_write_tokens"),
        cost_usd=turn.cost_usd,
        input_bytes=turn.input_bytes,
        duration_ms=turn.duration_ms,
        said_bytes=said_bytes,
    )


LAST_LINE_CHARS = 160


def listed(decision: Decision, view: TurnView, due_at: str | None) -> Listed:
    state = decision.state
    shown = {
        # Lists take the last sequence number from the store: it is not known before the commit.
        **public_session(state, 0),
        "last_line": last_line(view, decision.events),
        "waiting_for": waiting_for(state) if state.prompts else "",
    }
    # Lists don't show a session's slash commands.
    shown["commands"] = []
    return Listed(
        project=state.project,
        agent=state.agent,
        workdir=state.workdir,
        state=state.state,
        status=state.status,
        title=state.title,
        labels=state.labels,
        archived=state.archived,
        parent=state.parent,
        last_active_at=state.last_active_at,
        public=_json.encode(shown),
        due_at=due_at,
        takes_slot=takes_slot(state, count_idle=False) and slot_project(state) is not None,
    )


def last_line(view: TurnView, events: Iterable[ev.Event]) -> str:
    """The last line of the agent's text. `events` are not in the view yet."""
    pieces: list[tuple[int | None, int, str]] = []
    size = 0
    for part in reversed(view.parts):
        if isinstance(part, TextPart) and part.kind == "text" and size <= 4 * LAST_LINE_CHARS:
            pieces.insert(0, (view.turn, part.block, part.text()))
            size += len(pieces[0][2])
    if size <= 4 * LAST_LINE_CHARS:
        pieces.insert(0, (view.turn, view.dropped_text.block, view.dropped_block()[-4 * LAST_LINE_CHARS :]))
    for event in events:
        if isinstance(event, ev.AssistantText):
            pieces.append((event.turn, event.block, event.delta[-4 * LAST_LINE_CHARS :]))
        elif isinstance(event, ev.HistoryChanged) and event.change != "edit":
            # Rewound turns don't count.
            pieces = [piece for piece in pieces if (piece[0] or 0) < (event.turn or 0)]
    # Each block starts a new line, and so does each turn that a fork copies.
    blocks = groupby(pieces, key=lambda piece: piece[:2])
    said = "\n".join("".join(text for _, _, text in block) for _, block in blocks)
    for line in reversed(said[-4 * LAST_LINE_CHARS :].splitlines()):
        if line.strip():
            return line.strip()[:LAST_LINE_CHARS]
    return ""


def waiting_for(state: Session) -> str:
    """The first open prompt, on one line."""
    for prompt in state.prompts.values():
        asked = prompt.title or next((one.question for one in prompt.questions), "")
        return " ".join(asked.split())[:LAST_LINE_CHARS]
    return ""
