"""A conversation made to fit: the latest turns verbatim, older ones in short form, the oldest left out; then results of
tools, the latest first, each with its beginning and its end. Deterministic: the same turns and the same budget always
give the same text.

Above: transcript.py. Below: the entries of transcript_text.py. Bounded by tokens, not by events or turns.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from perdure.core.transcript_text import Entry, Role

DEFAULT_TOKENS = 100_000
MIN_TOKENS = 200
PART_OF_CONTEXT = 2
"""A history may fill this part (one half) of what the agent can hold; the rest is for the turn itself."""
VERBATIM_SHARE = 0.7
RESULTS_SHARE = 0.25
"""Results of tools get this part of the room, and what they do not use is left to the words."""
RESULT_TOKENS = 2_000
LEAST_RESULT_TOKENS = 50
"""One result gets no more than the first; with less room than the second it is left out."""
ENTRY_TOKENS = 16
"""What the tags around an entry cost."""
USER_CHARS = 400
ANSWER_CHARS = 300
TOOL_LINES = 8
TOOL_CHARS = 120
QUOTE = "| "
"""Before each line of a result: so nothing in it can pass for a word of the agent, or for another tool."""


class Piece(NamedTuple):
    """A part of what was said. Of a tool it is the line that names it, with what came of it."""

    text: str
    is_tool: bool = False
    result: str = ""


class Said(NamedTuple):
    """One thing that was said, before it is made to fit."""

    role: Role
    turn: int
    agent: str
    pieces: tuple[Piece, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """Words and tools, without results."""
        return self.told({})

    def told(self, results: dict[int, str]) -> str:
        """The same with these results, by the number of their piece."""
        if self.role == "user":
            return self.pieces[0].text
        texts = []
        for number, piece in enumerate(self.pieces):
            texts.append(f"\n{piece.text}\n" if piece.is_tool else piece.text)
            if number in results:
                texts.append(results[number] + "\n")
        return "".join(texts).strip("\n")

    def entry(self, results: dict[int, str] | None = None) -> Entry:
        """The entry of the transcript; without any results if None is given."""
        if results is None:
            return Entry(self.role, self.turn, self.agent, self.text, self.note)
        missing = sum(bool(piece.result) for piece in self.pieces) - len(results)
        note = f"{missing} earlier {'result' if missing == 1 else 'results'} of tools left out" if missing else ""
        return Entry(self.role, self.turn, self.agent, self.told(results), _joined(self.note, note))


class Shortened(Struct, frozen=True):
    entries: list[Entry]
    digested: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    tokens: int = 0


def tokens_of(text: str) -> int:
    """An estimate that is rather too high: four letters are a token in English, one in most other scripts."""
    if text.isascii():
        return len(text) // 4 + 1
    narrow = sum(character < "\x80" for character in text)
    return narrow // 4 + (len(text) - narrow) + 1


def budget(configured: int | None, context_size: int | None, times_shortened: int) -> int:
    """How many tokens of history an agent is told at most: a quarter of that each time that it was too much."""
    whole = configured or (context_size or 0) // PART_OF_CONTEXT or DEFAULT_TOKENS
    return max(MIN_TOKENS, whole >> (2 * times_shortened))


def shorten(said: Sequence[Said], limit_tokens: int) -> Shortened:
    """All of it if it fits, else the most of it that does: first the words, then what tools gave."""
    share = int(limit_tokens * RESULTS_SHARE)
    wanted = sum(min(len(piece.result) // 4, RESULT_TOKENS) for one in said for piece in one.pieces)
    short = _shorten_words(said, limit_tokens - min(wanted, share))
    cut = {*short.digested, *short.left_out}
    verbatim = [one for one in said if one.turn not in cut]
    results, spent = _results(verbatim, min(share, limit_tokens - short.tokens))
    told = {(one.role, one.turn): one.entry(results.get((one.role, one.turn), {})) for one in verbatim}
    entries = [told.get((entry.role, entry.turn), entry) for entry in short.entries]
    return Shortened(entries, short.digested, short.left_out, short.tokens + spent)


def _results(said: Sequence[Said], room_tokens: int) -> tuple[dict[tuple[Role, int], dict[int, str]], int]:
    """The tools' results that fit, by role, turn and piece, and what they cost: the newest first."""
    found: dict[tuple[Role, int], dict[int, str]] = {}
    spent = 0
    for one in reversed(said):
        for number in range(len(one.pieces) - 1, -1, -1):
            whole = one.pieces[number].result
            room = min(RESULT_TOKENS, room_tokens - spent)
            if not whole or room < LEAST_RESULT_TOKENS:
                continue
            text = fit(whole, room)
            found.setdefault((one.role, one.turn), {})[number] = text
            spent += tokens_of(text)
    return found, spent


