"""Jobs in every store: changes need the revision that was read, and each due time has one row."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.errors import Conflict
from perdure.stores.base import JobRow, RunRow
from tests.conformance.stores import Owner


def job(name: str, revision: int = 1, start_at: int | None = None, body: bytes = b"{}") -> JobRow:
    return JobRow(name, revision, start_at, body)


def run(name: str, run_id: str, due_at: int = 0, **more: Any) -> RunRow:
    given = {"is_open": True, "session_id": None, "body": b"{}", **more}
    return RunRow(name, run_id, due_at, **given)


class JobsSuite:
    async def test_a_job_is_stored_with_its_runs(self, owner: Owner) -> None:
        said = run("j", "one", 10, session_id="s", message=b"go", result=b"done")
        await owner.store.put_job(job("j", 1, 20, b"first"), owner.generation, expect=None, new=[said])
        assert await owner.store.load_job("j") == job("j", 1, 20, b"first")
        assert await owner.store.jobs() == [job("j", 1, 20, b"first")]
        assert await owner.store.open_runs() == await owner.store.open_runs("j") == [said]
        assert await owner.store.load_run("j", "one") == said
        listed = run("j", "one", 10, session_id="s")
        assert await owner.store.list_runs("j", limit=9) == [listed], "lists leave out message and result"
        assert await owner.store.load_job("other") is None and await owner.store.load_run("j", "other") is None
        assert await owner.store.open_runs("other") == []

    async def test_a_change_with_a_stale_revision_is_rejected(self, owner: Owner) -> None:
        store, generation = owner.store, owner.generation
        await store.put_job(job("j", 1), generation, expect=None, new=[run("j", "one")])
        late, runs = job("j", 9, 5, b"late"), {"new": [run("j", "two")], "changed": [run("j", "one", is_open=False)]}
        for expect in (None, 2):
            with pytest.raises(Conflict):
                await store.put_job(late, generation, expect=expect, **runs)
        with pytest.raises(Conflict):
            await store.put_job(job("other", 2), generation, expect=1)
        assert await store.jobs() == [job("j", 1)] and await store.open_runs() == [run("j", "one")]
        await store.put_job(job("j", 2), generation, expect=1, changed=[run("j", "one", is_open=False)])
        assert await store.open_runs() == [] and (await store.list_runs("j", limit=9))[0].is_open is False

    async def test_only_one_claim_of_a_due_time_succeeds(self, owner: Owner) -> None:
        await owner.store.put_job(job("j", 1, 20), owner.generation, expect=None)
        claims = [
            owner.store.put_job(job("j", 2, 30, name.encode()), owner.generation, expect=1, new=[run("j", name)])
            for name in "abcdefgh"
        ]
        made = await asyncio.gather(*claims, return_exceptions=True)
        assert sum(one is None for one in made) == 1
        assert sum(isinstance(one, Conflict) for one in made) == 7
        (kept,) = await owner.store.open_runs()
        found = await owner.store.load_job("j")
        assert found is not None and found.body == kept.run_id.encode()

    async def test_a_second_run_for_a_due_time_changes_nothing(self, owner: Owner) -> None:
        store, generation = owner.store, owner.generation
        over = run("j", "one", is_open=False, body=b"over")
        await store.put_job(job("j", 1), generation, expect=None, new=[over])
        await store.put_job(job("j", 2), generation, expect=1, new=[run("j", "one", body=b"again"), run("j", "two")])
        assert await store.load_run("j", "one") == over
        assert [found.run_id for found in await store.open_runs()] == ["two"]

    async def test_the_soonest_job_is_due_first_and_a_job_without_a_next_run_is_not_due(self, owner: Owner) -> None:
        for name, start_at in (("a", 30), ("b", None), ("c", 10), ("d", 20)):
            await owner.store.put_job(job(name, 1, start_at), owner.generation, expect=None)
        assert [found.job_id for found in await owner.store.due_jobs(9)] == ["c", "d", "a"]
        assert [found.job_id for found in await owner.store.due_jobs(1)] == ["c"]

    async def test_a_job_is_removed_with_its_runs(self, owner: Owner) -> None:
        for name in "ab":
            await owner.store.put_job(job(name), owner.generation, expect=None, new=[run(name, "one")])
        await owner.store.remove_job("a", owner.generation)
        assert [found.job_id for found in await owner.store.jobs()] == ["b"]
        assert [found.job_id for found in await owner.store.open_runs()] == ["b"]

    async def test_old_runs_are_deleted_but_open_ones_stay(self, owner: Owner) -> None:
        held = [run("j", f"held{at}", at, is_open=False, session_id="s") for at in range(4)]
        free = [run("j", f"free{at}", at + 9, is_open=False) for at in range(4)]
        await owner.store.put_job(job("j"), owner.generation, expect=None, new=[run("j", "open"), *held, *free])
        assert [each.run_id for each in await owner.store.list_runs("j", limit=9, held=True)] == [
            *("held3", "held2", "held1", "held0"),
        ]
        await owner.store.trim_runs("j", 2, owner.generation)
        found = await owner.store.list_runs("j", limit=99)
        assert {each.run_id for each in found} == {"open", "held3", "held2", "free3", "free2"}

    async def test_erasing_a_session_clears_the_text_in_its_runs(self, owner: Owner) -> None:
        await owner.create("s")
        said: dict[str, Any] = {"detail": b"why", "message": b"go", "result": b"done", "is_open": False}
        new = [run("j", name, session_id=name, **said) for name in ("s", "t")]
        await owner.store.put_job(job("j"), owner.generation, expect=None, new=new)
        await owner.store.erase("s", owner.generation)
        assert await owner.store.load_run("j", "s") == run("j", "s", is_open=False)
        assert await owner.store.load_run("j", "t") == new[1]

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(dues=st.lists(st.integers(0, 5), max_size=12), limit=st.integers(1, 5), number=st.integers(0, 10**9))
    async def test_pages_of_runs_cover_all_runs_newest_first(
        self, owner: Owner, dues: list[int], limit: int, number: int
    ) -> None:
        name = f"j{number}"
        await owner.store.remove_job(name, owner.generation)
        new = [run(name, f"r{at}", due) for at, due in enumerate(dues)]
        await owner.store.put_job(job(name), owner.generation, expect=None, new=new)
        found: list[RunRow] = []
        while page := await owner.store.list_runs(
            name, limit=limit, before=(found[-1].due_at, found[-1].run_id) if found else None
        ):
            assert len(page) <= limit
            found += page
        assert found == sorted(new, key=lambda one: (one.due_at, one.run_id), reverse=True)
