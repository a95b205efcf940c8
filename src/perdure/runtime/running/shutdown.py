"""Graceful shutdown: end idle agents, and leave running turns to their keepers for the next server.

Above: engine.py. Below: commands and runners.
"""

import asyncio
import logging

from perdure.core import commands as cmd
from perdure.core.errors import StoreError
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.retiring import RETIRE_EXTRA_S
from perdure.runtime.running.runner import Runner
from perdure.runtime.running.runners import Runners

logger = logging.getLogger(__name__)

LOOK_S = 0.01


async def end_idle_agents(runners: Runners, commands: Commands, launcher: Launcher) -> None:
    for runner in runners:
        if not runner.journal.state.working:
            try:
                await commands.suspend(runner.journal, "server_stopped")
            except StoreError as error:
                logger.warning("session %s: leaving its agent to the keeper: %s", runner.journal.state.id, error)
    settings = launcher.settings
    try:
        async with asyncio.timeout(settings.eof_grace_s + settings.term_grace_s + RETIRE_EXTRA_S):
            while any(_is_released(runner) for runner in runners) or launcher.retiring:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        logger.warning("some agents did not end in time; their keepers will end them")


async def abort_all(runners: Runners, commands: Commands, launcher: Launcher) -> None:
    """Abort every running turn, and first withdraw the messages that are queued behind it. Turns that have not begun
    yet begin after the next start."""
    for runner in runners:
        if not runner.journal.state.working:
            continue
        for queued in list(runner.journal.state.queue):
            await commands.quietly(runner.journal, cmd.UnqueueMessage(queued.message_id))
        await commands.quietly(runner.journal, cmd.AbortTurn("person"))
    settings = launcher.settings
    try:
        async with asyncio.timeout(settings.abort_grace_s + settings.term_grace_s + RETIRE_EXTRA_S):
            while any(state.working for state in runners.states()):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        logger.warning("some turns did not stop in time; leaving them to their keepers")


def _is_released(runner: Runner) -> bool:
    """Whether its session has neither a process nor a running turn, so that the runner is about to end."""
    return runner.journal.state.attached is None and not runner.journal.state.working
