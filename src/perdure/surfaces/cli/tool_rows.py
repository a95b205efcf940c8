"""Prompts and finished tools as rows.

Above: narration.py, and everything that prints a prompt. Below: diffs.py, rows.py and wording.py. Pure. A prompt shows
everything that the user decides on: the change of an edit, every line of a command and its directory, or all input of a
tool.
"""

import json
import os
import re
import shlex
from typing import Any

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.diffs import FileDiff, file_diffs
from perdure.surfaces.cli.rows import Row, Style, visible

Json = dict[str, Any]

INDENT = "  "
SHORT_CONTEXT_LINES = 1
_FENCE = re.compile(r"\A\s*(`{3,})[^\n`]*\n(.*?)\n?\1\s*\Z", re.DOTALL)
_ELEMENT = re.compile(r"\A\s*<(tool_use_error)>(.*)</\1>\s*\Z", re.DOTALL)
# Input fields of a command that agents use for its directory; shown in the heading.
_PLACES = ("cwd", "workdir", "directory")
_SHOWN_WITH_A_COMMAND = ("command", "commands", "description", *_PLACES)


def about(prompt: Json, workdir: str = "") -> list[Row]:
    """A prompt: a heading, then everything to decide on."""
    if prompt["kind"] == "question":
        return [Row(visible(line)) for entry in prompt["questions"] for line in wording.question(entry)]
    if prompt.get("diff"):
        return _edit(file_diffs(prompt["diff"]), workdir)
    command = _command(prompt)
    if command:
        return _run(prompt, command, workdir)
    rows = _input(prompt.get("input")) or _text(prompt.get("content") or "")
    return [Row(f"Permission: {wording.short(visible(prompt['title']))}", "heading"), *rows]


def change(diff: list[Json], workdir: str) -> list[Row]:
    """A change. The name of a single file is in the line above."""
    files = file_diffs(diff, SHORT_CONTEXT_LINES)
    if len(files) == 1:
        return files[0].rows
    return [row for one in files for row in [_named(one, workdir), *one.rows]]


def outcome(tool: Json, workdir: str) -> tuple[list[Row], bool]:
    """Rows below the line of a finished tool, and whether the last rows matter as much as the first."""
    content = _unfenced(str(tool.get("content") or "")).strip("\n")
    if tool.get("outcome") == "denied":
        return [], False
    if tool["status"] == "failed":
        is_command = tool.get("kind") == "execute"
        return _text(content, "dim" if is_command or tool.get("outcome") else "failed"), is_command
    if tool.get("diff") and tool.get("outcome") is None:
        return change(tool["diff"], workdir), False
    if tool.get("kind") == "execute" and not tool.get("parent_tool_id"):
        return _text(content, "dim"), True
    return [], False


def _edit(files: list[FileDiff], workdir: str) -> list[Row]:
    if len(files) == 1:
        only = files[0]
        what = f"{'write' if only.written else 'edit'} {wording.inside(only.path, workdir)}  {only.counts}"
        return [Row(f"Permission: {what}", "heading"), *only.rows]
    added, removed = sum(one.added for one in files), sum(one.removed for one in files)
    heading = Row(f"Permission: edit {len(files)} files  +{added} -{removed}", "heading")
    return [heading, *(row for one in files for row in [_named(one, workdir), *one.rows])]


def _named(one: FileDiff, workdir: str) -> Row:
    return Row(f"{wording.inside(one.path, workdir)}  {one.counts}", "command", INDENT)


def _command(prompt: Json) -> str:
    """The command that a prompt asks to run; empty if it asks for something else."""
    given, kind = prompt.get("input"), prompt.get("tool_kind") or ""
    command = given.get("command") if isinstance(given, dict) and kind in ("", "execute") else None
    if isinstance(command, list) and all(isinstance(part, str) for part in command):
        command = shlex.join(command)
    if isinstance(command, str) and command.strip():
        return command
    # gemini sends a command only as the title.
    return str(prompt["title"]) if kind == "execute" and not given else ""


def _run(prompt: Json, command: str, workdir: str) -> list[Row]:
    given = prompt["input"] if isinstance(prompt.get("input"), dict) else {}
    place = next((given[key] for key in _PLACES if isinstance(given.get(key), str) and given[key]), "")
    elsewhere = place and os.path.normpath(os.path.join(workdir or "/", place)) != os.path.normpath(workdir or place)
    heading = "Permission: run" + (f" in {visible(place)}" if elsewhere else "")
    rows = [Row(heading, "heading"), *_text(command, "command")]
    rows += _input({key: value for key, value in given.items() if key not in _SHOWN_WITH_A_COMMAND and value}, "dim")
    said = str(given.get("description") or prompt.get("content") or "").strip()
    return rows + (_text(said, "dim") if said and said not in (command, f"run {command}") else [])


def _input(given: Any, style: Style = "plain") -> list[Row]:
    """A tool's input: one row for each value, or several for a multi-line text."""
    if not given:
        return []
    if not isinstance(given, dict):
        return _text(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, indent=2), style)
    rows: list[Row] = []
    for key, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if "\n" in text.strip("\n"):
            rows.append(Row(f"{visible(str(key))}:", style, INDENT))
            rows += [row._replace(gutter=INDENT * 2) for row in _text(text.strip("\n"), style)]
        else:
            rows.append(Row(visible(f"{key}: {text}".strip("\n")), style, INDENT))
    return rows


def _text(text: str, style: Style = "plain") -> list[Row]:
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return [Row(visible(line), style, INDENT) for line in lines] if text.strip() else []


def _unfenced(text: str) -> str:
    """Remove the Markdown fence or XML element that some agents put around output and errors."""
    found = _FENCE.match(text) or _ELEMENT.match(text)
    return found[2] if found else text
