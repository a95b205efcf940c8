"""Which turns of a session's history each agent receives, and which of them its native session already holds. Pure.

Above: the plan of a turn (turns.py), the runner's orders, which send the missing turns, and changes to the history
(history.py), which mark exactly those native sessions as out of date whose turns changed. Below: the state's spans of
visible turns.

Scope `all`: every visible turn. Scope `agent`: only the turns after the last answer of a different agent.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from perdure.core.state import Binding, Span

Scope = Literal["all", "agent"]


def turns_of(visible: Iterable[Span]) -> list[int]:
    return [number for span in visible for number in range(span.first, span.last + 1)]


def view(visible: Sequence[Span], agent: str, scope: str, *, before: int | None = None) -> list[int]:
    """The turns that an agent receives, in order. With `before`: only those before that turn."""
    spans = visible if before is None else _cut(visible, before)
    if scope == "agent":
        foreign = [index for index, span in enumerate(spans) if span.answered and span.agent != agent]
        if foreign:
            spans = spans[foreign[-1] + 1 :]
    return turns_of(spans)


def missing(visible: Sequence[Span], agent: str, scope: str, seen: int, *, before: int | None = None) -> list[int]:
    """The turns of an agent's view that its native session lacks. It holds those up to `seen`."""
    return [number for number in view(visible, agent, scope, before=before) if number > seen]


def held(visible: Sequence[Span], agent: str, binding: Binding) -> list[int]:
    """The turns that an agent's native session holds: those sent when it began, and all that were sent to it since."""
    last = binding.last_turn
    if binding.scope == "all":
        return [number for number in turns_of(visible) if number <= last]
    found = view(visible, agent, binding.scope, before=binding.first_turn)
    seen = binding.first_turn - 1
    for span in visible:
        for number in range(span.first, span.last + 1) if span.agent == agent else ():
            if binding.first_turn <= number <= last:
                # Each of its turns also brought the turns that it had missed since its previous one.
                found += [*missing(visible, agent, binding.scope, seen, before=number), number]
                seen = number
    return found


def touched(
    before: Sequence[Span], after: Sequence[Span], edited: int | None, bindings: dict[str, Binding]
) -> list[str]:
    """The agents whose native session no longer matches their view."""
    found = []
    for agent, binding in bindings.items():
        was = held(before, agent, binding)
        if was != held(after, agent, binding) or edited in was:
            found.append(agent)
    return sorted(found)


def cut(visible: Sequence[Span], before: int) -> list[Span]:
    """A copy of the spans, without the turns from `before` on."""
    return [Span(span.first, span.last, span.agent, span.answered) for span in _cut(visible, before)]


def _cut(visible: Sequence[Span], before: int) -> list[Span]:
    return [
        span if span.last < before else Span(span.first, before - 1, span.agent, span.answered)
        for span in visible
        if span.first < before
    ]
