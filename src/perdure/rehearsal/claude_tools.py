"""The rehearsal agent's tools in the Claude dialect: their names, inputs and results.

Above: claude_turn.py shows them. Below: the acts of script.py. No tool runs here.
"""

from typing import NamedTuple

from perdure.rehearsal.claude_lines import Line
from perdure.rehearsal.edits import Edit
from perdure.rehearsal.script import ShowPlan, ToolEnd, ToolStart

CONTEXT_LINES = 3
_CURRENT = "(file state is current in your context — no need to Read it back)"
_TODOS_WRITTEN = (
    "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress. "
    "Please proceed with the current tasks if applicable"
)


class Use(NamedTuple):
    """A tool call."""

    tool_id: str
    name: str
    input: Line
    kind: str = "other"

    @property
    def denied(self) -> Line:
        """Its entry in a result's list of denials."""
        return {"tool_name": self.name, "tool_use_id": self.tool_id, "tool_input": self.input}


class Result(NamedTuple):
    """The content for the model, and the extra details that the command reports."""

    block: Line
    details: object


def native_id(tool_id: str) -> str:
    return tool_id.replace("call_", "toolu_", 1)


def use_of(act: ToolStart) -> Use:
    given: Line = dict(act.input)
    name = act.name
    if "path" in given:
        name = "Write"
        given = {"file_path": given["path"], "content": ""}
        if act.edit is not None:
            given = {"file_path": act.edit.path, "content": act.edit.new}
    elif name == "Bash":
        given = {"command": act.input.get("command") or act.input.get("text", act.title), "description": act.title}
    return Use(native_id(act.tool_id), name, given, act.kind)


def todos(act: ShowPlan) -> Line:
    return {"todos": [{"content": content, "status": status, "activeForm": content} for content, status in act.entries]}


def todos_written(use: Use, old: list[Line]) -> Result:
    return _worked(use, _TODOS_WRITTEN, {"oldTodos": old, "newTodos": use.input["todos"]})


def ended(use: Use, act: ToolEnd) -> Result:
    if not act.ok:
        return refused(use, act.content)
    if act.edit is not None:
        return _edited(use, act.edit)
    if use.name == "Bash":
        details = {"stdout": act.content, "stderr": "", "interrupted": False, "isImage": False}
        result = _worked(use, act.content, {**details, "noOutputExpected": False})
        return Result({**result.block, "is_error": False}, result.details)
    return _worked(use, act.content, {"text": act.content})


def refused(use: Use, message: str, details: str | None = None) -> Result:
    block = {"type": "tool_result", "content": message, "is_error": True, "tool_use_id": use.tool_id}
    return Result(block, f"Error: {message}" if details is None else details)


def answered(use: Use, given: Line, answers: dict[str, str]) -> Result:
    """The result of AskUserQuestion."""
    content = "The user did not answer the questions."
    if answers:
        pairs = ", ".join(f'"{question}"="{answer}"' for question, answer in answers.items())
        content = f"Your questions have been answered: {pairs}. You can now continue with these answers in mind."
    block = {"type": "tool_result", "content": content, "tool_use_id": use.tool_id}
    return Result(block, {"questions": given.get("questions", []), "answers": answers})


def _worked(use: Use, content: str, details: Line) -> Result:
    return Result({"tool_use_id": use.tool_id, "type": "tool_result", "content": content}, details)


def _edited(use: Use, edit: Edit) -> Result:
    content = f"The file {edit.path} has been updated successfully. {_CURRENT}"
    if edit.old is None:
        content = f"File created successfully at: {edit.path} {_CURRENT}"
    details = {
        "type": "create" if edit.old is None else "update",
        "filePath": edit.path,
        "content": edit.new,
        "structuredPatch": [] if edit.old is None else [_hunk(edit.old, edit.new)],
        "originalFile": edit.old,
        "userModified": False,
    }
    return _worked(use, content, details)


def _hunk(old: str, new: str) -> Line:
    """The change as one hunk, from the first line that differs to the last."""
    before, after = _lines(old), _lines(new)
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    removed, added = before[first : len(before) - last], after[first : len(after) - last]
    ahead, behind = before[max(0, first - CONTEXT_LINES) : first], before[len(before) - last :][:CONTEXT_LINES]
    start = first - len(ahead) + 1
    return {
        "oldStart": start,
        "oldLines": len(ahead) + len(removed) + len(behind),
        "newStart": start,
        "newLines": len(ahead) + len(added) + len(behind),
        "lines": [
            *(f" {line}" for line in ahead),
            *(f"-{line}" for line in removed),
            *(f"+{line}" for line in added),
            *(f" {line}" for line in behind),
        ],
    }


def _common(one: list[str], other: list[str]) -> int:
    """How many of the first lines are the same."""
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
