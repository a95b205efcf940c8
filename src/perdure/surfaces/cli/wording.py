"""Texts for tools, prompts, plans, history changes and ends of turns, mostly one line each. Pure.

Above: narration.py, tool_rows.py, prompts.py, history_commands.py, changes.py, the chat. Below: output.py, diffs.py and
short_text.py.
"""

from datetime import datetime
from typing import Any

from perdure.core.digest import in_words
from perdure.surfaces.cli.diffs import counts
from perdure.surfaces.cli.output import duration
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

TITLE_CHARS = 100
INPUT_CHARS = 600
STOPS = {
    "cancelled": "Interrupted.",
    "failed": "The turn failed. Send the message again to retry.",
    "timed_out": "The turn timed out and was stopped.",
    "max_turns": "The agent reached its step limit. Send a message to continue.",
    "refusal": "The agent refused to continue.",
}
BEGINS = "The turn has started."
_DEEDS = {"edit": "Edited ", "execute": "Ran ", "read": "Read "}
_FAILED_DEEDS = {"edit": "Failed to edit "}
_PLAN_MARKS = {"completed": "[x]", "in_progress": "[~]"}


def short(text: str) -> str:
    return one_line(text, TITLE_CHARS)


def tool(part: Json, workdir: str = "") -> str:
    """What a tool did, the size of its change, and how long it took without the time it waited for a person; or that it
    was denied or interrupted."""
    who = "Sub-agent: " if part.get("parent_tool_id") else ""
    outcome = part.get("outcome")
    if outcome == "denied":
        return who + f"Denied: {_subject(part, workdir)}"
    pieces = [who + _deed(part, workdir)]
    if outcome == "interrupted":
        pieces[0] = who + f"Interrupted: {_subject(part, workdir)}"
    elif part["status"] != "failed" and part.get("diff") and (change := counts(part["diff"])):
        pieces[0] += f" {change}"
    started, ended = part.get("started_at"), part.get("ended_at")
    if started and ended:
        spent = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
        pieces.append(duration(max(0.0, spent.total_seconds() * 1000 - part.get("waited_ms", 0))))
    if part["status"] == "failed" and outcome is None and not pieces[0].startswith(who + "Failed"):
        pieces.append("failed")
    return "  ".join(pieces)


def _deed(part: Json, workdir: str) -> str:
    kind = part.get("kind", "")
    verb = _FAILED_DEEDS.get(kind) if part["status"] == "failed" else None
    return ((verb or _DEEDS.get(kind, "")) if _named(part, workdir) else "") + _subject(part, workdir)


def _subject(part: Json, workdir: str) -> str:
    """The file or command that a tool works on, or else its title."""
    return _named(part, workdir) or short(str(part.get("title") or part["name"]))


def inside(path: str, workdir: str) -> str:
    """The path relative to the working directory, if it is inside."""
    return path.removeprefix(workdir.rstrip("/") + "/") if workdir else path


def _named(part: Json, workdir: str) -> str:
    found = part.get("input")
    given: Json = found if isinstance(found, dict) else {}
    paths = [entry.get("path") for entry in part.get("diff") or part.get("locations") or []] or [
        given.get(key) for key in ("file_path", "filePath", "path")
    ]
    paths = list(dict.fromkeys(path for path in paths if isinstance(path, str) and path))
    if part.get("kind") in ("edit", "read") and paths:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return one_line(inside(paths[0], workdir), TITLE_CHARS) + more
    command = given.get("command")
    return short(command) if part.get("kind") == "execute" and isinstance(command, str) else ""


def plan(entries: list[Json]) -> str:
    return "\n".join(f"{_PLAN_MARKS.get(entry['status'], '[ ]')} {short(entry['content'])}" for entry in entries)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def files(number: int) -> str:
    return counted(number, "file")


def changed_files(data: Json) -> str:
    """The numbers of files and lines that a turn changed."""
    return f"{files(data['files'])} changed, +{data['added'] or 0} -{data['removed'] or 0}"


def error(data: Json) -> str:
    detail = str(data.get("detail") or "").strip()
    return str(data["message"]) + (f"\n{detail}" if detail else "")


def question(entry: Json) -> list[str]:
    several = " (several answers possible, separated by commas)" if entry.get("multiple") else ""
    lines = [f"Question: {one_line(entry['question'], INPUT_CHARS)}{several}"]
    for number, option in enumerate(entry.get("options", []), 1):
        more = f"  {short(option['description'])}" if option.get("description") else ""
        lines.append(f"  {number}. {short(option['label'])}{more}")
    return lines


def resolved(by: str, outcome: str, reason: str = "") -> str:
    who = {"person": "", "rule": "by a rule", "agent": "by the agent", "server": ""}.get(by, f"by {by}")
    words = {"agent_lost": "closed because the agent is gone", "withdrawn": "withdrawn", "discarded": "discarded"}
    said = f" Reason: {one_line(reason, INPUT_CHARS)}" if reason else ""
    return f"{words.get(outcome, outcome).capitalize()} {who}".strip() + "." + said


def dropped(turns: list[int]) -> str:
    return f"{in_words(turns).capitalize()} no longer part of the conversation."


def history_changed(data: Json, known: list[int]) -> str:
    """What changed, and which agents get a replay. `known`: the known turns from the changed one on."""
    turn, change = data["turn"], data["change"]
    if change == "retry":
        after = [number for number in known if number > turn]
        return f"Retrying turn {turn}." + (f" {dropped(after)}" if after else "")
    if change == "edit":
        what = f'The message of turn {turn} is now "{short(data.get("text") or "")}".'
    elif turn in known:
        what = dropped(known)
    else:
        what = f"Turn {turn} and all later turns are no longer part of the conversation."
    bumped = data.get("bumped") or []
    if not bumped:
        return what
    who = bumped[0] if len(bumped) == 1 else f"{', '.join(bumped[:-1])} and {bumped[-1]}"
    return f"{what} The next message replays the conversation to {who}."


REASONS = {
    "fresh_requested": "a context restart was requested",
    "resume_off": "resuming is turned off",
    "no_native_session": "it has no native session yet",
    "native_session_poisoned": "its native session is no longer usable",
    "no_prior_answer": "it has not answered in this session yet",
    "last_turn_not_confirmed": "its last turn was cut off, so its native session may be incomplete",
    "history_changed": "the history has changed",
    "scope_changed": "the setting for which turns it gets has changed",
    "workdir_changed": "the working directory has changed",
    "runtime_changed": "the agent's program has changed",
    "native_session_shared": "it reused the id of its native session for another one",
    "agent_cannot_resume": "its process is gone, and it can't resume its native session",
}
"""Why a turn can't continue in the agent's native session."""


def replayed(agent: str, reason: str) -> str:
    return f"The conversation was replayed to {short(agent)}: {REASONS.get(reason, reason)}."


def catch_up(agent: str, count: int) -> str:
    return f"{agent} gets the {'turn' if count == 1 else f'{count} turns'} that it missed."


def context_fallback(data: Json) -> str:
    if data.get("shorter"):
        reason = short(str(data["reason"]).removeprefix("too_long: "))
        return f"The conversation was too long for the agent ({reason}). It gets a shorter version in the same turn."
    return f"The agent could not resume its native session, so it got the transcript: {data['reason']}"


def finished(stop_reason: str, *, began: bool = True) -> str:
    if stop_reason == "cancelled" and not began:
        return "Cancelled before it started."
    return STOPS.get(stop_reason, "")
