"""Ends processes that their sessions no longer use: asks each to close, waits, then ends it and everything it started.

Above: the launcher and the runners. They don't wait, but a session's next process starts only after its last one is
gone. Below: launch.py and processes.py. A session in a shared process only leaves it; the last one to leave ends it.
"""

import asyncio
import contextlib
import logging

from perdure.config import ServerSettings
from perdure.core.decision import Decision, World
from perdure.core.errors import Refused, StoreError, StoreFull
from perdure.drivers.base import CloseSession
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import Launch
from perdure.runtime.log.log import Log
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.sharing import Sharing

logger = logging.getLogger(__name__)

RETIRE_EXTRA_S = 10.0
SWEEP_GRACE_S = 0.5


class Retiring:
    def __init__(self, log: Log, settings: ServerSettings, sharing: Sharing) -> None:
        self._log = log
        self._settings = settings
        self._sharing = sharing
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def begin(self, link: AgentLink) -> None:
        task = asyncio.create_task(self._retire(link), name=f"retire {link.launch_id}")
        tasks = self._tasks.setdefault(link.session_id, set())
        tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            tasks.discard(finished)
            if not tasks:
                self._tasks.pop(link.session_id, None)

        task.add_done_callback(done)

    async def wait(self, session_id: str) -> None:
        """Wait for the session's retiring processes: two processes must never use the same native session."""
        while tasks := self._tasks.get(session_id):
            await asyncio.wait(tasks)

    async def _retire(self, link: AgentLink) -> None:
        last, launch = self._sharing.leave(link), link.launch
        try:
            if launch is not None and launch.is_alive():
                await self._send_close(link, launch)
                if last:
                    await self._end(link, launch)
            if last:
                await processes.end_marked([link.launch_id], SWEEP_GRACE_S)
            link.phase = "gone"
            journal = await self._log.open(link.session_id)
            progress = link.note_progress([])
            world = World(now=self._log.stamp())
            await journal.record(lambda state: Decision(state, world), progress=progress, by_owner=journal.is_ours)
        except (StoreError, Refused, OSError, TimeoutError) as error:
            logger.warning("launch %s: could not end it cleanly: %s", link.launch_id, error)
        finally:
            if launch is not None:
                launch.close()
                if last and not launch.is_alive():
                    await launch.forget()

    async def _send_close(self, link: AgentLink, launch: Launch) -> None:
        """Send the protocol's own close. Unlike other lines it isn't stored first: nothing depends on its delivery."""
        async with link.input.lock:
            _, lines = link.perform([CloseSession()])
            if lines:
                # Without disk space or file descriptors, end the process anyway.
                with contextlib.suppress(StoreFull, OSError):
                    launch.write(lines)
                with contextlib.suppress(OSError):
                    link.input.total = launch.repair_input()

    async def _end(self, link: AgentLink, launch: Launch) -> None:
        settings = self._settings
        # A process that exits after each turn may still be writing its native session: allow more time.
        eof_grace_s = settings.eof_grace_s + (RETIRE_EXTRA_S if link.driver.process_per_turn else 0)
        launch.end(eof_grace_s, settings.term_grace_s)
        with contextlib.suppress(TimeoutError, OSError):
            await launch.connect(_nothing, _nothing, RETIRE_EXTRA_S)
            launch.acknowledge(launch.out_size() + (1 << 60), force=True)
        if not await launch.wait_gone(eof_grace_s + settings.term_grace_s + RETIRE_EXTRA_S):
            launch.kill_keeper()
            await launch.wait_gone(RETIRE_EXTRA_S)


def _nothing() -> None:
    pass
