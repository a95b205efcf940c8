"""The verbs for a session's history: edit, rewind, retry, fork, plan, and reading it as a transcript or as events.

Above: surfaces, through the sessions. Below: the log; core/history.py decides. A change that names a `revision` uses
optimistic concurrency: it is refused if the history was changed since. Changes without one apply in order of arrival.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.history import Gathered, take_over
from perdure.core.scope import missing, turns_of
from perdure.core.session import busy, create
from perdure.core.state import Session, chosen_by_agent
from perdure.core.transcript import History, markdown, markdown_title
from perdure.core.turns import plan_turn
from perdure.core.view import public_turn
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.pieces import LogPieces, TurnPieces
from perdure.runtime.log.reading import said_in_turns
from perdure.runtime.running.placement import WhenFull
from perdure.runtime.verbs.outgoing import Outgoing

if TYPE_CHECKING:
    from perdure.runtime.verbs.sessions import Sessions


class _Row(msgspec.Struct):
    """The fields needed from a turn's row."""

    turn: int
    message_id: str
    agent: str


_row = msgspec.json.Decoder(_Row)


class Restoring(msgspec.Struct, frozen=True):
    """Restore the files to before the turn, too. `outside`: what to do with files that somebody else changed since."""

    outside: str | None = None


class HistoryVerbs:
    def __init__(self, sessions: "Sessions") -> None:
        self._sessions = sessions
        self._log = sessions.log

    # Changing ------------------------------------------------------------------------------------------------------

    async def edit(
        self,
        session_id: str,
        message_id: str,
        text: str,
        revision: int | None = None,
        restoring: Restoring | None = None,
    ) -> dict[str, Any]:
        """Replace the text of a message in the visible history."""
        self._sessions.check_size(Outgoing(text=text))
        journal = await self._log.open(session_id)
        turn = next((row.turn for row in await self._rows(journal) if row.message_id == message_id), None)
        if turn is None:
            raise Refused("not_found", f"There is no message {message_id} in the visible history.")
        change = cmd.EditMessage(turn=turn, message_id=message_id, text=text, revision=revision)
        return await self._change(session_id, change, restoring)

    async def rewind(
        self, session_id: str, turn: int, revision: int | None = None, restoring: Restoring | None = None
    ) -> dict[str, Any]:
        """Drop this turn and all after it from the visible history."""
        return await self._change(session_id, cmd.Rewind(turn=turn, revision=revision), restoring)

    async def _change(
        self, session_id: str, change: cmd.EditMessage | cmd.Rewind, restoring: Restoring | None
    ) -> dict[str, Any]:
        if restoring is None:
            await self._sessions.do(session_id, change)
            return await self._sessions.get(session_id)
        done = await self._sessions.changes.restore_and(session_id, change, restoring.outside)
        return {**await self._sessions.get(session_id), "operation": done}

    async def retry(
        self,
        session_id: str,
        turn: int,
        *,
        text: str | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        revision: int | None = None,
        when_full: WhenFull = "wait",
        restoring: Restoring | None = None,
    ) -> dict[str, Any]:
        """Rewind this turn and all after it, and send its message again, or a different one."""
        if text is not None:
            self._sessions.check_size(Outgoing(text=text))
        if message_id is not None and (earlier := await self._sessions.replayed(session_id, message_id, text)):
            if earlier.get("turn") == turn:
                raise Refused(
                    "conflict", "This message_id belongs to the turn itself. Use a new one.", fields=["message_id"]
                )
            return earlier
        journal = await self._log.open(session_id)
        if journal.state.busy:
            raise busy(journal.state)
        row = next((row for row in await self._rows(journal) if row.turn == turn), None)
        if row is None:
            raise Refused("not_found", f"There is no turn {turn} in the visible history.")
        said = await self._message(journal, turn)
        if text is None and said.get("origin") == "agent":
            raise Refused("invalid", f"The agent itself started turn {turn}. Give the text to send.")
        message = Outgoing(
            text=said["text"] if text is None else text,
            message_id=message_id,
            agent=agent or row.agent,
            fresh=True,
            attachments=tuple(said["attachments"]),
            when_full=when_full,
        )
        if restoring is not None:
            return await self._retry_restored(session_id, turn, message, revision, restoring)
        return await self._sessions.send(session_id, message, retry=cmd.Rewind(turn=turn, revision=revision))

    async def _retry_restored(
        self, session_id: str, turn: int, message: Outgoing, revision: int | None, restoring: Restoring
    ) -> dict[str, Any]:
        """Restore the files to before the turn, and send its message again in the same step."""
        full = await self._sessions.full((await self._log.open(session_id)).state)
        if message.when_full == "refuse" and full is not None:
            raise full
        message_id = message.message_id or self._sessions.new_message_id()
        change = cmd.RetryTurn(
            turn=turn,
            revision=revision,
            message_id=message_id,
            text=message.text,
            agent=message.agent,
            attachments=message.attachments,
        )
        done = await self._sessions.changes.restore_and(session_id, change, restoring.outside)
        sent = await self._sessions.replayed(session_id, message_id, message.text)
        if sent is None:
            raise Refused("conflict", "The files were restored, but the message was not sent. Send it again.")
        return {**sent, "operation": done}

    async def fork(self, session_id: str, turn: int | None = None, agent: str | None = None) -> dict[str, Any]:
        """Create a session with this one's history, up to and including `turn`. Native sessions are not copied."""
        journal = await self._log.open(session_id)
        state = journal.state
        if agent is not None:
            self._sessions.agents.settings(agent)
        done = [number for number in turns_of(state.visible) if not (state.busy and number == state.last_turn)]
        if turn is not None and turn not in done:
            if state.busy and turn == state.last_turn:
                raise busy(state)
            raise Refused("not_found", f"There is no turn {turn} in the visible history.")
        wanted = {number for number in done if turn is None or number <= turn}
        events = await self._events(session_id, wanted, journal.last_seq)
        chosen = chosen_by_agent(state)
        own = chosen.pop(agent or state.agent, {})
        command = cmd.CreateSession(
            session_id=self._sessions.new_session_id(),
            project=state.project,
            agent=agent or state.agent,
            workdir=state.workdir,
            labels=tuple(state.labels),
            limits=state.limits,
            model=own.get("model"),
            mode=own.get("mode"),
            config=own.get("config", {}),
            choices=chosen,
            forked_from={"session_id": session_id, "turn": max(wanted, default=None)},
            permissions=tuple(state.permissions),
        )
        decision = create(command, self._sessions.facts.world(state))
        # An agent's title may be about turns that are not copied.
        if title := state.message_title if state.title_by == "agent" else state.title:
            decision.emit(ev.Title(title=title, by="person" if state.title_by == "person" else "message"))
        attachments = self._sessions.attachments
        try:
            for event in events:
                if isinstance(event, ev.UserMessage):
                    await attachments.fetch(session_id, event.attachments)
                    event.attachments = attachments.copy(session_id, command.session_id, event.attachments)
                    await attachments.upload(command.session_id, event.attachments)
            # In a thread, because a long history would block the event loop.
            await asyncio.to_thread(take_over, decision, events, wanted)
            made, _ = await self._log.create(decision)
        except BaseException:
            attachments.erase(command.session_id)
            raise
        await self._sessions.changes.copy(session_id, command.session_id, wanted)
        return await self._sessions.get(made.state.id)

    async def _rows(self, journal: Journal) -> list[_Row]:
        return [_row.decode(row.public) for row in await self._log.store.read_turns(journal.state.id)]

    async def _message(self, journal: Journal, turn: int) -> dict[str, Any]:
        if journal.view.turn == turn and journal.view.message is not None:
            return journal.view.message
        view = await self._log.view_of(journal.state.id, turn, journal.last_seq)
        if view.message is None:
            raise Refused("not_found", f"Turn {turn} has no message to send again.")
        return view.message

    async def _events(self, session_id: str, turns: set[int], upto: int) -> list[ev.Event]:
        found = Gathered()
        if turns:
            async for events in said_in_turns(self._log.store, session_id, min(turns), max(turns), upto):
                found.add(event for event in events if event.turn in turns)
        return found.all()

    # Reading -------------------------------------------------------------------------------------------------------

    async def plan(self, session_id: str, agent: str | None = None, fresh: bool = False) -> dict[str, Any]:
        """What the next turn would do, and why, without doing it."""
        journal = await self._log.open(session_id)
        agent = agent or journal.state.agent
        _check_idle(journal.state)
        self._sessions.agents.settings(agent)
        # Probe the program first, as the turn would. If it can't be started, plan anyway.
        with contextlib.suppress(Refused):
            await self._sessions.agents.ready(agent)
        state = journal.state
        _check_idle(state)
        world = self._sessions.facts.world(state, cmd.SubmitMessage(message_id="", text="", agent=agent))
        plan = plan_turn(state, agent, fresh, world)
        untold = missing(state.visible, agent, world.scope, plan.seen)
        composed = await self._sessions.orders(journal).composed(agent, plan.context, untold, "")
        return {
            "agent": agent,
            "context": plan.context,
            "reason": plan.reason,
            "guards": plan.guards,
            "native_session_id": plan.native_session_id,
            "scope": world.scope,
            "turns_told": untold,
            "digested": list(composed.shortened.digested),
            "left_out": list(composed.shortened.left_out),
            "tokens": composed.shortened.tokens,
            "bytes": len(composed.text.encode("utf-8", "surrogatepass")),
        }

    async def transcript(
        self, session_id: str, from_turn: int = 1, *, to_turn: int | None = None, rewound: bool = False
    ) -> TurnPieces:
        """The turns as JSON, in pieces. With `rewound` it includes rewound turns, marked as such. `seq` is the last
        event that is included."""
        journal = await self._log.open(session_id)
        # All from the same moment, so that `revision` matches the text.
        state, seq = journal.state, journal.last_seq
        last = state.last_turn if to_turn is None else min(to_turn, state.last_turn)
        found = await self._log.store.read_turns(session_id, from_turn=from_turn, hidden=rewound)
        rows = {row.turn: row for row in found if row.turn <= last}
        current = public_turn(state.turn) if state.turn is not None else None
        about = {"session_id": session_id, "title": state.title, "revision": state.revision, "seq": seq}

        def entry(turn: int, history: History) -> bytes:
            public: dict[str, Any] = msgspec.json.decode(rows[turn].public)
            if current is not None and turn == current["turn"]:
                # The running turn's figures are newer in memory than in its row.
                public = current
            view = history.views.get(turn)
            shown = {**public, "message": view.message if view else None, "parts": view.show() if view else []}
            return msgspec.json.encode({**shown, "rewound": not rows[turn].visible} if rewound else shown)

        begin = msgspec.json.encode(about)[:-1] + b',"turns":['
        return TurnPieces(self._log, session_id, seq, list(rows), entry, begin=begin, between=b",", end=b"]}")

    async def transcript_markdown(self, session_id: str, from_turn: int = 1) -> TurnPieces:
        journal = await self._log.open(session_id)
        state, seq = journal.state, journal.last_seq
        wanted = [number for number in turns_of(state.visible) if number >= from_turn]

        def entry(turn: int, history: History) -> bytes:
            return markdown(history, turn).encode("utf-8", "replace")

        title = markdown_title(state.title).encode("utf-8", "replace")
        return TurnPieces(self._log, session_id, seq, wanted, entry, begin=title)

    async def lines(self, session_id: str, after: int, limit: int) -> LogPieces:
        """The events after this position as stored, one per line."""
        await self._log.open(session_id)
        return LogPieces(self._log, session_id, after, limit)


def _check_idle(state: Session) -> None:
    if state.phase == "ended":
        raise Refused("session_ended", f"The session has ended ({state.status}). Start a new one.", state="ended")
    if state.busy:
        raise busy(state)
