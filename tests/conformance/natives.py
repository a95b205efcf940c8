"""What every store must know of the native sessions that agents gave out. See stores.py."""

import asyncio

import pytest

from perdure.core.errors import Conflict
from perdure.stores.base import Given
from tests.conformance.stores import Owner, fact


class NativesSuite:
    async def test_a_native_session_that_was_given_once_is_nobody_elses(self, owner: Owner) -> None:
        await owner.create("s", given=[Given("bin", "n1", "alpha"), Given("bin", "n2", "alpha")])
        await owner.create("t", given=[Given("bin", "n3", "alpha"), Given("other", "n1", "alpha")])
        assert await owner.store.given_twice() == set()

    @pytest.mark.parametrize(("session", "agent"), [("s", "alpha"), ("s", "beta"), ("t", "alpha")])
    async def test_a_native_session_that_is_given_again_is_known_to_be(
        self, owner: Owner, session: str, agent: str
    ) -> None:
        await owner.create("s", given=[Given("bin", "n1", "alpha"), Given("bin", "n2", "alpha")])
        await owner.create("t")
        await owner.append(session, fact(), given=[Given("bin", "n1", agent)])
        assert await owner.store.given_twice() == {("bin", "n1")}

    async def test_a_native_session_that_two_steps_of_one_moment_bring_is_given_twice(self, owner: Owner) -> None:
        await owner.create("s")
        await owner.create("t")
        given = [Given("bin", "n1", "alpha")]
        await asyncio.gather(*(owner.append(session, fact(), given=given) for session in ("s", "t")))
        assert await owner.store.given_twice() == {("bin", "n1")}

    async def test_a_refused_step_gives_nothing(self, owner: Owner) -> None:
        given = [Given("bin", "n1", "alpha")]
        await owner.create("s", given=given)
        with pytest.raises(Conflict):
            await owner.append("s", fact(), expect=99, given=given)
        assert await owner.store.given_twice() == set()

    async def test_an_erased_session_has_no_native_one_and_whoever_had_the_same_still_does_not_open_it(
        self, owner: Owner
    ) -> None:
        for session in ("s", "t"):
            await owner.create(session, given=[Given("bin", "n1", "alpha")])
        await owner.store.erase("s", owner.generation)
        assert await owner.store.given_twice() == {("bin", "n1")}
        await owner.store.erase("t", owner.generation)
        assert await owner.store.given_twice() == set()
        await owner.create("u", given=[Given("bin", "n1", "alpha")])
        assert await owner.store.given_twice() == set()

    async def test_the_native_sessions_of_a_session_are_known_until_it_is_erased(self, owner: Owner) -> None:
        await owner.create("s", given=[Given("bin", "n1", "alpha")])
        await owner.append("s", fact(), given=[Given("other", "n2", "beta")])
        await owner.create("t", given=[Given("bin", "n3", "alpha")])
        assert sorted(await owner.store.natives("s")) == ["n1", "n2"]
        await owner.store.erase("s", owner.generation)
        assert await owner.store.natives("s") == []
        assert await owner.store.natives("t") == ["n3"]
