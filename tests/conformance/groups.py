"""Steps that are appended together, in every store and in every way, and the progress of launches.

Above: StoreSuite. Below: the store's appends. The generated test plays the same steps in every possible way, and
compares the result with a model that has a list for each session.
"""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.errors import Conflict
from perdure.stores.base import Append, Kept, Store

WAYS = ("append", "append_all", "append_now")

Steps = list[tuple[str, int, int, bool]]
"""(session, launch, words, whether the driver's state changes)"""
step_lists = st.lists(
    st.tuples(st.sampled_from("st"), st.integers(0, 1), st.integers(0, 3), st.booleans()), min_size=1, max_size=4
)
plays = st.lists(st.tuples(st.sampled_from(WAYS), step_lists, st.booleans()), max_size=12)
generated = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


async def given_by(store: Store, way: str, steps: list[Append]) -> list[Kept | Exception]:
    """Append steps, which must belong to different sessions."""
    if way == "append_now" and (kept := store.append_now(steps)) is not None:
        return kept
    if way == "append":
        return [await store.append(step) for step in steps]
    return await store.append_all(steps)


class GroupSuite:
    async def test_steps_appended_together_have_separate_outcomes(self, owner: Any) -> None:
        from tests.conformance.stores import delta, fact

        for name in "abc":
            await owner.create(name)
        for way in ("append_all", "append_now"):
            steps = [
                Append(session_id=name, generation=owner.generation, expect=expect, events=[delta("word ")])
                for name, expect in (("a", 1), ("b", 99), ("c", 1))
            ]
            first, second, third = await given_by(owner.store, way, steps)
            assert isinstance(first, Kept) and isinstance(third, Kept)
            assert isinstance(second, Conflict)
        assert [len(await owner.all(name)) for name in "abc"] == [3, 1, 3]
        assert await owner.append("b", fact("next"), expect=1, state=b"next") == 2

    async def test_each_launch_of_a_session_has_its_own_offset(self, owner: Any) -> None:
        from tests.conformance.stores import delta, progress

        await owner.create("s")
        for offset, launch in enumerate(("old", "old", "new", "new", "new"), 1):
            await owner.append("s", delta("word "), progress=progress(launch, "s", offset=offset))
        # The old launch is still there when the new one writes.
        assert {row.launch_id: row.offset for row in await owner.store.launches()} == {"old": 2, "new": 5}
        await owner.append("s", delta("late "), progress=progress("old", "s", offset=6))
        await owner.append("s", progress=progress("new", "s", offset=7))
        await owner.append("s", delta("word "), progress=progress("new", "s", offset=8))
        assert {row.launch_id: row.offset for row in await owner.store.launches()} == {"old": 6, "new": 8}

    async def test_offsets_stored_with_events_are_ignored_after_their_launch_is_gone(self, owner: Any) -> None:
        from tests.conformance.stores import delta, progress

        await owner.create("s")
        for offset, launch in enumerate(("old", "old", "new", "new", "new"), 1):
            await owner.append("s", delta("word "), progress=progress(launch, "s", offset=offset))
        await owner.append("s", delta("bye "), progress=progress("new", "s", phase="gone", offset=6))
        assert {row.launch_id: row.offset for row in await owner.store.launches()} == {"old": 2}

    async def test_two_steps_of_one_session_at_the_same_time_get_different_numbers(self, owner: Any) -> None:
        from tests.conformance.stores import delta, progress

        await owner.create("s")
        row = progress("l", "s", offset=1)
        await owner.append("s", delta("first "), expect=1, token=0, progress=row)
        fields = {"expect": 1, "token": 0, "progress": row}
        made = await asyncio.gather(*(owner.append("s", delta(f"{number} "), **fields) for number in range(5)))
        assert sorted(made) == [3, 4, 5, 6, 7]

    async def test_compaction_preserves_the_offset_of_a_launch(self, owner: Any) -> None:
        from tests.conformance.stores import delta, progress

        await owner.create("s")
        for offset in range(1, 6):
            await owner.append("s", delta("word "), progress=progress("l", "s", offset=offset))
        await owner.compact("s")
        assert len(await owner.all("s")) == 2
        assert [row.offset for row in await owner.store.launches()] == [5]

    @given(play=plays)
    @generated
    async def test_all_ways_to_append_have_the_same_result(
        self, owner: Any, make_store: Any, play: list[tuple[str, Steps, bool]]
    ) -> None:
        from tests.conformance.stores import delta, progress, text_of

        store: Store = owner.store
        for name in "st":
            await store.erase(name, owner.generation)
            await owner.create(name)
        said: dict[str, str] = {"s": "", "t": ""}
        launches: dict[tuple[str, str], tuple[int, bytes]] = {}
        offset = 0
        for way, given_steps, reopens in play:
            steps = []
            for session, launch, words, changes in {entry[0]: entry for entry in given_steps}.values():
                offset += 1
                key = (f"l{launch}", session)
                memory = str(offset).encode() if changes else launches.get(key, (0, b""))[1]
                launches[key] = (offset, memory)
                said[session] += f"{offset} " * words
                row = progress(*key, offset=offset, driver_state=memory)
                events = [delta(f"{offset} ") for _ in range(words)]
                steps.append(
                    Append(
                        session_id=session,
                        generation=owner.generation,
                        expect=1,
                        token=0,
                        events=events,
                        progress=row,
                    )
                )
            assert all(isinstance(kept, Kept) for kept in await given_by(store, way, steps))
            # Another store on the same database has no cache, only what is stored.
            other = make_store() if reopens else store
            if reopens:
                await other.open()
            found = {(row.launch_id, row.session_id): (row.offset, row.driver_state) for row in await other.launches()}
            assert found == launches
            for session, text in said.items():
                rows = await other.read(session, 0, limit=1_000)
                assert "".join(block[3] for block in text_of(rows)[1:]) == text
            if reopens:
                await other.close()
