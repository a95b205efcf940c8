"""Conversations as data: what may happen to one, step by step, and how such a list of steps is written down.

Above: a player in memory (machine.py) and one with real processes (live.py). A step names no turn by its number but by
its place among the visible ones, so that a list of steps still makes sense when others are left out of it.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

AGENTS = ("alpha", "beta", "gamma")
Ending = Literal["well", "cancelled", "crashed", "failed", "refuse", "poison"]
"""How a turn goes: to its end, aborted, with the agent's death, with an error that it survives, well but so that the
agent refuses to open this session again, well but so that the next turn on it fails for good."""
ENDINGS: tuple[Ending, ...] = ("well", "cancelled", "crashed", "failed", "refuse", "poison")


class Say(NamedTuple):
    agent: str
    fresh: bool = False
    ending: Ending = "well"


class Edit(NamedTuple):
    place: int


class Rewind(NamedTuple):
    place: int


class Retry(NamedTuple):
    place: int
    agent: str


class Suspend(NamedTuple):
    """The process is ended while nothing runs."""


class Own(NamedTuple):
    """The agent works by itself for a while, if it is there."""


class Kill(NamedTuple):
    """The process dies while nothing runs."""


class Restart(NamedTuple):
    """The server is killed, and started again."""


class Fork(NamedTuple):
    """Go on in a fork of the session."""

    place: int


class Switch(NamedTuple):
    """Go on in another session of the server, with the same agents."""


Step = Say | Edit | Rewind | Retry | Suspend | Own | Kill | Restart | Fork | Switch


def written(steps: Sequence[Step], **given: object) -> str:
    """The steps as a script that plays them again."""
    settings = "".join(f", {name}={value!r}" for name, value in given.items())
    lines = "".join(f"    {step!r},\n" for step in steps)
    return f"play([\n{lines}]{settings})"


def at_random(chance: random.Random, length: int) -> list[Step]:
    """Mostly messages, now and then one of the others."""

    def say() -> Step:
        ending = chance.choices(ENDINGS, weights=[10, 2, 2, 0, 1, 1])[0]
        return Say(chance.choice(AGENTS), chance.random() < 0.1, ending)

    kinds: list[Callable[[], Step]] = [
        say,
        lambda: Edit(chance.randrange(8)),
        lambda: Rewind(chance.randrange(8)),
        lambda: Retry(chance.randrange(8), chance.choice(AGENTS)),
        Suspend,
        Kill,
        Restart,
        lambda: Fork(chance.randrange(8)),
    ]
    return [chance.choices(kinds, weights=[14, 3, 1, 2, 2, 2, 1, 1])[0]() for _ in range(length)]


def smallest(steps: list[Step], fails: Callable[[list[Step]], bool], tries: int) -> list[Step]:
    """Fewer steps that still fail, found by leaving some out."""
    width = len(steps) // 2
    while width and tries:
        begin = 0
        while begin < len(steps) and tries:
            tries -= 1
            fewer = steps[:begin] + steps[begin + width :]
            if fewer and fails(fewer):
                steps = fewer
            else:
                begin += width
        width //= 2
    return steps
