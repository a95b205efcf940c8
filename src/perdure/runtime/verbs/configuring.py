"""Sets a session's model, mode or another option: sends the request to the agent and waits for its answer.

Above: the verb `configure`. Below: the log, in which request and answer are events; the runners, which start an agent
whose options are not known yet. If a session has no process, the value is stored and applied when its agent starts.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.state import Session
from perdure.drivers import DRIVERS
from perdure.runtime.log.journal import Journal
from perdure.runtime.verbs.waiting import until, warmed_up

if TYPE_CHECKING:
    from perdure.runtime.verbs.sessions import Sessions

ANSWER_S = 15.0
"""How long an agent may take to answer."""
READ_BATCH = 1_000
LOOKED_AT = ("config", "system", "agent_attached", "agent_detached")


class Configuring:
    def __init__(self, sessions: "Sessions") -> None:
        self._sessions = sessions
        # One request at a time per session: agents answer in order, and an answer doesn't name its request.
        self._setting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def set(self, session_id: str, config_id: str, value: Any) -> dict[str, Any]:
        """Set an option. Returns the resulting value, and whether it is already applied. Raises Refused if the agent
        refuses."""
        journal = await self._sessions.log.open(session_id)
        async with self._setting.setdefault(session_id, asyncio.Lock()):
            await self._introduce(journal)
            after = journal.last_seq
            await self._sessions.do(session_id, cmd.SetConfig(config_id, value))
            applied, now = False, value
            try:
                async with asyncio.timeout(ANSWER_S):
                    applied, now = await self._answer(journal, after, config_id, value)
            except TimeoutError:
                raise Refused(
                    "unavailable",
                    f"The agent has not answered within {ANSWER_S:g} s. The request for {config_id} = {value!r} is "
                    "still open; the session shows the new value once the agent applies it.",
                ) from None
        return {
            "status": "ok",
            "config_id": config_id,
            "value": now,
            "applied": applied,
            "config_options": journal.state.config_options or [],
        }

    async def _introduce(self, journal: Journal) -> None:
        """Start an agent whose options are not known yet, unless it uses one process per turn."""
        state, facts = journal.state, self._sessions.facts
        if not _is_unknown(state) or DRIVERS[facts.driver_name(state, state.agent)].process_per_turn:
            return
        await self._sessions.agents.ready(state.agent)
        is_elsewhere = not await self._sessions.runners.prewarm_anywhere(journal)
        if not await warmed_up(journal, facts.settings.start_timeout_s, elsewhere=is_elsewhere):
            reason = journal.state.error or "It exited before it opened its session."
            raise Refused("agent_unavailable", f"Agent {state.agent!r} could not be started. {reason}")

    async def _answer(self, journal: Journal, after: int, config_id: str, value: Any) -> tuple[bool, Any]:
        """The agent's answer to the request, which is an event after this position: (whether it is applied, value)."""
        position, asked, reason = after, False, ""
        names = _names(journal.state.config_options, config_id)
        while True:
            for row in await self._sessions.read(journal.state.id, position, READ_BATCH):
                position = row.seq
                if row.type not in LOOKED_AT:
                    continue
                event = ev.decode(row.body)
                if isinstance(event, ev.AgentAttached):
                    names |= _names(event.config_options, config_id)
                if isinstance(event, ev.Config) and event.requested:
                    asked = asked or (event.config_id, event.value) == (config_id, value)
                elif not asked:
                    continue
                elif isinstance(event, ev.System) and event.code == "config_refused":
                    reason = event.message
                elif isinstance(event, ev.Config) and event.refused and event.config_id in names:
                    raise Refused("invalid", f"The agent refused it: {reason or 'no reason given'}.")
                elif isinstance(event, ev.Config) and event.config_id in names:
                    return True, event.value
                elif isinstance(event, ev.AgentAttached) and _has(event, names, value):
                    return True, value
            if journal.state.attached is None:
                # There is no process to answer. The agent gets the value when it starts.
                return False, value
            await until(journal, _is_past(journal, position))


def _is_unknown(state: Session) -> bool:
    """Whether the agent's options are unknown and it has no native session yet, with which a new process could
    interfere."""
    said = (state.models, state.modes, state.config_options) != (None, None, None)
    return not said and state.phase == "idle" and not state.bindings


def _is_past(journal: Journal, position: int) -> Callable[[], bool]:
    return lambda: journal.last_seq > position


def _names(options: list[dict[str, Any]] | None, config_id: str) -> set[str]:
    """The ids that the agent may use for an option in its answer: "model" can have another id."""
    return {config_id, *(str(option.get("id")) for option in options or [] if option.get("category") == config_id)}


def _has(event: ev.AgentAttached, names: set[str], value: Any) -> bool:
    return any(
        option.get("id") in names and option.get("currentValue") == value for option in event.config_options or []
    )
