"""One launch of `claude`: dispatches orders and lines to the parts of the protocol.

Above: the runner. Below: handshake, turns, speaking, working, asking, choosing. It never raises, whatever the agent
sends: unreadable messages are counted, and reported once.
"""

from collections.abc import Sequence
from typing import Any

from perdure.drivers.base import (
    CancelTurn,
    CloseSession,
    Order,
    SendAnswer,
    SendConfig,
    SendInput,
    StartSession,
    Step,
)
from perdure.drivers.claude import content, faults, wire
from perdure.drivers.claude import state as memory
from perdure.drivers.claude.asking import Asking
from perdure.drivers.claude.choosing import REQUESTS, Choosing
from perdure.drivers.claude.handshake import Handshake
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.speaking import Speaking
from perdure.drivers.claude.state import State
from perdure.drivers.claude.turns import Turns
from perdure.drivers.claude.working import Working
from perdure.drivers.outbox import RAW_MAX_CHARS, TOO_MUCH

RECEIPTS = "msg_lifecycle_v1"
"""A capability: the agent reports the lifecycle of each message that has a uuid."""

_QUIET = (
    "auth_status",
    "conversation_reset",
    "keep_alive",
    "prompt_suggestion",
    "tool_progress",
    "tool_use_summary",
)
"""Known line types that are not needed."""

_QUIET_NOTES = (
    "background_tasks_changed",
    "hook_progress",
    "hook_response",
    "task_progress",
    "task_updated",
    "thinking_tokens",
)
"""Known subtypes of `system` lines that are not needed."""


