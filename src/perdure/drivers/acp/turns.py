"""The input in flight: sending, streaming, interrupting and finishing it. One at a time.

Above: the conversation. Below: tools.py, content.py, asking.py, the outbox. A turn ends with the reply to its input,
and then everything is closed, even what the agent did not report as ended.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from perdure.core.events import Plan, StopReason, Usage
from perdure.drivers import jsonrpc
from perdure.drivers.acp import content, tools
from perdure.drivers.acp.asking import Asking
from perdure.drivers.acp.faults import turn_fault
from perdure.drivers.acp.outbox import Outbox
from perdure.drivers.acp.state import Running, State
from perdure.drivers.base import TurnFinished

STALE_TOOLS_MAX = 256

FORGET_CANCELLED = ("gemini-cli",)
"""Agents whose native session drops a message whose turn was cancelled, together with its answer."""

THOUGHT = "agent_thought_chunk"
WARNING = "Warning: "

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_turns",
    "max_turn_requests": "max_turns",
    "refusal": "refusal",
    "cancelled": "cancelled",
}


class Chunk(Struct, rename={"kind": "sessionUpdate", "message_id": "messageId", "meta": "_meta"}):
    """An update, decoded as far as the most frequent kinds need it."""

    kind: str
    content: Raw = Raw(b"")
    message_id: str | int | None = None
    meta: Raw = Raw(b"")


class _Text(Struct):
    text: str


_text: msgspec.json.Decoder[_Text] = msgspec.json.Decoder(_Text)


class Turns:
    def __init__(self, state: State, out: Outbox, asking: Asking) -> None:
        self._state = state
        self._out = out
        self._asking = asking

    def send_next(self) -> None:
        """Send the oldest held input if the agent is idle. Agents differ in what they do with two inputs."""
        state = self._state
        while state.held and state.phase == "open" and state.running is None:
            order = state.held.pop(0)
            takes = state.capabilities.get("promptCapabilities")
            blocks = content.input_blocks(order, pictures=isinstance(takes, dict) and takes.get("image") is True)
            if blocks:
                line = self._out.request("session/prompt", {"sessionId": state.session_id, "prompt": blocks})
                state.running = Running(turn=order.turn, input_bytes=len(line), cost_before_usd=state.cost_usd)
            else:
                # An empty input permanently breaks gemini's session.
                reason = "there is nothing to send"
                self._out.emit(TurnFinished(order.turn, "failed", "empty_prompt", reason, sent=False))

    def cancel(self, turn: int) -> None:
        """Interrupt the turn, even if its input has not been sent yet."""
        state = self._state
        for order in [order for order in state.held if order.turn == turn]:
            state.held.remove(order)
            self._out.emit(TurnFinished(turn, "cancelled", sent=False))
        if state.running is not None and state.running.turn == turn:
            self.interrupt()

    def interrupt(self) -> None:
        """Interrupt the running turn. Sent only while an input is in flight: cancelled while idle, hermes fails the
        next input."""
        running = self._state.running
        if running is None:
            return
        running.cancelled = True
        self._out.write(jsonrpc.notification("session/cancel", {"sessionId": self._state.session_id}))
        # gemini and vibe don't end the turn before their open prompts are answered.
        self._asking.withdraw_all()

    def replied(self, result: dict[str, Any], failure: jsonrpc.Failure | None) -> None:
        running = self._state.running
        if running is None:
            return
        if failure is None:
            self._use(running, content.result_figures(result))
            self.finish(_STOP_REASONS.get(str(result.get("stopReason")), "end_turn"))
        elif running.cancelled:
            # hermes replies this while it is still working, and would queue the next input. So abandon the process and
            # don't trust its session.
            self.finish("cancelled", broken=True)
        else:
            self._fail(failure)
        self.send_next()

    def _fail(self, failure: jsonrpc.Failure) -> None:
        fault = turn_fault(failure)
        self.finish(
            "failed",
            fault.code,
            failure.sentence,
            fault.poisoned,
            detail=failure.raw if failure.raw != failure.sentence else None,
            retry_after_s=fault.retry_after_s,
            retry_at=fault.retry_at,
        )

    def finish(
        self,
        stop_reason: StopReason,
        code: str | None = None,
        message: str | None = None,
        poisoned: bool = False,
        broken: bool = False,
        detail: str | None = None,
        retry_after_s: float | None = None,
        retry_at: float | None = None,
    ) -> None:
        """End the turn. `broken`: the state of the process and of its session is unknown."""
        state, running = self._state, self._state.running
        if running is None:
            return
        self._asking.withdraw_all()
        # Late output of these belongs to no turn: a command that codex left running may report in the next one.
        left = [tool_id for tool_id, tool in running.tools.items() if tool.open]
        state.stale_tools = (state.stale_tools + left)[-STALE_TOOLS_MAX:]
        for event in tools.close(running):
            self._out.emit(event)
        state.running = None
        self._out.emit(
            TurnFinished(
                turn=running.turn,
                stop_reason=stop_reason,
                error_code=code,
                error_message=message,
                error_detail=detail,
                retry_after_s=retry_after_s,
                retry_at=retry_at,
                poisoned=poisoned,
                forgotten=broken or (stop_reason == "cancelled" and self._unsure(running)),
                leaves=broken,
                cost_usd=running.usage.get("cost_usd"),
                input_bytes=running.input_bytes,
            )
        )

    def _unsure(self, running: Running) -> bool:
        """Return whether a cancelled turn may be missing from the agent's native session, or corrupt it."""
        # Before their first output, codex, copilot and qwen may not have read the message yet, and hermes joins it with
        # the next one, so that its model would do what was cancelled.
        unseen = running.warned_only and not running.tools
        # A turn that was not cancelled by us, and had no prompt answered, was cut off: qwen reports "cancelled" while
        # it is being killed.
        cut_off = not running.cancelled and not running.answered
        return unseen or cut_off or self._state.agent_name in FORGET_CANCELLED

    def said(self, chunk: Chunk) -> None:
        """Handle a piece of text or thinking."""
        running = self._state.running
        if running is None:
            return
        found = jsonrpc.read(chunk.content, _text)
        text = found.text if found is not None else content.block_text(jsonrpc.value(chunk.content))
        # Most pieces have no _meta, so they need no further decoding.
        meta = jsonrpc.value(chunk.meta) if chunk.meta else None
        parent = tools.parent_of(meta)
        if parent is not None:
            if text and chunk.kind != THOUGHT:
                for event in tools.report(running, parent, chunk.message_id, text):
                    self._out.emit(event)
        elif text:
            self.go_on(running, chunk.kind, chunk.message_id, text)
            self._out.say(chunk.kind == THOUGHT, running.turn, running.block, text)
        elif (shown := content.block_image(jsonrpc.value(chunk.content), running.turn)) is not None:
            # Text after an image starts a new block.
            running.block_kind, running.warned_only = "image", False
            self._out.emit(shown)
        else:
            # qwen ends with an empty piece that has the turn's usage.
            self._use(running, content.token_figures(meta.get("usage") if isinstance(meta, dict) else None))

    def go_on(self, running: Running, kind: str, message_id: str | int | None, text: str) -> bool:
        """Find the block that a piece of text or thinking belongs to. Returns whether that changes the stored state."""
        is_new = kind != running.block_kind or message_id != running.block_message
        if is_new:
            running.block += 1
            running.block_kind, running.block_message = kind, message_id
        if running.warned_only and not text.startswith(WARNING):
            running.warned_only, is_new = False, True
        return is_new

    def tool(self, kind: str, update: dict[str, Any]) -> None:
        running, tool_id = self._state.running, update.get("toolCallId")
        if running is None:
            return
        if not isinstance(tool_id, str):
            self._out.strange("tool", str(update), "a tool call without an id")
        elif kind == "tool_call" or tool_id in running.tools or tool_id not in self._state.stale_tools:
            for event in tools.upsert(running, update):
                self._out.emit(event)

    def planned(self, update: dict[str, Any]) -> None:
        running = self._state.running
        if running is not None:
            self._out.emit(Plan(turn=running.turn, entries=content.plan_entries(update)))

    def used(self, update: dict[str, Any]) -> None:
        """Handle a usage_update: how full the context is, and the cost of the agent's session so far."""
        state, running = self._state, self._state.running
        figures: dict[str, Any] = {}
        for name, key in (("context_used", "used"), ("context_size", "size")):
            count = content.whole(update.get(key))
            if count is not None:
                figures[name] = count
        total = content.cost_usd(update)
        if total is not None:
            # The agent reports the total of its session; our event has the cost of the turn.
            if running is not None and running.cost_before_usd is not None:
                figures["cost_usd"] = max(0.0, total - running.cost_before_usd)
            state.cost_usd = total
        if running is not None:
            self._use(running, figures)
        elif figures:
            self._out.emit(Usage(**figures))

    def _use(self, running: Running, figures: dict[str, Any]) -> None:
        if any(running.usage.get(name) != figure for name, figure in figures.items()):
            running.usage.update(figures)
            self._out.emit(Usage(turn=running.turn, **running.usage))
