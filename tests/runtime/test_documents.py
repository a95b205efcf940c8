"""Documents in pieces: how many turns are read together."""

from collections.abc import Sequence
from typing import Any

from perdure.core.transcript import History
from perdure.runtime.log.pieces import SMALL_BYTES, TURNS_AT_ONCE, TurnPieces

TURNS = 1_000
SHORT = 100


class Counted(TurnPieces):
    """Turns of given sizes, without a store."""

    def __init__(self, sizes: dict[int, int]) -> None:
        log: Any = None

        def shown(turn: int, _: History) -> bytes:
            return b"x" * sizes.get(turn, SHORT)

        super().__init__(log, "session", 1, range(1, TURNS + 1), shown, begin=b"[", between=b",", end=b"]")
        self._sizes = sizes
        self.reads = 0

    async def _history(self, turns: Sequence[int], max_bytes: int | None) -> History | None:
        self.reads += 1
        size = sum(self._sizes.get(turn, SHORT) for turn in turns)
        return History() if max_bytes is None or size <= max_bytes else None


async def read(sizes: dict[int, int]) -> tuple[int, bytes]:
    pieces = Counted(sizes)
    found = [piece async for piece in pieces if piece is not None]
    return pieces.reads, b"".join(found)


async def test_turns_after_a_long_one_are_read_in_batches_again() -> None:
    even, _ = await read({})
    assert even < TURNS / TURNS_AT_ONCE + 10
    for length in (SMALL_BYTES - 1, 2 * SMALL_BYTES):
        reads, document = await read({500: length})
        assert len(document) == len(b"[]") + (TURNS - 1) * (SHORT + len(b",")) + length
        assert reads < even + 2 * TURNS_AT_ONCE, "it doesn't continue with single turns"


async def test_turns_of_the_same_length_are_rarely_requested_in_vain() -> None:
    fitting = 4
    reads, _ = await read(dict.fromkeys(range(1, TURNS + 1), SMALL_BYTES // fitting))
    assert reads < TURNS / fitting * 2
