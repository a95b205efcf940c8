"""Nodes and owners in every store: tokens fence, and a claim is part of a step. See stores.py."""

import asyncio
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import Conflict, NotOwner, StoreError
from perdure.stores import base
from perdure.stores.base import Head, Kept, Node, Query, Receipt
from tests.conformance.ownership_model import Do, Model, groups
from tests.conformance.stores import MakeStore, Owner, delta, fact, generated, listed, progress


async def joined(owner: Owner, node: str) -> base.Owner:
    return base.Owner(node, await owner.store.join(node, b"{}"))


async def head(owner: Owner, session_id: str) -> Head:
    return (await owner.store.heads([session_id]))[session_id]


class OwnershipSuite:
    one_server: ClassVar[bool] = True
    """Whether the store admits one server at a time: a node that joins then marks the others dead."""

    # Claims -------------------------------------------------------------------------------------------------------

    async def test_a_session_has_no_owner_until_it_is_claimed(self, owner: Owner) -> None:
        await owner.create("s", fact(), delta("a"))
        assert await head(owner, "s") == Head(2, 1, None, 0)
        assert await owner.keep("s", delta("b")) == Kept(3, 0, None)
        record = await owner.store.load("s")
        assert record is not None
        assert (record.owner, record.token) == (None, 0)

    async def test_a_claim_is_part_of_the_step_that_accepts_a_message(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s")
        assert await owner.keep("s", fact("hello"), expect=1, state=b"two", claim=a) == Kept(2, 1, a)
        assert await head(owner, "s") == Head(2, 2, a, 1)
        record = await owner.store.load("s")
        assert record is not None
        assert (record.owner, record.token, record.state) == (a, 1, b"two")

    async def test_the_first_step_of_a_session_may_claim_it(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        kept = await owner.keep("s", fact(), expect=0, state=b"new", listed=listed(), claim=a)
        assert kept == Kept(1, 1, a)

    async def test_the_owner_that_claims_again_keeps_its_token(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s", claim=a)
        assert await owner.keep("s", delta("a"), claim=a) == Kept(2, 1, a)
        assert await owner.store.claim_session("s", a, owner.generation) == 1

    async def test_a_command_from_a_node_that_does_not_own_the_session_is_stored(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s", claim=a)
        other = base.Owner("b", 1)
        assert await owner.keep("s", fact("hello"), expect=1, state=b"", claim=other) == Kept(2, 1, a)
        assert await owner.keep("s", fact("again"), expect=2, state=b"") == Kept(3, 1, a)
        assert await owner.store.claim_session("s", other, owner.generation) is None
        assert await head(owner, "s") == Head(3, 3, a, 1)

    async def test_a_session_of_a_dead_incarnation_is_claimed_with_a_higher_token(self, owner: Owner) -> None:
        first_life = await joined(owner, "a")
        await owner.create("s", claim=first_life)
        await owner.create("t", claim=first_life)
        second_life = await joined(owner, "a")
        assert second_life.incarnation > first_life.incarnation
        assert await owner.keep("s", delta("a"), claim=second_life) == Kept(2, 2, second_life)
        assert await owner.store.claim_session("t", second_life, owner.generation) == 2
        assert await owner.store.claim_session("t", first_life, owner.generation) is None

    async def test_of_two_nodes_that_claim_at_the_same_time_one_becomes_the_owner(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s")
        again = base.Owner("b", 1)
        outcomes = await asyncio.gather(
            owner.keep("s", fact("one"), claim=a, state=b"one"), owner.keep("s", fact("two"), claim=again, state=b"two")
        )
        assert list(outcomes) == [Kept(2, 1, a), Kept(3, 1, a)]

    async def test_a_session_that_does_not_exist_cannot_be_claimed(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        assert await owner.store.claim_session("nobody", a, owner.generation) is None
        assert await owner.store.heads(["nobody"]) == {}

    async def test_a_rejected_step_claims_nothing(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s")
        with pytest.raises(Conflict):
            await owner.keep("s", fact(), expect=9, state=b"", claim=a)
        assert await head(owner, "s") == Head(1, 1, None, 0)

    # Tokens -------------------------------------------------------------------------------------------------------

    async def test_a_replaced_owner_can_no_longer_write(self, owner: Owner) -> None:
        first_life = await joined(owner, "a")
        await owner.create("s", claim=first_life)
        await owner.keep("s", delta("mine"), token=1)
        second_life = await joined(owner, "a")
        await owner.store.claim_session("s", second_life, owner.generation)
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("late"), token=1, expect=1)
        with pytest.raises(NotOwner):
            await owner.keep("s", fact("late"), token=1, expect=1, state=b"late")
        with pytest.raises(NotOwner):
            await owner.keep("s", progress=progress("l", "s"), token=1)
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("never"), token=3)
        assert await owner.store.launches() == []
        assert await owner.keep("s", delta("mine"), token=2) == Kept(3, 2, second_life)

    async def test_a_token_fences_even_within_the_commit_that_changes_it(self, owner: Owner) -> None:
        first_life = await joined(owner, "a")
        await owner.create("s", claim=first_life)
        second_life = await joined(owner, "a")
        outcomes = await asyncio.gather(
            owner.keep("s", delta("in time"), token=1),
            owner.keep("s", delta("takes over"), claim=second_life),
            owner.keep("s", delta("late"), token=1),
            owner.keep("s", delta("new"), token=2),
            return_exceptions=True,
        )
        assert list(outcomes[:2]) == [Kept(2, 1, first_life), Kept(3, 2, second_life)]
        assert isinstance(outcomes[2], NotOwner)
        assert outcomes[3] == Kept(4, 2, second_life)

    async def test_a_late_step_of_a_replaced_owner_raises_not_owner(self, owner: Owner) -> None:
        await owner.create("s")
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("late"), token=4, expect=9, expect_last=9)

    async def test_a_rejected_step_does_not_affect_the_others_of_its_group(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await asyncio.gather(owner.create("s", claim=a), owner.create("t", claim=a), owner.create("u"))
        outcomes = await asyncio.gather(
            owner.keep("s", delta("a"), token=1, expect=1),
            owner.keep("s", delta("b"), token=7),
            owner.keep("t", delta("c"), expect=0),
            owner.keep("t", delta("d"), expect_last=1),
            owner.keep("u", delta("e"), expect_last=9),
            owner.keep("u", fact("f"), expect=1, state=b"", claim=a),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [Kept, NotOwner, Conflict, Kept, Conflict, Kept]
        assert await owner.store.heads(["s", "t", "u"]) == {
            "s": Head(2, 1, a, 1),
            "t": Head(2, 1, a, 1),
            "u": Head(2, 2, a, 1),
        }

    # Expectations of a step ---------------------------------------------------------------------------------------

    async def test_deltas_can_expect_a_decision_without_advancing_it(self, owner: Owner) -> None:
        await owner.create("s")
        for number in range(2, 5):
            assert (await owner.keep("s", delta("a"), expect=1)).first == number
        assert await head(owner, "s") == Head(4, 1, None, 0)
        await owner.append("s", fact("stop"), expect=1, state=b"two")
        with pytest.raises(Conflict):
            await owner.keep("s", delta("late"), expect=1)
        assert await head(owner, "s") == Head(5, 5, None, 0)

    async def test_a_step_may_expect_the_last_event_of_any_kind(self, owner: Owner) -> None:
        with pytest.raises(Conflict):
            await owner.create("s", expect_last=1)
        await owner.create("s", expect_last=0)
        await owner.append("s", delta("a"), expect_last=1)
        with pytest.raises(Conflict):
            await owner.append("s", fact("end"), expect=1, expect_last=1, state=b"end")
        assert await owner.append("s", fact("end"), expect=1, expect_last=2, state=b"end") == 3

    # Receipts -----------------------------------------------------------------------------------------------------

    async def test_a_receipt_gets_its_number_from_the_append(self, owner: Owner) -> None:
        await owner.create("s", fact(), delta("a"))
        events = (delta("b"), fact("taken"), fact("begun"))
        kept = await owner.keep("s", *events, expect=1, state=b"", receipt=Receipt("m", "d", b"{}", event=1))
        assert kept.first == 3
        assert await owner.store.find_receipt("s", "m") == Receipt("m", "d", b"{}", seq=4)
        await owner.keep("s", fact(), receipt=Receipt("n", "d", b"{}"))
        assert await owner.store.find_receipt("s", "n") == Receipt("n", "d", b"{}")

    async def test_the_numbers_of_receipts_are_right_within_one_commit(self, owner: Owner) -> None:
        await owner.create("s")
        await asyncio.gather(
            *(owner.keep("s", delta("a"), fact(), receipt=Receipt(f"m{n}", "d", b"{}", event=1)) for n in range(5))
        )
        found = [await owner.store.find_receipt("s", f"m{n}") for n in range(5)]
        assert [receipt.seq for receipt in found if receipt] == [3, 5, 7, 9, 11]

    @pytest.mark.parametrize("event", [-1, 1, 5])
    async def test_a_receipt_for_an_event_outside_the_step_is_refused(self, owner: Owner, event: int) -> None:
        await owner.create("s")
        with pytest.raises(StoreError):
            await owner.keep("s", fact(), receipt=Receipt("m", "d", b"{}", event=event))
        with pytest.raises(StoreError):
            await owner.keep("s", receipt=Receipt("m", "d", b"{}", event=0))
        assert await owner.store.find_receipt("s", "m") is None

    # Release ------------------------------------------------------------------------------------------------------

    async def test_a_released_session_has_no_owner_and_the_next_one_gets_a_higher_token(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s", claim=a)
        assert await owner.store.release("s", 1, 1, owner.generation)
        assert await head(owner, "s") == Head(1, 1, None, 1)
        assert await owner.store.release("s", 1, 1, owner.generation), "must be idempotent"
        assert await owner.keep("s", delta("command")) == Kept(2, 1, None)
        assert await owner.keep("s", delta("claim"), claim=a) == Kept(3, 2, a)
        with pytest.raises(NotOwner):
            await owner.keep("s", delta("late"), token=1)

    async def test_a_session_is_not_released_if_something_was_decided_meanwhile(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("s", claim=a)
        await owner.keep("s", delta("no decision"))
        _, released = await asyncio.gather(
            owner.keep("s", fact("a message"), expect=1, state=b""), owner.store.release("s", 1, 1, owner.generation)
        )
        assert not released
        assert await head(owner, "s") == Head(3, 3, a, 1)
        assert await owner.store.release("s", 1, 3, owner.generation)

    async def test_only_the_current_owner_can_release_a_session(self, owner: Owner) -> None:
        await owner.create("s", claim=await joined(owner, "a"))
        again = await joined(owner, "a")
        await owner.store.claim_session("s", again, owner.generation)
        assert not await owner.store.release("s", 1, 1, owner.generation)
        assert not await owner.store.release("nobody", 0, 0, owner.generation)
        assert await head(owner, "s") == Head(1, 1, again, 2)

    async def test_an_erased_session_has_no_owner_and_neither_has_a_new_one_with_its_id(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        await owner.create("other", claim=a)
        await owner.create("s", claim=a)
        await owner.store.erase("s", owner.generation)
        assert await owner.store.heads(["s", "other"]) == {"other": Head(1, 1, a, 1)}
        assert await owner.store.claim_session("s", a, owner.generation) is None
        await owner.create("s")
        assert await head(owner, "s") == Head(1, 1, None, 0)

    # Nodes --------------------------------------------------------------------------------------------------------

    async def test_incarnations_of_a_node_increase_and_only_the_newest_can_send_heartbeats(self, owner: Owner) -> None:
        first = await joined(owner, "a")
        assert await owner.store.beat(first)
        second = base.Owner("a", await owner.store.join("a", b'{"version":"2"}'))
        assert second.incarnation > first.incarnation
        assert not await owner.store.beat(first)
        [before] = await owner.store.nodes()
        assert await owner.store.beat(second)
        [after] = await owner.store.nodes()
        assert after == Node("a", second.incarnation, before.heartbeat + 1, False, b'{"version":"2"}')

    async def test_a_heartbeat_of_a_node_that_never_joined_changes_nothing(self, owner: Owner) -> None:
        assert not await owner.store.beat(base.Owner("nobody", 1))
        assert await owner.store.nodes() == []

    async def test_in_a_store_for_one_server_a_joining_node_marks_the_others_dead(self, owner: Owner) -> None:
        a, b = await joined(owner, "a"), await joined(owner, "b")
        dead = {node.node: node.dead for node in await owner.store.nodes()}
        assert dead == {"a": self.one_server, "b": False}
        assert await owner.store.beat(a) is not self.one_server
        assert await owner.store.beat(b)

    async def test_a_dead_node_is_alive_when_it_joins_again(self, owner: Owner) -> None:
        await joined(owner, "a")
        await joined(owner, "b")
        again = await joined(owner, "a")
        assert await owner.store.beat(again)
        assert {node.node: node.dead for node in await owner.store.nodes()} == {"a": False, "b": self.one_server}

    async def test_owners_and_nodes_survive_closing_and_reopening(self, make_store: MakeStore) -> None:
        store = make_store()
        await store.open()
        before = Owner(store, await store.claim())
        a = await joined(before, "a")
        await before.create("s", claim=a)
        nodes = await store.nodes()
        await store.close()
        store = make_store()
        await store.open()
        after = Owner(store, await store.claim())
        assert await store.nodes() == nodes
        assert await after.keep("s", delta("a"), token=1) == Kept(2, 1, a)
        assert (await joined(after, "a")).incarnation > a.incarnation
        await store.close()

    # Lists --------------------------------------------------------------------------------------------------------

    async def test_the_heads_of_many_sessions_are_read_in_one_call_without_unknown_ones(self, owner: Owner) -> None:
        a = await joined(owner, "a")
        names = [f"s{number}" for number in range(300)]
        await asyncio.gather(*(owner.create(name, claim=a) for name in names[::2]))
        await owner.append("s4", delta("x"))
        heads = await owner.store.heads([*names, "s0", 'quo"te', ""])
        assert set(heads) == set(names[::2])
        assert heads["s4"] == Head(2, 1, a, 1)
        assert await owner.store.heads([]) == {}

    async def test_sessions_that_wait_for_an_owner_are_found_longest_waiting_first(self, owner: Owner) -> None:
        for name, day, state in (("x", 3, "accepted"), ("y", 1, "idle"), ("z", 2, "accepted"), ("w", 4, "processing")):
            await owner.create(name, listed=listed(state=state, last_active_at=f"2026-01-0{day}T00:00:00Z"))
        assert await owner.store.waiting() == ["z", "x"]
        await owner.append("z", listed=listed(state="processing"))
        assert await owner.store.waiting() == ["x"]

    async def test_a_list_shows_where_each_log_ends(self, owner: Owner) -> None:
        await owner.create("s", listed=listed(title="s"))
        await owner.create("t", fact(), delta("a"), delta("b"))
        await owner.append("s", delta("a"))
        page = await owner.store.list_sessions(Query())
        assert {found.session_id: found.last_seq for found in page.found} == {"s": 2, "t": 3}
        await owner.compact("t")
        page = await owner.store.list_sessions(Query(limit=1))
        assert [(found.session_id, found.last_seq) for found in page.found] == [("t", 3)]

    async def test_changes_are_read_up_to_a_size_limit(self, owner: Owner) -> None:
        await owner.create("s", *(fact("x" * 10) for _ in range(6)))
        size = len(fact("x" * 10).body)
        await owner.changes(0, 6)

        async def numbers(**bounds: Any) -> list[int]:
            rows = await owner.store.list_changes(0, ("plan",), 5, **bounds)
            return [event.seq for _, _, event in rows]

        assert await numbers() == await numbers(max_bytes=99 * size) == [1, 2, 3, 4, 5]
        assert await numbers(max_bytes=3 * size) == [1, 2, 3]
        assert await numbers(max_bytes=3 * size - 1) == [1, 2]
        assert await numbers(max_bytes=0) == [1], "a reader must be able to continue"

    async def test_the_rows_of_one_launch_are_read_without_the_others(self, owner: Owner) -> None:
        await owner.create("s", progress=progress("l1", "s"))
        await owner.create("t", progress=progress("l1", "t"))
        await owner.append("t", progress=progress("l2", "t"))
        assert [row.session_id for row in await owner.store.launches("l1")] == ["s", "t"]
        assert await owner.store.launches("l2") == [progress("l2", "t")]
        assert await owner.store.launches("l3") == []
        assert len(await owner.store.launches()) == 3

    # Everything, generated ----------------------------------------------------------------------------------------

    @settings(generated, max_examples=120)
    @given(groups=st.lists(groups, max_size=25))
    async def test_the_store_agrees_with_the_ownership_model(self, owner: Owner, groups: list[list[Do]]) -> None:
        model = Model(owner.store, owner.generation, uuid4().hex, one_server=self.one_server)
        for group in groups if self.one_server else _without_races(groups):
            asked = [model.prepare(step) for step in group]
            # Concurrently, so that steps share a commit.
            outcomes = await asyncio.gather(*(model.carry_out(one) for one in asked), return_exceptions=True)
            answers = [type(outcome) if isinstance(outcome, StoreError) else outcome for outcome in outcomes]
            assert answers == [model.expect(one) for one in asked]
            assert await model.stored_heads() == model.heads


def _without_races(groups: list[list[Do]]) -> list[list[Do]]:
    """In a shared store, changes of nodes are not ordered relative to concurrent changes of sessions."""
    apart: list[list[Do]] = []
    for group in groups:
        apart.append([])
        for step in group:
            if step.verb in ("join", "beat"):
                apart += [[step], []]
            else:
                apart[-1].append(step)
    return [group for group in apart if group]
