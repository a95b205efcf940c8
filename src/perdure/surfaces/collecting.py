"""Waits for a turn and collects its result, for calls that send a message and return the answer.

Above: surfaces with blocking calls. Below: the verbs and the log. It only reads: if the caller stops waiting, the turn
continues. Waiting is cheap: each commit wakes the waiter, which checks only the phase, and the turn's events are read
once, at the end.
"""

from typing import Any

from msgspec import Struct

from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.view import TurnView
from perdure.runtime.verbs.sessions import Sessions, until

READ_BATCH = 1_000


class Collected(Struct, kw_only=True):
    """A finished turn."""

    session_id: str
    run_id: str
    turn: int
    message_id: str
    agent: str
    started_at: str
    ended_at: str
    duration_ms: int
    stop_reason: str
    text: str
    usage: dict[str, Any] | None
    cost_usd: float | None
    error: ev.Error | None


async def collect(sessions: Sessions, accepted: dict[str, Any]) -> Collected:
    """Wait for the turn of an accepted message to end. There is no timeout here: the session's own timeouts apply, and
    prompts may wait for a person."""
    session_id, turn = accepted["session_id"], accepted["turn"]
    journal = await sessions.journal(session_id)

    def is_over() -> bool:
        state = journal.state
        return not (state.busy and state.turn is not None and state.turn.turn == turn)

    await until(journal, is_over)
    view = TurnView(turn, live_chars=None)
    message: ev.UserMessage | None = None
    start: ev.TurnStart | None = None
    error: ev.Error | None = None
    position = accepted["seq"] - 1
    while rows := await sessions.read(session_id, position, READ_BATCH):
        position = rows[-1].seq
        for event in (ev.decode(row.body) for row in rows if row.turn == turn):
            view.fold(event)
            if isinstance(event, ev.UserMessage):
                message = event
            elif isinstance(event, ev.TurnStart):
                start = event
            elif isinstance(event, ev.Error):
                error = event
            elif isinstance(event, ev.TurnEnd) and message is not None:
                # A turn that was cancelled before it started has no start event.
                return _collected(accepted["run_id"], message, start or message, event, view.text(), error)
    raise Refused("not_found", "The session was erased before its turn ended.")


def _collected(
    run_id: str,
    message: ev.UserMessage,
    start: ev.TurnStart | ev.UserMessage,
    end: ev.TurnEnd,
    text: str,
    error: ev.Error | None,
) -> Collected:
    return Collected(
        session_id=message.session_id,
        run_id=run_id,
        turn=message.turn or 0,
        message_id=message.message_id,
        agent=start.agent,
        started_at=start.at,
        ended_at=end.at,
        duration_ms=end.duration_ms,
        stop_reason=end.stop_reason,
        text=text,
        usage=end.usage,
        cost_usd=end.cost_usd,
        error=error,
    )
