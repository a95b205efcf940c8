"""What is needed to start an agent for a session: the order, the command line, the first lines, and what is recorded.

Above: the runner, which records it, then spawns. Below: agents, drivers, orders. Nothing is started here.
"""

import contextlib
import os
from typing import Any, NamedTuple

from perdure.core import commands as cmd
from perdure.core.decision import Decision, World
from perdure.core.errors import Refused
from perdure.core.observe import add_facts
from perdure.core.session import decide
from perdure.core.state import Session
from perdure.drivers import DRIVERS
from perdure.drivers.base import LAUNCH_FOLDER, Command, Order, SharingDriver
from perdure.runtime.keeping.launch import Launch, LaunchSpec
from perdure.runtime.log.journal import Journal
from perdure.runtime.running.attachment import Attachment
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.sharing import Key, Shared


class Start(NamedTuple):
    attachment: Attachment
    record: cmd.PrepareLaunch
    command: Command
    lines: list[bytes]
    told: list[Any]
    """What is known before anything is sent: a process that is there already may not be able to do it."""

    def decide(self, state: Session, world: World) -> Decision:
        """One step, so that a crash can't keep the launch and lose what was told."""
        decision = decide(state, self.record, world)
        add_facts(decision, self.attachment.launch_id, self.told)
        return decision


def _alone(facts: Facts, launcher: Launcher, journal: Journal, agent: str) -> Attachment:
    """To a process of its own; one that others may join, if the agent is set up so."""
    state, launch_id = journal.state, launcher.new_launch_id()
    driver = DRIVERS[facts.driver_name(state, agent)]
    shared = launcher.sharing.open(_key(facts, state, agent), launch_id) if facts.agents.shares(agent) else None
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


def _joined(facts: Facts, launcher: Launcher, journal: Journal, agent: str) -> Attachment | None:
    """To a process that serves other sessions already, if there is one."""
    state = journal.state
    driver = DRIVERS[facts.driver_name(state, agent)]
    if not facts.agents.shares(agent) or not isinstance(driver, SharingDriver):
        return None
    while (shared := launcher.sharing.find(_key(facts, state, agent))) is not None:
        model, launch = shared.model(), Launch.find(launcher.folder, shared.launch_id)
        if shared.over or model is None or launch is None or not launch.is_alive():
            launcher.sharing.end(shared)
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


def _key(facts: Facts, state: Session, agent: str) -> Key:
    return agent, state.workdir, state.project, facts.agents.facts(agent, state.workdir).fingerprint


def _agent(state: Session) -> str:
    return state.turn.agent if state.working and state.turn is not None else state.agent


def not_ready_yet(facts: Facts, launcher: Launcher, journal: Journal) -> Shared | None:
    """A process that this session will share, and that has not introduced itself yet."""
    agent = _agent(journal.state)
    if not facts.agents.shares(agent):
        return None
    shared = launcher.sharing.find(_key(facts, journal.state, agent))
    return shared if shared is not None and not shared.settled.is_set() else None


async def _give_up_shared(facts: Facts, journal: Journal) -> None:
    """Since the turn was planned, the agent may have given the id of its own session to somebody else."""
    turn = journal.state.turn
    binding = journal.state.bindings.get(turn.agent) if turn is not None and turn.context == "resumed" else None
    if binding is not None and (binding.fingerprint, binding.native_session_id) in journal.log.given_twice:
        command = cmd.BeginAnew("native_session_shared")
        # Refused: that turn is over.
        with contextlib.suppress(Refused):
            await journal.record(lambda state: decide(state, command, facts.world(state, command)), by_owner=True)


def launch_spec(
    facts: Facts, launcher: Launcher, state: Session, attachment: Attachment, command: Command
) -> LaunchSpec:
    folder = f"{launcher.folder / attachment.launch_id}/"
    return LaunchSpec(
        launch_id=attachment.launch_id,
        argv=[part.replace(LAUNCH_FOLDER, folder, 1) if command.files else part for part in command.argv],
        env={**command.env, **facts.environment(state, attachment.agent)},
        cwd=state.workdir,
        limits=launcher.limits(),
        cgroup=launcher.groups.make(attachment.launch_id),
        lease=launcher.lease(),
    )


async def plan_start(facts: Facts, launcher: Launcher, journal: Journal, orders: Orders) -> Start | None:
    """How the session's agent is to be started, for the running turn or, while none runs, to be warm for the next. None
    if the turn ends meanwhile. Raises Refused where it can't be started."""
    agent = _agent(journal.state)
    program, was_working = await facts.agents.ready(agent), journal.state.working
    await _give_up_shared(facts, journal)
    if was_working and not journal.state.working:
        return None
    # From here on no await until the attachment is made: what it has performed is what is decided at this moment, and
    # whatever is decided later is performed later.
    state = journal.state
    turn = state.turn if state.working else None
    if _agent(state) != agent:
        program, agent = facts.agents.require(_agent(state)), _agent(state)
    if not os.path.isdir(state.workdir):  # noqa: ASYNC240  one look at a local directory
        raise Refused("agent_unavailable", f"The working directory {state.workdir} is not there any more.")
    driver = DRIVERS[facts.driver_name(state, agent)]
    order = orders.start(turn.native_session_id if turn is not None and turn.context == "resumed" else None)
    attachment = _joined(facts, launcher, journal, agent) or _alone(facts, launcher, journal, agent)
    launch_id = attachment.launch_id
    first: list[Order] = [order]
    told = None
    try:
        if turn is not None:
            attachment.prompt_mark = (turn.turn, -1)
            prompt = await orders.prompt()
            first.append(prompt)
            told = prompt.told
        observations, lines = attachment.perform(first)
    except BaseException:
        launcher.leave(attachment)
        raise
    known = facts.agents.facts(agent, state.workdir)
    record = cmd.PrepareLaunch(
        launch_id=launch_id,
        agent=agent,
        driver=driver.name,
        native_session_id=order.native_session_id,
        workdir_id=known.workdir_id,
        fingerprint=known.fingerprint,
        told=told,
    )
    return Start(attachment, record, driver.command(program.argv, order, launch_id), lines, observations)
