"""The input in flight, turns that the agent starts on its own, and how each of them ends.

Above: the conversation. Below: speaking, working, asking, content.py, faults.py, the outbox. One input at a time: the
agent would merge two into one turn with one end. A turn ends with a `result` line, but not every such line is its own.
"""

from typing import Any

from perdure.core.events import Config, Usage
from perdure.drivers.base import SendInput, TurnBegun, TurnFinished
from perdure.drivers.claude import content, faults, launching, wire
from perdure.drivers.claude.asking import Asking
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.speaking import Speaking
from perdure.drivers.claude.state import OWN_TURN, Running, State
from perdure.drivers.claude.working import Working
from perdure.drivers.sentences import said

BY_ITSELF = "The agent continues on its own."

_KEPT = (
    "is_error",
    "subtype",
    "errors",
    "result",
    "stop_reason",
    "terminal_reason",
    "usage",
    "modelUsage",
    "model_usage_since_last_result",
    "total_cost_usd",
)


class Turns:
    def __init__(self, state: State, out: Outbox, speaking: Speaking, working: Working, asking: Asking) -> None:
        self._state = state
        self._out = out
        self._speaking = speaking
        self._working = working
        self._asking = asking

    def send_next(self) -> None:
        """Send the oldest held input if the agent is idle."""
        state = self._state
        while state.held and state.phase == "open" and state.running is None:
            order = state.held.pop(0)
            command = content.slash_command(order.text)
            said = content.input_content(order, state.commands)
            if command in content.LEAVES_THE_SESSION:
                reason = f"/{command} would leave this session; restart the context with your next message instead"
                self._refuse(order, "command_refused", reason)
            elif command in state.commands and not isinstance(said, str):
                self._refuse(
                    order, "command_refused", f"the command /{command} accepts no images; send it without them"
                )
            elif not said:
                self._refuse(order, "empty_prompt", "there is nothing to send")
            else:
                uuid = launching.message_uuid(state.launch_id, order.message_id)
                line = wire.line(
                    {
                        "type": "user",
                        "message": {"role": "user", "content": said},
                        "parent_tool_use_id": None,
                        "session_id": "",
                        "uuid": uuid,
                    }
                )
                self._out.write(line)
                state.running = Running(turn=order.turn, input_bytes=len(line), uuid=uuid, unseen=True)

    def speaking(self) -> Running | None:
        """Return the turn that the agent's output belongs to. Without an input in flight, this starts a new turn."""
        state = self._state
        if state.running is None and state.phase == "open":
            state.running = Running(turn=OWN_TURN)
            self._out.emit(TurnBegun(state.notice or BY_ITSELF))
            state.notice = ""
        if state.running is not None:
            state.running.merged = None
            state.running.unseen = False
        return state.running

    def begun(self) -> None:
        """Handle a line that only occurs before an answer, never after one."""
        if self._state.running is not None:
            self._state.running.unseen = False

    def cancel(self, turn: int) -> None:
        """Interrupt the turn, even if its input has not been sent yet."""
        state = self._state
        for order in [order for order in state.held if order.turn == turn]:
            state.held.remove(order)
            self._out.emit(TurnFinished(turn, "cancelled", sent=False, leaves=state.leaves))
        if state.running is not None and state.running.turn in (turn, OWN_TURN):
            self.interrupt()

    def interrupt(self) -> None:
        running = self._state.running
        if running is not None:
            running.cancelled = True
            self._out.request("interrupt")
            self._asking.withdraw_all()

    def ended(self, result: dict[str, Any]) -> None:
        """Handle a `result` line."""
        running = self._state.running
        if running is None:
            self._out.count("result without a turn")
            self._cost(result)
            return
        own = wire.string(wire.part(result, "origin"), "kind") == "task-notification"
        if own and running.turn != OWN_TURN:
            # The agent had started a turn on its own when the input reached it. The input's turn follows, unless the
            # agent absorbed the input into this turn: then nothing follows, and the agent is idle.
            running.merged = {key: result[key] for key in _KEPT if key in result}
            return
        self.finish(running, result)

    def heard(self, uuid: str) -> None:
        """Handle the agent's confirmation of a message."""
        running = self._state.running
        if running is not None and uuid and uuid == running.uuid:
            running.heard = True
            running.unseen = False

    def idle(self) -> None:
        """Handle the agent's report that it is idle."""
        running = self._state.running
        if running is None:
            return
        if running.merged is not None and self._state.receipts and not running.heard:
            # It became idle before the input reached it. Its output belonged to its own turn.
            running.merged, running.unseen = None, True
        elif running.merged is not None:
            self.finish(running, running.merged)
        elif running.turn == OWN_TURN and not self._state.asked:
            # A background task ended without further output. Its prompt was all there was in this turn.
            self.finish(running, {})

    def withdrawn(self, request_id: str) -> None:
        """Handle a request that the agent cancels. If a turn that it started on its own had nothing else, end the turn,
        because nothing else will."""
        running = self._state.running
        if not self._asking.withdrawn(request_id) or running is None or self._state.asked:
            return
        if running.turn == OWN_TURN and not running.message_id:
            self.finish(running, {})

    def finish(self, running: Running, result: dict[str, Any]) -> None:
        state = self._state
        stop_reason, code, message, poisoned = faults.verdict(result, running.cancelled, running.fault)
        if stop_reason == "cancelled":
            running.cancelled = True
        self._speaking.drop(running)
        answer = wire.string(result, "result") or running.fault_text
        if answer and not running.said and stop_reason == "end_turn":
            self._speaking.whole(running, "", False, answer)
        self._asking.withdraw_all()
        self._working.close(running)
        self._tell_denials(result)
        retry_at = None
        if stop_reason == "end_turn":
            state.limit_resets_at = None
        if code == "usage_limit":
            retry_at = faults.resets_at(message or "") or state.limit_resets_at
            message = self._tell_limit(message or "", retry_at)
        spoken = said(message) if message is not None else None
        cost = self._cost(result)
        figures: dict[str, Any] = content.figures(result)
        if running.context_used:
            figures["context_used"] = running.context_used
        if cost is not None:
            figures["cost_usd"] = cost
        if any(figure for name, figure in figures.items() if name != "context_size"):
            self._out.emit(Usage(turn=running.turn, **figures))
        if state.leaves and state.tasks:
            what = "The agent's background task ends" if len(state.tasks) == 1 else "The agent's background tasks end"
            self._out.tell("background_ended", f"{what} with the turn, because each turn has its own process here.")
        self.tell_tasks()
        left, state.left, state.running = state.left, False, None
        self._out.emit(
            TurnFinished(
                turn=running.turn,
                stop_reason=stop_reason,
                error_code=code,
                error_message=spoken.sentence if spoken is not None else None,
                error_detail=spoken.detail if spoken is not None else None,
                poisoned=poisoned or left,
                held=code in faults.OUTSIDE and not running.said and not running.tools,
                cost_usd=cost,
                input_bytes=running.input_bytes,
                leaves=state.leaves,
                retry_at=retry_at,
            )
        )
        self.send_next()

    def tell_tasks(self) -> None:
        """Report the number of background tasks. A process that has some is not really idle."""
        state = self._state
        if len(state.tasks) != state.tasks_told:
            state.tasks_told = len(state.tasks)
            turn = state.running.turn if state.running is not None else None
            self._out.emit(Config(turn=turn, config_id="background_tasks", value=state.tasks_told))

    def denied(self, tool_id: str, name: str) -> None:
        """Report a tool that was denied without a permission request."""
        running = self._state.running
        if running is not None and tool_id not in running.judged:
            running.judged.append(tool_id)
            self._out.tell("permission_denied", f"{name or 'A tool'} was denied without asking.")

    def _tell_denials(self, result: dict[str, Any]) -> None:
        for denial in wire.items(result, "permission_denials"):
            self.denied(wire.string(denial, "tool_use_id"), wire.string(denial, "tool_name"))

    def _tell_limit(self, message: str, resets_at: int | None) -> str:
        """Report when the quota resets, in a format that programs can read too."""
        if resets_at is None:
            self._out.tell("usage_limit", message)
            return message
        moment = faults.moment(resets_at)
        self._out.tell("usage_limit", f"Usage limit reached. It resets at {moment} ({resets_at}).")
        return f"{message.split('|', maxsplit=1)[0]} (resets at {moment})"

    def _cost(self, result: dict[str, Any]) -> float | None:
        """Return the cost since the last result.

        The total covers all turns of the process. In some versions it covers all turns of the session, even those
        before a resume, and it may restart from 0; these versions report the difference themselves.
        """
        total = wire.amount(result.get("total_cost_usd"))
        if total is None:
            return None
        before, self._state.cost_usd = self._state.cost_usd, total
        since = content.cost_usd(result.get("model_usage_since_last_result"))
        if since is None:
            since = total - before if total >= before else total
        return round(since, 10)

    def _refuse(self, order: SendInput, code: str, reason: str) -> None:
        self._out.emit(TurnFinished(order.turn, "failed", code, reason, sent=False, leaves=self._state.leaves))
