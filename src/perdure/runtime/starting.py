"""What is needed to start an agent for a session: the order, the command line, the first lines, and what is recorded.

Above: the runner, which records it, then spawns. Below: agents, drivers, orders. Nothing is started here.
"""

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from perdure.core import commands as cmd
from perdure.core.errors import Refused
from perdure.core.state import Session
from perdure.drivers import DRIVERS
from perdure.drivers.base import Command, Order, SharingDriver
from perdure.runtime.attachment import Attachment
from perdure.runtime.launch import Launch
from perdure.runtime.log import Journal
from perdure.runtime.orders import Orders
from perdure.runtime.sharing import Key

if TYPE_CHECKING:
    from perdure.runtime.host import Host


class Start(NamedTuple):
    attachment: Attachment
    record: cmd.PrepareLaunch
    command: Command
    lines: list[bytes]


def _alone(host: "Host", journal: Journal, agent: str) -> Attachment:
    """To a process of its own; one that others may join, if the agent is set up so."""
    state, launch_id = journal.state, host.new_launch_id()
    driver = DRIVERS[host.driver_name(state, agent)]
    shared = host.sharing.open(_key(state, agent), launch_id) if host.agents.settings(agent).shared else None
    attachment = Attachment(
        launch_id=launch_id,
        session_id=state.id,
        agent=agent,
        driver=driver,
        conversation=driver.begin(launch_id),
        performed_seq=journal.decided_seq,
        shared=shared,
    )
    if shared is not None:
        shared.join(attachment)
    return attachment


async def _joined(host: "Host", journal: Journal, agent: str) -> Attachment | None:
    """To a process that serves other sessions already, if there is one."""
    state = journal.state
    driver = DRIVERS[host.driver_name(state, agent)]
    if not host.agents.settings(agent).shared or not isinstance(driver, SharingDriver):
        return None
    while (shared := host.sharing.find(_key(state, agent))) is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(shared.settled.wait(), host.settings.start_timeout_s)
        model, launch = shared.model(), Launch.find(host.launches_root, shared.launch_id)
        if shared.over or model is None or launch is None or not launch.is_alive():
            host.sharing.end(shared)
            continue
        attachment = Attachment(
            launch_id=shared.launch_id,
            session_id=state.id,
            agent=agent,
            driver=driver,
            conversation=driver.join(model, shared.next_number()),
            launch=launch,
            offset=shared.offset,
            performed_seq=journal.decided_seq,
            shared=shared,
        )
        shared.join(attachment)
        return attachment
    return None


def _key(state: Session, agent: str) -> Key:
    return agent, state.workdir, state.project


async def plan_start(host: "Host", journal: Journal, orders: Orders) -> Start:
    """How the session's agent is to be started, for the running turn or, while none runs, to be warm for the next.
    Raises Refused where it can't be."""
    state = journal.state
    turn = state.turn if state.working else None
    agent = turn.agent if turn is not None else state.agent
    program = await host.agents.ready(agent)
    if not os.path.isdir(state.workdir):  # noqa: ASYNC240  one look at a local directory
        raise Refused("agent_unavailable", f"The working directory {state.workdir} is not there any more.")
    driver = DRIVERS[host.driver_name(state, agent)]
    order = orders.start(turn.native_session_id if turn is not None and turn.context == "resumed" else None)
    attachment = await _joined(host, journal, agent) or _alone(host, journal, agent)
    launch_id = attachment.launch_id
    first: list[Order] = [order]
    if turn is not None:
        attachment.prompt_mark = (turn.turn, -1)
        first.append(await orders.prompt())
    _, lines = attachment.perform(first)
    facts = host.agents.facts(agent, state.workdir)
    record = cmd.PrepareLaunch(
        launch_id=launch_id,
        agent=agent,
        driver=driver.name,
        native_session_id=order.native_session_id,
        workdir_id=facts.workdir_id,
        fingerprint=facts.fingerprint,
    )
    return Start(attachment, record, driver.command(program.argv, order, launch_id), lines)
