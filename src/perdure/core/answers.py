"""Interprets what people send: answers to prompts, values of options, titles taken from messages. Pure.

Above: session.py, turns.py, history.py, and imports. Below: the session's state and events.
"""

from typing import Any

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.state import Session

TITLE_LENGTH = 80
REPORTED = ("available_commands", "background_tasks")
"""Reported by agents like options, but can't be set."""


def read_answer(prompt: ev.PendingPrompt, command: cmd.AnswerPrompt) -> tuple[Any, dict[str, Any]]:
    """The outcome and the answer to deliver. Raises Refused if the answer doesn't fit the prompt."""
    if command.cancel:
        return "cancelled", {"cancel": True}
    if prompt.kind == "question":
        known = [question.question_id for question in prompt.questions]
        if command.answers is None:
            raise Refused("invalid", f"This is a question: send answers for {', '.join(known)}, or cancel.")
        strange = [key for key in command.answers if key not in known]
        if strange or not command.answers:
            raise Refused("invalid", f"Send answers for {', '.join(known)}, and for nothing else.")
        return "answered", {"answers": command.answers}
    for option in prompt.options:
        if option.option_id == command.option_id:
            answer: dict[str, Any] = {"option_id": option.option_id, "kind": option.kind}
            for key in ("input", "reason"):
                if getattr(command, key) is not None:
                    answer[key] = getattr(command, key)
            if command.interrupt:
                answer["interrupt"] = True
            return ("allowed" if option.kind.startswith("allow") else "denied"), answer
    names = ", ".join(option.option_id for option in prompt.options)
    raise Refused("invalid", f"option_id must be one of: {names}.", fields=["option_id"])


def check_choice(state: Session, config_id: str, value: Any) -> None:
    """Raises Refused if the agent has no such option, or doesn't accept the value. An agent that has not run yet has
    not reported its options, so everything is accepted here, and the agent decides later."""
    allowed: dict[str, list[Any]] = {}
    for option in state.config_options or []:
        allowed[str(option.get("id"))] = _values(option)
    if not allowed and (state.models or state.modes):
        allowed["model"] = [model.get("modelId") for model in (state.models or {}).get("availableModels", [])]
        allowed["mode"] = [mode.get("id") for mode in (state.modes or {}).get("availableModes", [])]
    prefix = (state.models or {}).get("otherPrefix")
    if config_id == "model" and prefix and isinstance(value, str) and prefix in value:
        return
    if config_id in REPORTED or (allowed and config_id not in allowed):
        raise Refused(
            "invalid", f"config_id must be one of: {', '.join(allowed) or 'model, mode'}.", fields=["config_id"]
        )
    values = allowed.get(config_id)
    if values and value not in values:
        raise Refused("invalid", f"value must be one of: {', '.join(map(str, values))}.", fields=["value"])


def _values(option: dict[str, Any]) -> list[Any]:
    """The values of a config option, from a flat or grouped list; empty if it has none."""
    values: list[Any] = []
    for entry in option.get("options") or []:
        if "options" in entry:
            values += [inner.get("value") for inner in entry["options"]]
        else:
            values.append(entry.get("value"))
    return values


def title_of(text: str) -> str:
    """The first non-blank line, cut at a word boundary."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    room = line[: TITLE_LENGTH - 1]
    words = room.rsplit(" ", 1)[0]
    return (words if len(words) > TITLE_LENGTH // 2 else room).rstrip() + "…"
