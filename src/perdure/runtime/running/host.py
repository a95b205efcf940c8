"""The host: what is alive on this machine. Runners, slots, recovery and the ending of things.

Above: the verbs (sessions.py) and server.py. Below: runners, launches, the log. It never talks to an agent itself.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from perdure.config import Config, Limits, ServerSettings, merged
from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.decision import Decision, World
from perdure.core.digest import budget
from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.core.observations import SessionOpened, StartFailed, TurnFinished
from perdure.core.resume import AgentFacts
from perdure.core.session import decide
from perdure.core.slots import can_be_suspended
from perdure.core.transcript import History
from perdure.drivers import DRIVERS
from perdure.drivers.lines import MAX_LINE_BYTES
from perdure.runtime.agents.abilities import Abilities
from perdure.runtime.agents.registry import Agents
from perdure.runtime.keeping.cgroups import ControlGroups
from perdure.runtime.keeping.launch import LaunchLimits
from perdure.runtime.log.compactor import Compactor
from perdure.runtime.log.log import Journal, Log
from perdure.runtime.log.quarantine import refusal
from perdure.runtime.log.reading import of_turns
from perdure.runtime.running.attachment import READ_BYTES, Attachment
from perdure.runtime.running.clocks import Clocks
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.placement import Slots
from perdure.runtime.running.recovery import Recovery
from perdure.runtime.running.retiring import RETIRE_EXTRA_S, Retiring
from perdure.runtime.running.runner import Runner
from perdure.runtime.running.sharing import Sharing
from perdure.runtime.verbs.enclosures import Enclosures
from perdure.runtime.verbs.projects import Projects
from perdure.stores.base import Found, Query, Receipt

logger = logging.getLogger(__name__)

SPAWNS_AT_ONCE = 4
DISK_REPORT_S = 60.0
DISK_FULL_FOR_S = 3.0


class Host:
    def __init__(self, log: Log, agents: Agents, projects: Projects, config: Config, data: Path) -> None:
        self.log = log
        self.agents = agents
        self.projects = projects
        self.config = config
        self.settings: ServerSettings = config.server
        self.launches_root = data / "launches"
        self.spawning = asyncio.Semaphore(SPAWNS_AT_ONCE)
        self.runners: dict[str, Runner] = {}
        self.disk_full_at: float | None = None
        self._disk_reported_at: float | None = None
        self.on_fenced: Callable[[], None] | None = None
        self.enclosures = Enclosures(data / "attachments", config.server.max_attachment_bytes)
        self.compactor = Compactor(log)
        self.retiring = Retiring(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._install_id = ""
        self._stopping = False
        self.slots = Slots(self)
        self.sharing, self.groups = Sharing(), ControlGroups()
        self.clocks = Clocks(self)

    # Start and stop ----------------------------------------------------------------------------------------------

    async def start(self, install_id: str) -> None:
        """Take up everything that an earlier server left: launches, half-done turns, waiting messages."""
        self._install_id = install_id
        self.launches_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log.quarantine.open(self.launches_root.parent / "quarantine")
        await self.log.recall_given()
        await self.agents.recall(self.log.store)
        self._background(self.agents.survey(self.log.store))
        self.log.on_turn_ended = self.compactor.add
        self.compactor.start()
        recovery = Recovery(self, install_id)
        await recovery.take_up()
        await self.clocks.start()
        self._background(recovery.survey())

    async def found(self, *, status: str, state: str | None) -> AsyncIterator[Found]:
        cursor = None
        while True:
            page = await self.log.store.list_sessions(Query(status=status, state=state, limit=500, cursor=cursor))
            for found in page.found:
                if isinstance(found.session_id, str):
                    yield found
                else:
                    self.log.quarantine.add("session", repr(found.session_id), None, "its id is not text")
            cursor = page.next_cursor
            if cursor is None:
                return

    async def readable(self, found: Found) -> Journal | None:
        """Its journal; None if it is damaged and set aside, or was erased meanwhile."""
        try:
            return await self.log.open(found.session_id)
        except Refused as refusal:
            logger.warning("session %s is left out: %s", found.session_id, refusal.detail)
            return None

    async def stop(self, *, stop_agents: bool = False) -> None:
        """Idle agents are ended; a running turn is left to its keeper, for the next server; with `stop_agents` every
        agent is ended, and turns end as cancelled."""
        await self.clocks.stop()
        if stop_agents:
            await self._abort_all()
        for runner in list(self.runners.values()):
            if not runner.journal.state.working:
                try:
                    await self.suspend(runner.journal, "server_stopped")
                except StoreError as error:
                    logger.warning("session %s is left to its keeper: %s", runner.journal.state.id, error)
        graces = self.settings.eof_grace_s + self.settings.term_grace_s + RETIRE_EXTRA_S
        try:
            async with asyncio.timeout(graces):
                while any(_let_go(runner) for runner in self.runners.values()) or self.retiring:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            logger.warning("some agents did not end in time; their keepers go on ending them")
        await self.abandon()

    async def abandon(self) -> None:
        """Let go of everything at once, as after a start that failed. Keepers go on, for the next server."""
        self._stopping = True
        await self.clocks.stop()
        for runner in list(self.runners.values()):
            # All at once: one may wait for what another holds.
            runner.stopping = True
            runner.wake()
        for runner in list(self.runners.values()):
            await runner.stop()
        await self.compactor.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _abort_all(self) -> None:
        for runner in list(self.runners.values()):
            for queued in list(runner.journal.state.queue):
                await self.command(runner.journal, cmd.UnqueueMessage(queued.message_id), quietly=True)
            await self.command(runner.journal, cmd.AbortTurn("person"), quietly=True)
        try:
            async with asyncio.timeout(self.settings.abort_grace_s + self.settings.term_grace_s + RETIRE_EXTRA_S):
                while any(runner.journal.state.working for runner in self.runners.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            logger.warning("some turns did not end in time")

    def fenced(self) -> None:
        if self.on_fenced is not None:
            self.on_fenced()

    def disk_is_full(self) -> None:
        now = self.log.steady()
        if self._disk_reported_at is None or now - self._disk_reported_at >= DISK_REPORT_S:
            logger.error("the disk is full: agents wait, and nothing is lost; make room to go on")
            self._disk_reported_at = now
        self.disk_full_at = now

    @property
    def is_disk_full(self) -> bool:
        """Whether agents wait for room: something could not be stored a moment ago (a retry follows each second), or
        the disk has less room than the floor below which keepers stop reading."""
        if self.disk_full_at is not None and self.log.steady() - self.disk_full_at < DISK_FULL_FOR_S:
            return True
        disk = os.statvfs(self.launches_root)
        return disk.f_bavail * disk.f_frsize < self.launch_limits().disk_floor_bytes

    # Facts for the machine ---------------------------------------------------------------------------------------

    def world(self, state: st.Session) -> World:
        return World(
            now=self.log.stamp(),
            facts_of=lambda agent: self.facts(state, agent),
            rules=tuple(self.projects.rules(state.project)),
            scope=self.projects.history_scope(state.project),
            given_twice=self.log.given_twice,
            keeps_slot=not state.queue or self.slots.keeps(state),
        )

    def facts(self, state: st.Session, agent: str) -> AgentFacts:
        facts = self.agents.facts(agent, state.workdir)
        never = self.projects.resume(state.project) == "never"
        return msgspec.structs.replace(facts, resume="never") if never else facts

    def transcript_tokens(self, state: st.Session, agent: str) -> int:
        """How much of a long history this agent is told: as it is set up, or by what its model was seen to hold."""
        settings = self.agents.settings(agent)
        model = _model(state, agent) or settings.model or ""
        configured = settings.model_transcript_tokens.get(model) or settings.transcript_tokens
        sizes = self.agents.abilities.get(agent, Abilities()).context_sizes
        shortened = state.shortened.get(agent, 0)
        if state.working and state.turn is not None and state.turn.agent == agent:
            shortened = max(shortened, state.turn.shortened)
        # Of a model that is not known, the smallest is expected.
        return budget(configured, sizes.get(model) or min(sizes.values(), default=None), shortened)

    def learn_size(self, state: st.Session, agent: str, size: int) -> None:
        """How much an agent's model can hold, as it says."""
        before = self.agents.abilities.get(agent, Abilities())
        sizes = {**before.context_sizes, _model(state, agent) or "": size}
        self._know(agent, msgspec.structs.replace(before, context_sizes=sizes))

    def driver_name(self, state: st.Session, agent: str) -> str:
        """How this session speaks to an agent: as it fell back to, as the project says, or as the agent is set up."""
        return state.drivers.get(agent) or self.agents.driver(agent, self.projects.runner_mode(state.project))

    def start_defaults(self, state: st.Session, agent: str) -> tuple[str | None, str | None, dict[str, Any]]:
        """Model, mode and options with which an agent starts: the session's own first, then the agent's."""
        settings = self.agents.settings(agent)
        options = [msgspec.to_builtins(each) for each in (settings.options, self.projects.options(state.project))]
        servers = {name: server for each in options for name, server in each.pop("mcp_servers", {}).items()}
        joined = {**options[0], **options[1], "mcp_servers": servers, "shared": settings.shared}
        joined.pop("env", None)
        return state.model or settings.model, state.mode or settings.mode, joined

    def instructions(self, state: st.Session) -> str:
        return self.projects.instructions(state.project)

    def environment(self, state: st.Session, agent: str) -> dict[str, str]:
        return {**self.agents.environment(agent), **self.projects.options(state.project).env}

    def learn(self, agent: str, fact: SessionOpened | StartFailed | TurnFinished | ev.Config) -> None:
        """Keep what an agent says of itself, so that the next decision and the agent list know it."""
        self._know(agent, self.agents.abilities.get(agent, Abilities()).after(fact))

    def _know(self, agent: str, known: Abilities) -> None:
        if self.agents.abilities.get(agent, Abilities()) != known:
            self.agents.abilities[agent] = known
            body = msgspec.json.encode(known)
            self._background(self.log.store.put_document("agent", agent, body))

    async def history(
        self, session_id: str, from_turn: int = 1, to_turn: int | None = None, upto: int | None = None
    ) -> History:
        """What was said, from this turn to that one, up to a position or to the end that there is now."""
        history = History(pictures=False)
        history.seq = (await self.log.open(session_id)).last_seq if upto is None else upto
        try:
            async for batch in of_turns(self.log.store, session_id, from_turn, to_turn, history.seq):
                for row in batch:
                    history.fold(ev.decode(row.body))
        except UNREADABLE as error:
            raise refusal(session_id, f"an event can't be read ({error})") from error
        return history

    def launch_limits(self) -> LaunchLimits:
        settings = self.settings
        return LaunchLimits(
            # The longest line must fit, or its end would never come.
            spool_limit_bytes=max(settings.spool_limit_mb * 1024 * 1024, MAX_LINE_BYTES + READ_BYTES),
            disk_floor_bytes=settings.disk_floor_mb * 1024 * 1024,
            orphan_quiet_s=settings.orphan_quiet_s,
            orphan_max_s=settings.orphan_max_s,
        )

    def orphan_limits(self, *, waits: bool) -> tuple[float, float]:
        """How long an agent without a server may be quiet, and how long it may go on: longer if a person is asked."""
        settings = self.settings
        asking = (settings.orphan_prompt_s, settings.orphan_prompt_s)
        return asking if waits else (settings.orphan_quiet_s, settings.orphan_max_s)

    def new_launch_id(self) -> str:
        return f"{self._install_id}-{secrets.token_hex(6)}"

    def orders(self, journal: Journal) -> Orders:
        given = (self.history, self.start_defaults, self.instructions, self.transcript_tokens, self.enclosures.shown)
        return Orders(journal, *given)

    # Runners -------------------------------------------------------------------------------------------------------

    def make_runner(self, journal: Journal, *, prewarm: bool = False) -> Runner:
        runner = self.runners[journal.state.id] = Runner(self, journal, prewarm=prewarm)
        return runner

    def prewarm(self, journal: Journal, *, asked: bool = False) -> None:
        """Start the agent of a new session, so that its first message finds it ready."""
        state = journal.state
        driver = self.driver_name(state, state.agent)
        wanted = self.agents.prewarms(state.agent, driver) or (asked and not DRIVERS[driver].process_per_turn)
        if state.id not in self.runners and wanted:
            self.make_runner(journal, prewarm=True).start()

    def ensure_runner(self, journal: Journal) -> None:
        # A turn that was recorded while the server stops is begun by the next one.
        if not self._stopping and journal.state.id not in self.runners and journal.state.working:
            self.make_runner(journal).start()

    def left(self, attachment: Attachment) -> None:
        """A session that was about to use a process does not. If nobody else does, the process is ended."""
        if self.sharing.leave(attachment) and attachment.launch is not None:
            self.retiring.begin(attachment)

    def dropped(self, runner: Runner) -> None:
        """A runner has nothing left to do. Called with no await between its last look and this."""
        runner.journal.follower = None
        self.runners.pop(runner.journal.state.id, None)

    async def let_go(self, session_id: str) -> None:
        """Until nothing of this session is alive any more."""
        runner = self.runners.get(session_id)
        if runner is not None and runner.task is not None:
            runner.wake()
            await asyncio.wait([runner.task])
        await self.retiring.wait(session_id)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        """For what is remembered to save time: where there is no room for it, it is found out again."""

        async def remembered() -> None:
            try:
                await work
            except StoreError as error:
                logger.warning("something was not remembered: %s", error)

        task = asyncio.create_task(remembered())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Acts ------------------------------------------------------------------------------------------------------------

    async def record(
        self, journal: Journal, command: cmd.Command, receipt: Callable[[Decision, int], Receipt] | None = None
    ) -> Decision:
        """Decide and commit, and have what it began worked on, even if whoever asked for it is gone by then."""

        async def recorded() -> Decision:
            made = await journal.record(lambda state: decide(state, command, self.world(state)), receipt=receipt)
            self.ensure_runner(journal)
            return made[0]

        return await self.log.shielded(recorded())

    async def command(self, journal: Journal, command: cmd.Command, *, quietly: bool = False) -> None:
        try:
            await self.record(journal, command)
        except Refused:
            if not quietly:
                raise

    async def go_on(self, journal: Journal, text: str) -> None:
        """A usage limit has reset: send what waits, or `text`. With no free slot it is tried again later."""
        state = journal.state
        try:
            async with self.slots.taken(state.id, state.project, state.workdir):
                await self.command(journal, cmd.EndWait(text), quietly=True)
        except Refused as refusal:
            logger.info("session %s waits on: %s", state.id, refusal.detail)
            self.log.wakeups.announce(state.id)

    async def suspend(self, journal: Journal, reason: str) -> None:
        await self.command(journal, cmd.DetachAgent(reason), quietly=True)

    async def vacate(self, runner: Runner) -> None:
        """Let go of a process that has to end, once nothing runs in it for this session."""
        attachment, state = runner.attachment, runner.journal.state
        if attachment is not None and attachment.launch_id in self.sharing.ending and can_be_suspended(state):
            await self.suspend(runner.journal, "process_ended")

    async def end_session(self, journal: Journal, command: cmd.EndSession) -> None:
        await self.command(journal, command, quietly=True)

    def limits(self, project: str | None, session: dict[str, object]) -> Limits:
        return merged(self.config.limits, self.projects.limits(project), session)


def _model(state: st.Session, agent: str) -> str | None:
    """The model of an agent of this session, as it was chosen or as the agent says, also while another one has it."""
    kept = state.choices.get(agent, {})
    model, models = (state.model, state.models) if agent == state.agent else (kept.get("model"), kept.get("models"))
    return model or (models or {}).get("currentModelId")


def _let_go(runner: Runner) -> bool:
    """Whether its session has no process any more, and no turn that wants one."""
    return runner.journal.state.attached is None and not runner.journal.state.working
