"""Group commit: encodes a group of steps as the parameters of one call, and decodes the outcome of each step.

Above: the writer (postgres_writer.py) makes the call. Below: the function perdure_append_v1, which checks and writes.
Nothing here waits or uses a connection. Most steps have only text, so that path is optimized: numbers are sent as text,
bodies as they are, and everything that few steps have as one JSON document.
"""

import random
import re
import struct
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec

from perdure.core.errors import Conflict, NotOwner, StoreError
from perdure.stores.base import Append, Draft, Kept, LaunchProgress, Listed, Owner, Phrase
from perdure.stores.launch_rows import only_offset_differs
from perdure.stores.postgres_connections import clean

LAUNCHES_MAX = 10_000
"""Maximum number of cached launches, which show whether only an offset has changed."""
WORDS_MAX_CHARS = 250_000
WORDS_MAX_BYTES = 400_000
"""Only this much of a text is searchable, because a tsvector has at most 1 MB."""
WORD_MAX_BYTES = 2_046
"""PostgreSQL can't index a longer word."""

ONE_CALL = b"""
    SELECT * FROM perdure_append_v1(
        $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"""
_TEXT, _BYTEA, _JSONB, _TEXTS, _INT4S, _INT8S, _BYTEAS = 25, 17, 3802, 1009, 1007, 1016, 1001
TYPES = (
    *(_TEXTS, _INT8S, _INT8S, _INT8S, _TEXTS, _INT8S),
    *(_INT4S, _INT4S, _INT4S, _INT8S, _INT8S, _INT4S),
    *(_TEXTS, _INT4S, _INT4S, _INT4S, _INT4S),
    *(_BYTEAS, _INT4S, _JSONB),
)
"""Types of the parameters."""
FORMATS = tuple(1 if kind in (_TEXTS, _BYTEAS, _JSONB) else 0 for kind in TYPES)
"""1: binary, 0: text."""

# Flags of a step.
BAD_RECEIPT, MAKES, ONLY_OFFSET, LAUNCH_GONE, RELEASES = 1, 2, 4, 8, 16
# Outcomes of a step, as in perdure_append_v1.
KEPT, OTHER_TOKEN, NO_SESSION, DECIDED_SINCE, NOT_LAST, OWNED, NO_EVENT, TAKEN, NO_STATE, NEEDS_LAUNCH, MADE_BEFORE = (
    range(11)
)

_NO_TURN = -(2**31)
_HEADER = struct.Struct(">iiIii")
_NULL = b"\xff\xff\xff\xff"
_LENGTHS = [struct.pack(">i", length) for length in range(2048)]
_WORD = re.compile(r"[^\W_]+")

_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class Launches:
    """Cache of the last launch that this store wrote for each session, and the marks of their rows."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[LaunchProgress, int]] = {}

    def mark_of(self, progress: LaunchProgress) -> int | None:
        """Return the mark of the launch's row if only the offset has changed."""
        known = self._known.get(progress.session_id)
        return known[1] if known is not None and only_offset_differs(progress, known[0]) else None

    def remember(self, progress: LaunchProgress, mark: int) -> None:
        if len(self._known) >= LAUNCHES_MAX:
            self._known.clear()
        self._known[progress.session_id] = (progress, mark)

    def forget(self, session_id: str) -> None:
        self._known.pop(session_id, None)


class Entry:
    """A step in progress, and its outcome."""

    __slots__ = ("mark", "needs_launch", "outcome", "releases", "size", "step")

    def __init__(self, step: Append, size: int, *, releases: bool = False) -> None:
        self.step = step
        self.size = size
        self.releases = releases
        self.needs_launch = False
        """Send the launch's row even if the cache says that only the offset has changed."""
        self.mark: int | None = None
        self.outcome: Kept | Exception | None = None


