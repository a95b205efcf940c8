"""A turn that is waited for and collected: for calls that send a message and answer with what came of it.

Above: the surfaces that answer so. Below: the verbs and the log. It only reads: whoever stops waiting stops nothing.
While a turn runs, waiting for it costs next to nothing: each commit wakes the waiter, which looks at the phase alone,
and the turn's events are read once, when it is over.
"""

from typing import Any

from msgspec import Struct

from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.view import TurnView
from perdure.runtime.verbs.sessions import Sessions, until

READ_BATCH = 1_000


class Collected(Struct, kw_only=True):
    """A turn that is over."""

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
    """The turn of a message that was accepted, when it is over. How long that takes is for the session's clocks to
    say, and for whoever answers its prompts."""
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
                # One that was cancelled before it began has no start.
                return _collected(accepted["run_id"], message, start or message, event, view.text(), error)
    raise Refused("not_found", "The session was erased while its turn was waited for.")


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
