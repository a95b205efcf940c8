"""What decisions and launches need to know about agents, projects and settings, collected beforehand as values.

Above: commands, runners and the verbs. Below: the agent registry, projects, the configuration. The state machine does
no I/O: everything that it may need to know is in the World that is built here before each decision.
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
"""Commands that carry a message and start a turn."""


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
        """Returns what the next queued message of a session must wait for, if anything."""
        self._tasks: set[asyncio.Task[None]] = set()

    # For decisions -----------------------------------------------------------------------------------------------

    def world(self, state: Session, command: cmd.Command | None = None, waits_for: WaitsFor | None = None) -> World:
        """The World for a decision on this state: about a command, or about observations if `command` is None.
        `waits_for`: why the decision may not begin a turn."""
        agents = {queued.agent or state.agent for queued in state.queue}
        if state.accepted is not None:
            agents.add(state.accepted.agent or state.agent)
        if isinstance(command, SENDS):
            agents.add(getattr(command, "agent", None) or state.agent)
        if isinstance(command, cmd.FinishFiles) and state.file_operation is not None and state.file_operation.then:
            agents.add(state.file_operation.then.get("agent") or state.agent)
        if waits_for is None and not isinstance(command, cmd.BeginTurn):
            # The next message in the session waits for the same thing as the current one.
            waits_for = state.waits_for
            if waits_for is None and (state.queue or state.phase == "accepted"):
                waits_for = self.slot_of_queue(state)
        facts = {}
        project = self.projects.settings_of(state.project) if state.project is not None else None
        for agent in agents:
            # Leave out agents that are no longer configured.
            with contextlib.suppress(Refused):
                known = self.agents.facts(agent, state.workdir)
                never = project is not None and project.resume == "never"
                facts[agent] = msgspec.structs.replace(known, resume="never") if never else known
        journal = self._log.journals.get(state.id)
        return World(
            # Clocks of nodes may differ a little, but the timestamps of a session's events must not go back.
            now=max(self._log.stamp(), state.last_active_at, journal.happened_at if journal is not None else ""),
            facts=facts,
            rules=tuple(project.permissions) if project is not None else (),
            scope=project.history_scope if project is not None else "all",
            issued_twice=self._log.issued_twice,
            waits_for=waits_for,
        )

    def limits(self, project: str | None, session: dict[str, object]) -> Limits:
        if project is None and not session:
            return self._limits
        return merged(self.config.limits, self.projects.limits(project), session)

    # For launches ------------------------------------------------------------------------------------------------

    def driver_name(self, state: Session, agent: str) -> str:
        """The driver that this session uses for an agent: the one it fell back to, or the project's choice, or the
        agent's default."""
        return state.drivers.get(agent) or self.agents.driver(agent, self.projects.runner_mode(state.project))

    def start_defaults(self, state: Session, agent: str) -> tuple[str | None, str | None, dict[str, Any]]:
        """The model, mode and options with which an agent starts. Model and mode are the session's, or else the
        agent's; options are the project's merged over the agent's."""
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
        """The token budget for the transcript that this agent gets: as configured, or from its model's context size."""
        settings = self.agents.settings(agent)
        model = _model(state, agent) or settings.model or ""
        configured = settings.model_transcript_tokens.get(model) or settings.transcript_tokens
        sizes = self.agents.abilities.get(agent, Abilities()).context_sizes
        shortened = state.shortened.get(agent, 0)
        if state.working and state.turn is not None and state.turn.agent == agent:
            shortened = max(shortened, state.turn.shortened)
        # For an unknown model, assume the smallest known context size.
        return budget(configured, sizes.get(model) or min(sizes.values(), default=None), shortened)

    # What agents report about themselves -------------------------------------------------------------------------

    def learn(self, agent: str, fact: SessionOpened | StartFailed | TurnFinished | ev.Config) -> None:
        """Save what an agent reports about itself, for later decisions and for the agent list."""
        self._know(agent, self.agents.abilities.get(agent, Abilities()).after(fact))

    def learn_size(self, state: Session, agent: str, size: int) -> None:
        """Save the context size that an agent reports for its model."""
        before = self.agents.abilities.get(agent, Abilities())
        sizes = {**before.context_sizes, _model(state, agent) or "": size}
        self._know(agent, msgspec.structs.replace(before, context_sizes=sizes))

    def _know(self, agent: str, known: Abilities) -> None:
        if self.agents.abilities.get(agent, Abilities()) != known:
            self.agents.abilities[agent] = known
            body = msgspec.json.encode(known)
            # With several nodes: this node's own document, and the shared one that other nodes show until they have
            # data of their own.
            for kind in {self.agents.documents, OFFERS}:
                self.keep(self._log.store.put_document(kind, agent, body))

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a save in the background. If it fails, nothing is lost: the data is collected again later."""

        async def saved() -> None:
            try:
                await work
            except StoreError as error:
                logger.warning("could not save agent metadata; it will be collected again: %s", error)

        task = asyncio.create_task(saved())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _model(state: Session, agent: str) -> str | None:
    """The model that this session uses with an agent, as chosen or as the agent reports. The agent need not be the
    session's current one."""
    kept = state.choices.get(agent, {})
    model, models = (state.model, state.models) if agent == state.agent else (kept.get("model"), kept.get("models"))
    return model or (models or {}).get("currentModelId")