class Group:
    """The parameters of one call. Each step belongs to a different session."""

    def __init__(self, launches: Launches) -> None:
        self._launches = launches
        self.entries: list[Entry] = []
        self._ids: list[bytes] = []
        self._claimers: list[Owner | None] = []
        self._steps: list[tuple[Any, ...]] = []
        """The numbers of each step; see `parameters`."""
        self._types: dict[str, int] = {}
        self._runs: list[tuple[int, int, int, int]] = []
        self._bodies: list[bytes] = []
        self._body_runs: list[str] = []
        self._events = 0
        self._rest: dict[str, list[dict[str, Any]]] = {}

    def add(self, entry: Entry) -> None:
        """Add a step. If its values are invalid, this raises and nothing of the step was added."""
        step = entry.step
        number = len(self.entries) + 1
        flags = RELEASES if entry.releases else 0
        entry.mark = mark = offset = None
        rest: list[tuple[str, dict[str, Any]]] = []
        if (progress := step.progress) is not None:
            known = None if entry.needs_launch else self._launches.mark_of(progress)
            if known is not None:
                flags |= ONLY_OFFSET
                mark, offset = known, progress.offset
            elif progress.phase == "gone":
                flags |= LAUNCH_GONE
                rest.append(("launches", _launch_row(number, progress, 0)))
            else:
                entry.mark = mark = random.getrandbits(62)  # not secret, only unique
                offset = progress.offset
                rest.append(("launches", _launch_row(number, progress, mark)))
        if not _is_plain(step):
            flags |= _gather(number, step, rest)
        name = clean(step.session_id).encode()
        first, decided = self._events, self._add_events(number, step.events)
        self.entries.append(entry)
        self._ids.append(name)
        self._claimers.append(step.claim)
        self._steps.append(
            (step.expect, step.expect_last, step.token, self._events - first, first, decided, mark, offset, flags)
        )
        for table, row in rest:
            self._rest.setdefault(table, []).append(row)

    def _add_events(self, number: int, events: Sequence[Draft]) -> int:
        """Add events, and return the index of the last decisive one, counted from 1; 0 if there is none."""
        runs: list[tuple[int, int, int, int]] = []
        counts: list[int] = []
        bodies: list[bytes] = []
        decided = place = begun = 0
        kind: str | None = None
        turn: int | None = None
        decisive = False
        for draft in events:
            if draft.type != kind or draft.turn != turn or draft.decisive != decisive:
                counts.append(place - begun)
                begun = place
                kind, turn, decisive = draft.type, draft.turn, draft.decisive
                named = self._types.setdefault(kind, len(self._types) + 1)
                runs.append((number, named, _NO_TURN if turn is None else int(turn), int(decisive)))
            place += 1
            if decisive:
                decided = place
            body = draft.body
            length = len(body)
            bodies += (_LENGTHS[length] if length < 2048 else length.to_bytes(4, "big"), body)
        if runs:
            counts.append(place - begun)
            # Skip the first count: it covers what came before the first run, which is nothing.
            for run, count in enumerate(counts[1:], len(self._runs) + 1):
                self._body_runs.append(f"{run}," * count)
            self._events += place
            self._runs += runs
            self._bodies += bodies
        return decided

    def parameters(self) -> list[bytes | None]:
        has_claims = any(self._claimers)
        expects, lasts, tokens, counts, starts, decided, marks, offsets, flags = zip(*self._steps, strict=True)
        steps, types, turns, decisive = zip(*self._runs, strict=True) if self._runs else ((), (), (), ())
        claimers = [None if one is None else clean(one.node).encode() for one in self._claimers] if has_claims else None
        return [
            _texts(self._ids),
            _numbers(expects),
            _numbers(lasts),
            _numbers(tokens),
            None if claimers is None else _texts(claimers),
            _numbers([None if one is None else one.incarnation for one in self._claimers]) if has_claims else None,
            _numbers(counts),
            _numbers(starts),
            _numbers(decided),
            _numbers(marks),
            _numbers(offsets),
            _numbers(flags),
            _texts([clean(kind).encode() for kind in self._types]),
            _numbers(steps),
            _numbers(types),
            _numbers(turns),
            _numbers(decisive),
            _array(_BYTEA, self._events) + b"".join(self._bodies),
            b"{" + "".join(self._body_runs)[:-1].encode() + b"}",
            b"\x01" + _json(self._rest) if self._rest else None,
        ]

    def take(self, columns: Sequence[bytes | None]) -> list[Entry]:
        """Set the outcome of each step. Returns the steps to send again, together with the row of their launch."""
        count = len(self.entries)
        statuses = _int4s(columns[0], count)
        firsts, tokens, lives = (_int8s(columns[column], count) for column in (1, 2, 4))
        again = []
        for entry, status, first, token, name, life in zip(
            self.entries, statuses, firsts, tokens, _names(columns[3], count), lives, strict=True
        ):
            if status == KEPT:
                entry.outcome = Kept(first, token, _owner(name, life) if name else None)
                if (progress := entry.step.progress) is None:
                    continue
                if entry.mark is not None:
                    self._launches.remember(progress, entry.mark)
                elif progress.phase == "gone":
                    self._launches.forget(progress.session_id)
            elif status == NEEDS_LAUNCH:
                entry.needs_launch = True
                self._launches.forget(entry.step.session_id)
                again.append(entry)
            else:
                if entry.releases and status == NO_STATE:
                    status = NO_SESSION
                entry.outcome = rejected(entry.step, status, first, token, name)
        return again


