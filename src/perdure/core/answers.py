"""What a person's words mean: an answer to a prompt, a value of an option, a title out of a message. Pure."""

from typing import Any

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Refused

TITLE_LENGTH = 80


def read_answer(prompt: ev.PendingPrompt, command: cmd.AnswerPrompt) -> tuple[Any, dict[str, Any]]:
    if command.cancel:
        return "cancelled", {"cancel": True}
    if prompt.kind == "question":
        known = [question.question_id for question in prompt.questions]
        if command.answers is None:
            raise Refused("invalid", f"This is a question: send answers for {', '.join(known)}, or cancel.")
        strange = [key for key in command.answers if key not in known]
        if strange or not command.answers:
            raise Refused("invalid", f"Answers must be given for {', '.join(known)}.")
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
    raise Refused("invalid", f"option_id must be one of: {names}.")


def config_values(option: dict[str, Any]) -> list[Any]:
    """The values of a config option, whether its list is flat or grouped; empty if it has none."""
    values: list[Any] = []
    for entry in option.get("options") or []:
        if "options" in entry:
            values += [inner.get("value") for inner in entry["options"]]
        else:
            values.append(entry.get("value"))
    return values


def title_of(text: str) -> str:
    """The first line that says something, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    room = line[: TITLE_LENGTH - 1]
    words = room.rsplit(" ", 1)[0]
    return (words if len(words) > TITLE_LENGTH // 2 else room).rstrip() + "…"
