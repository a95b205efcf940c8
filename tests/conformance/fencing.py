"""A store that admits one server at a time: the server that claims it fences all others.

Above: StoreSuite. Below: the store's generation. This does not apply to a shared store, in which each session has its
owner (ownership.py).
"""

from typing import Any

import pytest

from perdure.core.errors import Fenced
from perdure.stores import base
from perdure.stores.base import Append


class FencingSuite:
    async def test_a_newer_owner_fences_the_older_one(self, owner: Any, make_store: Any) -> None:
        from tests.conformance.stores import Owner, delta

        await owner.create("s")
        other = make_store()
        await other.open()
        newer = Owner(other, await other.claim())
        assert newer.generation > owner.generation
        with pytest.raises(Fenced):
            await owner.append("s", delta("old"))
        with pytest.raises(Fenced):
            await owner.store.compact("s", owner.generation, [])
        with pytest.raises(Fenced):
            await owner.store.erase("s", owner.generation)
        assert await newer.append("s", delta("new")) == 2
        again = Owner(owner.store, await owner.store.claim())
        assert await again.append("s", delta("again")) == 3
        with pytest.raises(Fenced):
            await newer.append("s", delta("old"))
        await other.close()

    async def test_a_fenced_server_cannot_append_in_any_way(self, owner: Any, make_store: Any) -> None:
        from tests.conformance.groups import given_by
        from tests.conformance.stores import delta, progress

        await owner.create("s")
        for offset in (1, 2):
            row = progress("l", "s", offset=offset)
            await owner.append("s", delta("ours "), expect=1, token=0, progress=row)
        other = make_store()
        await other.open()
        await other.claim()
        for way in ("append_all", "append_now"):
            step = Append(
                session_id="s",
                generation=owner.generation,
                expect=1,
                token=0,
                events=[delta("late ")],
                progress=progress("l", "s", offset=3),
            )
            (outcome,) = await given_by(owner.store, way, [step])
            assert isinstance(outcome, Fenced)
        assert len(await owner.all("s")) == 3
        assert [row.offset for row in await other.launches()] == [2]
        await other.close()

    async def test_a_fenced_server_cannot_change_jobs(self, owner: Any, make_store: Any) -> None:
        from tests.conformance.jobs import job, run

        await owner.store.put_job(job("j"), owner.generation, expect=None, new=[run("j", "one", is_open=False)])
        other = make_store()
        await other.open()
        await other.claim()
        with pytest.raises(Fenced):
            await owner.store.put_job(job("j", 2), owner.generation, expect=1)
        with pytest.raises(Fenced):
            await owner.store.remove_job("j", owner.generation)
        with pytest.raises(Fenced):
            await owner.store.trim_runs("j", 0, owner.generation)
        assert await other.jobs() == [job("j")] and len(await other.list_runs("j", limit=9)) == 1
        await other.close()

    async def test_a_fenced_server_neither_claims_nor_releases(self, owner: Any) -> None:
        a = base.Owner("a", await owner.store.join("a", b"{}"))
        await owner.create("s", claim=a)
        await owner.store.claim()
        with pytest.raises(Fenced):
            await owner.store.claim_session("s", a, owner.generation)
        with pytest.raises(Fenced):
            await owner.store.release("s", 1, 1, owner.generation)
