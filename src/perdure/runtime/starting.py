"""What is needed to start an agent for a session: the order, the command line, the first lines, and what is recorded.

Above: the runner, which records it, then spawns. Below: agents, drivers, orders. Nothing is started here.
"""

import os
from typing import TYPE_CHECKING, NamedTuple

from perdure.core import commands as cmd
from perdure.core.errors import Refused
from perdure.drivers import DRIVERS
from perdure.drivers.base import Command, Order
from perdure.runtime.attachment import Attachment
from perdure.runtime.log import Journal
from perdure.runtime.orders import Orders

if TYPE_CHECKING:
    from perdure.runtime.host import Host


class Start(NamedTuple):
    attachment: Attachment
    record: cmd.PrepareLaunch
    command: Command
    lines: list[bytes]


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
    launch_id = host.new_launch_id()
    order = orders.start(turn.native_session_id if turn is not None and turn.context == "resumed" else None)
    attachment = Attachment(
        launch_id=launch_id,
        session_id=state.id,
        agent=agent,
        driver=driver,
        conversation=driver.begin(launch_id),
        performed_seq=journal.decided_seq,
    )
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
