"""Prepares the start of an agent: the order, the command line, the first lines, and the command that records it.

Above: the runner, which records the start and then spawns the process. Below: agents, drivers, orders. Nothing is
started here.
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
from perdure.drivers.base import LAUNCH_FOLDER, LaunchCommand, Order
from perdure.runtime.keeping.launch import Launch, LaunchSpec
from perdure.runtime.log.journal import Journal
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.sharing import Key, Shared


class Start(NamedTuple):
    link: AgentLink
    record: cmd.PrepareLaunch
    command: LaunchCommand
    lines: list[bytes]
    observations: list[Any]
    """What is known before anything is sent, for example that a running shared process can't do what was ordered."""

    def decide(self, state: Session, world: World) -> Decision:
        """Record launch and observations in one step: a crash must not separate them."""
        decision = decide(state, self.record, world)
        add_facts(decision, self.link.launch_id, self.observations)
        return decision


def _alone(facts: Facts, launcher: Launcher, journal: Journal, agent: str) -> AgentLink:
    """A link to a new process. Other sessions may join it if the agent is configured as shared."""
    state, launch_id = journal.state, launcher.new_launch_id()
    driver = DRIVERS[facts.driver_name(state, agent)]
    shared = launcher.sharing.open(_key(facts, state, agent), launch_id) if facts.agents.shares(agent) else None
    link = AgentLink(
        launch_id=launch_id,
        session_id=state.id,
        agent=agent,
        driver=driver,
        conversation=driver.begin(launch_id),
        performed_seq=journal.decided_seq,
        shared=shared,
    )
    if shared is not None:
        shared.join(link)
    return link


def _joined(facts: Facts, launcher: Launcher, journal: Journal, agent: str) -> AgentLink | None:
    """A link to a running process that serves other sessions, if there is one to join."""
    state = journal.state
    driver = DRIVERS[facts.driver_name(state, agent)]
    if not facts.agents.shares(agent) or not driver.shares:
        return None
    while (shared := launcher.sharing.find(_key(facts, state, agent))) is not None:
        model, launch = shared.model(), Launch.find(launcher.folder, shared.launch_id)
        if shared.over or model is None or launch is None or not launch.is_alive():
            launcher.sharing.end(shared)
            continue
        link = AgentLink(
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
        shared.join(link)
        return link
    return None


def _key(facts: Facts, state: Session, agent: str) -> Key:
    return agent, state.workdir, state.project, facts.agents.facts(agent, state.workdir).fingerprint


def _agent(state: Session) -> str:
    return state.turn.agent if state.working and state.turn is not None else state.agent


def _not_ready_yet(facts: Facts, launcher: Launcher, journal: Journal) -> Shared | None:
    """The shared process that this session will join, if it has not introduced itself yet."""
    agent = _agent(journal.state)
    if not facts.agents.shares(agent):
        return None
    shared = launcher.sharing.find(_key(facts, journal.state, agent))
    return shared if shared is not None and not shared.settled.is_set() else None


async def _give_up_shared(facts: Facts, journal: Journal) -> None:
    """Restart the context if the agent has issued the native session id of this turn a second time since the turn was
    planned."""
    turn = journal.state.turn
    binding = journal.state.bindings.get(turn.agent) if turn is not None and turn.context == "resumed" else None
    if binding is not None and (binding.fingerprint, binding.native_session_id) in journal.log.issued_twice:
        command = cmd.BeginAnew("native_session_shared")
        # Refused if the turn is over.
        with contextlib.suppress(Refused):
            await journal.record(lambda state: decide(state, command, facts.world(state, command)), by_owner=True)


def launch_spec(
    facts: Facts, launcher: Launcher, state: Session, link: AgentLink, command: LaunchCommand
) -> LaunchSpec:
    folder = f"{launcher.folder / link.launch_id}/"
    return LaunchSpec(
        launch_id=link.launch_id,
        argv=[part.replace(LAUNCH_FOLDER, folder, 1) if command.files else part for part in command.argv],
        env={**command.env, **facts.environment(state, link.agent)},
        cwd=state.workdir,
        limits=launcher.limits(),
        cgroup=launcher.groups.make(link.launch_id),
        lease=launcher.lease(),
    )


async def plan_start(
    facts: Facts, launcher: Launcher, journal: Journal, orders: Orders, prepared: int | None
) -> Start | Shared | None:
    """Plan how to start the session's agent: for the running turn or, if there is none, ahead of the next one. If the
    session will join a shared process that has not introduced itself yet, return that: plan again when it is settled.
    `prepared`: the turn, if any, for which the directory is prepared. None if that turn ends meanwhile, or another one
    begins. Raises Refused if the agent can't be started."""
    agent = _agent(journal.state)
    program = await facts.agents.ready(agent)
    await _give_up_shared(facts, journal)
    if journal.state.running_turn != prepared:
        return None
    # No await from here until the link is made: its position must match the state read now, or it would skip orders
    # that are decided in between. And another session could start a process that this one should join.
    if (shared := _not_ready_yet(facts, launcher, journal)) is not None:
        return shared
    state = journal.state
    turn = state.turn if state.working else None
    if _agent(state) != agent:
        program, agent = facts.agents.require(_agent(state)), _agent(state)
    if not os.path.isdir(state.workdir):  # noqa: ASYNC240  one check of a local directory
        gone = f"The working directory {state.workdir} no longer exists. Restore it and retry."
        raise Refused("agent_unavailable", gone)
    driver = DRIVERS[facts.driver_name(state, agent)]
    order = orders.start(turn.native_session_id if turn is not None and turn.context == "resumed" else None)
    link = _joined(facts, launcher, journal, agent) or _alone(facts, launcher, journal, agent)
    launch_id = link.launch_id
    first: list[Order] = [order]
    shortened = None
    try:
        if turn is not None:
            link.input_mark = (turn.turn, -1)
            turn_input = await orders.turn_input()
            first.append(turn_input)
            shortened = turn_input.shortened
        observations, lines = link.perform(first)
    except BaseException:
        launcher.leave(link)
        raise
    known = facts.agents.facts(agent, state.workdir)
    record = cmd.PrepareLaunch(
        turn=turn.turn if turn is not None else None,
        launch_id=launch_id,
        agent=agent,
        driver=driver.name,
        native_session_id=order.native_session_id,
        workdir_id=known.workdir_id,
        fingerprint=known.fingerprint,
        shortened=shortened,
    )
    return Start(link, record, driver.command(program.argv, order, launch_id), lines, observations)
