"""Tool calls that match what an agent offers: every agent names its shell and its arguments differently.

Above: script.py asks for a shell command, a file or a question. Below: nothing; the request's tool list has the names
and arguments. An agent without such a tool gets Claude's name for it, to see how the agent reacts.
"""

import re
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A tool call, as the model makes it."""

    name: str
    arguments: dict[str, Any]


_NAMES = {
    "bash": r"bash|shell|shell_command|exec_command|terminal|run_shell_command|run_command|execute|local_shell",
    "write": r"write|write_file|create_file|create|str_replace_editor",
    "read": r"read|read_file|view|view_file",
    "ask": r"AskUserQuestion|ask_user|ask_user_question|clarify|question|ask|request_user_input",
}
_CLAUDE = {"bash": "Bash", "write": "Write", "read": "Read", "ask": "AskUserQuestion"}
_PATHS = ("file_path", "filePath", "absolute_path", "path", "filename", "target_file")
_FILLING: dict[str, Any] = {"boolean": False, "integer": 0, "number": 0, "array": [], "object": {}}


def shell(command: str, offered: dict[str, Any]) -> Call:
    name = _offered("bash", offered)
    schema = offered.get(name)
    wanted = _first(schema, ("command", "cmd", "script"))
    as_list = _properties(schema).get(wanted, {}).get("type") == "array"
    return Call(name, _filled(schema, {wanted: ["bash", "-lc", command] if as_list else command}))


def write_file(path: str, text: str, offered: dict[str, Any]) -> Call:
    name = _offered("write", offered)
    schema = offered.get(name)
    content = _first(schema, ("content", "contents", "text", "file_text"))
    return Call(name, _filled(schema, {_first(schema, _PATHS): path, content: text}))


def read_file(path: str, offered: dict[str, Any]) -> Call:
    name = _offered("read", offered)
    schema = offered.get(name)
    return Call(name, _filled(schema, {_first(schema, _PATHS): path}))


def question(text: str, choices: list[str], offered: dict[str, Any]) -> Call:
    name = _offered("ask", offered)
    schema = offered.get(name)
    known = _properties(schema)
    if known and "questions" not in known:
        return Call(name, _filled(schema, {"question": text, _first(schema, ("choices", "options")): choices}))
    options = [{"label": choice, "description": choice} for choice in choices]
    asked = {"question": text, "header": "Question", "multiSelect": False, "options": options}
    return Call(name, {"questions": [asked]})


def filled_form(schema: Any) -> Any:
    """The simplest value that matches a JSON schema."""
    kind = str(schema.get("type", "object")).lower()
    if schema.get("enum"):
        return schema["enum"][0]
    if kind == "object":
        return {name: filled_form(part) for name, part in _properties(schema).items()}
    return schema.get("minimum", _FILLING.get(kind, "scripted"))


def _offered(kind: str, offered: dict[str, Any]) -> str:
    fitting = [name for name in offered if re.fullmatch(_NAMES[kind], name, re.IGNORECASE)]
    return fitting[0] if fitting else _CLAUDE[kind]


def _properties(schema: Any) -> dict[str, Any]:
    return (schema or {}).get("properties") or {}


def _first(schema: Any, candidates: tuple[str, ...]) -> str:
    return next((name for name in candidates if name in _properties(schema)), candidates[0])


def _filled(schema: Any, given: dict[str, Any]) -> dict[str, Any]:
    """With a value for every required argument."""
    for name in (schema or {}).get("required") or []:
        if name not in given:
            kind = _properties(schema).get(name, {})
            given[name] = kind["enum"][0] if kind.get("enum") else _FILLING.get(str(kind.get("type")), "scripted")
    if "description" in _properties(schema):
        given.setdefault("description", "scripted")
    return given
