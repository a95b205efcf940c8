"""Conversations as data: the possible steps, and how to print a list of steps.

Above: a player in memory (machine.py) and one with real processes (live.py). A step refers to a turn not by its number
but by its place among the visible turns, so a list of steps stays valid when some are removed.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

AGENTS = ("alpha", "beta", "gamma")
Ending = Literal["well", "cancelled", "crashed", "failed", "refuse", "poison"]
"""How a turn ends: normally, aborted, with a crash of the agent, or with an error that the agent survives; or normally,
but the agent refuses to resume this session, or every later turn in it fails."""
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
    """The process is ended while no turn runs."""


class Own(NamedTuple):
    """The agent, if attached, runs a turn on its own."""


class Kill(NamedTuple):
    """The process crashes while no turn runs."""


class Restart(NamedTuple):
    """The server is killed and restarted."""


class Fork(NamedTuple):
    """Continue in a fork of the session."""

    place: int


class Switch(NamedTuple):
    """Continue in another session of the server, with the same agents."""


Step = Say | Edit | Rewind | Retry | Suspend | Own | Kill | Restart | Fork | Switch


def written(steps: Sequence[Step], **given: object) -> str:
    """The steps as Python code that replays them."""
    settings = "".join(f", {name}={value!r}" for name, value in given.items())
    lines = "".join(f"    {step!r},\n" for step in steps)
    return f"play([\n{lines}]{settings})"


def at_random(chance: random.Random, length: int) -> list[Step]:
    """Mostly messages, with an occasional other step."""

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
    """Fewer steps that still fail, found by removing some."""
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
