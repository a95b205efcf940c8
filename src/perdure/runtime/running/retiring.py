"""Processes that their sessions have let go of: each is asked to close, given its time, and ended with all it started.

Above: the launcher and the runners, which don't wait for it; a session's next process waits until its last one is gone.
Below: launch.py and processes.py. A session that shared its process only leaves it: the last one ends it.
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
from perdure.runtime.running.attachment import Attachment
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

    def begin(self, attachment: Attachment) -> None:
        task = asyncio.create_task(self._retire(attachment), name=f"retire {attachment.launch_id}")
        tasks = self._tasks.setdefault(attachment.session_id, set())
        tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            tasks.discard(finished)
            if not tasks:
                self._tasks.pop(attachment.session_id, None)

        task.add_done_callback(done)

    async def wait(self, session_id: str) -> None:
        """Two processes on one native session must never be."""
        while tasks := self._tasks.get(session_id):
            await asyncio.wait(tasks)

    async def _retire(self, attachment: Attachment) -> None:
        last, launch = self._sharing.leave(attachment), attachment.launch
        try:
            if launch is not None and launch.is_alive():
                await self._say_goodbye(attachment, launch)
                if last:
                    await self._end(attachment, launch)
            if last:
                await processes.end_marked([attachment.launch_id], SWEEP_GRACE_S)
            attachment.phase = "gone"
            journal = await self._log.open(attachment.session_id)
            checkpoint = attachment.checkpoint([])
            world = World(now=self._log.stamp())
            await journal.record(lambda state: Decision(state, world), checkpoint=checkpoint, by_owner=journal.is_ours)
        except (StoreError, Refused, OSError, TimeoutError) as error:
            logger.warning("launch %s was not ended cleanly: %s", attachment.launch_id, error)
        finally:
            if launch is not None:
                launch.close()
                if last and not launch.is_alive():
                    await launch.forget()

    async def _say_goodbye(self, attachment: Attachment, launch: Launch) -> None:
        """Not stored before, as other lines are: whether it is said or not, the session is over."""
        async with attachment.input.lock:
            _, lines = attachment.perform([CloseSession()])
            if lines:
                # With no room, or no descriptors: it is ended all the same.
                with contextlib.suppress(StoreFull, OSError):
                    launch.write(lines)
                with contextlib.suppress(OSError):
                    attachment.input.total = launch.repair_input()

    async def _end(self, attachment: Attachment, launch: Launch) -> None:
        settings = self._settings
        # One that ends after each turn still writes its own session: it is given time, and not killed.
        eof_grace_s = settings.eof_grace_s + (RETIRE_EXTRA_S if attachment.driver.process_per_turn else 0)
        launch.end(eof_grace_s, settings.term_grace_s)
        with contextlib.suppress(TimeoutError, OSError):
            await launch.connect(_nothing, _nothing, RETIRE_EXTRA_S)
            launch.acknowledge(launch.out_size() + (1 << 60), force=True)
        if not await launch.wait_gone(eof_grace_s + settings.term_grace_s + RETIRE_EXTRA_S):
            launch.kill_keeper()
            await launch.wait_gone(RETIRE_EXTRA_S)


def _nothing() -> None:
    pass
