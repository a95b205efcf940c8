"""Permissions in the Claude dialect: what flags, mode and rules allow, and what a host's answer means.

Above: claude_turn.py checks here before it asks the host. Below: nothing; all of it is pure.
If the real one would reject a host's answer, the tool's result says so, with the same message.
"""

from typing import Any, Literal, NamedTuple

from perdure.rehearsal.claude_flags import BYPASS
from perdure.rehearsal.claude_lines import Line

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)
CLOSED = "Error: Tool permission stream closed before response received"
NO_QUESTIONS = (
    "Error: No such tool available: AskUserQuestion. AskUserQuestion exists but is not enabled in this context. "
    "Use one of the available tools instead."
)
_INVALID = 'ZodError: [\n  {\n    "code": "invalid_union",\n    "path": [],\n    "message": "Invalid input"\n  }\n]'


class Verdict(NamedTuple):
    """The decision about a tool call. `message` is the tool's result if it is denied."""

    allowed: bool
    message: str = ""
    interrupt: bool = False
    input: Line = {}
    updates: tuple[Line, ...] = ()


Standing = Literal["allowed", "denied", "denied_by_mode", "ask"]


def standing(name: str, kind: str, mode: str, rules: dict[str, bool]) -> Standing:
    """The decision without asking the host, or `ask`. A rule that denies takes precedence over any mode."""
    if rules.get(name) is False:
        return "denied"
    if rules.get(name) or mode == BYPASS or (mode == "acceptEdits" and kind == "edit"):
        return "allowed"
    return "denied_by_mode" if mode == "dontAsk" else "ask"


def denial(name: str, standing: Standing) -> str:
    if standing == "denied_by_mode":
        return f"Permission to use {name} has been denied because Claude Code is running in don't ask mode."
    if standing == "denied":
        return f"Permission to use {name} has been denied."
    return f"Claude requested permissions to use {name}, but you haven't granted it yet."


def failed(error: str) -> Verdict:
    return Verdict(False, f"Tool permission request failed: {error}")


def read_answer(response: Line) -> Verdict:
    """The verdict in a host's control_response."""
    if response.get("subtype") == "error":
        return failed(f"Error: {response.get('error')}")
    answer = response.get("response")
    behavior = answer.get("behavior") if isinstance(answer, dict) else None
    if isinstance(answer, dict) and behavior == "allow" and isinstance(answer.get("updatedInput"), dict):
        updates = answer.get("updatedPermissions")
        found = [one for one in updates if isinstance(one, dict)] if isinstance(updates, list) else []
        return Verdict(True, input=answer["updatedInput"], updates=tuple(found))
    if isinstance(answer, dict) and behavior == "deny" and isinstance(answer.get("message"), str):
        interrupt = answer.get("interrupt") is True
        return Verdict(False, REJECTED if interrupt else answer["message"], interrupt)
    return failed(_INVALID)


def apply(update: Line, rules: dict[str, bool]) -> str | None:
    """Apply a permission update to the rules, or return the mode that it sets."""
    if update.get("type") == "setMode":
        return str(update.get("mode"))
    named = update.get("rules")
    if update.get("type") == "addRules" and isinstance(named, list) and update.get("behavior") in ("allow", "deny"):
        for rule in named:
            if isinstance(rule, dict) and isinstance(rule.get("toolName"), str):
                rules[rule["toolName"]] = update["behavior"] == "allow"
    return None


def suggestions(name: str, kind: str) -> list[Line]:
    rule = {"type": "addRules", "rules": [{"toolName": name}], "behavior": "allow", "destination": "localSettings"}
    edits = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    return [rule, *(edits if kind == "edit" else [])]


def questions(question: str, choices: list[str]) -> Line:
    """The input of AskUserQuestion for one question."""
    options = [{"label": choice, "description": choice} for choice in choices]
    header = question[:12].strip()
    return {"questions": [{"question": question, "header": header, "options": options, "multiSelect": False}]}


def answers(given: Line) -> dict[str, str]:
    """The answers by question, which the host added to the tool's input."""
    found: Any = given.get("answers")
    if not isinstance(found, dict):
        return {}
    return {str(question): str(answer) for question, answer in found.items() if answer not in ("", None)}
