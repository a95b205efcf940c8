"""Several nodes on one store, with random faults: nothing is lost, nothing is done twice, viewers see everything."""

from pathlib import Path

import msgspec
import pytest

from perdure.runtime.log.log import Log
from perdure.stores.base import Append
from tests.simulation.simulation import Mutation, Violation, guessing, play
from tests.sizes import size

PIECES = 8
SEEDS = size("SEEDS", 2_000, fast=50) // PIECES
POSTGRES_PIECES = 4
POSTGRES_SEEDS = size("POSTGRES_SEEDS", 200, fast=4) // POSTGRES_PIECES
MUTANT_SEEDS = 400


@pytest.mark.parametrize("piece", range(PIECES))
async def test_with_random_faults_each_message_runs_once_and_each_viewer_sees_everything(
    piece: int, tmp_path: Path
) -> None:
    assert await play(tmp_path, range(piece * SEEDS, (piece + 1) * SEEDS)) > 0


@pytest.mark.long
@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("piece", range(POSTGRES_PIECES))
async def test_the_same_guarantees_hold_on_postgresql(piece: int, postgres_url: str) -> None:
    assert await play(postgres_url, range(piece * POSTGRES_SEEDS, (piece + 1) * POSTGRES_SEEDS)) > 0


class OwnerWithoutDecidedSeq(Mutation):
    """The owner's steps don't say which decisive event they have read."""

    def step(self, step: Append) -> Append:
        return step if step.token is None else msgspec.structs.replace(step, expect=None)


class NoFallbackPoll(Mutation):
    polls = False


class GuessedNumbers(Mutation):
    def log(self, log: Log) -> None:
        guessing(log)


class NoFence(Mutation):
    """The store never checks whether a node still owns the session."""

    def step(self, step: Append) -> Append:
        return msgspec.structs.replace(step, token=None)


@pytest.mark.long
@pytest.mark.parametrize("mutation", [OwnerWithoutDecidedSeq, NoFallbackPoll, GuessedNumbers, NoFence])
async def test_the_checker_detects_each_mutation(mutation: type[Mutation], tmp_path: Path) -> None:
    with pytest.raises(Violation):
        await play(tmp_path, range(MUTANT_SEEDS), mutation())


@pytest.mark.full
@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("mutation", [OwnerWithoutDecidedSeq, NoFallbackPoll, GuessedNumbers, NoFence])
async def test_the_checker_detects_each_mutation_on_postgresql(mutation: type[Mutation], postgres_url: str) -> None:
    with pytest.raises(Violation):
        await play(postgres_url, range(MUTANT_SEEDS), mutation())


async def test_a_seed_determines_the_run(tmp_path: Path) -> None:
    for name in ("once", "twice"):
        (tmp_path / name).mkdir()
    assert await play(tmp_path / "once", range(5)) == await play(tmp_path / "twice", range(5))
