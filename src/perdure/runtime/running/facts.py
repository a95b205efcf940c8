"""What decisions and launches must know of agents, projects and settings, gathered beforehand and passed as values.

Above: commands, runners and the verbs. Below: the registry of agents, projects, the configuration. The machine calls
nothing: whatever it may need to know of this machine is in the World that is made here, before it decides.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from perdure.config import Config, Limits, ServerSettings, merged
from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.decision import World
from perdure.core.digest import budget
from perdure.core.errors import Refused, StoreError
from perdure.core.observations import SessionOpened, StartFailed, TurnFinished
from perdure.core.state import Session, WaitsFor
from perdure.runtime.agents.abilities import Abilities
from perdure.runtime.agents.registry import OFFERS, Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.log.log import Log

logger = logging.getLogger(__name__)

SENDS = (cmd.SubmitMessage, cmd.RetryTurn, cmd.EndWait)
"""Commands that start a turn with a message of their own."""


class Facts:
    def __init__(self, log: Log, agents: Agents, projects: Projects, config: Config) -> None:
        self._log = log
        self.agents = agents
        self.projects = projects
        self.config = config
        self.settings: ServerSettings = config.server
        self._limits = merged(config.limits)
        self.has_slots = bool(config.slots or config.server.project_slots)
        self.slot_of_queue: Callable[[Session], WaitsFor | None] = lambda state: None
        """What the next queued message of a session would wait for."""
        self._tasks: set[asyncio.Task[None]] = set()

    # For the machine ---------------------------------------------------------------------------------------------

    def world(self, state: Session, command: cmd.Command | None = None, waits_for: WaitsFor | None = None) -> World:
        """For a decision on this state: a command, or facts of its agent. `waits_for`: why no turn may begin in it."""
        agents = {queued.agent or state.agent for queued in state.queue}
        if state.accepted is not None:
            agents.add(state.accepted.agent or state.agent)
        if isinstance(command, SENDS):
            agents.add(getattr(command, "agent", None) or state.agent)
        if waits_for is None and not isinstance(command, cmd.BeginTurn):
            # A message that follows one that waits has no slot either, and waits in its place.
            waits_for = state.waits_for
            if waits_for is None and (state.queue or state.phase == "accepted"):
                waits_for = self.slot_of_queue(state)
        facts = {}
        project = self.projects.settings_of(state.project) if state.project is not None else None
        for agent in agents:
            # One that is not configured here any more is left out.
            with contextlib.suppress(Refused):
                known = self.agents.facts(agent, state.workdir)
                never = project is not None and project.resume == "never"
                facts[agent] = msgspec.structs.replace(known, resume="never") if never else known
        journal = self._log.journals.get(state.id)
        return World(
            # Nodes and machines may differ a little; a session's events are in order.
            now=max(self._log.stamp(), state.last_active_at, journal.happened_at if journal is not None else ""),
            facts=facts,
            rules=tuple(project.permissions) if project is not None else (),
            scope=project.history_scope if project is not None else "all",
            given_twice=self._log.given_twice,
            waits_for=waits_for,
        )

    def limits(self, project: str | None, session: dict[str, object]) -> Limits:
        if project is None and not session:
            return self._limits
        return merged(self.config.limits, self.projects.limits(project), session)

    # For a launch ------------------------------------------------------------------------------------------------

    def driver_name(self, state: Session, agent: str) -> str:
        """How this session speaks to an agent: as it fell back to, as the project says, or as the agent is set up."""
        return state.drivers.get(agent) or self.agents.driver(agent, self.projects.runner_mode(state.project))

    def start_defaults(self, state: Session, agent: str) -> tuple[str | None, str | None, dict[str, Any]]:
        """Model, mode and options with which an agent starts: the session's own first, then the agent's."""
        settings = self.agents.settings(agent)
        options = [msgspec.to_builtins(each) for each in (settings.options, self.projects.options(state.project))]
        servers = {name: server for each in options for name, server in each.pop("mcp_servers", {}).items()}
        joined = {**options[0], **options[1], "mcp_servers": servers, "shared": settings.shared}
        joined.pop("env", None)
        return state.model or settings.model, state.mode or settings.mode, joined

    def instructions(self, state: Session) -> str:
        return self.projects.instructions(state.project)

    def environment(self, state: Session, agent: str) -> dict[str, str]:
        return {**self.agents.environment(agent), **self.projects.options(state.project).env}

    def transcript_tokens(self, state: Session, agent: str) -> int:
        """How much of a long history this agent gets: as it is set up, or by what its model was seen to hold."""
        settings = self.agents.settings(agent)
        model = _model(state, agent) or settings.model or ""
        configured = settings.model_transcript_tokens.get(model) or settings.transcript_tokens
        sizes = self.agents.abilities.get(agent, Abilities()).context_sizes
        shortened = state.shortened.get(agent, 0)
        if state.working and state.turn is not None and state.turn.agent == agent:
            shortened = max(shortened, state.turn.shortened)
        # Of a model that is not known, the smallest is expected.
        return budget(configured, sizes.get(model) or min(sizes.values(), default=None), shortened)

    # What agents say of themselves -------------------------------------------------------------------------------

    def learn(self, agent: str, fact: SessionOpened | StartFailed | TurnFinished | ev.Config) -> None:
        """Keep what an agent says of itself, so that the next decision and the agent list know it."""
        self._know(agent, self.agents.abilities.get(agent, Abilities()).after(fact))

    def learn_size(self, state: Session, agent: str, size: int) -> None:
        """How much an agent's model can hold, as it says."""
        before = self.agents.abilities.get(agent, Abilities())
        sizes = {**before.context_sizes, _model(state, agent) or "": size}
        self._know(agent, msgspec.structs.replace(before, context_sizes=sizes))

    def _know(self, agent: str, known: Abilities) -> None:
        if self.agents.abilities.get(agent, Abilities()) != known:
            self.agents.abilities[agent] = known
            body = msgspec.json.encode(known)
            # With several nodes: what this one knows, and what the others show until they know better.
            for kind in {self.agents.documents, OFFERS}:
                self.keep(self._log.store.put_document(kind, agent, body))

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Save in the background what only saves time: where there is no room for it, it is found out again."""

        async def saved() -> None:
            try:
                await work
            except StoreError as error:
                logger.warning("could not save agent metadata; it is asked for again: %s", error)

        task = asyncio.create_task(saved())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _model(state: Session, agent: str) -> str | None:
    """The model of an agent of this session, as it was chosen or as the agent says, also while another one has it."""
    kept = state.choices.get(agent, {})
    model, models = (state.model, state.models) if agent == state.agent else (kept.get("model"), kept.get("models"))
    return model or (models or {}).get("currentModelId")
