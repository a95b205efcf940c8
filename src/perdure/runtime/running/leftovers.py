"""Commands that go on although their turn was stopped, and how they are ended.

An agent that is asked to stop ends the command that it waits for. Codex leaves one running that it no longer waits for,
as it does after some seconds. So this looks, a moment after the turn's end, for what the launch has started since the
first of the turn's open commands, and ends that.

Above: the runner, which shows the events that it performs. Below: processes.py. Deliberately left alone: the agent's
own helpers, as far as they are older than the command; a command that an earlier turn sent to the background;
everything in a process that several sessions share, since nobody can say whose command it is; and what a server that
ends in that moment has not ended yet, which then ends with the session's process.
"""

import asyncio
import logging
import signal

from perdure.core import events as ev
from perdure.core.clock import seconds
from perdure.core.state import Session
from perdure.runtime.keeping import processes
from perdure.runtime.running.attachment import Attachment

logger = logging.getLogger(__name__)

GRACE_S = 2.0
KILL_ROUNDS = 3
"""What is being ended may have started another in the meantime."""
EARLIER_S = 1.0
"""A command may have started a little before the moment at which the agent's report of it was stored."""

THINKING_S = 0.05
"""No model runs a command as soon as it is given its message: what started so soon is the agent's own. The kernel
counts ages in steps of 10 ms, and by another clock."""


class Leftovers:
    def __init__(self) -> None:
        self._stopped: tuple[int | None, float] | None = None
        """The turn that was asked to stop, and the moment since which its open commands run."""
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, event: ev.Event, state: Session, attachment: Attachment) -> None:
        if isinstance(event, ev.AbortRequested):
            self.stopping(state, attachment)
        elif isinstance(event, ev.TurnEnd) and self._stopped is not None:
            turn, since = self._stopped
            self._stopped = None
            if turn == event.turn:
                task = asyncio.create_task(end_started(attachment.launch_id, since, seconds(event.at)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def stopping(self, state: Session, attachment: Attachment) -> None:
        """The running turn is asked to stop: note which commands are open."""
        if state.turn is None or not state.turn.commands or attachment.shared is not None or state.attached is None:
            return
        first = min(map(seconds, state.turn.commands.values()))
        given = seconds(max(state.turn.started_at, state.attached.opened_at or ""))
        self._stopped = (state.turn.turn, max(first - EARLIER_S, given + THINKING_S))


async def end_started(launch_id: str, since: float, until: float) -> None:
    """End the processes that this launch started between these moments and that still run."""
    signalled: list[int] = []
    for number in (signal.SIGTERM, *[signal.SIGKILL] * KILL_ROUNDS):
        await asyncio.sleep(GRACE_S)
        left = await asyncio.to_thread(processes.started_between, launch_id, since, until, signalled)
        if not left:
            return
        logger.info("launch %s: ending what its stopped turn left running: %s", launch_id, left)
        signalled += [pid for pid in left if pid not in signalled]
        for pid in left:
            processes.signal_marked(pid, launch_id, number)
