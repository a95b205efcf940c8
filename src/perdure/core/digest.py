"""A conversation that is too long to be told as it is: the latest turns verbatim, older ones in short form, the oldest
left out. Deterministic: the same turns and the same budget always give the same text.

Above: transcript.py. Below: the entries of transcript_text.py. Bounded by tokens, not by events or turns.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from perdure.core.transcript_text import Entry

DEFAULT_TOKENS = 100_000
MIN_TOKENS = 200
PART_OF_CONTEXT = 2
"""A history may fill this part (one half) of what the agent can hold; the rest is for the turn itself."""
VERBATIM_SHARE = 0.7
ENTRY_TOKENS = 16
"""What the tags around an entry cost."""
USER_CHARS = 400
ANSWER_CHARS = 300
TOOL_LINES = 8
TOOL_CHARS = 120


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


def shorten(entries: Sequence[Entry], limit_tokens: int) -> Shortened:
    """These entries, as they are if they fit, else the most of them that does."""
    turns = [(turn, list(group)) for turn, group in groupby(entries, key=lambda entry: entry.turn)]
    costs = [_cost(group) for _, group in turns]
    if sum(costs) <= limit_tokens:
        return Shortened(list(entries), tokens=sum(costs))
    told: list[list[Entry]] = []
    digested: list[int] = []
    spent, verbatim = 0, 0
    index = len(turns)
    while index:
        turn, group = turns[index - 1]
        cost = costs[index - 1]
        if verbatim + cost <= limit_tokens * VERBATIM_SHARE and spent + cost <= limit_tokens:
            verbatim += cost
        else:
            # The newest may keep what room there is; of older ones a few lines say enough.
            room = limit_tokens * VERBATIM_SHARE / cost if not told else 0
            group = [_digest(entry, int(room * len(entry.text))) for entry in group]
            cost = _cost(group)
            if spent + cost > limit_tokens and told:
                break
            digested.insert(0, turn)
        spent += cost
        told.insert(0, group)
        index -= 1
    left_out = tuple(turn for turn, _ in turns[:index])
    return Shortened([entry for group in told for entry in group], tuple(digested), left_out, spent)


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


def _digest(entry: Entry, room_chars: int) -> Entry:
    """Its beginning and its end, and its tools; as much as there is room for, and in any case a little."""
    if entry.role == "user":
        limit = max(USER_CHARS, room_chars)
        return entry._replace(text=_clip(entry.text, limit), note=_with(entry.note, entry.text, limit))
    tools = [line[:TOOL_CHARS] for line in entry.text.splitlines() if line.startswith("[tool ")]
    words = "\n".join(line for line in entry.text.splitlines() if not line.startswith("[tool ")).strip()
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
    short = f"shortened, {len(text)} characters" if len(text) > limit else ""
    return "; ".join(part for part in (note, short) if part)
