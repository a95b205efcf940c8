"""Native sessions issued by agents, in every store. See stores.py."""

import asyncio

import pytest

from perdure.core.errors import Conflict
from perdure.stores.base import IssuedNativeSession
from tests.conformance.stores import Owner, fact


class NativesSuite:
    async def test_a_native_session_issued_once_is_not_reported(self, owner: Owner) -> None:
        await owner.create(
            "s", issued=[IssuedNativeSession("bin", "n1", "alpha"), IssuedNativeSession("bin", "n2", "alpha")]
        )
        await owner.create(
            "t", issued=[IssuedNativeSession("bin", "n3", "alpha"), IssuedNativeSession("other", "n1", "alpha")]
        )
        assert await owner.store.issued_twice() == set()

    @pytest.mark.parametrize(("session", "agent"), [("s", "alpha"), ("s", "beta"), ("t", "alpha")])
    async def test_a_native_session_issued_again_is_reported(self, owner: Owner, session: str, agent: str) -> None:
        await owner.create(
            "s", issued=[IssuedNativeSession("bin", "n1", "alpha"), IssuedNativeSession("bin", "n2", "alpha")]
        )
        await owner.create("t")
        await owner.append(session, fact(), issued=[IssuedNativeSession("bin", "n1", agent)])
        assert await owner.store.issued_twice() == {("bin", "n1")}

    async def test_a_native_session_in_two_concurrent_steps_is_issued_twice(self, owner: Owner) -> None:
        await owner.create("s")
        await owner.create("t")
        issued = [IssuedNativeSession("bin", "n1", "alpha")]
        await asyncio.gather(*(owner.append(session, fact(), issued=issued) for session in ("s", "t")))
        assert await owner.store.issued_twice() == {("bin", "n1")}

    async def test_a_rejected_step_issues_nothing(self, owner: Owner) -> None:
        issued = [IssuedNativeSession("bin", "n1", "alpha")]
        await owner.create("s", issued=issued)
        with pytest.raises(Conflict):
            await owner.append("s", fact(), expect=99, issued=issued)
        assert await owner.store.issued_twice() == set()

    async def test_an_id_issued_twice_stays_reported_after_one_session_is_erased(self, owner: Owner) -> None:
        for session in ("s", "t"):
            await owner.create(session, issued=[IssuedNativeSession("bin", "n1", "alpha")])
        await owner.store.erase("s", owner.generation)
        assert await owner.store.issued_twice() == {("bin", "n1")}
        await owner.store.erase("t", owner.generation)
        assert await owner.store.issued_twice() == set()
        await owner.create("u", issued=[IssuedNativeSession("bin", "n1", "alpha")])
        assert await owner.store.issued_twice() == set()

    async def test_the_native_sessions_of_a_session_are_known_until_it_is_erased(self, owner: Owner) -> None:
        await owner.create("s", issued=[IssuedNativeSession("bin", "n1", "alpha")])
        await owner.append("s", fact(), issued=[IssuedNativeSession("other", "n2", "beta")])
        await owner.create("t", issued=[IssuedNativeSession("bin", "n3", "alpha")])
        assert sorted(await owner.store.natives("s")) == ["n1", "n2"]
        await owner.store.erase("s", owner.generation)
        assert await owner.store.natives("s") == []
        assert await owner.store.natives("t") == ["n3"]
