"""Ends commands that still run after their turn was aborted.

An agent that is asked to stop ends the command that it is waiting for. But Codex stops waiting for a command after some
seconds, and then leaves it running. So shortly after the turn's end, this looks for processes that the launch has
started since the first of the turn's open commands, and ends them.

Above: the runner, which passes in the events that it performs. Below: processes.py. Deliberately not ended:

- the agent's own helpers that are older than the command
- a command that an earlier turn sent to the background
- anything in a process that several sessions share: there is no way to tell whose command it is
- anything left when the server stops right then; it ends with the session's process
"""

import asyncio
import logging
import signal

from perdure.core import events as ev
from perdure.core.clock import seconds
from perdure.core.state import Session
from perdure.runtime.keeping import processes
from perdure.runtime.running.agent_link import AgentLink

logger = logging.getLogger(__name__)

GRACE_S = 2.0
KILL_ROUNDS = 3
"""More than one, because a process that is being ended may have started another."""
EARLIER_S = 1.0
"""A command may have started a little before the agent's report of it was stored."""

THINKING_S = 0.05
"""No model runs a command this soon after it receives a message: such a process is the agent's own. The margin also
covers the kernel's process start times, which have a resolution of 10 ms and use another clock."""


class Leftovers:
    def __init__(self) -> None:
        self._stopped: tuple[int | None, float] | None = None
        """The turn that was asked to stop, and when the first of its open commands started."""
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, event: ev.Event, state: Session, link: AgentLink) -> None:
        if isinstance(event, ev.AbortRequested):
            self.stopping(state, link)
        elif isinstance(event, ev.TurnEnd) and self._stopped is not None:
            turn, since = self._stopped
            self._stopped = None
            if turn == event.turn:
                task = asyncio.create_task(end_started(link.launch_id, since, seconds(event.at)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def stopping(self, state: Session, link: AgentLink) -> None:
        """Call when the running turn is asked to stop. Notes when its open commands started."""
        if state.turn is None or not state.turn.commands or link.shared is not None or state.attached is None:
            return
        first = min(map(seconds, state.turn.commands.values()))
        given = seconds(max(state.turn.started_at, state.attached.opened_at or ""))
        self._stopped = (state.turn.turn, max(first - EARLIER_S, given + THINKING_S))


async def end_started(launch_id: str, since: float, until: float) -> None:
    """End the processes that this launch started between `since` and `until` and that still run."""
    signalled: list[int] = []
    for number in (signal.SIGTERM, *[signal.SIGKILL] * KILL_ROUNDS):
        await asyncio.sleep(GRACE_S)
        left = await asyncio.to_thread(processes.started_between, launch_id, since, until, signalled)
        if not left:
            return
        logger.info("launch %s: ending processes that its stopped turn left running: %s", launch_id, left)
        signalled += [pid for pid in left if pid not in signalled]
        for pid in left:
            processes.signal_marked(pid, launch_id, number)