class ClaudeConversation:
    def __init__(self, state: State) -> None:
        self._state = state
        self._out = Outbox(state)
        self._speaking = Speaking(state, self._out)
        self._working = Working(state, self._out, self._speaking)
        self._asking = Asking(state, self._out, self._working)
        self._choosing = Choosing(state, self._out)
        self._turns = Turns(state, self._out, self._speaking, self._working, self._asking)
        self._handshake = Handshake(state, self._out, self._choosing, self._turns)

    def dump(self) -> bytes:
        return memory.dump(self._state)

    @property
    def input_bytes(self) -> int | None:
        running = self._state.running
        return running.input_bytes if running is not None else None

    @property
    def unanswered(self) -> int | None:
        running = self._state.running
        return running.turn if running is not None and running.unseen else None

    def perform(self, order: Order) -> Step:
        match order:
            case StartSession():
                self._handshake.start(order)
            case SendInput():
                self._state.held.append(order)
                self._turns.send_next()
            case CancelTurn():
                self._turns.cancel(order.turn)
            case SendAnswer():
                if self._asking.answer(order):
                    self._turns.interrupt()
            case SendConfig():
                self._choosing.set(order.config_id, order.value)
            case CloseSession():
                self._turns.interrupt()
        return self._out.step()

    def receive(self, lines: Sequence[bytes]) -> Step:
        for line in lines:
            quick = wire.stream_line(line)
            if quick is not None and quick.type == "stream_event" and quick.event is not None:
                if quick.parent_tool_use_id is None:
                    self._streamed(quick.event, line)
                continue
            message = wire.message(line)
            if message is None and quick is not None:
                self._out.strange("size", _raw(line), TOO_MUCH)
                message = wire.awaited(line)
            elif message is None and line.strip():
                self._plain(line[:1024].decode("utf-8", "replace"))
            if message is not None:
                self._heard(message, line)
        return self._out.step()

    def _streamed(self, event: wire.StreamEvent, line: bytes) -> None:
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            if delta.type == "text_delta":
                self._speaking.piece(event.index, False, delta.text)
            elif delta.type == "thinking_delta":
                self._speaking.piece(event.index, True, delta.thinking)
        elif event.type == "message_start":
            running = self._turns.speaking()
            if running is not None:
                message = wire.part(wire.part(wire.message(line), "event"), "message")
                self._speaking.message(running, wire.string(message, "id"))
                running.context_used = content.context_used(message.get("usage"))
        elif event.type == "message_delta" and self._state.running is not None:
            usage = wire.part(wire.part(wire.message(line), "event"), "usage")
            used, out = self._state.running.context_used, wire.whole(usage.get("output_tokens"))
            if used is not None and out is not None:
                self._state.running.context_used = used + out

    def _plain(self, text: str) -> None:
        if self._state.phase == "initializing" and faults.is_start_failure(text):
            self._handshake.refused(text.strip())
        else:
            self._out.strange("line", text, "not a JSON object")

    def _heard(self, message: dict[str, Any], line: bytes) -> None:
        kind = wire.string(message, "type")
        match kind:
            case "assistant":
                self._said(message)
            case "user":
                if self._state.running is not None and message.get("isReplay") is not True:
                    self._working.came_back(self._state.running, message)
            case "result":
                if not self._handshake.overtaken(message):
                    self._turns.ended(message)
            case "system":
                self._noted(wire.string(message, "subtype"), message, line)
            case "control_response":
                self._replied(wire.part(message, "response"))
            case "control_request":
                self._requested(wire.string(message, "request_id"), wire.part(message, "request"), line)
            case "command_lifecycle":
                self._turns.heard(wire.string(message, "command_uuid"))
            case "control_cancel_request":
                self._turns.withdrawn(wire.string(message, "request_id"))
            case "rate_limit_event":
                self._limited(wire.part(message, "rate_limit_info"))
            case "stream_event":
                self._mended(message, line)
            case _ if kind not in _QUIET:
                self._out.strange(f"type {kind}", _raw(line), "an unknown type of line")

    def _said(self, message: dict[str, Any]) -> None:
        # Text of a sub-agent between turns belongs to no turn: only the agent itself starts one.
        sub_agent = wire.string(message, "parent_tool_use_id")
        running = self._state.running if sub_agent else self._turns.speaking()
        if running is not None:
            self._working.said(running, message)

    def _mended(self, message: dict[str, Any], line: bytes) -> None:
        """Handle a piece with a lone surrogate, which the fast decoder rejects."""
        event = wire.part(message, "event")
        delta, index = wire.part(event, "delta"), wire.whole(event.get("index"))
        if message.get("parent_tool_use_id") is None:
            kind = wire.string(delta, "type")
            text = wire.torn_text(line) if kind == "text_delta" else wire.string(delta, "text")
            said = wire.Delta(kind, text, wire.string(delta, "thinking"))
            self._streamed(wire.StreamEvent(wire.string(event, "type"), -1 if index is None else index, said), line)

    def _limited(self, info: dict[str, Any]) -> None:
        """Handle a rate limit report. Only an exhausted limit matters: it says when the session can continue."""
        if wire.string(info, "status") == "rejected":
            self._state.limit_resets_at = faults.unix_time_s(info.get("resetsAt")) or self._state.limit_resets_at

    def _noted(self, subtype: str, message: dict[str, Any], line: bytes) -> None:
        match subtype:
            case "init":
                self._handshake.named(message)
                self._choosing.began(message)
                capabilities = message.get("capabilities")
                self._state.receipts = isinstance(capabilities, list) and RECEIPTS in capabilities
                self._turns.begun()
                if self._state.running is not None:
                    self._state.running.merged = None
            case "hook_started":
                self._turns.begun()
            case "status":
                self._choosing.mode_is(message.get("permissionMode"))
                if message.get("status"):
                    self._turns.begun()
            case "api_retry":
                self._retrying(message)
            case "session_state_changed":
                if message.get("state") == "idle":
                    self._turns.idle()
                else:
                    self._turns.begun()
            case "task_started":
                self._working.task_started(message)
            case "task_notification":
                self._working.task_ended(message)
                if self._state.running is None:
                    self._turns.tell_tasks()
            case "permission_denied":
                self._turns.denied(wire.string(message, "tool_use_id"), wire.string(message, "tool_name"))
            case "compact_boundary":
                sizes = wire.part(message, "compact_metadata")
                before, after = wire.whole(sizes.get("pre_tokens")), wire.whole(sizes.get("post_tokens"))
                self._out.tell("compacted", f"The agent compacted its context from {before} to {after} tokens.")
            case _ if subtype not in _QUIET_NOTES:
                # Each version adds some, so don't show new ones to people.
                self._out.strange(f"system {subtype}", _raw(line), "an unknown system message", quiet=True)

    def _retrying(self, message: dict[str, Any]) -> None:
        status, delay_ms = wire.whole(message.get("error_status")), wire.whole(message.get("retry_delay_ms"))
        attempt, most = wire.whole(message.get("attempt")), wire.whole(message.get("max_retries"))
        reason = " ".join(
            str(part) for part in (wire.string(message, "error") or "an error", status) if part is not None
        )
        when = f"Retry {attempt} of {most} in {(delay_ms or 0) / 1000:.1f} s."
        self._out.tell("api_retry", f"The model's API returned {reason}. {when}")

    def _replied(self, response: dict[str, Any]) -> None:
        sent = self._state.sent.pop(wire.string(response, "request_id"), None)
        if sent is None:
            self._out.count("late reply")
            return
        failed = response.get("subtype") != "success"
        error = (wire.string(response, "error") or "the agent gave no reason") if failed else None
        if sent.subtype == "initialize":
            self._handshake.initialized(wire.part(response, "response"), error)
        elif sent.subtype in REQUESTS:
            self._choosing.replied(sent, wire.part(response, "response"), error)

    def _requested(self, request_id: str, request: dict[str, Any], line: bytes) -> None:
        subtype = wire.string(request, "subtype")
        if not request_id:
            self._out.strange("request", _raw(line), "a request without an id")
        elif subtype != "can_use_tool":
            self._out.strange(f"request {subtype}", _raw(line), "an unknown request", quiet=True)
            self._out.refuse(request_id, f"Unsupported control request subtype: {subtype}")
        elif not any(asked.request_id == request_id for asked in self._state.asked.values()):
            # A sub-agent may also ask between turns, but prompts belong to turns. So this starts one if needed.
            running = self._turns.speaking()
            if running is None:
                self._out.refuse(request_id, "There is nobody to ask yet.")
            else:
                self._asking.permission(running, request_id, request)


def _raw(line: bytes) -> str:
    return line[:RAW_MAX_CHARS].decode("utf-8", "replace")
