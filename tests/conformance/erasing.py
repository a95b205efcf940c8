"""Erasing a session, in every store: in steps, and without remains. Part of the store's suite."""

import asyncio
from collections.abc import Awaitable

from perdure.stores.base import Phrase
from tests.conformance.stores import Owner, delta, fact


class ErasingSuite:
    async def test_other_sessions_can_be_written_while_a_long_session_is_erased(self, owner: Owner) -> None:
        await owner.create("other")
        await owner.create("s")
        for _ in range(8):
            await owner.append("s", *(delta("secret ") for _ in range(1_000)))
        order: list[str] = []

        async def noted(name: str, work: Awaitable[object]) -> None:
            await work
            order.append(name)

        erasing = noted("erased", owner.store.erase("s", owner.generation))
        await asyncio.gather(erasing, *(noted("appended", owner.append("other", delta("x"))) for _ in range(3)))
        assert order == ["appended"] * 3 + ["erased"]
        assert await owner.store.load("s") is None

    async def test_the_remaining_data_reads_the_same_after_a_scrub(self, owner: Owner) -> None:
        await owner.create("other", fact(), phrases=[Phrase(0, "title", "open words")])
        await owner.create("s", delta("secret"), phrases=[Phrase(0, "title", "secret words")])
        await owner.store.erase("s", owner.generation)
        before = await owner.all("other")
        assert await owner.store.scrub(whole=False)
        assert await owner.store.scrub(whole=True)
        assert await owner.store.scrub(whole=True), "must be idempotent"
        assert await owner.all("other") == before
        assert await owner.found(q="words") == ["other"]
        await owner.append("other", delta("more"))
