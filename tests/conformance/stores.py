"""What every store must guarantee. The test module of a store subclasses `StoreSuite`, or `EveryStoreSuite` if the
store is shared, and provides `make_store`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.compaction import Joined, Joiner
from perdure.core.errors import Conflict, Refused, StoreError
from perdure.core.events import AssistantText, AssistantThinking, Plan, PlanEntry, decode, encode, type_of
from perdure.stores.base import (
    Append,
    Draft,
    Found,
    Kept,
    LaunchProgress,
    Listed,
    Phrase,
    Query,
    Receipt,
    SessionRecord,
    Store,
    Stored,
    TurnRow,
)
from tests.conformance.fencing import FencingSuite
from tests.conformance.groups import GroupSuite

WAIT_S = 20
MakeStore = Callable[[], Store]


def join_runs(rows: list[Stored]) -> list[Joined]:
    joiner = Joiner()
    return [*joiner.take(rows), *joiner.end()]


# Examples share one database (each uses its own session), and the class of every store runs the same function.
generated = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def listed(**fields: Any) -> Listed:
    given_fields: dict[str, Any] = {
        "project": None,
        "agent": "rehearsal",
        "workdir": "/srv/site",
        "state": "idle",
        "status": "running",
        "title": "",
        "labels": [],
        "archived": False,
        "parent": None,
        "last_active_at": "2026-01-01T00:00:00Z",
        "public": b"{}",
    }
    return Listed(**(given_fields | fields))


def fact(text: str = "", turn: int | None = 1) -> Draft:
    return Draft("plan", turn, encode(Plan(turn=turn, entries=[PlanEntry(text)])), True)


def delta(text: str, block: int = 0, turn: int = 1, thinking: bool = False) -> Draft:
    kind = AssistantThinking if thinking else AssistantText
    event = kind(turn=turn, block=block, delta=text)
    return Draft(type_of(event), turn, encode(event), False)


def progress(launch_id: str, session_id: str, **fields: Any) -> LaunchProgress:
    given_fields: dict[str, Any] = {
        "launch_id": launch_id,
        "session_id": session_id,
        "agent": "rehearsal",
        "driver": "acp",
        "phase": "live",
        "offset": 0,
        "performed_seq": 0,
        "input_total": 0,
        "pending_input": [],
        "driver_state": b"",
    }
    return LaunchProgress(**(given_fields | fields))


def text_of(events: list[Stored]) -> list[tuple[str, int, int | None, str]]:
    """Return the text of each block, like readers join it, regardless of the pieces."""
    blocks: list[tuple[str, int, int | None, str]] = []
    for event in events:
        body = decode(event.body)
        if not isinstance(body, AssistantText | AssistantThinking):
            blocks.append((event.type, event.seq, event.turn, ""))
        elif blocks and blocks[-1][:3] == (event.type, body.block, event.turn):
            blocks[-1] = (event.type, body.block, event.turn, blocks[-1][3] + body.delta)
        else:
            blocks.append((event.type, body.block, event.turn, body.delta))
    return [block for block in blocks if block[3] or block[0] not in ("assistant_text", "assistant_thinking")]


class Owner:
    """A store, and the generation that may write to it."""

    def __init__(self, store: Store, generation: int) -> None:
        self.store = store
        self.generation = generation

    async def append(self, session_id: str, *events: Draft, expect: int | None = None, **fields: Any) -> int:
        return (await self.keep(session_id, *events, expect=expect, **fields)).first

    async def keep(self, session_id: str, *events: Draft, expect: int | None = None, **fields: Any) -> Kept:
        step = Append(session_id=session_id, generation=self.generation, expect=expect, events=list(events), **fields)
        async with asyncio.timeout(WAIT_S):
            return await self.store.append(step)

    async def create(self, session_id: str, *events: Draft, state: bytes = b"new", **fields: Any) -> int:
        fields.setdefault("listed", listed())
        return await self.append(session_id, *(events or (fact("created", None),)), expect=0, state=state, **fields)

    async def all(self, session_id: str, after: int = 0) -> list[Stored]:
        return await self.store.read(session_id, after, limit=100_000)

    async def changes(self, after: int, count: int) -> list[tuple[int, str, Stored]]:
        """Wait for this many `plan` events of all sessions. A shared store may show them a moment later."""
        async with asyncio.timeout(WAIT_S):
            while len(rows := await self.store.list_changes(after, ("plan",), 100)) < count:
                pass
        return rows

    async def compact(self, session_id: str) -> None:
        await self.store.compact(session_id, self.generation, join_runs(await self.all(session_id)))

    async def found(self, **fields: Any) -> list[str]:
        page = await self.store.list_sessions(Query(**fields))
        return [found.session_id for found in page.found]


class EveryStoreSuite(GroupSuite):
    """For all stores, shared or not."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Return a function that creates another store, not yet open, on the test's database."""
        raise NotImplementedError

    @pytest.fixture
    async def owner(self, make_store: MakeStore) -> AsyncIterator[Owner]:
        store = make_store()
        await store.open()
        yield Owner(store, await store.claim())
        await store.close()

    # Appending ----------------------------------------------------------------------------------------------------

    async def test_the_first_append_creates_the_session_and_numbers_start_at_one(self, owner: Owner) -> None:
        assert await owner.store.load("s") is None
        assert await owner.create("s", fact("a"), delta("b"), state=b"first") == 1
        assert await owner.store.load("s") == SessionRecord(b"first", 2, 1)
        assert [(event.seq, event.first_seq, event.type) for event in await owner.all("s")] == [
            (1, 1, "plan"),
            (2, 2, "assistant_text"),
        ]

    async def test_only_decisive_events_advance_the_position_that_decisions_expect(self, owner: Owner) -> None:
        await owner.create("s")
        assert await owner.append("s", delta("a"), delta("b")) == 2
        assert await owner.append("s", fact("c"), expect=1, state=b"two") == 4
        assert await owner.store.load("s") == SessionRecord(b"two", 4, 4)

    async def test_a_decision_on_a_stale_position_conflicts_and_stores_nothing(self, owner: Owner) -> None:
        await owner.create("s")
        with pytest.raises(Conflict):
            await owner.append(
                "s",
                fact("late"),
                expect=0,
                state=b"late",
                listed=listed(title="late"),
                turns=[TurnRow(1, True, b"{}")],
                receipt=Receipt("m", "d", b"{}"),
                progress=progress("l", "s"),
                phrases=[Phrase(1, "user", "late")],
            )
        assert await owner.store.load("s") == SessionRecord(b"new", 1, 1)
        assert await owner.store.read_turns("s") == []
        assert await owner.store.find_receipt("s", "m") is None
        assert await owner.store.launches() == []
        assert await owner.found(q="late") == []
        assert await owner.append("s", fact("next"), expect=1, state=b"next") == 2

    @pytest.mark.parametrize("expect", [None, 3])
    async def test_a_step_for_an_unknown_session_conflicts(self, owner: Owner, expect: int | None) -> None:
        with pytest.raises(Conflict):
            await owner.append("nobody", fact(), expect=expect, state=b"", listed=listed())
        assert await owner.store.load("nobody") is None

    async def test_a_session_is_not_created_without_its_state(self, owner: Owner) -> None:
        with pytest.raises(StoreError):
            await owner.append("s", fact(), expect=0)

    async def test_a_step_without_events_returns_the_last_number(self, owner: Owner) -> None:
        await owner.create("s", fact(), delta("a"))
        assert await owner.append("s", progress=progress("l", "s", offset=9)) == 2
        assert [launch.offset for launch in await owner.store.launches()] == [9]

    async def test_concurrent_steps_are_all_stored_in_order(self, owner: Owner) -> None:
        names = [f"s{number}" for number in range(40)]
        await asyncio.gather(*(owner.create(name) for name in names))
        firsts = await asyncio.gather(
            *(owner.append(name, delta(f"{turn} "), delta(". ")) for turn in range(10) for name in names)
        )
        assert firsts == [2 + 2 * turn for turn in range(10) for _ in names]
        expected = "".join(f"{turn} . " for turn in range(10))
        for name in names:
            assert text_of(await owner.all(name))[1:] == [("assistant_text", 0, 1, expected)]

    async def test_of_two_concurrent_decisions_one_wins_and_other_steps_are_unaffected(self, owner: Owner) -> None:
        await asyncio.gather(owner.create("s"), owner.create("t"))
        outcomes = await asyncio.gather(
            owner.append("s", fact("one"), expect=1, state=b"one"),
            owner.append("s", fact("two"), expect=1, state=b"two"),
            owner.append("t", fact("three"), expect=1, state=b"three"),
            return_exceptions=True,
        )
        assert outcomes[0] == 2
        assert isinstance(outcomes[1], Conflict)
        assert outcomes[2] == 2
        assert await owner.store.load("s") == SessionRecord(b"one", 2, 2)

    async def test_a_cancelled_caller_does_not_disturb_the_next(self, owner: Owner) -> None:
        await owner.create("s")
        task = asyncio.create_task(owner.append("s", delta("a")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        first = await owner.append("s", delta("b"))
        assert [event.seq for event in await owner.all("s")] == list(range(1, first + 1))

    # Owners ---------------------------------------------------------------------------------------------------------

    async def test_everything_survives_closing_and_reopening(self, make_store: MakeStore) -> None:
        store = make_store()
        await store.open()
        owner = Owner(store, await store.claim())
        await owner.create("s", fact("a"), delta("b"))
        launch = progress("l", "s", pending_input=[b"x\n", b"\x00\n"], input_total=7, driver_state=b"\x01")
        await owner.append("s", progress=launch)
        await store.put_document("project", "site", b"{}")
        before = await owner.all("s")
        await store.close()
        store = make_store()
        await store.open()
        generation = await store.claim()
        owner = Owner(store, generation)
        assert await owner.all("s") == before
        assert await store.launches() == [launch]
        assert await store.documents("project") == {"site": b"{}"}
        assert await owner.append("s", delta("c"), expect=1) == 3
        await store.close()

    async def test_closing_stores_queued_steps_and_refuses_later_ones(self, make_store: MakeStore) -> None:
        store = make_store()
        await store.open()
        owner = Owner(store, await store.claim())
        await owner.create("s")
        pending = [asyncio.create_task(owner.append("s", delta(str(number)))) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*pending) == list(range(2, 52))
        with pytest.raises(StoreError):
            await owner.append("s", delta("late"))
        with pytest.raises(StoreError):
            await store.load("s")
        await store.close()

    # Reading ----------------------------------------------------------------------------------------------------------

    async def test_reading_respects_every_bound(self, owner: Owner) -> None:
        drafts = [fact("x" * 10, turn=number) for number in range(1, 11)]
        await owner.create("s", *drafts)
        size = len(drafts[0].body)

        async def numbers(after: int, **bounds: Any) -> list[int]:
            return [event.seq for event in await owner.store.read("s", after, **({"limit": 100} | bounds))]

        assert await numbers(0) == list(range(1, 11))
        assert await numbers(4, limit=3) == [5, 6, 7]
        assert await numbers(4, upto=6) == [5, 6]
        assert await numbers(6, upto=6) == []
        assert await numbers(10) == []
        assert await numbers(99) == []
        assert await numbers(10**30) == []
        assert await numbers(8, limit=10**30, upto=10**30) == [9, 10]
        assert await numbers(0, max_bytes=3 * size) == [1, 2, 3]
        assert await numbers(0, max_bytes=3 * size - 1) == [1, 2]
        assert await numbers(0, max_bytes=0) == [1], "a reader must be able to continue"
        assert await owner.store.read("nobody", 0, limit=5) == []
        assert await owner.store.size("s", 0, limit=1) == size
        assert await owner.store.size("s", 5, limit=3) == 3 * size
        assert await owner.store.size("s", 99, limit=10**30) == 0
        assert await owner.store.size("s", 2, limit=10, upto=6) == 4 * size
        assert await owner.store.size("nobody", 0, limit=5) == 0

    async def test_turns_are_updated_hidden_and_read_from_the_end(self, owner: Owner) -> None:
        rows = [TurnRow(number, True, b"%d" % number) for number in range(1, 6)]
        await owner.create("s", turns=rows)
        await owner.append("s", turns=[TurnRow(5, False, b"hidden"), TurnRow(4, True, b"again")])
        visible = [*rows[:3], TurnRow(4, True, b"again")]
        assert await owner.store.read_turns("s") == visible
        assert await owner.store.read_turns("s", last=2) == visible[2:]
        assert await owner.store.read_turns("s", from_turn=3) == visible[2:]
        assert await owner.store.read_turns("s", before=4, last=2) == visible[1:3]
        assert await owner.store.read_turns("s", before=1) == []
        assert await owner.store.read_turns("s", before=10**30) == visible
        assert await owner.store.read_turns("s", from_turn=10**30, last=10**30) == []
        assert await owner.store.read_turns("s", hidden=True) == [*visible, TurnRow(5, False, b"hidden")]

    async def test_a_range_of_turns_is_hidden_in_one_step_with_the_turn_that_follows(self, owner: Owner) -> None:
        await owner.create("s", turns=[TurnRow(number, True, b"%d" % number) for number in range(1, 5)])
        await owner.create("t", turns=[TurnRow(2, True, b"other")])
        await owner.append("s", turns=[TurnRow(5, True, b"5")], hidden=(2, 4))
        assert [row.turn for row in await owner.store.read_turns("s")] == [1, 5]
        hidden = [(row.turn, row.visible) for row in await owner.store.read_turns("s", hidden=True)]
        assert hidden == [(1, True), (2, False), (3, False), (4, False), (5, True)]
        assert [row.turn for row in await owner.store.read_turns("t")] == [2]

    async def test_a_message_is_accepted_once(self, owner: Owner) -> None:
        receipt = Receipt("m1", "digest", b'{"seq":1}')
        await owner.create("s", receipt=receipt)
        await owner.create("t", receipt=receipt)
        assert await owner.store.find_receipt("s", "m1") == receipt
        assert await owner.store.find_receipt("s", "m2") is None
        with pytest.raises(Conflict):
            await owner.append("s", fact(), expect=1, state=b"", receipt=Receipt("m1", "other", b"{}"))
        outcomes = await asyncio.gather(
            owner.append("s", delta("a"), receipt=Receipt("m2", "one", b"1")),
            owner.append("s", delta("b"), receipt=Receipt("m2", "two", b"2")),
            return_exceptions=True,
        )
        assert outcomes[0] == 2
        assert isinstance(outcomes[1], Conflict)
        assert await owner.store.find_receipt("s", "m2") == Receipt("m2", "one", b"1")

    async def test_a_launch_is_listed_until_it_is_gone(self, owner: Owner) -> None:
        await owner.create("s", progress=progress("l1", "s", phase="launching"))
        await owner.append("s", progress=progress("l2", "s"))
        newest = progress("l1", "s", offset=5, performed_seq=1, input_total=2, pending_input=[b"a\n"])
        await asyncio.gather(
            owner.append("s", progress=progress("l1", "s", offset=1)), owner.append("s", progress=newest)
        )
        assert {launch.launch_id: launch for launch in await owner.store.launches()} == {
            "l1": newest,
            "l2": progress("l2", "s"),
        }
        await owner.append("s", progress=progress("l2", "s", phase="gone"))
        assert await owner.store.launches() == [newest]

    async def test_a_launch_that_serves_several_sessions_has_a_row_for_each(self, owner: Owner) -> None:
        await owner.create("s", progress=progress("l1", "s", offset=3))
        await owner.create("t", progress=progress("l1", "t", offset=7))
        assert {(row.session_id, row.offset) for row in await owner.store.launches()} == {("s", 3), ("t", 7)}
        await owner.append("s", progress=progress("l1", "s", phase="gone"))
        assert await owner.store.launches() == [progress("l1", "t", offset=7)]

    async def test_changes_of_all_sessions_come_in_the_order_of_their_commits(self, owner: Owner) -> None:
        [(begin, name, _)] = await owner.store.list_changes(-1, ("plan",), 9)
        assert name == ""
        await owner.create("s", fact("a"))
        await owner.create("t", fact("b"), delta("x"), delta("y"))
        await owner.append("s", fact("c"), Draft("usage", 1, b"{}", True), expect=1, state=b"")
        changes = await owner.changes(0, 3)
        assert [(name, event.seq) for _, name, event in changes] == [("s", 1), ("t", 1), ("s", 2)]
        assert await owner.store.list_changes(begin, ("plan",), 100) == changes
        positions = [position for position, _, _ in changes]
        assert positions == sorted(set(positions))
        assert await owner.store.list_changes(positions[0], ("plan",), 1) == changes[1:2]
        both = await owner.store.list_changes(positions[1], ("plan", "usage"), 100)
        assert [event.type for _, _, event in both] == ["plan", "usage"]
        await owner.compact("t")
        assert await owner.store.list_changes(0, ("plan",), 100) == changes
        newest = (await owner.store.list_changes(-1, (), 1))[-1][0]
        assert newest >= both[-1][0]
        await owner.store.erase("s", owner.generation)
        await owner.create("u")
        assert [name for _, name, _ in await owner.changes(newest, 1)] == ["u"], (
            "a follower must not miss changes after an erase"
        )

    async def test_documents_are_stored_by_kind_replaced_and_removed(self, owner: Owner) -> None:
        await owner.store.put_document("project", "a", b"1")
        await owner.store.put_document("project", "b", b"2")
        await owner.store.put_document("agent", "a", b"3")
        await owner.store.put_document("project", "a", b"4")
        await owner.store.put_document("project", "b", None)
        await owner.store.put_document("project", "never", None)
        assert await owner.store.documents("project") == {"a": b"4"}
        assert await owner.store.documents("agent") == {"a": b"3"}
        assert await owner.store.documents("other") == {}

    async def test_an_erased_session_leaves_nothing_and_its_name_can_be_used_again(self, owner: Owner) -> None:
        await owner.create("other", phrases=[Phrase(0, "title", "secret too")])
        await owner.create(
            "s",
            fact(),
            delta("secret"),
            turns=[TurnRow(1, True, b"{}")],
            receipt=Receipt("m", "d", b"{}"),
            progress=progress("l", "s"),
            phrases=[Phrase(0, "title", "secret")],
        )
        await owner.store.erase("s", owner.generation)
        await owner.store.erase("s", owner.generation)
        assert await owner.store.load("s") is None
        assert await owner.all("s") == []
        assert await owner.store.read_turns("s") == []
        assert await owner.store.find_receipt("s", "m") is None
        assert await owner.store.launches() == []
        assert await owner.found(q="secret") == ["other"]
        assert [name for _, name, _ in await owner.changes(0, 1)] == ["other"]
        with pytest.raises(Conflict):
            await owner.append("s", delta("late"))
        assert await owner.create("s") == 1

    # Compaction -------------------------------------------------------------------------------------------------------

    @generated
    @given(
        drafts=st.lists(
            st.one_of(
                st.builds(
                    delta,
                    st.text(st.characters(codec="utf-8"), max_size=6),
                    st.integers(0, 1),
                    st.just(1),
                    st.booleans(),
                ),
                st.builds(fact),
            ),
            max_size=16,
        ),
        first_part=st.integers(0, 16),
    )
    async def test_compaction_is_invisible_from_every_position(
        self, owner: Owner, drafts: list[Draft], first_part: int
    ) -> None:
        name = uuid4().hex
        await owner.create(name, fact(), *drafts[:first_part])
        before = await owner.all(name)

        async def check() -> None:
            total = len(before)
            for after in range(total + 1):
                rest = await owner.all(name, after)
                expected = [event for event in before if event.seq > after]
                assert text_of(rest) == text_of(expected)
                numbers = [number for event in rest for number in range(event.first_seq, event.seq + 1)]
                assert numbers == list(range(after + 1, total + 1))
                upto = (after + total) // 2
                middle = await owner.store.read(name, after, limit=100, upto=upto)
                assert text_of(middle) == text_of([event for event in expected if event.seq <= upto])
                assert not middle or middle[-1].seq == upto

        await owner.compact(name)
        await check()
        stale = join_runs(before)
        await owner.append(name, *drafts[first_part:])
        before += await owner.all(name, before[-1].seq)
        await owner.compact(name)
        await check()
        await owner.compact(name)
        await owner.store.compact(name, owner.generation, stale)
        await check()
        assert await owner.append(name, delta("more")) == len(before) + 1

    async def test_a_compacted_run_is_one_event_with_its_range_of_numbers(self, owner: Owner) -> None:
        await owner.create("s", fact(), delta("one "), delta("two "), delta("three"), fact("end"))
        await owner.compact("s")
        events = await owner.all("s")
        assert [(event.first_seq, event.seq) for event in events] == [(1, 1), (2, 4), (5, 5)]
        [rest] = await owner.store.read("s", 2, limit=1)
        assert (rest.first_seq, rest.seq) == (3, 4)
        body = decode(rest.body)
        assert isinstance(body, AssistantText)
        assert body.delta == "two three"
        assert (await owner.store.load("s")) == SessionRecord(b"new", 5, 5)

    async def test_a_run_of_deltas_read_from_its_middle_keeps_its_beginning_when_joined(self, owner: Owner) -> None:
        await owner.create("s", fact(), delta("a"), delta("b"), delta("c"))
        await owner.compact("s")
        await owner.append("s", delta("d"))
        await owner.store.compact("s", owner.generation, join_runs(await owner.all("s", 2)))
        assert text_of(await owner.all("s"))[1:] == [("assistant_text", 0, 1, "abcd")]

    # Lists ------------------------------------------------------------------------------------------------------------

    async def test_lists_are_newest_first_and_paging_is_complete_without_duplicates(self, owner: Owner) -> None:
        names = [f"s{number:02}" for number in range(23)]
        for number, name in enumerate(names):
            await owner.create(name, listed=listed(last_active_at=f"2026-01-{1 + number // 2:02}T00:00:00Z"))
        seen: list[Found] = []
        cursor = None
        while True:
            page = await owner.store.list_sessions(Query(limit=5, cursor=cursor))
            seen += page.found
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.found) == 5
        assert [found.session_id for found in seen] == names[::-1]
        await owner.append("s00", listed=listed(last_active_at="2026-02-01T00:00:00Z", public=b'{"x":1}'))
        assert len(await owner.found(limit=10**30)) == len(names)
        page = await owner.store.list_sessions(Query(limit=1))
        assert page.found == [Found("s00", b'{"x":1}', last_seq=1)]

    async def test_a_full_last_page_has_no_cursor(self, owner: Owner) -> None:
        await owner.create("s")
        await owner.create("t")
        assert (await owner.store.list_sessions(Query(limit=2))).next_cursor is None

    @pytest.mark.parametrize(
        "cursor", ["", "x", "!!!", "bnVsbA", "WzEsMl0", "é", "W10=", "WyJ4Iiw5OTk5OTk5OTk5OTk5OTk5OTk5OTk5XQ"]
    )
    async def test_a_cursor_that_was_not_issued_is_refused(self, owner: Owner, cursor: str) -> None:
        with pytest.raises(Refused) as refusal:
            await owner.store.list_sessions(Query(cursor=cursor))
        assert refusal.value.code == "invalid"

    async def test_lists_are_filtered(self, owner: Owner) -> None:
        await owner.create("a", listed=listed(project="site", labels=["red", 'q"uote'], parent="p", archived=True))
        await owner.create("b", listed=listed(agent="claude", state="processing", workdir="/srv/b"))
        await owner.create("c", listed=listed(status="stopped", labels=["reddish"]))
        assert await owner.found() == ["c", "b", "a"]
        assert await owner.found(project="site") == ["a"]
        assert await owner.found(label="red") == ["a"]
        assert await owner.found(label='q"uote') == ["a"]
        assert await owner.found(parent="p") == ["a"]
        assert await owner.found(archived=True) == ["a"]
        assert await owner.found(archived=False) == ["c", "b"]
        assert await owner.found(agent="claude", state="processing", workdir="/srv/b") == ["b"]
        assert await owner.found(agent="claude", state="idle") == []
        assert await owner.found(status="stopped") == ["c"]

    async def test_search_finds_titles_and_transcripts_once_with_a_snippet(self, owner: Owner) -> None:
        said = [Phrase(1, "user", "Please fix the café menu"), Phrase(1, "assistant", "The menu of the Cafe is fixed")]
        await owner.create("a", phrases=[Phrase(0, "title", "Menu"), *said])
        await owner.create("b", phrases=[Phrase(0, "title", "Deployment of the site")])
        page = await owner.store.list_sessions(Query(q="cafe MENU"))
        assert [found.session_id for found in page.found] == ["a"]
        snippet = page.found[0].snippet
        assert snippet is not None
        assert "[" in snippet
        assert "menu" in snippet.lower()
        assert page.found[0].snippet_turn == 1
        assert await owner.found(q="deploy") == ["b"]
        assert await owner.found(q="deploy cafe") == []
        assert await owner.found(q="  ") == ["b", "a"]
        assert await owner.found(q="menu", agent="other") == []

    async def test_a_snippet_prefers_a_match_in_a_turn_to_the_title(self, owner: Owner) -> None:
        said = [Phrase(1, "user", "Good morning"), Phrase(7, "assistant", "It was the gardener, in the long library")]
        await owner.create("s", phrases=[Phrase(0, "title", "Gardener"), *said])

        async def turn(q: str) -> int | None:
            (found,) = (await owner.store.list_sessions(Query(q=q))).found
            return found.snippet_turn

        assert [await turn(q) for q in ("gardener", "library", "morning")] == [7, 7, 1]
        await owner.append("s", phrases=[Phrase(0, "title", "Orangery")])
        assert await turn("orangery") is None

    async def test_a_new_title_or_an_edited_message_replaces_what_search_finds(self, owner: Owner) -> None:
        await owner.create("s", phrases=[Phrase(0, "title", "oldtitle"), Phrase(1, "user", "oldwords")])
        await owner.append("s", phrases=[Phrase(0, "title", "newtitle"), Phrase(1, "user", "newwords")])
        assert await owner.found(q="oldtitle") == await owner.found(q="oldwords") == []
        assert await owner.found(q="newtitle") == await owner.found(q="newwords") == ["s"]

    async def test_a_hidden_turn_is_not_found(self, owner: Owner) -> None:
        await owner.create("s", turns=[TurnRow(1, True, b"{}")], phrases=[Phrase(1, "assistant", "regrettable")])
        assert await owner.found(q="regrettable") == ["s"]
        await owner.append("s", turns=[TurnRow(1, False, b"{}")])
        assert await owner.found(q="regrettable") == []

    @generated
    @given(text=st.one_of(st.text(), st.text(alphabet='"*^:()-+{}\0 aANDORNOTEAR\ud800', max_size=20)))
    async def test_a_search_query_is_plain_text_and_never_syntax(self, owner: Owner, text: str) -> None:
        page = await owner.store.list_sessions(Query(q=text))
        assert page.found == []


class StoreSuite(EveryStoreSuite, FencingSuite):
    """For a store that admits one server at a time."""