def rejected(step: Append, status: int, has: int, token: int, owner: bytes) -> StoreError:
    session = f"session {step.session_id}"
    match status:
        case 1:
            return NotOwner(f"{session}: the fencing token is {token}, not {step.token}")
        case 2:
            return Conflict(f"there is no {session}")
        case 3:
            return Conflict(f"{session}: last decisive event is {has}, not {step.expect}")
        case 4:
            return Conflict(f"{session}: last event is {has}, not {step.expect_last}")
        case 5:
            return NotOwner(f"{session} belongs to {owner.decode()}, which is alive")
        case 6:
            return StoreError("the receipt refers to an event that the step does not have")
        case 7:
            return Conflict(f"message {step.receipt.message_id if step.receipt else ''} was already accepted")
        case 8:
            return StoreError("the first step of a session needs `state` and `listed`")
        case _:
            return Conflict(f"{session} was created in the meantime")


def fold(text: str) -> str:
    """Return the words of a text as search compares them: lower case, without accents, separated by blanks."""
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join(_WORD.findall(text.lower()))


def indexed_words(text: str) -> str:
    """The words that search finds a text by: those that PostgreSQL can index."""
    words = fold(text[:WORDS_MAX_CHARS])
    if words.isascii() and len(words) <= WORD_MAX_BYTES:
        return words
    data = words.encode()
    if len(data) > WORDS_MAX_BYTES:
        data = data[: data.rfind(b" ", 0, WORDS_MAX_BYTES) + 1]
    return b" ".join(word for word in data.split(b" ") if len(word) <= WORD_MAX_BYTES).decode()


def _is_plain(step: Append) -> bool:
    if step.state is not None or step.listed is not None or step.receipt is not None:
        return False
    return not (step.turns or step.hidden or step.phrases or step.issued or step.records)


def _gather(number: int, step: Append, rest: list[tuple[str, dict[str, Any]]]) -> int:
    """Collect what few steps have, as rows for the tables. Returns the step's flags."""
    flags = 0
    if step.listed is not None:
        row = _listed_row(number, step.listed)
        if step.state is not None:
            row["machine_state"] = step.state
            flags |= MAKES
        rest.append(("listed", row))
    elif step.state is not None:
        rest.append(("states", {"step": number, "state": step.state}))
    # If there are several rows for a turn, the last one wins.
    rest += [
        ("turns", {"step": number, "turn": turn.turn, "visible": turn.visible, "public": turn.public})
        for turn in {turn.turn: turn for turn in step.turns}.values()
    ]
    for turn_number, spent in {turn.turn: turn.spent for turn in step.turns if turn.spent is not None}.items():
        values = {name: _clean(value) for name, value in msgspec.structs.asdict(spent).items()}
        rest.append(("spent", {"step": number, "turn": turn_number, **values}))
    for record in {record.turn: record for record in step.records}.values():
        values = {"turn": record.turn, "size": record.size, "record": record.body, "after": step.records_after}
        rest.append(("records", {"step": number, **values}))
    if step.hidden is not None:
        rest.append(("hidden", {"step": number, "first": step.hidden[0], "last": step.hidden[1]}))
    if (receipt := step.receipt) is not None:
        if receipt.event is not None and not 0 <= receipt.event < len(step.events):
            flags |= BAD_RECEIPT
        taken = {"message_id": clean(receipt.message_id), "digest": clean(receipt.digest)}
        rest.append(("receipts", {"step": number, **taken, "answer": receipt.answer, "event": receipt.event}))
    rest += [("phrases", _phrase_row(number, phrase)) for phrase in _last_phrases(step.phrases)]
    for native in step.issued:
        native_id = {"program": clean(native.program), "native_session_id": clean(native.native_session_id)}
        rest.append(("given", {"step": number, **native_id, "agent": clean(native.agent)}))
    return flags


