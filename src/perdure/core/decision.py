"""Events in the making: what a decision is made from, and what it leads to. Pure."""

from collections.abc import Callable

from msgspec import Struct

from perdure.core import events as ev
from perdure.core.evolve import evolve
from perdure.core.permissions import Rule
from perdure.core.resume import AgentFacts
from perdure.core.state import Session, Turn, fork


class World(Struct, frozen=True):
    """What the machine can't know by itself, as values."""

    now: str
    facts_of: Callable[[str], AgentFacts]
    rules: tuple[Rule, ...] = ()


class Decision:
    """Events in the making: each is stamped and evolved at once, so that the next decision sees it."""

    def __init__(self, state: Session, world: World) -> None:
        self.state = fork(state)
        self.world = world
        self.events: list[ev.Event] = []
        self.turns: dict[int, Turn] = {}
        """Those whose public record these events change."""

    def emit(self, event: ev.Event) -> None:
        event.at = self.world.now
        event.session_id = self.state.id
        self.events.append(event)
        evolve(self.state, event)
        if isinstance(event, ev.TurnStart | ev.TurnEnd | ev.ContextFallback) and self.state.turn is not None:
            self.turns[self.state.turn.turn] = self.state.turn
