"""Permission requests and questions of the agent: showing, answering and withdrawing them.

Above: the conversation; turns, which withdraw open prompts at their end. Below: tools.py and the outbox. Each request
is answered once, or not at all if the agent has cancelled it.
"""

from typing import Any

from perdure.core.events import Choice, PendingPrompt, PromptOption, Question
from perdure.drivers.base import PromptWithdrawn, SendAnswer
from perdure.drivers.claude import tools, wire
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.state import Asked, Running, State
from perdure.drivers.claude.working import Working

DENIED = "The person does not allow this."
UNANSWERED = "The person does not want to answer."

_TITLES = {
    "ExitPlanMode": "The agent has a plan and asks to start",
    "EnterPlanMode": "The agent asks to plan first",
}
_MODES = {"acceptEdits": "all edits in this session", "bypassPermissions": "everything in this session"}


class Asking:
    def __init__(self, state: State, out: Outbox, working: Working) -> None:
        self._state = state
        self._out = out
        self._working = working

    def permission(self, running: Running, request_id: str, request: dict[str, Any]) -> None:
        name, given = wire.string(request, "tool_name") or "tool", request.get("input")
        tool_id = wire.string(request, "tool_use_id")
        # A sub-agent may ask before its tool is announced.
        parent = self._state.tasks.get(wire.string(request, "agent_id")) or None
        self._working.use(running, tool_id, name, given, parent)
        running.judged.append(tool_id)
        asked = Asked(request_id, input=given)
        prompt = PendingPrompt(
            turn=running.turn,
            prompt_id="",
            kind="permission",
            title=_TITLES.get(name) or tools.title(name, given),
            tool_id=tool_id or None,
            tool=name,
            input=given,
            tool_kind=tools.kind(name),
            diff=tools.proposed_change(name, given),
        )
        questions = _questions(given) if name == "AskUserQuestion" else []
        if questions:
            asked.questions = {question.question_id: question.question for question in questions}
            prompt.kind, prompt.title, prompt.questions = "question", questions[0].question, questions
        else:
            asked.always = _always(request)
            prompt.options = _options(asked.always)
            prompt.always, prompt.covers = _words(asked.always), _covered(asked.always)
        self._ask(asked, prompt)

    def answer(self, order: SendAnswer) -> bool:
        """Send an answer to the agent. Returns whether an interrupt must be sent too."""
        asked, answer = self._state.asked.get(order.prompt_id), order.answer
        if asked is None:
            return False
        interrupt, answers = answer.get("interrupt") is True, answer.get("answers")
        option = answer.get("option_id")
        response: dict[str, Any]
        if answer.get("cancel") is True:
            response = {"behavior": "deny", "message": UNANSWERED if asked.questions else DENIED}
        elif asked.questions and isinstance(answers, dict):
            given = asked.input if isinstance(asked.input, dict) else {}
            response = {"behavior": "allow", "updatedInput": {**given, "answers": _answers(asked, answers)}}
        elif not asked.questions and option in ("allow_once", "allow_always"):
            changed = answer.get("input")
            response = {"behavior": "allow", "updatedInput": changed if isinstance(changed, dict) else asked.input}
            if option == "allow_always":
                response["updatedPermissions"] = asked.always
        elif not asked.questions and option == "reject_once":
            reason = answer.get("reason")
            response = {"behavior": "deny", "message": reason if isinstance(reason, str) and reason else DENIED}
            if interrupt:
                response["interrupt"] = True
        else:
            return False
        del self._state.asked[order.prompt_id]
        self._out.respond(asked.request_id, response)
        if interrupt and self._state.running is not None:
            self._state.running.cancelled = True
        return interrupt and "interrupt" not in response

    def withdrawn(self, request_id: str) -> bool:
        """Handle a request that the agent cancels. Returns whether it was open."""
        open_ids = [prompt_id for prompt_id, asked in self._state.asked.items() if asked.request_id == request_id]
        for prompt_id in open_ids:
            self._withdraw(prompt_id)
        return bool(open_ids)

    def withdraw_all(self) -> None:
        """Withdraw all prompts at the end of a turn or after an interrupt. The agent needs no answer."""
        for prompt_id in list(self._state.asked):
            self._withdraw(prompt_id)

    def _ask(self, asked: Asked, prompt: PendingPrompt) -> None:
        state = self._state
        state.asked_count += 1
        prompt.prompt_id = f"{state.launch_id}-{state.asked_count}"
        state.asked[prompt.prompt_id] = asked
        self._out.emit(prompt)

    def _withdraw(self, prompt_id: str) -> None:
        del self._state.asked[prompt_id]
        self._out.emit(PromptWithdrawn(prompt_id))


def _options(always: list[dict[str, Any]]) -> list[PromptOption]:
    options = [PromptOption("allow_once", "Allow", "allow_once")]
    if always:
        only_mode = all(rule.get("type") == "setMode" for rule in always)
        name = "Allow all edits in this session" if only_mode else "Allow for this session"
        options.append(PromptOption("allow_always", name, "allow_always"))
    return [*options, PromptOption("reject_once", "Deny", "reject_once")]


def _always(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the agent's suggestions for "always", limited to its session.

    The agent suggests rules for the project's settings file, which only people should change. A change of mode allows
    much more than the request, so it is used only if nothing narrower is suggested.
    """
    suggestions = wire.items(request, "permission_suggestions")
    rules = [
        {**rule, "destination": "session"}
        for rule in suggestions
        if rule.get("type") == "addRules" and rule.get("behavior") == "allow"
    ]
    session = [rule for rule in suggestions if rule.get("destination") == "session"]
    narrow = [rule for rule in session if rule.get("type") not in ("setMode", "addRules")]
    return rules + narrow or session


def _words(always: list[dict[str, Any]]) -> list[str]:
    """Return rules in the syntax of the agent's settings and command line."""
    found = []
    for addition in always:
        for rule in wire.items(addition, "rules") if addition.get("type") == "addRules" else []:
            tool, what = wire.string(rule, "toolName"), wire.string(rule, "ruleContent")
            if tool:
                found.append(f"{tool}({what})" if what else tool)
    return found


def _covered(always: list[dict[str, Any]]) -> list[str]:
    """Return everything that they allow, for people: rules, directories and a mode."""
    found = _words(always)
    for addition in always:
        mode, places = wire.string(addition, "mode"), addition.get("directories")
        if addition.get("type") == "setMode" and mode:
            found.append(_MODES.get(mode, f"mode {mode}"))
        elif addition.get("type") == "addDirectories" and isinstance(places, list):
            found += [f"access to {one}" for one in places if isinstance(one, str)]
    return found


def _questions(given: Any) -> list[Question]:
    return [
        Question(
            question_id=f"q{number}",
            question=wire.string(item, "question"),
            header=wire.string(item, "header"),
            multiple=item.get("multiSelect") is True,
            options=[
                Choice(wire.string(option, "label"), wire.string(option, "description"))
                for option in wire.items(item, "options")
            ],
        )
        for number, item in enumerate(wire.items(given, "questions"), 1)
        if wire.string(item, "question")
    ]


def _answers(asked: Asked, answers: dict[str, Any]) -> dict[str, str]:
    """Return answers by question text, as the agent expects them. Several choices become one string."""
    found: dict[str, str] = {}
    for question_id, value in answers.items():
        question = asked.questions.get(question_id)
        if question is not None and value is not None:
            found[question] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found