def fit(text: str, limit_tokens: int) -> str:
    """A result, quoted. Of a long one its beginning and its end, with how much is left out."""
    told = _quoted(text) if len(text) <= 4 * limit_tokens else None
    half = min(2 * limit_tokens, len(text) // 2)
    while told is None or (tokens_of(told) > limit_tokens and half > 1):
        half = half * 7 // 8
        left_out = len(text) - 2 * half
        told = _quoted(f"{text[:half]}\n[... {left_out:,} characters are left out here ...]\n{text[-half:]}")
    return told


def _quoted(text: str) -> str:
    return "\n".join(QUOTE + line for line in text.splitlines())


def _shorten_words(said: Sequence[Said], limit_tokens: int) -> Shortened:
    turns = [(turn, list(group)) for turn, group in groupby(said, key=lambda one: one.turn)]
    whole = [[one.entry() for one in group] for _, group in turns]
    costs = [_cost(entries) for entries in whole]
    if sum(costs) <= limit_tokens:
        return Shortened([entry for entries in whole for entry in entries], tokens=sum(costs))
    told: list[list[Entry]] = []
    digested: list[int] = []
    spent, verbatim = 0, 0
    index = len(turns)
    while index:
        turn, group = turns[index - 1]
        entries, cost = whole[index - 1], costs[index - 1]
        if verbatim + cost <= limit_tokens * VERBATIM_SHARE and spent + cost <= limit_tokens:
            verbatim += cost
        else:
            # The newest may keep what room there is; of older ones a few lines say enough.
            room = limit_tokens * VERBATIM_SHARE / cost if not told else 0
            entries = [_digest(one, int(room * len(one.text))) for one in group]
            cost = _cost(entries)
            if spent + cost > limit_tokens and told:
                break
            digested.insert(0, turn)
        spent += cost
        told.insert(0, entries)
        index -= 1
    left_out = tuple(turn for turn, _ in turns[:index])
    return Shortened([entry for entries in told for entry in entries], tuple(digested), left_out, spent)


def note_of(short: Shortened) -> str:
    """What the agent is told of what it is not told; empty if it is told all."""
    words = shortened_words(short.digested, short.left_out)
    if not words:
        return ""
    return (
        f"The conversation is too long to be told as it is: {words}. If you need something that is missing here, ask"
        " for it, or look into the files."
    )


def shortened_words(digested: Sequence[int], left_out: Sequence[int]) -> str:
    parts = [f"{in_words(left_out)} left out"] if left_out else []
    parts += [f"{in_words(digested)} told in short form"] if digested else []
    return ", ".join(parts)


def in_words(turns: Iterable[int]) -> str:
    """For people: `turn 3 is`, `turns 1 to 4 and 7 are`."""
    numbers = sorted(turns)
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [word for first, last in ranges for word in _range(first, last)]
    joined = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"turn {joined} is" if len(numbers) == 1 else f"turns {joined} are"


def _range(first: int, last: int) -> list[str]:
    return [f"{first} to {last}"] if last > first + 1 else [str(number) for number in range(first, last + 1)]


def _cost(entries: Sequence[Entry]) -> int:
    return sum(tokens_of(entry.text) + tokens_of(entry.note) + ENTRY_TOKENS for entry in entries)


def _digest(said: Said, room_chars: int) -> Entry:
    """Its beginning and its end, and its tools; as much as there is room for, and in any case a little."""
    entry = said.entry()
    if said.role == "user":
        limit = max(USER_CHARS, room_chars)
        return entry._replace(text=_clip(entry.text, limit), note=_with(entry.note, entry.text, limit))
    tools = [piece.text[:TOOL_CHARS] for piece in said.pieces if piece.is_tool]
    words = "".join("\n" if piece.is_tool else piece.text for piece in said.pieces).strip()
    lines = [_clip(words, max(ANSWER_CHARS, room_chars))] if words else []
    lines += tools[:TOOL_LINES]
    if len(tools) > TOOL_LINES:
        lines.append(f"[and {len(tools) - TOOL_LINES} more tools]")
    short = "\n".join(lines)
    return entry._replace(text=short, note=_with(entry.note, entry.text, len(short)))


def _clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def _with(note: str, text: str, limit: int) -> str:
    return _joined(note, f"shortened, {len(text)} characters" if len(text) > limit else "")


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
