"""What committed events ask of an agent. The plan of a turn is the one source of what it opens and what it is told.

Above: the runner. Below: the journal's state, and the history where a fresh turn needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.config import SESSION_VARIABLE
from perdure.core import events as ev
from perdure.core import slash_commands
from perdure.core.observations import Told
from perdure.core.scope import missing
from perdure.core.transcript import Prompt, compose
from perdure.drivers.base import AnswerPrompt, CancelTurn, Order, SendPrompt, SetConfig, StartSession
from perdure.runtime.log.journal import Journal
from perdure.runtime.running.facts import Facts

Attachments = tuple[dict[str, Any], ...]


class Orders:
    def __init__(
        self, journal: Journal, facts: Facts, shown: Callable[[str, Attachments], Awaitable[Attachments]]
    ) -> None:
        self._journal = journal
        self._facts = facts
        self._shown = shown

    async def of(self, event: ev.Event) -> list[Order]:
        state, turn = self._journal.state, self._journal.state.turn
        running = state.working and turn is not None and event.turn == turn.turn
        if isinstance(event, ev.TurnStart) and running:
            return [await self.prompt()] if event.origin == "person" else []
        if isinstance(event, ev.ContextFallback) and running:
            return [self.start(None), await self.prompt()]
        if isinstance(event, ev.AbortRequested) and running:
            return [CancelTurn(event.turn or 0)]
        if isinstance(event, ev.PromptResolved) and event.delivered and event.answer is not None:
            return [AnswerPrompt(event.prompt_id, event.answer)]
        if isinstance(event, ev.Config) and event.requested:
            return [SetConfig(event.config_id, event.value)]
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

    async def prompt(self) -> SendPrompt:
        """What the turn's plan says the agent must be told."""
        state, turn, message = self._journal.state, self._journal.state.turn, self._journal.view.message
        assert turn is not None and turn.context is not None and message is not None
        untold = missing(state.visible, turn.agent, turn.scope, turn.seen, before=turn.turn)
        prompt = await self.composed(turn.agent, turn.context, untold, message["text"])
        short = prompt.told
        shortened = bool(short.digested or short.left_out)
        return SendPrompt(
            turn=turn.turn,
            message_id=turn.message_id,
            text=prompt.text,
            attachments=await self._shown(state.id, tuple(message["attachments"])),
            told=Told(turn.turn, short.digested, short.left_out, short.tokens) if shortened else None,
        )

    async def composed(self, agent: str, context: str, untold: list[int], message: str) -> Prompt:
        """What an agent is sent that has not been told these turns."""
        state = self._journal.state
        # The turn's own is known even if its agent, which starts with it, has not named its commands yet.
        calls = state.turn.slash_command if state.turn is not None else ""
        commands = [*slash_commands.names(state.commands), *([calls] if calls else [])]
        given = (message, self._facts.instructions(state), self._facts.transcript_tokens(state, agent), commands)
        if not untold:
            return compose(context, None, untold, *given)
        history = await self._journal.log.history(state.id, untold[0], untold[-1])
        # In a thread: it may be long, and others go on meanwhile.
        return await asyncio.to_thread(compose, context, history, untold, *given)


def _named(server: dict[str, Any], session_id: str) -> dict[str, Any]:
    """An MCP server that knows whose it is: so `perdure mcp` can tell which session started another one."""
    if "command" not in server:
        return server
    return {**server, "env": {SESSION_VARIABLE: session_id, **server.get("env", {})}}
