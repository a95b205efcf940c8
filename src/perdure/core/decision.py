"""A decision: the values it is based on (`World`), and the events it collects (`Decision`). Pure.

Above: the machine's handlers (session.py, observe.py, turns.py, history.py). Below: evolve.py.
"""

from collections.abc import Mapping, Set
from typing import Literal

from msgspec import Struct

from perdure.core import events as ev
from perdure.core.evolve import evolve
from perdure.core.permissions import Rule
from perdure.core.resume import AgentFacts
from perdure.core.state import IssuedNativeSession, Session, Turn, WaitsFor, fork

_OF_A_TURN = (ev.UserMessage, ev.TurnStart, ev.TurnEnd, ev.ContextFallback, ev.HistoryShortened)


class World(Struct, frozen=True):
    """Everything outside the session that a decision depends on, gathered beforehand and passed as values."""

    now: str
    facts: Mapping[str, AgentFacts] = {}
    """By name: the agents with which this decision may start a turn."""
    rules: tuple[Rule, ...] = ()
    scope: Literal["all", "agent"] = "all"
    issued_twice: Set[tuple[str, str]] = frozenset()
    """(program, native session id) of ids that an agent issued more than once."""
    waits_for: WaitsFor | None = None
    """Why no turn may begin in this step. None: the turn of an accepted message begins immediately."""


class Decision:
    """Collects events. Each is stamped and applied to `state` when it is emitted, so later code sees its effect."""

    def __init__(self, state: Session, world: World) -> None:
        self.state = fork(state)
        self.world = world
        self.events: list[ev.Event] = []
        self.turns: dict[int, Turn] = {}
        """The turns whose public record these events change."""
        self.issued: list[IssuedNativeSession] = []
        """Native session ids that agents issue with these events."""
        self.counted = True
        """Whether the cost of these turns counts in this session."""

    def emit(self, event: ev.Event) -> None:
        event.at = self.world.now
        self.adopt(event)

    def adopt(self, event: ev.Event) -> None:
        """Add an event that keeps its original time."""
        event.session_id = self.state.id
        self.events.append(event)
        if (native := _issued(self.state, event)) is not None:
            self.issued.append(native)
        evolve(self.state, event)
        if isinstance(event, _OF_A_TURN) and self.state.turn is not None:
            self.turns[self.state.turn.turn] = self.state.turn


def check_target(name: str, before: str, after: str, targets: tuple[str, ...]) -> None:
    """Reject a step that leads to a phase that its table does not list, before it is stored. Tests and docs rely on the
    tables."""
    if after not in targets:
        raise RuntimeError(f"Bug: {name} led from {before} to {after}, but its table lists {', '.join(targets)}.")


def _issued(state: Session, event: ev.Event) -> IssuedNativeSession | None:
    """The native session id that an agent issues with this event. None if it reopens a session, or reports more about
    an open one: that id was issued before."""
    attached = state.attached
    if not isinstance(event, ev.AgentAttached) or attached is None or attached.launch_id != event.launch_id:
        return None
    native = event.native_session_id
    if native is None or native == attached.native_session_id:
        return None
    return IssuedNativeSession(attached.fingerprint, native, attached.agent)
