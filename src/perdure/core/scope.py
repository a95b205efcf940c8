"""What each agent is given of a session's history, and what its own session holds of it already.

Above: the plan of a turn (turns.py), the orders that tell the agent, and changes of history (history.py), which bump
exactly those agents whose view is touched. Below: the state's spans of visible turns. Pure.

Scope `all`: every visible turn. Scope `agent`: only the turns after the most recent answer of a different agent.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from perdure.core.state import Binding, Span

Scope = Literal["all", "agent"]


def turns_of(visible: Iterable[Span]) -> list[int]:
    return [number for span in visible for number in range(span.first, span.last + 1)]


def view(visible: Sequence[Span], agent: str, scope: str, *, before: int | None = None) -> list[int]:
    """The turns that an agent is given, in order; with `before`, as they were before that turn."""
    spans = visible if before is None else _cut(visible, before)
    if scope == "agent":
        foreign = [index for index, span in enumerate(spans) if span.answered and span.agent != agent]
        if foreign:
            spans = spans[foreign[-1] + 1 :]
    return turns_of(spans)


def missing(visible: Sequence[Span], agent: str, scope: str, seen: int, *, before: int | None = None) -> list[int]:
    """The turns of an agent's view that its own session, which holds those up to `seen`, does not hold."""
    return [number for number in view(visible, agent, scope, before=before) if number > seen]


def held(visible: Sequence[Span], agent: str, binding: Binding) -> list[int]:
    """The turns that an agent's own session holds: what it was told when it began, and what was said to it since."""
    last = binding.last_turn
    if binding.scope == "all":
        return [number for number in turns_of(visible) if number <= last]
    found = view(visible, agent, binding.scope, before=binding.first_turn)
    seen = binding.first_turn - 1
    for span in visible:
        for number in range(span.first, span.last + 1) if span.agent == agent else ():
            if binding.first_turn <= number <= last:
                # With each of its turns it was told what it had missed since the one before.
                found += [*missing(visible, agent, binding.scope, seen, before=number), number]
                seen = number
    return found


def touched(
    before: Sequence[Span], after: Sequence[Span], edited: int | None, bindings: dict[str, Binding]
) -> list[str]:
    """The agents whose own session no longer holds what their view now says."""
    found = []
    for agent, binding in bindings.items():
        was = held(before, agent, binding)
        if was != held(after, agent, binding) or edited in was:
            found.append(agent)
    return sorted(found)


def cut(visible: Sequence[Span], before: int) -> list[Span]:
    """The spans without the turns from `before` on, as values of their own."""
    return [Span(span.first, span.last, span.agent, span.answered) for span in _cut(visible, before)]


def _cut(visible: Sequence[Span], before: int) -> list[Span]:
    return [
        span if span.last < before else Span(span.first, before - 1, span.agent, span.answered)
        for span in visible
        if span.first < before
    ]
