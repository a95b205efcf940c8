"""Events in the making: what a decision is made from, and what it leads to. Pure."""

from collections.abc import Mapping, Set
from typing import Literal

from msgspec import Struct

from perdure.core import events as ev
from perdure.core.evolve import evolve
from perdure.core.permissions import Rule
from perdure.core.resume import AgentFacts
from perdure.core.state import Given, Session, Turn, WaitsFor, fork

_OF_A_TURN = (ev.UserMessage, ev.TurnStart, ev.TurnEnd, ev.ContextFallback, ev.HistoryShortened)


class World(Struct, frozen=True):
    """What the machine can't know, gathered before the decision and passed as values."""

    now: str
    facts: Mapping[str, AgentFacts] = {}
    """By name, the agents that this decision may start a turn with."""
    rules: tuple[Rule, ...] = ()
    scope: Literal["all", "agent"] = "all"
    given_twice: Set[tuple[str, str]] = frozenset()
    """(program, native session id) of those that were given out more than once."""
    waits_for: WaitsFor | None = None
    """Why no turn may begin in this step; None: an accepted message begins at once."""


class Decision:
    """Events in the making: each is stamped and evolved at once, so that the next decision sees it."""

    def __init__(self, state: Session, world: World) -> None:
        self.state = fork(state)
        self.world = world
        self.events: list[ev.Event] = []
        self.turns: dict[int, Turn] = {}
        """Those whose public record these events change."""
        self.given: list[Given] = []
        """Native sessions that agents begin with these events."""
        self.counted = True
        """Whether what these turns have cost was spent here."""

    def emit(self, event: ev.Event) -> None:
        event.at = self.world.now
        self.adopt(event)

    def adopt(self, event: ev.Event) -> None:
        """Take an event that happened at a time of its own."""
        event.session_id = self.state.id
        self.events.append(event)
        if (native := _given(self.state, event)) is not None:
            self.given.append(native)
        evolve(self.state, event)
        if isinstance(event, _OF_A_TURN) and self.state.turn is not None:
            self.turns[self.state.turn.turn] = self.state.turn


def _given(state: Session, event: ev.Event) -> Given | None:
    """The id of a native session that an agent gives out with this event. One that opens a session again, or says more
    of it, has given its id out before."""
    attached = state.attached
    if not isinstance(event, ev.AgentAttached) or attached is None or attached.launch_id != event.launch_id:
        return None
    native = event.native_session_id
    if native is None or native == attached.native_session_id:
        return None
    return Given(attached.fingerprint, native, attached.agent)
