"""Which sessions take a slot, and the messages for a turn that gets none. Pure.

Above: runtime/running/placement.py, which counts slots, and suspends or ends sessions. Below: the session's state.
What happens to a turn without a slot is decided in the placement, not here.
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
    """A running turn takes a slot, unless it waits for a person. After the answer it continues immediately, even if the
    limit is exceeded; no new turn begins until the number is below the limit again. With `count_idle`, every session
    takes a slot until it ends."""
    if count_idle:
        return state.phase != "ended"
    return state.working and not state.prompts


def slot_project(state: Session) -> str | None:
    """The project whose slots its turns need. A session in a worktree of its own disturbs nobody in the project's
    directory, so it needs only a slot of the server."""
    return state.project if state.worktree is None else None


def can_be_suspended(state: Session) -> bool:
    """Whether its process can be ended without interrupting any work."""
    return not state.working and state.attached is not None and not state.background_tasks


def no_slot(limit: int, project: str | None, takers: Sequence[Taker], *, count_idle: bool) -> Refused:
    """The error that says which sessions take the slots, and what to do."""
    setting = "slots" if project is None else "project_slots"
    whose = "the server" if project is None else f"the project {project}"
    if count_idle:
        counted, advice = ", idle sessions count", "Stop one"
    else:
        counted, advice = "", "Wait for a turn to end, abort one"
    return Refused(
        SLOTS_FULL,
        f"All slots of {whose} are taken ({setting} = {limit}{counted}): {_named(takers)}. "
        f"{advice}, or raise {setting} in perdure.toml.",
        limit_of="server" if project is None else "project",
        limit=limit,
        taken_by=[taker.session_id for taker in takers],
    )


def waits_for_slot(limit: int, project: str | None, *, count_idle: bool) -> WaitsFor:
    """What an accepted message waits for. It names no sessions, because they change while it waits; `perdure explain`
    lists them."""
    setting = "slots" if project is None else "project_slots"
    whose = "the server" if project is None else f"the project {project}"
    many = "s" if limit > 1 else ""
    what = f"has {limit} session{many}, idle ones included" if count_idle else f"runs {limit} turn{many} at a time"
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
