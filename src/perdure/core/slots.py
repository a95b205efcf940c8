"""Who takes a slot, and the words for a turn that finds none.

Above: runtime/running/placement.py counts, suspends and ends. Below: the session's state. Pure. It deliberately does
not say what happens to a turn without a slot: that is one place in the runtime.
"""

from collections.abc import Sequence
from typing import NamedTuple

from perdure.core.errors import Refused
from perdure.core.state import Session, WaitsFor

SLOTS_FULL = "slots_full"
NAMED_MAX = 5
TITLE_CHARS = 60


class Taker(NamedTuple):
    """A session that takes a slot."""

    session_id: str
    title: str


def takes_slot(state: Session, *, count_idle: bool) -> bool:
    """A running turn takes a slot, unless it waits for a person. When that one answers, it goes on at once and may be
    one too many; nothing new begins until there are fewer again. Where idle sessions count, each takes one until it
    ends."""
    if count_idle:
        return state.phase != "ended"
    return state.working and not state.prompts


def can_be_suspended(state: Session) -> bool:
    """Whether its process can be ended without stopping anything."""
    return not state.working and state.attached is not None and not state.background_tasks


def no_slot(limit: int, project: str | None, takers: Sequence[Taker], *, count_idle: bool) -> Refused:
    """What takes the slots, and what can be done about it."""
    setting = "slots" if project is None else "project_slots"
    whose = "The server" if project is None else f"The project {project}"
    if count_idle:
        what, advice = f"has as many sessions as it may ({setting} = {limit}, idle ones count)", "Stop one"
    else:
        what, advice = f"runs as many turns as it may ({setting} = {limit})", "Wait for one to end, abort one"
    return Refused(
        SLOTS_FULL,
        f"{whose} {what}: {_named(takers)}. {advice}, or raise {setting} in perdure.toml.",
        limit_of="server" if project is None else "project",
        limit=limit,
        taken_by=[taker.session_id for taker in takers],
    )


def waits_for_slot(limit: int, project: str | None, *, count_idle: bool) -> WaitsFor:
    """What an accepted message waits for. It names no session: those change while it waits; `explain` knows them."""
    setting = "slots" if project is None else "project_slots"
    whose = "the server" if project is None else f"the project {project}"
    many = "s" if limit > 1 else ""
    what = f"has {limit} session{many}, idle ones included" if count_idle else f"runs {limit} turn{many} at once"
    return WaitsFor(SLOTS_FULL, f"Waiting for a free slot: {whose} {what} ({setting} = {limit}).")


def _named(takers: Sequence[Taker]) -> str:
    names = [_name(taker) for taker in takers[:NAMED_MAX]]
    if len(takers) > NAMED_MAX:
        names.append(f"{len(takers) - NAMED_MAX} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _name(taker: Taker) -> str:
    title = " ".join(taker.title.split())
    if not title:
        return taker.session_id
    cut = title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…"
    return f'"{cut}" ({taker.session_id})'
