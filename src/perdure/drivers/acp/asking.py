"""Permission requests and questions of the agent: showing, answering and withdrawing them.

Above: the conversation; turns, which withdraw open prompts at their end. Below: permissions.py, forms.py, tools.py, the
outbox. Every request gets exactly one answer, and never a JSON-RPC error.
"""

from typing import Any

from perdure.core.events import PendingPrompt, System
from perdure.drivers import jsonrpc
from perdure.drivers.acp import permissions, tools
from perdure.drivers.acp.forms import fill_form, read_form
from perdure.drivers.acp.outbox import Outbox
from perdure.drivers.acp.state import Asked, Running, State
from perdure.drivers.base import PromptWithdrawn, SendAnswer

REASON_NOT_TOLD = "The agent did not receive your reason: its protocol has no field for it. Send it as a message."


class Asking:
    def __init__(self, state: State, out: Outbox) -> None:
        self._state = state
        self._out = out

    def permission(self, id: jsonrpc.Id, params: dict[str, Any]) -> None:
        running = self._live(params)
        if running is None:
            # Outside a turn, cancel the request rather than leave it hanging.
            self._out.write(jsonrpc.result(id, permissions.CANCELLED))
            return
        call = params.get("toolCall")
        tool_id = call.get("toolCallId") if isinstance(call, dict) else None
        options = permissions.read_options(params.get("options"))
        prompt = PendingPrompt(
            turn=running.turn,
            prompt_id="",
            kind="permission",
            title="The agent asks for permission",
            options=options,
        )
        if isinstance(call, dict) and isinstance(tool_id, str):
            # gemini and hermes announce a tool only here; vibe sends only its id.
            for event in tools.upsert(running, call):
                self._out.emit(event)
            tool = running.tools[tool_id]
            given = call.get("rawInput")
            prompt.title = tool.title or tool.name or prompt.title
            prompt.tool_id, prompt.tool = tool_id, tool.name or None
            prompt.input = tool.input if given is None else given
            prompt.tool_kind, prompt.content = tool.kind, tools.text_of(call) or None
            # vibe and codex send the diff with the tool call and leave it out here.
            prompt.diff = tools.diff_of(call) or tool.diff
            prompt.covers = permissions.covered(params.get("options"))
        self._ask(Asked(id, "permission", options=options), prompt)

    def question(self, id: jsonrpc.Id, params: dict[str, Any]) -> None:
        running = self._live(params)
        if running is None or params.get("mode", "form") != "form":
            self._out.write(jsonrpc.result(id, {"action": "cancel"}))
            return
        message, tool_id = params.get("message"), params.get("toolCallId")
        title = message if isinstance(message, str) and message else "The agent asks"
        fields, questions = read_form(params.get("requestedSchema"), title)
        prompt = PendingPrompt(
            turn=running.turn,
            prompt_id="",
            kind="question",
            title=title,
            tool_id=tool_id if isinstance(tool_id, str) else None,
            questions=questions,
        )
        self._ask(Asked(id, "question", fields=fields), prompt)

    def answer(self, order: SendAnswer) -> bool:
        """Send an answer to the agent. Returns whether anything was sent."""
        asked, answer = self._state.asked.get(order.prompt_id), order.answer
        if asked is None:
            return False
        answers = answer.get("answers")
        if answer.get("cancel") is True:
            line = _cancelled(asked)
        elif asked.kind == "permission" and "option_id" in answer:
            line = jsonrpc.result(asked.id, permissions.outcome(asked.options, answer["option_id"]))
        elif asked.kind == "question" and isinstance(answers, dict):
            line = jsonrpc.result(asked.id, {"action": "accept", "content": fill_form(asked.fields, answers)})
        else:
            return False
        del self._state.asked[order.prompt_id]
        running = self._state.running
        if running is not None:
            running.answered = True
            if asked.kind == "permission" and answer.get("reason"):
                self._out.emit(System(turn=running.turn, code="reason_not_told", message=REASON_NOT_TOLD))
        self._out.write(line)
        return True

    def withdrawn(self, params: Any) -> None:
        """Handle a request that the agent cancels."""
        if not isinstance(params, dict) or "requestId" not in params:
            return
        for prompt_id, asked in list(self._state.asked.items()):
            if asked.id == params["requestId"]:
                self._withdraw(prompt_id, asked)

    def withdraw_all(self) -> None:
        for prompt_id, asked in list(self._state.asked.items()):
            self._withdraw(prompt_id, asked)

    def _live(self, params: dict[str, Any]) -> Running | None:
        state = self._state
        return state.running if params.get("sessionId", state.session_id) == state.session_id else None

    def _ask(self, asked: Asked, prompt: PendingPrompt) -> None:
        state = self._state
        # Use our own number: the agent may reuse its ids.
        state.asked_count += 1
        of_whom = f"{state.launch_id}-{state.member}" if state.member else state.launch_id
        prompt.prompt_id = f"{of_whom}-{state.asked_count}"
        state.asked[prompt.prompt_id] = asked
        self._out.emit(prompt)

    def _withdraw(self, prompt_id: str, asked: Asked) -> None:
        del self._state.asked[prompt_id]
        self._out.write(_cancelled(asked))
        self._out.emit(PromptWithdrawn(prompt_id))


def _cancelled(asked: Asked) -> bytes:
    if asked.kind == "permission":
        return jsonrpc.result(asked.id, permissions.CANCELLED)
    return jsonrpc.result(asked.id, {"action": "cancel"})
