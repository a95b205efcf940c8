"""A node: its clock, which follows the database's despite slow round trips, and when it declares another node dead."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from perdure.config import ServerSettings
from perdure.runtime.running.node import Node
from perdure.stores import base

AHEAD_S = 1_000.0
ways = some.floats(0, 10)


class Database:
    """A database whose clock is ahead of the node's, and whose round trips take time."""

    def __init__(self) -> None:
        self.steady_s = 0.0
        self.there_s = self.back_s = 0.0

    async def time(self) -> float:
        self.steady_s += self.there_s
        time = self.steady_s + AHEAD_S
        self.steady_s += self.back_s
        return time


@given(some.lists(some.tuples(ways, ways), min_size=1, max_size=20))
async def test_a_slower_response_never_makes_a_nodes_clock_worse(trips: list[tuple[float, float]]) -> None:
    database = Database()
    log: Any = SimpleNamespace(shared=database, steady=lambda: database.steady_s)
    node = Node(log, "n", ServerSettings(), lambda: None, Path("lease"))
    errors = []
    for database.there_s, database.back_s in trips:
        await node._set_clock()
        errors.append(abs(log.now() - database.steady_s - AHEAD_S))
    shortest = min(there + back for there, back in trips)
    assert errors[-1] <= shortest + 1e-6
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(errors))


NEVER = float("inf")


@pytest.mark.parametrize(
    ("ours", "theirs", "limit_s"),
    [
        ({"workdirs": "shared", "takeover_after_s": 5.0}, {"workdirs": "shared", "takeover_after_s": 30.0}, 30.0),
        ({"workdirs": "shared", "takeover_after_s": 30.0}, {"workdirs": "shared", "takeover_after_s": 5.0}, 30.0),
        ({"workdirs": "shared", "takeover_after_s": 5.0}, {"workdirs": "local", "takeover_after_s": 5.0}, NEVER),
        ({"workdirs": "local", "takeover_after_s": 5.0}, {"workdirs": "shared", "takeover_after_s": 5.0}, NEVER),
        ({"workdirs": "shared", "takeover_after_s": 5.0}, {}, NEVER),
    ],
    ids=["theirs is longer", "ours is longer", "their directories are local", "ours are local", "unknown"],
)
def test_a_silent_node_is_dead_only_after_its_own_lease_has_ended(
    ours: dict[str, Any], theirs: dict[str, Any], limit_s: float
) -> None:
    """Its agents pause when the lease from its own settings ends. No node may take over before that."""
    log: Any = SimpleNamespace(shared=object(), steady=lambda: 0.0)
    node = Node(log, "n", ServerSettings(**ours), lambda: None, Path("lease"))
    other = base.Node("o", 1, 1, False, msgspec.json.encode(theirs))
    assert node._limit_s(other) == limit_s


def test_a_lease_that_could_not_be_written_does_not_count(tmp_path: Path) -> None:
    """Keepers pause their agents when the lease in the file ends, and the server must know that."""
    owner = base.Owner("n", 1)
    log: Any = SimpleNamespace(shared=object(), node=owner, steady=lambda: 0.0)
    settings = ServerSettings(workdirs="shared", workspaces=str(tmp_path), takeover_after_s=30.0)
    node = Node(log, "n", settings, lambda: None, tmp_path / "missing" / "lease")
    with pytest.raises(OSError, match="lease"):
        node._renew(1_000.0)
    assert node.lease() is None
    (tmp_path / "missing").mkdir()
    node._renew(1_000.0)
    lease = node.lease()
    assert lease is not None and lease.deadline_s > 1_000.0
