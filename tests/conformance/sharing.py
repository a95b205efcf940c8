"""What shared stores must also guarantee: nodes, slots, files, new events. See stores.py."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from perdure.core.errors import Conflict, NotOwner
from perdure.stores import base
from perdure.stores.base import Append, Head, Kept, Node
from perdure.stores.shared import Load, News, SharedStore, SlotTaker
from tests.conformance.stores import MakeStore, Owner, delta, fact, listed, progress


def shared(owner: Owner) -> SharedStore:
    """Return the store as a SharedStore."""
    assert owner.store.is_shared
    store: SharedStore = owner.store  # type: ignore[assignment]  # what `is_shared` promises
    return store


async def joined(owner: Owner, node: str) -> base.Owner:
    return base.Owner(node, await owner.store.join(node, b"{}"))


async def died(owner: Owner, life: base.Owner) -> None:
    [node] = [node for node in await owner.store.nodes() if node.node == life.node]
    assert await shared(owner).declare_dead(life, node.heartbeat)


class SharingSuite:
    @pytest.fixture
    async def others(self, owner: Owner, make_store: MakeStore) -> AsyncIterator[list[Owner]]:
        """Return two other servers on the same database."""
        stores = [make_store(), make_store()]
        for store in stores:
            await store.open()
        yield [Owner(store, await store.claim()) for store in stores]
        for store in stores:
            await store.close()

    # Nodes --------------------------------------------------------------------------------------------------------

    async def test_every_server_has_the_same_generation_and_none_is_fenced(
        self, owner: Owner, others: list[Owner]
    ) -> None:
        await owner.create("s")
        assert {other.generation for other in others} == {owner.generation}
        assert [await each.append("s", delta("x")) for each in (*others, owner)] == [2, 3, 4]

    async def test_a_node_is_declared_dead_only_if_its_heartbeat_has_not_changed(self, owner: Owner) -> None:
        store, a = shared(owner), await joined(owner, "a")
        [before] = await store.nodes()
        assert await store.beat(a)
        assert not await store.declare_dead(a, before.heartbeat), "it has sent a heartbeat"
        [now] = await store.nodes()
        assert not await store.declare_dead(base.Owner("a", a.incarnation + 1), now.heartbeat)
        assert not await store.declare_dead(base.Owner("b", 1), 0)
        assert await store.declare_dead(a, now.heartbeat)
        assert await store.declare_dead(a, before.heartbeat), "another node was first"
        assert not await store.beat(a)
        assert [node.dead for node in await store.nodes()] == [True]

    async def test_a_session_of_a_dead_node_is_claimed_and_the_new_token_fences_that_node(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        await owner.create("s", claim=a)
        assert await owner.store.claim_session("s", b, owner.generation) is None
        await died(owner, a)
        assert await owner.keep("s", fact(), expect=1, state=b"", claim=b) == Kept(2, 2, b)
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("late"), token=1)

    async def test_a_node_that_restarts_keeps_its_sessions_from_others(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        await owner.create("s", claim=a)
        again = await joined(owner, "a")
        assert await owner.store.claim_session("s", b, owner.generation) is None
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("x"), token=1, claim=b)
        assert await owner.keep("s", delta("x"), token=1, claim=again) == Kept(2, 2, again)
        assert await owner.store.claim_session("s", a, owner.generation) is None, "its previous incarnation"

    async def test_a_drained_node_stays_drained_when_it_restarts(self, owner: Owner) -> None:
        await joined(owner, "a")
        assert await shared(owner).set_draining("a", True)
        assert not await shared(owner).set_draining("nobody", True)
        again = await joined(owner, "a")
        [node] = await owner.store.nodes()
        assert node == Node("a", again.incarnation, node.heartbeat, False, b"{}", True)
        assert await shared(owner).set_draining("a", False)
        assert [node.draining for node in await owner.store.nodes()] == [False]

    async def test_a_removed_node_must_stop_and_leaves_its_sessions(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        await owner.create("s", claim=a)
        await owner.create("t", claim=b)
        assert await shared(owner).remove_node("a")
        assert not await shared(owner).remove_node("a")
        assert not await owner.store.beat(a)
        assert await owner.store.heads(["s", "t"]) == {"s": Head(1, 1, None, 1), "t": Head(1, 1, b, 1)}
        assert (await joined(owner, "a")).incarnation > a.incarnation
        assert not await owner.store.beat(a), "its previous incarnation"
        assert await owner.store.claim_session("s", b, owner.generation) == 2

    async def test_a_session_is_moved_from_any_owner_unless_a_decision_came_first(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        await owner.create("s", claim=a)
        assert not await shared(owner).move("s", b, 9)
        assert not await shared(owner).move("nobody", b, 0)
        assert await shared(owner).move("s", b, 1)
        assert await owner.store.heads(["s"]) == {"s": Head(1, 1, b, 2)}
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("late"), token=1)
        assert await shared(owner).former_nodes("s") == ["a", "b"]

    async def test_every_node_that_owned_a_session_is_known_until_it_is_erased(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        await owner.create("s")
        assert await shared(owner).former_nodes("s") == []
        await owner.keep("s", delta("x"), claim=b)
        await owner.store.release("s", 1, 1, owner.generation)
        await owner.keep("s", delta("x"), claim=a)
        assert await shared(owner).former_nodes("s") == ["a", "b"]
        await owner.store.erase("s", owner.generation)
        assert await shared(owner).former_nodes("s") == []

    async def test_abandoned_turns_are_found(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        states = {"idle": a, "processing": a, "waiting": a, "mine": b}
        for name, life in states.items():
            await owner.create(name, claim=life, listed=listed(state="processing" if name == "mine" else name))
        await owner.create("lost", listed=listed(state="processing"))
        assert await shared(owner).abandoned(9) == ["lost"]
        await died(owner, a)
        assert await shared(owner).abandoned(9) == ["processing", "waiting", "lost"]
        assert len(await shared(owner).abandoned(1)) == 1
        await shared(owner).remove_node("b")
        assert "mine" in await shared(owner).abandoned(9)

    async def test_the_load_of_each_node_is_counted(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        for number, state in enumerate(("idle", "processing", "waiting", "ended")):
            await owner.create(f"s{number}", claim=a, listed=listed(state=state))
        await owner.create("t", claim=b)
        await owner.create("nobody")
        assert await shared(owner).loads() == {"a": Load(3, 2), "b": Load(1, 0)}

    async def test_a_node_finds_waiting_sessions_that_no_other_node_owns(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        for name, life in (("of a", a), ("of b", b), ("free", None)):
            await owner.create(name, claim=life, listed=listed(state="accepted"))
        assert await owner.store.waiting("a") == ["of a", "free"]
        assert await owner.store.waiting("c") == ["free"]
        await died(owner, b)
        assert await owner.store.waiting("a") == ["of a", "of b", "free"]

    async def test_the_launches_of_a_node_are_read_without_the_others(self, owner: Owner) -> None:
        for launch, session in (("a-1", "s"), ("ab-1", "t"), ("a_-1", "u")):
            await owner.create(session, progress=progress(launch, session))
        assert [row.launch_id for row in await owner.store.launches(node="a")] == ["a-1"]
        assert await owner.store.launches(node="b") == []

    # Writing at the same time -------------------------------------------------------------------------------------

    async def test_of_many_concurrent_decisions_one_wins_and_the_log_is_in_order(
        self, owner: Owner, others: list[Owner]
    ) -> None:
        names = [f"s{number}" for number in range(8)]
        await asyncio.gather(*(owner.create(name) for name in names))
        servers = [owner, *others]

        async def play(server: Owner, order: list[str]) -> list[Kept | Exception]:
            steps = [
                Append(session_id=name, generation=server.generation, expect=1, events=[fact(), delta("x")], state=b"x")
                for name in order
            ]
            return await server.store.append_all(steps)

        made = await asyncio.gather(*(play(server, names[:: 1 - 2 * (at % 2)]) for at, server in enumerate(servers)))
        kept = [one for outcomes in made for one in outcomes if isinstance(one, Kept)]
        assert kept == [Kept(2, 0, None)] * len(names)
        assert all(isinstance(one, Kept | Conflict) for outcomes in made for one in outcomes)
        for name in names:
            assert [event.seq for event in await owner.all(name)] == [1, 2, 3]

    async def test_only_one_of_many_servers_creates_a_session(self, owner: Owner, others: list[Owner]) -> None:
        for number in range(5):
            name = f"s{number}"
            made = await asyncio.gather(*(server.create(name) for server in (owner, *others)), return_exceptions=True)
            assert sorted(type(one).__name__ for one in made) == ["Conflict", "Conflict", "int"]
            assert len(await owner.all(name)) == 1

    async def test_deltas_of_many_servers_get_every_number_once(self, owner: Owner, others: list[Owner]) -> None:
        await owner.create("s")
        firsts = await asyncio.gather(
            *(server.append("s", delta("x"), delta("y")) for server in (owner, *others) for _ in range(10))
        )
        assert sorted(firsts) == list(range(2, 62, 2))
        assert [event.seq for event in await owner.all("s")] == list(range(1, 62))

    async def test_a_launch_that_another_server_changed_is_written_in_full(
        self, owner: Owner, others: list[Owner]
    ) -> None:
        await owner.create("s")
        for offset in (1, 2):
            await owner.append("s", delta("x"), progress=progress("l", "s", offset=offset, driver_state=b"mine"))
        await others[0].append("s", progress=progress("l", "s", offset=3, driver_state=b"theirs"))
        await owner.append("s", delta("x"), progress=progress("l", "s", offset=4, driver_state=b"mine"))
        assert await owner.store.launches() == [progress("l", "s", offset=4, driver_state=b"mine")]
        await others[0].append("s", progress=progress("l", "s", phase="gone"))
        await owner.append("s", delta("x"), progress=progress("l", "s", offset=5, driver_state=b"mine"))
        assert [row.offset for row in await others[1].store.launches()] == [5]

    # Following ----------------------------------------------------------------------------------------------------

    async def test_new_events_of_many_sessions_are_read_in_one_call(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s", fact(), delta("one "), delta("two "), claim=a)
        await owner.create("t")
        every = await owner.all("s")
        positions = {"s": 1, "t": 1, "nobody": 0}
        found = await shared(owner).news(positions, limit=10, max_bytes=10_000)
        assert found == {"s": News(Head(3, 1, a, 1), every[1:]), "t": News(Head(1, 1, None, 0), [])}
        assert (await shared(owner).news({"s": 0}, limit=2, max_bytes=10_000))["s"].events == every[:2]
        assert (await shared(owner).news({"s": 0}, limit=9, max_bytes=0))["s"].events == every[:1]
        await owner.compact("s")
        [rest] = (await shared(owner).news({"s": 2}, limit=9, max_bytes=10_000))["s"].events
        assert (rest.first_seq, rest.seq) == (3, 3)
        assert await shared(owner).news({}, limit=9, max_bytes=9) == {}
        assert (await shared(owner).news({"s": 10**30}, limit=9, max_bytes=9))["s"].events == []

    async def test_the_mark_of_a_document_kind_changes_with_each_of_its_documents(self, owner: Owner) -> None:
        store = shared(owner)
        seen = [await store.document_marks()]

        async def changed(kind: str) -> bool:
            seen.append(await store.document_marks())
            return seen[-1].get(kind) != seen[-2].get(kind)

        await store.put_document("project", "a", b"1")
        assert await changed("project")
        await store.put_document("agent", "a", b"1")
        assert not await changed("project")
        await store.put_document("project", "a", b"2")
        assert await changed("project")
        assert await store.add_document("project", "b", b"3") and await changed("project")
        assert not await store.add_document("project", "b", b"4") and not await changed("project")
        assert await store.take_document("project", "b") == b"3" and await changed("project")
        assert await store.take_document("project", "b") is None and not await changed("project")
        await store.put_document("project", "a", None)
        assert await changed("project")
        assert await store.documents("project") == {}

    async def test_only_one_of_many_servers_adds_or_takes_a_document(self, owner: Owner, others: list[Owner]) -> None:
        servers = [owner, *others]
        added = await asyncio.gather(*(each.store.add_document("login", "a", b"x") for each in servers for _ in "ab"))
        assert sum(added) == 1
        taken = await asyncio.gather(*(each.store.take_document("login", "a") for each in servers for _ in "ab"))
        assert [one for one in taken if one is not None] == [b"x"]

    # Slots of projects --------------------------------------------------------------------------------------------

    async def test_a_project_never_exceeds_its_slots(self, owner: Owner, others: list[Owner]) -> None:
        await owner.create("s0", listed=listed(project="p", title="first", takes_slot=True))
        await owner.create("other", listed=listed(project="q", takes_slot=True))
        names = [f"s{number}" for number in range(1, 9)]
        made = await asyncio.gather(
            *(
                shared(server).reserve_slot("p", name, 3, 60)
                for name, server in zip(names, [owner, *others] * 3, strict=False)
            )
        )
        winners = [name for name, takers in zip(names, made, strict=True) if not takers]
        assert len(winners) == 2
        takers = await shared(owner).slot_takers("p")
        assert sorted(takers) == sorted([SlotTaker("s0", "first"), *(SlotTaker(name, "") for name in winners)])
        refused = next(takers for takers in made if takers)
        assert len(refused) == 3

    async def test_a_reservation_ends_when_it_is_freed_or_expires_or_its_turn_takes_the_slot(
        self, owner: Owner
    ) -> None:
        store = shared(owner)
        assert await store.reserve_slot("p", "s", 1, 60) == []
        assert await store.reserve_slot("p", "s", 1, 60) == [], "its own"
        assert await store.reserve_slot("p", "t", 1, 60) == [SlotTaker("s", "")]
        await owner.create("s", listed=listed(project="p", title="mine", takes_slot=True))
        assert await store.slot_takers("p") == [SlotTaker("s", "mine")]
        await store.free_slot("p", "s")
        assert await store.reserve_slot("p", "t", 1, 60) == [SlotTaker("s", "mine")]
        await owner.append("s", listed=listed(project="p", takes_slot=False))
        assert await store.reserve_slot("p", "t", 1, 0) == []
        assert await store.slot_takers("p") == [], "the reservation has expired"
        assert await store.reserve_slot("p", "u", 1, 60) == []
        assert await store.reserve_slot("p", "v", 0, 60) == [SlotTaker("u", "")]

    # Files and time -----------------------------------------------------------------------------------------------

    async def test_files_may_precede_their_session_and_are_erased_with_it(self, owner: Owner) -> None:
        store = shared(owner)
        data = bytes(range(256)) * 1_000
        await store.put_file("s", "one", data)
        await store.put_file("s", "two", b"")
        await store.put_file("t", "one", b"other")
        await owner.create("s")
        assert await store.file("s", "one") == data
        assert await store.file("s", "two") == b""
        await store.put_file("s", "one", b"again")
        assert await store.file("s", "one") == b"again"
        assert await store.file_names("s", "") == ["one", "two"]
        assert await store.file_names("s", "t") == ["two"]
        assert await store.file_names("s", "%") == []
        await store.drop_file("s", "two")
        assert await store.file("s", "two") is None
        await store.erase("s", owner.generation)
        assert await store.file("s", "one") is None
        await store.erase("t", owner.generation)
        assert await store.file("t", "one") is None, "its session never existed"

    async def test_a_late_file_of_an_erased_session_is_not_stored(self, owner: Owner) -> None:
        store = shared(owner)
        assert not await store.put_file("s", "one", b"early", early=False)
        await owner.create("s")
        assert await store.put_file("s", "one", b"first", early=False)
        assert await store.put_file("s", "one", b"again", early=False)
        assert await store.file("s", "one") == b"again"
        await store.erase("s", owner.generation)
        assert not await store.put_file("s", "one", b"late", early=False)
        assert await store.file("s", "one") is None

    async def test_the_epoch_is_stable_and_the_clock_advances(self, owner: Owner, others: list[Owner]) -> None:
        assert await shared(owner).epoch() == await shared(others[0]).epoch() >= 0
        before = await shared(owner).time()
        assert abs(before - time.time()) < 60
        assert await shared(others[0]).time() >= before

    async def test_sessions_that_are_due_are_found_by_every_server(self, owner: Owner, others: list[Owner]) -> None:
        for name, due_at in (("late", "2026-01-03"), ("soon", "2026-01-01"), ("never", None), ("next", "2026-01-02")):
            await owner.create(name, listed=listed(due_at=due_at))
        assert await others[0].store.due_sessions("2026-01-02", 9) == ["soon", "next"]
        assert await others[1].store.due_sessions("2026-01-09", 1) == ["soon"]
        await owner.append("soon", listed=listed())
        assert await others[0].store.due_sessions("2026-01-02", 9) == ["next"]

    async def test_finishing_a_rollout_is_idempotent(self, owner: Owner) -> None:
        await shared(owner).finish_rollout(1)
        await shared(owner).finish_rollout(1)
        assert isinstance(await shared(owner).inspect(), list)
