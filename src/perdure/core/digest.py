"""Fits a conversation into a token budget. The newest turns are verbatim, older ones shortened, the oldest left out.
Results of tools get a share of the budget, newest first; long results are cut to their start and end. Deterministic:
the same turns and budget always give the same text.

Above: transcript.py. Below: the entries of transcript_text.py.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from perdure.core.transcript_text import Entry, Role

DEFAULT_TOKENS = 100_000
MIN_TOKENS = 200
PART_OF_CONTEXT = 2
"""A history may fill 1/PART_OF_CONTEXT of the agent's context window; the rest is for the turn itself."""
VERBATIM_SHARE = 0.7
RESULTS_SHARE = 0.25
"""The share of the budget reserved for results of tools. Text may use what they don't need."""
RESULT_TOKENS = 2_000
LEAST_RESULT_TOKENS = 50
"""The maximum for one result, and the minimum room below which a result is left out."""
ENTRY_TOKENS = 16
"""The cost of the tags around an entry."""
USER_CHARS = 400
ANSWER_CHARS = 300
TOOL_LINES = 8
TOOL_CHARS = 120
QUOTE = "| "
"""Precedes each line of a result, so that it can't pass for text of the agent or for another tool."""


class Piece(NamedTuple):
    """A part of an entry: text, or the line that names a tool, with the tool's result."""

    text: str
    is_tool: bool = False
    result: str = ""


class Said(NamedTuple):
    """One message or answer, before it is shortened."""

    role: Role
    turn: int
    agent: str
    pieces: tuple[Piece, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """Text and tool lines, without results."""
        return self.told({})

    def told(self, results: dict[int, str]) -> str:
        """Text and tool lines with these results, by the index of their piece."""
        if self.role == "user":
            return self.pieces[0].text
        texts = []
        for number, piece in enumerate(self.pieces):
            texts.append(f"\n{piece.text}\n" if piece.is_tool else piece.text)
            if number in results:
                texts.append(results[number] + "\n")
        return "".join(texts).strip("\n")

    def entry(self, results: dict[int, str] | None = None) -> Entry:
        """The transcript entry with these results. None: without results, and without a note about missing ones."""
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
    """An estimate, on the high side: four ASCII characters per token, one for any other character."""
    if text.isascii():
        return len(text) // 4 + 1
    narrow = sum(character < "\x80" for character in text)
    return narrow // 4 + (len(text) - narrow) + 1


def budget(configured: int | None, context_size: int | None, times_shortened: int) -> int:
    """The maximum number of history tokens for an agent. It is quartered each time that the history was too long."""
    whole = configured or (context_size or 0) // PART_OF_CONTEXT or DEFAULT_TOKENS
    return max(MIN_TOKENS, whole >> (2 * times_shortened))


def shorten(said: Sequence[Said], limit_tokens: int) -> Shortened:
    """The whole conversation if it fits, otherwise as much as fits: first the text, then results of tools."""
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
    """The results of tools that fit, chosen newest first, by role, turn and piece; and their cost in tokens."""
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
    """A quoted result. A long one is cut to its start and end, with a note of how much is left out."""
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
            # The newest turn gets all available room; for older turns a few lines are enough.
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
    """The note that tells the agent what was shortened or left out; empty if nothing was."""
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
    """`turn 3 is`, or `turns 1 to 4 and 7 are`."""
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
    """The start and end of the text, and the tools: as much as fits, but at least a few lines."""
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
