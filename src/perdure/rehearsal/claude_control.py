"""Answers a host's control requests in the Claude dialect.

Above: claude.py passes them in. Below: the agent, whose settings they change.
It validates only what the real one validates, so any model and any mode is accepted.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from perdure.rehearsal import claude_lines as lines
from perdure.rehearsal.claude_flags import BYPASS, Flags
from perdure.rehearsal.claude_lines import DEFAULT_MODEL, VERSION, Line
from perdure.rehearsal.claude_turn import Choices, Turn


class Agent(Protocol):
    """The part of the agent that control requests use."""

    flags: Flags
    choices: Choices
    session_id: str
    turn: Turn | None
    queue: list[Any]
    forwards_subagents: bool

    def send(self, line: Line) -> None: ...

    def set_mode(self, mode: str) -> None: ...


class Control:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._initialized = False
        self._subtypes: dict[str, Callable[[Any, Line], None]] = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_model": self._set_model,
            "set_permission_mode": self._set_permission_mode,
            "cancel_async_message": self._cancel_message,
            "get_binary_version": lambda number, _: self._succeed(number, {"version": VERSION}),
            "mcp_status": lambda number, _: self._succeed(number, {"mcpServers": []}),
        }

    def receive(self, message: Line) -> None:
        number, request = message.get("request_id"), message.get("request")
        subtype = request.get("subtype") if isinstance(request, dict) else None
        handler = self._subtypes.get(subtype) if isinstance(subtype, str) else None
        if handler is None or not isinstance(request, dict):
            self._agent.send(lines.control_error(number, f"Unsupported control request subtype: {subtype}"))
        else:
            handler(number, request)

    def _succeed(self, number: Any, response: Line | None = None, **fields: Any) -> None:
        self._agent.send(lines.control_success(number, response, **fields))

    def _initialize(self, number: Any, request: Line) -> None:
        self._agent.forwards_subagents = request.get("forwardSubagentText") is True
        again: Line = {"pending_permission_requests": [], "pending_user_dialog_requests": []}
        self._succeed(number, lines.initialized(), **(again if self._initialized else {}))
        self._initialized = True

    def _interrupt(self, number: Any, _: Line) -> None:
        turn = self._agent.turn
        # In the same order as the real one: withdraw the question, answer the interrupt, end the turn.
        if turn is not None:
            turn.withdraw()
        self._succeed(number)
        if turn is not None:
            turn.interrupt()

    def _set_model(self, number: Any, request: Line) -> None:
        asked = request.get("model")
        model = DEFAULT_MODEL if asked in (None, "default") else str(asked)
        self._agent.choices.model = model
        note = f"<local-command-stdout>Set model to {model}</local-command-stdout>"
        self._agent.send(lines.replay(self._agent.session_id, note, lines.new_id(), time.time()))
        self._succeed(number)

    def _set_permission_mode(self, number: Any, request: Line) -> None:
        mode, flags = str(request.get("mode")), self._agent.flags
        if mode == BYPASS and not flags.skip_permissions and flags.permission_mode != BYPASS:
            error = (
                "Cannot set permission mode to bypassPermissions because the session was not launched with "
                "--dangerously-skip-permissions"
            )
            self._agent.send(lines.control_error(number, error))
            return
        self._succeed(number, {"mode": mode})
        self._agent.set_mode(mode)

    def _cancel_message(self, number: Any, request: Line) -> None:
        queue, message_uuid = self._agent.queue, request.get("message_uuid")
        kept = [one for one in queue if one.uuid != message_uuid]
        self._succeed(number, {"cancelled": len(kept) < len(queue)})
        queue[:] = kept
