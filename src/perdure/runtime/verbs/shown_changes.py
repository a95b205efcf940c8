"""A session's changes as the API shows them, and its refusals.

Above: the verbs for changes. Below: records, the repository, and the session's worktree.
"""

import time
from typing import Any

import msgspec

from perdure.core.errors import Refused
from perdure.core.state import Session
from perdure.runtime.git import merge, worktree
from perdure.runtime.git.command import GitError
from perdure.runtime.git.commit import prepare
from perdure.runtime.git.difference import FileChange
from perdure.runtime.git.repository import Repository, find, status
from perdure.runtime.git.snapshot import OverBudget
from perdure.runtime.review.names import quoted, with_quoted_paths
from perdure.runtime.review.plans import Impossible, own_worktree
from perdure.runtime.review.recorder import INTERRUPTED, RUNNING
from perdure.runtime.review.records import Change, Operation

STATUS_BUDGET_S = 2.0
OPERATIONS_SHOWN = 20
MISSING_NAMED = 10
REFUSED_WITH = (
    "files_changed",
    "merge_conflict",
    "no_repository",
    "not_found",
    "turn_active",
    "agent_unavailable",
    "unavailable",
)
IMAGES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "ico": "image/x-icon",
}
"""The media types of images that browsers show and that can't run scripts, by the end of the name."""


def public_repository(repo: Repository) -> dict[str, Any] | None:
    try:
        found = status(repo, time.monotonic() + STATUS_BUDGET_S)
    except GitError:
        return None
    return {
        "root": quoted(repo.root),
        "branch": quoted(found.branch) if found.branch is not None else None,
        "head": found.head,
        "detached": found.detached,
        "dirty": None if found.dirty_is_minimum else found.dirty,
        "in_progress": found.in_progress,
    }


def public_worktree(state: Session, *, live: bool = False) -> dict[str, Any] | None:
    """The session's own worktree; `live`: as it is now, if this node has it."""
    if state.worktree is None:
        return None
    empty = {"ahead": None, "behind": None, "dirty": None, "missing": None, "reason": None}
    if not live:
        return {**state.worktree, **empty}
    try:
        found = worktree.status(own_worktree(state))
    except GitError as error:
        return {**state.worktree, **empty, "reason": error.message}
    return {
        **state.worktree,
        "ahead": found.ahead,
        "behind": found.behind,
        "dirty": None if found.missing or found.dirty_is_minimum else found.dirty,
        "missing": found.missing,
        "reason": found.reason,
    }


def shown_state(change: Change) -> str:
    is_partial = change.state == "ready" and (change.truncated or change.changed_alone)
    return "partial" if is_partial else change.state


def public_change(state: Session, change: Change) -> dict[str, Any]:
    known = change.state in ("ready", RUNNING)
    outside = {path for path, _ in change.outside}
    files = []
    for file in change.files:
        shown = msgspec.to_builtins(file)
        tools = [{"turn": change.turn, "tool_id": tool_id} for tool_id in change.tools.get(file.path, [])]
        shown.update(
            image=_is_image(file.path), committed=None, outside=file.path in outside, only_outside=False, tools=tools
        )
        files.append(shown)
    return {
        "session_id": state.id,
        "turn": change.turn,
        "source": "stored",
        "state": shown_state(change),
        "reason": change.reason,
        "repository": None,
        "directory": change.root or state.workdir,
        "workdir": state.workdir,
        "before": change.before,
        "after": change.after,
        "head_before": change.head_before,
        "head_after": change.head_after,
        "files": files,
        "file_count": change.file_count if known else None,
        "added": change.added if known else None,
        "removed": change.removed if known else None,
        "truncated": change.truncated,
        "left_alone": [
            {**msgspec.to_builtins(one), "changed": one.path in change.changed_alone} for one in change.left_alone
        ],
        "outside": [{"path": path, "status": what} for path, what in change.outside],
        "shared_with": [{**msgspec.to_builtins(one), "title": ""} for one in change.shared_with],
        "elsewhere": [msgspec.to_builtins(one) for one in change.elsewhere],
        "worktree": public_worktree(state),
    }


def mark_only_outside(files: list[dict[str, Any]], turns: list[Change]) -> None:
    """In the changes of a whole session, mark the files that no turn changed, if that is known."""
    own = {quoted(name) for change in turns for file in change.files for name in (file.path, file.old_path) if name}
    is_known = all(change.state == "ready" and len(change.files) >= change.file_count for change in turns)
    for file in files:
        file["only_outside"] = is_known and file["outside"] and file["path"] not in own


