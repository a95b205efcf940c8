"""How to show a tool call: its kind, its title, the text of its result and what it changed.

Above: working.py and asking.py. Below: nothing. Pure functions. The agent's tools are known by name. An unknown tool
(of an MCP server or a newer version) is shown with the subject in its input.
"""

from typing import Any

from perdure.core.proposed_edits import hunks, place
from perdure.drivers.claude import content, wire

TITLE_MAX_CHARS = 160
COMPARED_MAX_CHARS = 256 * 1024

_KINDS = {
    "Bash": "execute",
    "BashOutput": "execute",
    "KillShell": "execute",
    "Read": "read",
    "NotebookRead": "read",
    "Edit": "edit",
    "MultiEdit": "edit",
    "Write": "edit",
    "NotebookEdit": "edit",
    "Grep": "search",
    "Glob": "search",
    "LS": "search",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "EnterPlanMode": "switch_mode",
    "ExitPlanMode": "switch_mode",
}
EDITING = ("Edit", "MultiEdit", "Write")
_CREATED = "File created"
_SUBJECTS = ("command", "file_path", "notebook_path", "path", "pattern", "url", "query", "description", "skill")


def kind(name: str) -> str:
    return _KINDS.get(name, "other")


def title(name: str, given: Any) -> str:
    """Return one line for people: the tool and its subject."""
    for key in _SUBJECTS:
        subject = " ".join(wire.string(given, key).split())
        if subject:
            line = f"{name}: {subject}"
            return line if len(line) <= TITLE_MAX_CHARS else line[: TITLE_MAX_CHARS - 1] + "…"
    return name


def result_text(block: dict[str, Any], detail: Any) -> str | None:
    text = content.text_of(block.get("content"))
    if text and isinstance(detail, dict) and "agentId" in detail:
        # A sub-agent's report. The model's version also has notes on how to continue it; leave them out.
        text = content.text_of(detail.get("content")) or text
    return text or (detail if isinstance(detail, str) and detail else None)


def diff(detail: Any) -> list[dict[str, Any]] | None:
    """Return what an edit changed: one entry per hunk, or the whole of a new file."""
    path = wire.string(detail, "filePath")
    if not path:
        return None
    patch = [hunk for hunk in wire.items(detail, "structuredPatch") if isinstance(hunk.get("lines"), list)]
    if patch:
        return _exact(path, detail) or [_hunk(path, hunk) for hunk in patch]
    if detail.get("type") == "create" and isinstance(detail.get("content"), str):
        return [{"path": path, "old_text": None, "new_text": detail["content"]}]
    return None


def asked_change(name: str, given: Any, result: str | None) -> list[dict[str, Any]] | None:
    """Return what an edit changed, derived from its input: the result of a sub-agent's edit has only text."""
    if name == "Write" and not (result or "").startswith(_CREATED):
        return None
    return proposed_change(name, given)


def proposed_change(name: str, given: Any) -> list[dict[str, Any]] | None:
    """Return what an edit that waits for permission would change. For a written file: its whole new text."""
    path = wire.string(given, "file_path")
    if name == "Write" and path:
        return [{"path": path, "old_text": None, "new_text": wire.string(given, "content")}]
    edits = wire.items(given, "edits") if name == "MultiEdit" else [given] if name == "Edit" else []
    return [_passage(path, edit) for edit in edits if path] or None


def locations(detail: Any) -> list[dict[str, Any]] | None:
    path = wire.string(detail, "filePath")
    return [{"path": path}] if path else None


def _exact(path: str, detail: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the change with its exact indentation: the agent's patch replaces tabs with spaces. Returns None if the
    message does not have the file's text."""
    old, new = detail.get("originalFile"), detail.get("content")
    if not isinstance(old, str) or len(old) > COMPARED_MAX_CHARS:
        return None
    if not isinstance(new, str):
        edits = wire.items(detail, "edits") or [
            {**detail, "old_string": detail.get("oldString"), "new_string": detail.get("newString")}
        ]
        every = {"replace_all": True} if detail.get("replaceAll") is True else {}
        placed = place([_passage(path, edit) | every for edit in edits], lambda _: old)
        return placed if all("line" in entry for entry in placed) else None
    return hunks(path, old, new) if len(new) <= COMPARED_MAX_CHARS else None


def _passage(path: str, edit: dict[str, Any]) -> dict[str, Any]:
    old, new = wire.string(edit, "old_string"), wire.string(edit, "new_string")
    found = {"path": path, "old_text": old, "new_text": new}
    return found | {"replace_all": True} if edit.get("replace_all") is True else found


def _hunk(path: str, hunk: dict[str, Any]) -> dict[str, Any]:
    lines = [line for line in hunk["lines"] if isinstance(line, str)]
    # A line that starts with a backslash means that the previous line has no newline.
    ends = ["" if after.startswith("\\") else "\n" for after in [*lines[1:], ""]]
    entry: dict[str, Any] = {
        "path": path,
        "old_text": "".join(line[1:] + end for line, end in zip(lines, ends, strict=True) if line[:1] in (" ", "-")),
        "new_text": "".join(line[1:] + end for line, end in zip(lines, ends, strict=True) if line[:1] in (" ", "+")),
    }
    start = wire.whole(hunk.get("newStart"))
    if start is not None:
        entry["line"] = start
    return entry
