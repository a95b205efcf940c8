"""Every projection says what it does with every kind of event, and does that.

A projection derives something from a session's events: the state, a view, a transcript, a stream in another format.
Each has two lists beside its code: the kinds that it handles and the kinds that it ignores. A new kind of event is in
neither, so these tests fail until someone has decided for each projection.

The examples are the log for the page (tests/core/page_log.py), which has every kind. An event of an ignored kind can be
removed or added anywhere without an effect. For each handled kind, removing one of its events changes the result.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import evolve, history, transcript, view
from perdure.core.decision import Decision
from perdure.core.session import create
from perdure.core.state import dump
from perdure.core.transcript import History
from perdure.core.turn_record import read_record, record_of
from perdure.core.view import TurnView
from perdure.runtime.log import feed
from perdure.stores.sqlite import SqliteStore
from perdure.surfaces import teamhq
from perdure.surfaces.cli import narration
from perdure.surfaces.http import diane_stream
from perdure.surfaces.stream import Event as Streamed
from tests.core.page_log import golden
from tests.core.stage import world
from tests.runtime.logs import opened

Json = dict[str, Any]

KINDS = frozenset(ev.TYPES.values())
LOG: list[Json] = golden()["events"]
TURNS = range(1, 5)
UI = Path(__file__).parents[1] / "ui" / "src"


class Projection(NamedTuple):
    name: str
    lists: str
    """Where its two lists are."""
    handled: frozenset[str]
    ignored: frozenset[str]
    of: Callable[[Sequence[Json]], object]
    """The projection of a log."""


def named(kinds: Iterable[type[ev.Event] | str]) -> frozenset[str]:
    return frozenset(kind if isinstance(kind, str) else ev.TYPES[kind] for kind in kinds)


def typed(log: Iterable[Json]) -> list[ev.AnyEvent]:
    return [ev.decode(json.dumps(event).encode()) for event in log]


# The projections ------------------------------------------------------------------------------------------------------


def states(log: Sequence[Json]) -> object:
    """All states that the session passes through."""
    first, *others = typed(log)
    if not isinstance(first, ev.SessionCreated):
        return None
    made = evolve.created(first)
    passed = [dump(made)]
    for event in others:
        evolve.evolve(made, event)
        if (after := dump(made)) != passed[-1]:
            passed.append(after)
    return passed


def shown(one: TurnView) -> object:
    return one.message, one.show(), one.text()


def views(log: Sequence[Json]) -> object:
    made = {turn: TurnView(turn) for turn in TURNS}
    for event in typed(log):
        for one in made.values():
            one.fold(event)
    return {turn: shown(one) for turn, one in made.items()}


def folded(log: Sequence[Json]) -> object:
    made = History()
    for event in typed(log):
        made.fold(event)
    return made.agents, made.stop_reasons, {turn: shown(one) for turn, one in made.views.items()}


def copied(log: Sequence[Json]) -> object:
    decision = empty_session()
    history.take_over(decision, typed(log), TURNS)
    return [ev.encode(event) for event in decision.events]


def recorded(log: Sequence[Json]) -> object:
    events = typed(log)
    records = [record_of(turn, [event for event in events if event.turn == turn]) for turn in TURNS]
    return [read_record(record.body) for record in records if record.body is not None]


def narrated(log: Sequence[Json]) -> object:
    narrator = narration.Narrator(lambda _: [])
    pieces = [piece for event in log for piece in narrator.tell(streamed(event))]
    return narrator.workdir, pieces


def streamed(event: Json) -> Streamed:
    return Streamed(str(event["seq"]), event["seq"], event["type"], event["turn"], event, json.dumps(event).encode())


def in_teamhq(log: Sequence[Json]) -> object:
    teller = teamhq.Teller()
    return [found for event in log if (found := teller.tell(event["seq"], event)) is not None]


def in_diane(log: Sequence[Json]) -> object:
    return [found for event in log if (found := diane_stream.told(event, "run")) is not None]


def empty_session() -> Decision:
    command = cmd.CreateSession(session_id="s", project=None, agent="one", workdir="/w")
    return create(command, world())


PROJECTIONS = [
    Projection(
        "state",
        "CHANGES and NO_CHANGE in core/evolve.py",
        named(evolve.CHANGES) | {"session_created"},
        named(evolve.NO_CHANGE),
        states,
    ),
    Projection("view", "SHOWN and NOT_SHOWN in core/view.py", named(view.SHOWN), named(view.NOT_SHOWN), views),
    Projection(
        "transcript",
        "FOLDED and NOT_FOLDED in core/transcript.py",
        named(transcript.FOLDED),
        named(transcript.NOT_FOLDED),
        folded,
    ),
    Projection("history", "READ and NOT_READ in core/history.py", named(history.READ), named(history.NOT_READ), copied),
    Projection(
        "turn record", "READ and NOT_READ in core/history.py", named(history.READ), named(history.NOT_READ), recorded
    ),
    Projection(
        "narration",
        "TOLD and NOT_TOLD in surfaces/cli/narration.py",
        named(narration.TOLD) - {"snapshot"},
        named(narration.NOT_TOLD),
        narrated,
    ),
    Projection(
        "TeamHQ", "TOLD and NOT_TOLD in surfaces/teamhq.py", named(teamhq.TOLD), named(teamhq.NOT_TOLD), in_teamhq
    ),
    Projection(
        "Diane",
        "TOLD and NOT_TOLD in surfaces/http/diane_stream.py",
        named(diane_stream.TOLD) | {diane_stream.LAST},
        named(diane_stream.NOT_TOLD),
        in_diane,
    ),
]
each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=[one.name for one in PROJECTIONS])


# What is checked ------------------------------------------------------------------------------------------------------


def unclassified(
    name: str, lists: str, handled: Collection[str], ignored: Collection[str], kinds: Collection[str]
) -> list[str]:
    """What is wrong with the two lists of a projection, as sentences that say what to do."""
    decide = f"Decide what the {name} does with it, and add it to one of {lists}."
    return [
        *(f"{kind} is not classified. {decide}" for kind in kinds if kind not in handled and kind not in ignored),
        *(f"{kind} is both handled and ignored. {decide}" for kind in kinds if kind in handled and kind in ignored),
        *(f"There is no {kind}. Remove it from {lists}." for kind in {*handled, *ignored} if kind not in kinds),
    ]


def without(items: Sequence[Json], index: int) -> list[Json]:
    return [*items[:index], *items[index + 1 :]]


def changing(of: Callable[[Sequence[Json]], object], items: Sequence[Json]) -> set[str]:
    """The kinds of items of which removing one changes the result."""
    whole = of(items)
    return {item["type"] for index, item in enumerate(items) if of(without(items, index)) != whole}


@each_projection
def test_every_kind_of_event_is_handled_or_ignored(projection: Projection) -> None:
    name, lists, handled, ignored, _ = projection
    assert not unclassified(name, lists, handled, ignored, KINDS)


@each_projection
def test_exactly_the_handled_kinds_have_an_effect(projection: Projection) -> None:
    changed = changing(projection.of, LOG)
    lies = [f"{kind} is listed as ignored, but changes the {projection.name}" for kind in changed & projection.ignored]
    idle = [
        f"{kind} is listed as handled, but no example in tests/core/page_log.py changes the {projection.name}"
        for kind in projection.handled - changed
    ]
    assert not lies + idle, f"See {projection.lists}"


@each_projection
def test_an_ignored_event_has_no_effect_anywhere(projection: Projection) -> None:
    whole = projection.of(LOG)
    examples = [event for event in LOG if event["type"] in projection.ignored]

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.sampled_from(examples), st.integers(1, len(LOG)), st.none() | st.sampled_from(TURNS))
    def added(event: Json, position: int, turn: int | None) -> None:
        more = [*LOG[:position], {**event, "turn": turn}, *LOG[position:]]
        assert projection.of(more) == whole, f"{event['type']} is listed as ignored: see {projection.lists}"

    added()


def test_a_new_kind_of_event_is_reported_for_every_projection() -> None:
    for name, lists, handled, ignored, _ in PROJECTIONS:
        (found,) = unclassified(name, lists, handled, ignored, {*KINDS, "brand_new"})
        assert found == (
            f"brand_new is not classified. Decide what the {name} does with it, and add it to one of {lists}."
        )


# Transcripts are made of the parts of views ---------------------------------------------------------------------------


def history_of(parts: Sequence[Json]) -> History:
    """A history of one turn with these parts."""
    made = History()
    made.fold(ev.UserMessage(turn=1, message_id="m1", text="hello", agent="one"))
    made.views[1].parts = list(parts)
    return made


def replayed(parts: Sequence[Json]) -> object:
    return history_of(parts).said([1])


def in_markdown(parts: Sequence[Json]) -> object:
    return transcript.markdown(history_of(parts), 1)


@pytest.mark.parametrize(
    ("name", "lists", "handled", "ignored", "of"),
    [
        (
            "replayed transcript",
            "REPLAYED and NOT_REPLAYED in core/transcript.py",
            transcript.REPLAYED,
            transcript.NOT_REPLAYED,
            replayed,
        ),
        (
            "Markdown transcript",
            "MARKDOWN and NOT_IN_MARKDOWN in core/transcript.py",
            transcript.MARKDOWN,
            transcript.NOT_IN_MARKDOWN,
            in_markdown,
        ),
    ],
    ids=["replayed", "markdown"],
)
def test_every_type_of_part_is_handled_or_ignored_by_a_transcript(
    name: str,
    lists: str,
    handled: Collection[str],
    ignored: Collection[str],
    of: Callable[[Sequence[Json]], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = History()
    for event in typed(LOG):
        made.fold(event)
    parts = [part for one in made.views.values() for part in one.show()]
    assert not unclassified(name, lists, handled, ignored, {part["type"] for part in parts})
    monkeypatch.setattr(TurnView, "show", lambda one: one.parts)
    assert changing(of, parts) == set(handled)


# The stream of all sessions -------------------------------------------------------------------------------------------


async def test_the_changes_of_all_sessions_have_exactly_the_kinds_they_list(tmp_path: Path) -> None:
    lists = "STREAMED, CONSUMED and NOT_IN_FEED in runtime/log/feed.py"
    assert not unclassified("stream of all sessions", lists, feed.TYPES, feed.NOT_IN_FEED, KINDS)
    assert not set(feed.STREAMED) & set(feed.CONSUMED)
    store = SqliteStore(tmp_path / "perdure.db")
    await store.open()
    log = await opened(store)
    decision = empty_session()
    for event in typed(LOG)[1:]:
        decision.adopt(event)
    await log.create(decision)
    made = feed.Feed(log)
    await made.start()
    assert {change.event.type for change in await made.after(0)} == set(feed.TYPES), f"See {lists}"
    await made.stop()
    await log.stop()
    await store.close()


# The page -------------------------------------------------------------------------------------------------------------


def test_the_page_handles_or_ignores_every_kind_of_event() -> None:
    """Whether it does what it says is tested with its own code: ui/test/projection.test.ts."""
    source = "".join((UI / "state" / name).read_text("utf-8") for name in ("folding.ts", "ofsession.ts"))
    (ignored,) = re.findall(r"NOT_SHOWN[^=]*= new Set\(\[(.*?)\]\)", source, re.DOTALL)
    handled = set(re.findall(r'^    case "(\w+)":$', source, re.MULTILINE))
    lists = "the switch and NOT_SHOWN in ui/src/state/folding.ts"
    assert not unclassified("page", lists, handled, set(re.findall(r'"(\w+)"', ignored)), KINDS)
