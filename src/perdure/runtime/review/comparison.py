"""What a turn has changed: two snapshots compared, and what the agent's edit tools say about it.

Above: the recorder and the verbs for changes. Below: git and the records. Everything here blocks, so it is called in a
thread, or is pure.
"""

import os
from typing import Any

from msgspec.structs import replace

from perdure.runtime.git import difference
from perdure.runtime.git.command import GitError
from perdure.runtime.git.difference import FileChange, is_below
from perdure.runtime.git.repository import Repository
from perdure.runtime.git.snapshot import LeftAlone, ignored_between
from perdure.runtime.review.records import FILES_MAX, PATCH_MAX_BYTES, Change, Elsewhere

TOOLS_MAX = 500


def outside_of(repo: Repository, previous: str | None, tree: str) -> list[tuple[str, str]] | None:
    """What somebody else has changed since the session's previous snapshot; None if that isn't known."""
    if previous is None:
        return []
    try:
        ignored = {one.path.rstrip("/") for one in ignored_between(repo, previous, tree)}
        found = difference.changes(repo, previous, tree)
        return [(change.path, change.status) for change in found if not is_below(change.path, ignored)]
    except GitError:
        return None


def compared(repo: Repository, change: Change, *, ignore_whitespace: bool = False) -> list[FileChange]:
    """The files that differ, without those that one of the two snapshots has left alone."""
    assert change.before is not None and change.after is not None
    alone = {one.path.rstrip("/") for one in change.left_alone}
    # Without them from the start: a deleted file must not pass for one that was renamed to one of them.
    differing = difference.differing(repo, change.before, change.after) if alone else ()
    paths = [path for path in differing if not is_below(path, alone)] if alone else None
    found = difference.changes(repo, change.before, change.after, paths=paths, ignore_whitespace=ignore_whitespace)
    return [file for file in found if not (is_below(file.path, alone) or is_below(file.old_path or "", alone))]


def shown_paths(change: Change, files: list[FileChange]) -> list[str] | None:
    """Which paths a patch is limited to; None if it shows everything."""
    if not change.left_alone:
        return None
    return [name for file in files for name in (file.path, file.old_path) if name is not None]


def marks_of(repo: Repository, left_alone: list[LeftAlone]) -> dict[str, str]:
    """Size and time of the files that are not in a snapshot, to see whether they change."""
    found = {}
    for one in left_alone:
        try:
            seen = os.lstat(os.path.join(repo.root, one.path))
        except OSError:
            found[one.path] = "gone"
        else:
            found[one.path] = f"{seen.st_size}-{seen.st_mtime_ns}" if not one.path.endswith("/") else "folder"
    return found


def left_alone_of(change: Change, after: list[LeftAlone], marks: dict[str, str]) -> dict[str, Any]:
    """The files that either snapshot has left alone, and which of them the turn has changed."""
    is_known = bool(change.marks) or not change.left_alone
    changed = [path for path in {**change.marks, **marks} if is_known and change.marks.get(path) != marks.get(path)]
    return {"left_alone": joined(change.left_alone, after), "changed_alone": sorted(changed), "marks": {}}


def joined_elsewhere(one: list[Elsewhere], other: list[Elsewhere]) -> list[Elsewhere]:
    found: dict[str, Elsewhere] = {}
    for each in [*one, *other]:
        known = found.get(each.directory)
        files = [*known.files, *each.files] if known is not None else each.files
        found[each.directory] = Elsewhere(each.directory, list(dict.fromkeys(files))[:TOOLS_MAX], each.reason)
    return list(found.values())[:TOOLS_MAX]


def joined_turns(turns: list[Change]) -> Change:
    """What the records of several turns say together, without their files."""
    last = turns[-1]
    return replace(
        last,
        began_ms=turns[0].began_ms,
        head_before=turns[0].head_before,
        left_alone=joined([], [each for turn in turns for each in turn.left_alone]),
        changed_alone=sorted({path for turn in turns for path in turn.changed_alone}),
        outside=sorted({path: what for turn in turns for path, what in turn.outside}.items())[:FILES_MAX],
        shared_with=list(dict.fromkeys(each for turn in turns for each in turn.shared_with)),
        elsewhere=joined_elsewhere([], [each for turn in turns for each in turn.elsewhere]),
    )