def _clean(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


def _last_phrases(phrases: Sequence[Phrase]) -> list[Phrase]:
    """Drop replaced phrases: a session has one title and a turn has one user text, so the last one in a step wins."""
    last = {(phrase.turn, phrase.role): phrase for phrase in phrases}
    return [phrase for phrase in phrases if phrase.role == "assistant" or last[phrase.turn, phrase.role] is phrase]


def _phrase_row(number: int, phrase: Phrase) -> dict[str, Any]:
    text = clean(phrase.text)
    words = indexed_words(text)
    return {"step": number, "turn": phrase.turn, "role": phrase.role, "text": text, "words": words}


def _listed_row(number: int, listed: Listed) -> dict[str, Any]:
    return {
        "step": number,
        "project": _clean(listed.project),
        "agent": clean(listed.agent),
        "workdir": clean(listed.workdir),
        "state": clean(listed.state),
        "status": clean(listed.status),
        "title": clean(listed.title),
        "labels": [clean(label) for label in listed.labels],
        "archived": listed.archived,
        "parent": _clean(listed.parent),
        "last_active_at": clean(listed.last_active_at),
        "public": listed.public,
        "due_at": _clean(listed.due_at),
        "takes_slot": listed.takes_slot,
    }


def _launch_row(number: int, progress: LaunchProgress, mark: int) -> dict[str, Any]:
    return {
        "step": number,
        "launch_id": clean(progress.launch_id),
        "mark": mark,
        "output_offset": progress.offset,
        "performed_seq": progress.performed_seq,
        "input_total": progress.input_total,
        "agent": clean(progress.agent),
        "driver": clean(progress.driver),
        "phase": progress.phase,
        "pending_input": _pack(progress.pending_input),
        "driver_state": progress.driver_state,
    }


# PostgreSQL's array formats ---------------------------------------------------------------------------------------


def _array(kind: int, count: int) -> bytes:
    return _HEADER.pack(1, 1, kind, count, 1) if count else _HEADER.pack(0, 0, kind, 0, 0)[:12]


def _texts(values: Sequence[bytes | None]) -> bytes:
    parts = [_array(_TEXT, len(values))]
    for value in values:
        parts += (_NULL,) if value is None else (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)


def _numbers(values: Sequence[int | None]) -> bytes:
    """Encode an array of numbers as text, which is faster here than the binary format."""
    text = ",".join(map(str, values))
    return b"{" + (text.replace("None", "NULL") if "N" in text else text).encode() + b"}"


@cache
def _entries(format_: str, count: int) -> struct.Struct:
    return struct.Struct(">" + f"4x{format_}" * count)


def _int4s(data: bytes | None, count: int) -> tuple[int, ...]:
    assert data is not None
    return _entries("i", count).unpack_from(data, 20)


def _int8s(data: bytes | None, count: int) -> tuple[int, ...]:
    assert data is not None
    return _entries("q", count).unpack_from(data, 20)


def _names(data: bytes | None, count: int) -> list[bytes]:
    assert data is not None
    found = []
    place = 20
    for _ in range(count):
        length = int.from_bytes(data[place : place + 4], "big")
        place += 4 + length
        found.append(data[place - length : place])
    return found


@lru_cache(maxsize=1_000)
def _owner(name: bytes, life: int) -> Owner:
    return Owner(name.decode(), life)