def count_again(shown: dict[str, Any], compared: list[FileChange]) -> None:
    """Replace the numbers of lines by those of another comparison, which may lack files."""
    found = {file.path: file for file in compared}
    for file in shown["files"]:
        none = None if file["binary"] else 0
        for name in ("added", "removed"):
            file[name] = getattr(found[file["path"]], name) if file["path"] in found else none
    shown.update({name: sum(file[name] or 0 for file in shown["files"]) for name in ("added", "removed")})


def public_turn(change: Change) -> dict[str, Any]:
    is_ready = change.state == "ready"
    return {
        "turn": change.turn,
        "state": shown_state(change),
        "reason": change.reason,
        "file_count": change.file_count if is_ready else None,
        "added": change.added if is_ready else None,
        "removed": change.removed if is_ready else None,
    }


def public_operation(operation: Operation) -> dict[str, Any]:
    shown = {
        "operation_id": operation.operation_id,
        "action": operation.action,
        "outcome": operation.outcome,
        "code": operation.code or None,
        "message": operation.message,
        "turn": operation.turn,
        "at": operation.at,
        "files": [msgspec.to_builtins(file) for file in operation.files],
        "file_count": operation.file_count,
        "skipped": [msgspec.to_builtins(one) for one in operation.skipped],
        "commit": operation.commit,
        "undoable": operation.undoable and not operation.undone,
        "undone": operation.undone,
    }
    found: dict[str, Any] = with_quoted_paths(shown)
    return found


def _is_image(path: str) -> bool:
    return path.rpartition(".")[2].lower() in IMAGES


def merge_preview(own: worktree.Worktree, strategy: merge.Strategy, commit_message: str | None) -> merge.Preview:
    waiting = worktree.uncommitted(own) if commit_message is not None else []
    repo = find(own.path) if waiting else None
    if repo is None or commit_message is None:
        return merge.preview(own, strategy)
    try:
        # Only objects; no branch moves.
        made = prepare(repo, waiting, commit_message)
    except GitError as error:
        return msgspec.structs.replace(merge.preview(own, strategy), blocked=error.message)
    return merge.preview(own, strategy, tip=made.commit)


def both_names(change: Change | None, paths: list[str]) -> list[str]:
    """The paths, and the other name of each file that was renamed: git needs both to see the rename."""
    pairs = [(file.path, file.old_path) for file in change.files if file.old_path] if change is not None else []
    others = [name for pair in pairs if not set(paths).isdisjoint(pair) for name in pair if name is not None]
    return list(dict.fromkeys([*paths, *others]))


def no_turn(turn: int, last: int) -> str:
    known = ("no turns yet", "only turn 1", "turns 1 and 2")
    those = known[last] if last < len(known) else f"turns 1 to {last}"
    return f"There is no turn {turn} in this session. It has {those}."


def refusal(error: Impossible | GitError | OverBudget) -> Refused:
    if isinstance(error, Impossible):
        return Refused(error.code if error.code != "failed" else "conflict", error.message)
    return Refused("conflict", error.message)


def refusal_of(done: Operation) -> Refused:
    code = done.code if done.code in REFUSED_WITH else "conflict"
    conflicts = with_quoted_paths([msgspec.to_builtins(conflict) for conflict in done.conflicts])
    named = {"files": [one["path"] for one in conflicts]} if code == "merge_conflict" else {"outside": conflicts}
    more: dict[str, Any] = {"commit": done.commit} if done.commit is not None else {}
    more |= {"choice": True} if done.choice else {}
    return Refused(code, done.message, operation_id=done.operation_id, **(named if conflicts else {}), **more)


def newest(done: list[Operation]) -> list[Operation]:
    """The newest operations, and the newest one that can be undone."""
    undoable = next((one for one in done if one.undoable and not one.undone and one.action != "undo"), None)
    shown = done[:OPERATIONS_SHOWN]
    return shown if undoable is None or undoable in shown else [*shown, undoable]


def without_snapshots(turns: list[dict[str, Any]]) -> str | None:
    """In the changes of a whole session: that it lacks turns, and why."""
    missing = [turn for turn in turns if turn["state"] == "unavailable" and not turn["rewound"]]
    if not missing:
        return None
    numbers = [str(turn["turn"]) for turn in missing]
    names = f"turn {numbers[0]}" if len(numbers) == 1 else f"turns {', '.join(numbers[:-1])} and {numbers[-1]}"
    if len(numbers) > MISSING_NAMED:
        names = f"{len(numbers)} turns"
    return f"There are no snapshots of {names}: {missing[-1]['reason'] or INTERRUPTED}"
