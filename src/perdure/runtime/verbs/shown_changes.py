"""A session's changes as the API shows them.

Above: the verbs for changes. Below: records, the repository, and the session's worktree.
"""

import time
from typing import Any

import msgspec

from perdure.core.state import Session
from perdure.runtime.git import worktree
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository, status
from perdure.runtime.review.names import with_quoted_paths
from perdure.runtime.review.plans import own_worktree
from perdure.runtime.review.recorder import RUNNING
from perdure.runtime.review.records import Change, Operation

STATUS_BUDGET_S = 2.0
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
        "root": repo.root,
        "branch": found.branch,
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
        shown.update(image=_is_image(file.path), committed=None, outside=file.path in outside, tools=tools)
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