def continued(so_far: Change | None, change: Change) -> Change:
    """The record of a whole session after one more turn or operation, without its files."""
    if so_far is None or so_far.root != change.root or so_far.before is None:
        return replace(change, turn=None, tools={})
    return replace(
        so_far,
        reason=so_far.reason or change.reason,
        after=change.after,
        head_after=change.head_after or so_far.head_after,
        ended_ms=change.ended_ms,
        left_alone=joined(so_far.left_alone, change.left_alone),
        changed_alone=sorted({*so_far.changed_alone, *change.changed_alone}),
        outside=sorted(dict([*so_far.outside, *change.outside]).items())[:FILES_MAX],
        shared_with=list(dict.fromkeys([*so_far.shared_with, *change.shared_with])),
        elsewhere=joined_elsewhere(so_far.elsewhere, change.elsewhere),
    )


def with_places(repo: Repository, change: Change) -> Change:
    """Edits of files that are in no snapshot, because git ignores them or because another repository inside this one
    has them, were made elsewhere."""
    names = {name for file in change.files for name in (file.path, file.old_path)}
    unknown = [path for path in change.tools if path not in names]
    if not unknown:
        return change
    try:
        trees = [difference.entries(repo, tree, unknown) for tree in (change.before, change.after) if tree is not None]
    except GitError:
        return change
    missing = [path for path in unknown if not any(path in tree for tree in trees)]
    alone = {one.path.rstrip("/"): one for one in change.left_alone}
    places: dict[str, Elsewhere] = {}
    changed = set(change.changed_alone)
    for path in missing:
        inside = next((name for name in alone if is_below(path, {name})), None)
        if inside is not None:
            changed.add(alone[inside].path)
        elif not os.path.lexists(os.path.join(repo.root, path)):
            continue  # it was deleted again
        folder = (
            os.path.join(repo.root, inside) if inside is not None else os.path.dirname(os.path.join(repo.root, path))
        )
        why = "which are not part of the snapshots" if inside is not None else "which git ignores"
        reason = f"The agent changed files in {folder}, {why}."
        files = [*(places[folder].files if folder in places else ()), os.path.join(repo.root, path)]
        places[folder] = Elsewhere(folder, files[:TOOLS_MAX], reason)
    return replace(
        change,
        elsewhere=joined_elsewhere(change.elsewhere, list(places.values())),
        changed_alone=sorted(changed),
        tools={path: tools for path, tools in change.tools.items() if path not in missing},
    )


def joined(one: list[LeftAlone], other: list[LeftAlone]) -> list[LeftAlone]:
    return list({each.path: each for each in [*one, *other]}.values())


def compare(repo: Repository, change: Change) -> tuple[Change, bytes]:
    """The change with its files and counts, and its patch, both bounded. Call this right after the second snapshot."""
    before, after = change.before, change.after
    assert before is not None and after is not None
    change = replace(change, left_alone=joined(change.left_alone, ignored_between(repo, before, after)))
    files = compared(repo, change)
    patch, is_cut = difference.patch(repo, before, after, paths=shown_paths(change, files), max_bytes=PATCH_MAX_BYTES)
    return (
        replace(
            change,
            files=files[:FILES_MAX],
            file_count=len(files),
            added=sum(file.added or 0 for file in files),
            removed=sum(file.removed or 0 for file in files),
            truncated=is_cut or len(files) > FILES_MAX,
        ),
        patch,
    )


def edits_of(parts: list[Any], root: str) -> tuple[dict[str, list[str]], list[Elsewhere]]:
    """What the agent's edit tools report: by path in the repository, the tools that changed it; and the files outside
    it. Denied and failed edits don't count."""
    inside: dict[str, list[str]] = {}
    outside: dict[str, list[str]] = {}
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "tool" or not has_edited(part):
            continue
        for diff in part.get("diff") or []:
            path = os.path.normpath(os.path.join(root, str(diff.get("path", ""))))
            if path.startswith(root.rstrip("/") + "/"):
                ids = inside.setdefault(os.path.relpath(path, root), [])
                ids += [part["tool_id"]] if part["tool_id"] not in ids else []
            else:
                names = outside.setdefault(os.path.dirname(path), [])
                names += [path] if path not in names else []
    shown = dict(list(inside.items())[:TOOLS_MAX])
    return shown, [
        Elsewhere(folder, files[:TOOLS_MAX], f"The agent changed files in {folder}, outside the session's repository.")
        for folder, files in list(outside.items())[:TOOLS_MAX]
    ]


def has_edited(part: dict[str, Any]) -> bool:
    """Whether a tool has changed files: it has a diff, it is done, and it was neither denied nor failed."""
    is_done = part.get("status") == "completed" and not part.get("is_error")
    return bool(part.get("diff")) and is_done and part.get("outcome") is None
