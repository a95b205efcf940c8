"""The changes that an agent's own edit tools reported, for turns without snapshots. Denied and failed edits are not
changes.

Above: the verbs for changes. Below: views of turns. What a shell command has changed is not known here. A file that was
edited several times is the sum of its edits: the texts are passages, not whole files. Only of a new file is the whole
text known, so its edits are joined, and its patch is one that git can apply.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.core.line_comparison import CONTEXT_LINES, compare, groups
from perdure.core.view import TurnView
from perdure.runtime.review.comparison import has_edited


def files(views: Iterable[TurnView], workdir: str) -> list[dict[str, Any]]:
    """One entry for each file, as in the API, with the passages in `diffs`."""
    found: dict[str, dict[str, Any]] = {}
    for view in views:
        for part in view.parts:
            if not isinstance(part, dict) or part.get("type") != "tool" or not has_edited(part):
                continue
            for diff in part["diff"]:
                path = _shown(str(diff["path"]), workdir)
                _add(found.setdefault(path, _empty(path, diff)), diff, view.turn, part["tool_id"])
    for file in found.values():
        lines = [line for diff in file["diffs"] for line in _compared(diff)]
        file["added"] = sum(line[0] == "+" for line in lines)
        file["removed"] = sum(line[0] == "-" for line in lines)
    return list(found.values())


def _shown(path: str, workdir: str) -> str:
    full = os.path.normpath(os.path.join(workdir, path))
    return os.path.relpath(full, workdir) if full.startswith(workdir.rstrip("/") + "/") else full


def _empty(path: str, diff: dict[str, Any]) -> dict[str, Any]:
    status = "added" if diff.get("old_text") is None and not diff.get("overwrites") else "modified"
    unknown = dict.fromkeys(
        ("old_path", "old_mode", "new_mode", "old_id", "new_id", "old_size", "new_size", "committed")
    )
    nothing: dict[str, Any] = {"binary": False, "image": False, "outside": False, "added": 0, "removed": 0}
    return {"path": path, "status": status, **unknown, **nothing, "tools": [], "diffs": []}


def _add(file: dict[str, Any], diff: dict[str, Any], turn: int | None, tool_id: str) -> None:
    tool = {"turn": turn, "tool_id": tool_id}
    if tool not in file["tools"]:
        file["tools"].append(tool)
    if (whole := _joined(file, diff)) is not None:
        file["diffs"][0]["new_text"] = whole
        return
    shown = {name: diff.get(name) for name in ("old_text", "new_text", "line")}
    file["diffs"].append({"path": file["path"], **shown})


def _joined(file: dict[str, Any], diff: dict[str, Any]) -> str | None:
    """The text of a new file after one more edit; None if it can't be known."""
    if file["status"] != "added" or len(file["diffs"]) != 1:
        return None
    text, old, new = file["diffs"][0]["new_text"] or "", diff.get("old_text"), diff.get("new_text") or ""
    if old is None or old == text:
        return str(new)
    return text.replace(old, new) if old and text.count(old) == 1 else None


def _compared(diff: dict[str, Any]) -> list[str]:
    return list(compare(_lines(diff.get("old_text")), _lines(diff.get("new_text"))))


def _lines(text: str | None) -> list[str]:
    lines = (text or "").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def patch(found: Sequence[dict[str, Any]], paths: Sequence[str]) -> bytes:
    """The edits in the format of a patch. Line numbers are those of the passages if the file's are not known."""
    written = [_patch_of(file) for file in found if not paths or file["path"] in paths]
    return "".join(written).encode("utf-8", "surrogateescape")


def _patch_of(file: dict[str, Any]) -> str:
    old, new, is_new = _named(f"a/{file['path']}"), _named(f"b/{file['path']}"), file["status"] == "added"
    head = f"diff --git {old} {new}\n" + ("new file mode 100644\n" if is_new else "")
    hunks = "".join(_hunks(diff) for diff in file["diffs"])
    if not hunks:
        return head
    if is_new and len(file["diffs"]) == 1 and not str(file["diffs"][0]["new_text"]).endswith("\n"):
        hunks += "\\ No newline at end of file\n"
    return f"{head}--- {'/dev/null' if is_new else old}\n+++ {new}\n{hunks}"


def _named(path: str) -> str:
    """The path as in a patch of git: quoted if it has a character that would end it."""
    if path.isprintable() and not set(path) & set('"\\'):
        return path
    raw = path.encode("utf-8", "surrogateescape")
    escaped = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return f'"{"".join(escaped)}"'


def _hunks(diff: dict[str, Any]) -> str:
    lines, written, first = _compared(diff), [], max(1, diff.get("line") or 1)
    for begin, end in groups(lines, CONTEXT_LINES):
        part, before = lines[begin:end], lines[:begin]
        old_at = first + sum(line[0] != "+" for line in before)
        new_at = first + sum(line[0] != "-" for line in before)
        old_count, new_count = sum(line[0] != "+" for line in part), sum(line[0] != "-" for line in part)
        written.append(f"@@ -{_range(old_at, old_count)} +{_range(new_at, new_count)} @@\n")
        written += [f"{line}\n" for line in part]
    return "".join(written)


def _range(first: int, count: int) -> str:
    """Where a hunk is. Without lines, git names the line before it."""
    return f"{first if count else first - 1},{count}"
