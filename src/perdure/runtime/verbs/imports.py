"""Imports a session from another system: its finished turns become a session of this server.

Above: surfaces, through the sessions. Below: the log; core/imported.py, which has the rules. An import is one commit:
the whole session or nothing. Importing it a second time fails with a conflict. The session has no process and no native
session here, so its next turn gets the transcript.
"""

import asyncio
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.answers import title_of
from perdure.core.clock import stamp
from perdure.core.decision import Decision
from perdure.core.elements import TooManyValues, elements
from perdure.core.errors import NOTHING_KEPT, Refused, StoreError, StoreFull
from perdure.core.history import take_over
from perdure.core.imported import (
    MAX_EVENT_VALUES,
    Room,
    check_count,
    check_id,
    event_of,
    finished_turns,
    time_of,
    too_many_values,
)
from perdure.core.session import create
from perdure.core.validation import what_is_wrong
from perdure.runtime.running.recovery import BETWEEN_TURNS, WHILE_RUNNING

if TYPE_CHECKING:
    from perdure.runtime.verbs.sessions import Sessions


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """A session from another system. `state` is its last state there."""

    id: str
    created_at: str
    events: msgspec.Raw
    """A list of objects. Decoded one by one, as there can be very many."""
    project: str | None = None
    workdir: str | None = None
    agent: str | None = None
    title: str = ""
    summary: str = ""
    model: str | None = None
    mode: str | None = None
    config: dict[str, Any] = {}
    """The agent's other options."""
    limits: dict[str, Any] = {}
    labels: tuple[str, ...] = ()
    archived: bool = False
    parent: str | None = None
    """Stored unchanged and unchecked: the parent may be imported later, or never."""
    status: Literal["running", "completed", "stopped", "timed-out", "failed"] = "running"
    state: Literal["accepted", "processing", "idle", "ended"] = "idle"
    ended_at: str | None = None
    error: str | None = None


class Imports:
    def __init__(self, sessions: "Sessions") -> None:
        self._sessions = sessions

    async def take_in(self, given: Import) -> dict[str, Any]:
        sessions = self._sessions
        check_id(given.id)
        if given.parent is not None:
            check_id(given.parent, "parent")
        exists = await sessions.exists(given.id)
        # Check this second: an erase is still recorded when its rows are gone. And for a session that is being erased,
        # "already exists" would be misleading.
        await sessions.eraser.check_free(given.id)
        if exists:
            raise Refused("conflict", f"Session {given.id} already exists.")
        created_at = time_of(given.created_at, "created_at")
        project, folder, agent = self._place(given)
        # In a thread, because a long history would block the event loop.
        turns = await asyncio.to_thread(_read, given.events, agent)
        workdir = sessions.workspaces.path(folder, given.id)
        command = cmd.CreateSession(
            session_id=given.id,
            project=project,
            agent=agent,
            workdir=workdir,
            title=given.title,
            labels=given.labels,
            limits=given.limits,
            model=given.model,
            mode=given.mode,
            config=given.config,
            parent=given.parent if given.parent != given.id else None,
            imported_at=stamp(sessions.log.now()),
        )
        unborn = st.Session(id=given.id, project=project, agent=agent, workdir=workdir, created_at=created_at)
        world = msgspec.structs.replace(sessions.facts.world(unborn), now=created_at)
        made = False
        kept: list[dict[str, Any]] = []
        try:
            await asyncio.to_thread(self._keep_files, given.id, turns, kept)
            await sessions.attachments.upload(given.id, kept)
            decision = create(command, world)
            await asyncio.to_thread(_take_all, decision, turns)
            self._settle(decision, given)
            made = folder is None and sessions.workspaces.make(given.id)
            await sessions.log.create(decision)
        except Exception as error:
            # Clean up, but not after a cancellation, as the commit continues then, nor if the outcome is unknown.
            if not isinstance(error, StoreError) or isinstance(error, NOTHING_KEPT):
                await sessions.attachments.withdraw(given.id, tuple(kept))
                if made:
                    await sessions.workspaces.take_back(given.id, error)
            if isinstance(error, StoreFull):
                what = "The disk is full. Free some space and try again; nothing was saved."
                raise Refused("unavailable", what) from error
            raise
        return await sessions.get(given.id)

    def _keep_files(self, session_id: str, turns: list[ev.Event], kept: list[dict[str, Any]]) -> None:
        """Store the files in its messages. Attachments that are only a path or a URL stay so."""
        for event in turns:
            if isinstance(event, ev.UserMessage) and event.attachments:
                event.attachments = list(self._sessions.attachments.write(session_id, tuple(event.attachments)))
                kept += event.attachments

    def _place(self, given: Import) -> tuple[str | None, str | None, str]:
        """Its project, directory and agent on this server. If its directory doesn't exist here, it gets a workspace."""
        workdir = given.workdir if given.project is None else None
        usable = workdir if workdir and os.path.isabs(workdir) and os.path.isdir(workdir) else None
        return self._sessions.place(given.project, usable, given.agent)

    def _settle(self, decision: Decision, given: Import) -> None:
        """Add the title, summary and other facts, and the state that it has here, where no process of it runs."""
        state = decision.state
        at = state.last_active_at
        first = next((event for event in decision.events if isinstance(event, ev.UserMessage)), None)
        if not given.title and first is not None:
            decision.adopt(ev.Title(at=at, title=title_of(first.text), by="message"))
        if given.summary or given.archived:
            decision.adopt(ev.SessionUpdated(at=at, summary=given.summary or None, archived=given.archived or None))
        status, reason = given.status, given.error or "imported"
        if status == "running" and self._sessions.facts.settings.on_restart == "end":
            interrupted = given.state in ("accepted", "processing")
            status = "failed" if interrupted else "stopped"
            reason = WHILE_RUNNING if interrupted else BETWEEN_TURNS
        if status == "running":
            decision.adopt(ev.WaitingForInput(at=at, turn=state.turn.turn if state.turn else None))
        else:
            ended_at = time_of(given.ended_at, "ended_at") if given.ended_at else at
            decision.adopt(ev.SessionEnd(at=ended_at, status=status, reason=reason))


def _take_all(decision: Decision, turns: list[ev.Event]) -> None:
    take_over(decision, turns, {event.turn for event in turns}, counted=True)


def _read(events: msgspec.Raw, agent: str) -> list[ev.Event]:
    array = bytes(events)
    if not array.startswith(b"["):
        raise Refused("invalid", "events must be a list of objects.")
    for number, raw in _checked(array):
        # Check the sizes of all entries before decoding them, and that the first one is an event at all.
        check_count(number)
        if number == 1:
            event_of(_entry(raw, number), number)
    return finished_turns((_entry(raw, number) for number, raw in enumerate(elements(array), 1)), agent)


def _checked(array: bytes) -> Iterator[tuple[int, bytes]]:
    room, number = Room(), 0
    try:
        for number, raw in enumerate(elements(array, MAX_EVENT_VALUES), 1):
            room.take(raw, number)
            yield number, raw
    except TooManyValues:
        raise too_many_values(number + 1) from None


def _entry(raw: bytes, number: int) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise Refused("invalid", f"events, number {number}: {what_is_wrong(error, dict)}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("invalid", f"events, number {number}: {error}.") from error
    return entry
