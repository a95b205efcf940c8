"""Whatever happens in a conversation, agents receive what people see: with real processes.

`PERDURE_TEST_CONVERSATIONS=1000` plays that many; `PERDURE_TEST_SEED` repeats the same ones.
"""

import os
import random

import pytest

from tests.conversations import script
from tests.conversations.live import Play
from tests.harness import LiveServer
from tests.sizes import size

CONVERSATIONS = size("CONVERSATIONS", 30, fast=3)
GROUPS = 3
STEPS = (4, 12)
TRIES = 30


@pytest.mark.smoke
@pytest.mark.timeout(120 + 20 * CONVERSATIONS)
@pytest.mark.parametrize("group", range(GROUPS))
def test_an_agent_receives_what_people_see_once_and_in_order(group: int, server: LiveServer) -> None:
    seed = int(os.environ.get("PERDURE_TEST_SEED", random.randrange(2**32)))
    chance = random.Random(seed + group)
    for _ in range(CONVERSATIONS // GROUPS):
        steps = script.at_random(chance, chance.randint(*STEPS))
        try:
            Play(server).play(steps)
        except Exception as error:
            found = script.smallest(steps, lambda fewer: _fails(server, fewer), TRIES)
            raise AssertionError(
                f"{error}\nPERDURE_TEST_SEED={seed}; this is enough:\n{script.written(found)}"
            ) from error


def _fails(server: LiveServer, steps: list[script.Step]) -> bool:
    try:
        Play(server).play(steps)
    except AssertionError:
        return True
    return False
