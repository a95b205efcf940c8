"""Turns committed events into orders for an agent. The turn's plan alone decides what the agent opens and receives.

Above: the runner. Below: the journal's state, and the history if the agent has not seen all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.config import SESSION_VARIABLE
from perdure.core import events as ev
from perdure.core import slash_commands
from perdure.core.observations import TranscriptShortened
from perdure.core.scope import missing
from perdure.core.transcript import AgentInput, compose
from perdure.drivers.base import CancelTurn, Order, SendAnswer, SendConfig, SendInput, StartSession
from perdure.runtime.log.journal import Journal
from perdure.runtime.running.facts import Facts

MessageAttachments = tuple[dict[str, Any], ...]


class Orders:
    def __init__(
        self, journal: Journal, facts: Facts, shown: Callable[[str, MessageAttachments], Awaitable[MessageAttachments]]
    ) -> None:
        self._journal = journal
        self._facts = facts
        self._shown = shown

    async def of(self, event: ev.Event) -> list[Order]:
        state, turn = self._journal.state, self._journal.state.turn
        running = state.working and turn is not None and event.turn == turn.turn
        if isinstance(event, ev.TurnStart) and running:
            return [await self.turn_input()] if event.origin == "person" else []
        if isinstance(event, ev.ContextFallback) and running:
            return [self.start(None), await self.turn_input()]
        if isinstance(event, ev.AbortRequested) and running:
            return [CancelTurn(event.turn or 0)]
        if isinstance(event, ev.PromptResolved) and event.delivered and event.answer is not None:
            return [SendAnswer(event.prompt_id, event.answer)]
        if isinstance(event, ev.Config) and event.requested:
            return [SendConfig(event.config_id, event.value)]
        return []

    def start(self, native_session_id: str | None) -> StartSession:
        state = self._journal.state
        model, mode, options = self._facts.start_defaults(state, state.agent)
        servers = {name: _named(server, state.id) for name, server in options.get("mcp_servers", {}).items()}
        return StartSession(
            workdir=state.workdir,
            native_session_id=native_session_id,
            model=model,
            mode=mode,
            config={key: value for key, value in state.config.items() if key not in ("model", "mode")},
            options={**options, "mcp_servers": servers, "granted": state.granted.get(state.agent, [])},
        )

    async def turn_input(self) -> SendInput:
        """The agent's input for this turn, as planned."""
        state, turn, message = self._journal.state, self._journal.state.turn, self._journal.view.message
        assert turn is not None and turn.context is not None and message is not None
        untold = missing(state.visible, turn.agent, turn.scope, turn.seen, before=turn.turn)
        composed = await self.composed(turn.agent, turn.context, untold, message["text"])
        short = composed.shortened
        is_short = bool(short.digested or short.left_out)
        return SendInput(
            turn=turn.turn,
            message_id=turn.message_id,
            text=composed.text,
            attachments=await self._shown(state.id, tuple(message["attachments"])),
            shortened=TranscriptShortened(turn.turn, short.digested, short.left_out, short.tokens)
            if is_short
            else None,
        )

    async def composed(self, agent: str, context: str, untold: list[int], message: str) -> AgentInput:
        """The input for an agent that has not seen the turns in `untold`."""
        state = self._journal.state
        # An agent that starts with this turn hasn't listed its commands yet, but the turn's own one is known.
        calls = state.turn.slash_command if state.turn is not None else ""
        commands = [*slash_commands.names(state.commands), *([calls] if calls else [])]
        given = (message, self._facts.instructions(state), self._facts.transcript_tokens(state, agent), commands)
        if not untold:
            return compose(context, None, untold, *given)
        history = await self._journal.log.history(state.id, untold[0], untold[-1])
        # In a thread: a long history must not block other sessions.
        return await asyncio.to_thread(compose, context, history, untold, *given)


def _named(server: dict[str, Any], session_id: str) -> dict[str, Any]:
    """Pass the session's id to an MCP server: `perdure mcp` uses it to record which session created another one."""
    if "command" not in server:
        return server
    return {**server, "env": {SESSION_VARIABLE: session_id, **server.get("env", {})}}
