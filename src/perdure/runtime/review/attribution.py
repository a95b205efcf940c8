"""Whose changes they are: the files that somebody else has changed since, as far as snapshots and records tell.

Above: plans.py, which never overwrites them silently. Below: git and the records. Somebody else is the person in an
editor, another program, or another session that works in the same directory. Everything here blocks.
"""

import os
from typing import Any

from msgspec import Struct

from perdure.runtime.git import apply, difference
from perdure.runtime.git.difference import is_below
from perdure.runtime.git.repository import Repository, head
from perdure.runtime.git.snapshot import ignored_between
from perdure.runtime.review.records import Change, Operation, Skipped

CHANGED_OUTSIDE = "It was changed after the session's last turn."
_BESIDE = "It may be the work of session {}, which worked here too."


class Stored(Struct, kw_only=True):
    """The stored records that a plan depends on."""

    turn: Change | None = None
    session: Change | None = None
    undone: Operation | None = None
    turns: list[Change] = []
    """All turns. An undo needs none."""
    operations: list[Operation] = []
    """All operations, for a restore."""


def _all_files(repo: Repository, change: Change) -> set[str]:
    """Every file that a turn has changed. Its record lists only some of very many."""
    if change.before is not None and change.after is not None and len(change.files) < change.file_count:
        return set(difference.differing(repo, change.before, change.after))
    return {name for file in change.files for name in (file.path, file.old_path) if name is not None}


def _changed_between(repo: Repository, change: Change) -> set[str]:
    """Every file that somebody else changed between the session's previous snapshot and this turn."""
    if change.previous is not None and change.before is not None and not change.outside_is_complete:
        return set(difference.differing(repo, change.previous, change.before))
    return {path for path, _ in change.outside}


def between_turns(repo: Repository, stored: Stored) -> set[str]:
    """Every file that somebody else changed between two turns of the session, or before an operation that kept it."""
    between = [_changed_between(repo, change) for change in stored.turns if change.state == "ready"]
    session = {path for path, _ in stored.session.outside} if stored.session is not None else set()
    return session.union(*between)


def _recorded(repo: Repository, stored: Stored, details: dict[str, Any]) -> dict[str, str]:
    """What others have changed since the state that is restored, with a sentence about each file: between turns, beside
    a turn, or before an operation that kept it."""
    turn, found = details["turn"], dict[str, str]()
    unknown: list[int] = []
    for change in stored.turns:
        number = change.turn or 0
        if change.state != "ready":
            unknown.append(number)
            continue
        if number > turn:
            who = f"It was changed outside this session's turns, before turn {number}."
            if unknown:
                who = f"It was changed in turn {unknown[-1]}, of which there is no snapshot, or outside this session."
            found |= dict.fromkeys(_changed_between(repo, change), who)
        unknown = []
        if change.shared_with and number >= turn + (details.get("point") == "after"):
            other = _BESIDE.format(change.shared_with[0].session_id)
            found |= {path: other for path in _all_files(repo, change) if path not in change.tools}
    for operation in stored.operations:
        found |= dict.fromkeys(operation.outside, CHANGED_OUTSIDE)
    return found


def changed(
    repo: Repository, stored: Stored, details: dict[str, Any], steps: list[apply.Step]
) -> list[tuple[str, str]]:
    """The files among these that somebody else has changed: they differ from the session's last snapshot, or a record
    says so."""
    recorded = _recorded(repo, stored, details)
    found = {step.path: recorded[step.path] for step in steps if step.path in recorded}
    return sorted((found | dict.fromkeys(foreign(repo, stored, steps), CHANGED_OUTSIDE)).items())


def foreign(repo: Repository, stored: Stored, steps: list[apply.Step]) -> list[str]:
    """The files among these that differ from the session's last snapshot."""
    if stored.session is None or stored.session.after is None:
        return []
    known = difference.entries(repo, stored.session.after, [step.path for step in steps])
    return [step.path for step in steps if known.get(step.path) != step.old]


def kept(repo: Repository, stored: Stored, now: str, steps: list[apply.Step]) -> list[str]:
    """What differs from the session's last snapshot and stays as it is."""
    if stored.session is None or stored.session.after is None:
        return []
    changed = {step.path for step in steps}
    alone = {one.path.rstrip("/") for one in ignored_between(repo, stored.session.after, now)}
    names = difference.differing(repo, stored.session.after, now)
    return sorted(path for path in names if path not in changed and not is_below(path, alone))


def uncommitted(repo: Repository, stored: Stored) -> tuple[list[str], list[Skipped]]:
    """The files that the session's turns have changed and that differ from the last commit; and those of them that
    may be the work of a session that worked beside it."""
    whole = stored.session
    if whole is None or whole.after is None:
        return [], []
    wanted: dict[str, str | None] = {}
    for change in stored.turns:
        for path in _all_files(repo, change):
            is_own = not change.shared_with or path in change.tools
            other = None if is_own else _BESIDE.format(change.shared_with[0].session_id)
            wanted[path] = None if path in wanted and wanted[path] is None else other
    commit_id, names = head(repo).commit, sorted(wanted)
    then = difference.entries(repo, commit_id, names) if commit_id is not None else {}
    now = difference.entries(repo, whole.after, names)
    found = [name for name in names if then.get(name) != now.get(name)]
    # A new file that somebody has deleted since is nothing to commit.
    found = [name for name in found if name in then or os.path.lexists(os.path.join(repo.root, name))]
    skipped = [Skipped(name, reason) for name in found if (reason := wanted[name]) is not None]
    return [name for name in found if wanted[name] is None], skipped
