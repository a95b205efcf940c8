"""The cost of turns in every store. Above: the tests of each store. Below: the helpers of stores.py."""

from typing import Any

from perdure.stores.base import Spent, TurnRow, UsageQuery
from tests.conformance.stores import Owner


class SpendingSuite:
    async def test_the_cost_of_turns_is_summed_by_one_or_two_keys(self, owner: Owner) -> None:
        def row(turn: int, day: int, agent: str, context: str, **more: Any) -> TurnRow:
            began = f"2026-01-{day:02d}T10:00:00.000Z"
            spent = Spent(started_at=began, agent=agent, model="m", context=context, said_bytes=100, **more)
            return TurnRow(turn, True, b"{}", spent)

        costs = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.5, "input_bytes": 40, "duration_ms": 7}
        turns = [row(1, 1, "a", "fresh", **costs), row(2, 1, "b", "fresh"), row(3, 2, "a", "resumed", **costs)]
        await owner.create("s", turns=[*turns, TurnRow(4, True, b"{}")])
        await owner.create("t", turns=[row(1, 2, "a", "live", **costs)])
        # Hidden turns count too, and each turn counts once, however often it is written.
        await owner.append("s", turns=[row(2, 1, "b", "fresh")], hidden=(2, 3))

        async def sums(*keys: Any, **named: str) -> list[Any]:
            groups = await owner.store.usage(UsageQuery(group_by=keys, **named))
            return [(group.keys, group.turns, group.input_tokens, group.saved_bytes) for group in groups]

        assert await sums("day") == [(["2026-01-01"], 2, 10, 0), (["2026-01-02"], 2, 20, 200)]
        assert await sums("agent") == [(["a"], 3, 30, 200), (["b"], 1, 0, 0)]
        assert await sums("session") == [(["s"], 3, 20, 200), (["t"], 1, 10, 0)]
        assert await sums("day", "agent") == [
            (["2026-01-01", "a"], 1, 10, 0),
            (["2026-01-01", "b"], 1, 0, 0),
            (["2026-01-02", "a"], 2, 20, 200),
        ]
        assert await sums("model", since="2026-01-02") == [(["m"], 2, 20, 200)]
        assert await sums("agent", until="2026-01-02", agent="a") == [(["a"], 1, 10, 0)]
        assert await sums("project", session="t") == [([""], 1, 10, 0)]
        [whole] = await owner.store.usage(UsageQuery())
        assert (whole.turns, whole.live, whole.resumed, whole.fresh, whole.cost_usd) == (4, 1, 1, 2, 1.5)
        assert (whole.output_tokens, whole.input_bytes, whole.duration_ms) == (15, 120, 21)
        await owner.store.erase("s", owner.generation)
        assert await sums("session") == [(["t"], 1, 10, 0)]
        assert await owner.store.usage(UsageQuery(agent="nobody")) == []
