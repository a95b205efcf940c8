"""How a tool call is told: its kind, its title, what its result says and what it changed.

Above: working.py and asking.py. Below: nothing. Functions from values to values. The agent's tools are known by name;
one that isn't (of an MCP server, or of a newer version) is shown with whatever its input names.
"""

from typing import Any

from perdure.drivers.claude import content, wire

TITLE_MAX_CHARS = 160

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
    """One line for people: the tool, and what it is about."""
    for key in _SUBJECTS:
        subject = " ".join(wire.string(given, key).split())
        if subject:
            line = f"{name}: {subject}"
            return line if len(line) <= TITLE_MAX_CHARS else line[: TITLE_MAX_CHARS - 1] + "…"
    return name


def result_text(block: dict[str, Any], detail: Any) -> str | None:
    text = content.text_of(block.get("content"))
    if text and isinstance(detail, dict) and "agentId" in detail:
        # A sub-agent's report; what the model sees also has notes on how to go on with it.
        text = content.text_of(detail.get("content")) or text
    return text or (detail if isinstance(detail, str) and detail else None)


def diff(detail: Any) -> list[dict[str, Any]] | None:
    """What an edit changed: one entry per hunk, or the whole of a new file."""
    path = wire.string(detail, "filePath")
    if not path:
        return None
    hunks = [hunk for hunk in wire.items(detail, "structuredPatch") if isinstance(hunk.get("lines"), list)]
    if hunks:
        return [_hunk(path, hunk) for hunk in hunks]
    if detail.get("type") == "create" and isinstance(detail.get("content"), str):
        return [{"path": path, "old_text": None, "new_text": detail["content"]}]
    return None


def asked_change(name: str, given: Any, result: str | None) -> list[dict[str, Any]] | None:
    """What an edit changed, told from what was asked for: of a sub-agent's the result has no more than its text."""
    path = wire.string(given, "file_path")
    if name == "Write" and path and (result or "").startswith(_CREATED):
        return [{"path": path, "old_text": None, "new_text": wire.string(given, "content")}]
    edits = wire.items(given, "edits") if name == "MultiEdit" else [given] if name == "Edit" else []
    found = [
        {"path": path, "old_text": wire.string(edit, "old_string"), "new_text": wire.string(edit, "new_string")}
        for edit in edits
        if path
    ]
    return found or None


def locations(detail: Any) -> list[dict[str, Any]] | None:
    path = wire.string(detail, "filePath")
    return [{"path": path}] if path else None


def _hunk(path: str, hunk: dict[str, Any]) -> dict[str, Any]:
    lines = [line for line in hunk["lines"] if isinstance(line, str)]
    entry: dict[str, Any] = {
        "path": path,
        "old_text": "\n".join(line[1:] for line in lines if line[:1] in (" ", "-")),
        "new_text": "\n".join(line[1:] for line in lines if line[:1] in (" ", "+")),
    }
    start = wire.whole(hunk.get("newStart"))
    if start is not None:
        entry["line"] = start
    return entry
