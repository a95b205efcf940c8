"""Merges the branch of a session's worktree into the branch from which it was created, also by a rebase.

Above: the verb that merges. Below: replay.py makes the commits, checkout.py the steps, apply.py changes the files.
`preview` and `prepare` make only objects. A plan names the old and the new commit of each branch, and what changes in
each worktree that has one of them checked out, usually the project's own directory. `finish` first checks everything,
then moves the branches in one transaction and rolls the files and the index forward, while it holds the indexes' locks.
After a kill at any moment, or after HalfDone, `finish` with the stored plan leads to the same state. Local changes are
never overwritten: before the branches move they stop the merge, afterwards they are left alone and returned.
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from perdure.runtime.git import apply, checkout, index
from perdure.runtime.git.apply import Conflict, Step
from perdure.runtime.git.command import Git, GitError, shown
from perdure.runtime.git.commit import (
    Outdated,
    Progress,
    cleaned,
    commit_tree,
    committer,
    completed,
    contains,
    named,
    refuse_operation,
)
from perdure.runtime.git.difference import SUBMODULE, Entry, changes, differing
from perdure.runtime.git.index import IndexChange
from perdure.runtime.git.replay import MAX_COMMITS, Conflicts, merged, replayed
from perdure.runtime.git.repository import Head, Repository, find, head
from perdure.runtime.git.worktree import Place, Worktree, commit_of, places, project, uncommitted

Strategy = Literal["merge", "rebase"]

DEFAULT_BRANCHES = ("main", "master")
"""A merge into these isn't named in the message, as in git."""


class MergeConflict(GitError):
    """Both branches changed the same places. Nothing was changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"Both branches changed the same places in {named(paths)}.")
        self.paths = list(paths)


class Commit(msgspec.Struct, frozen=True):
    commit: str
    subject: str


class ChangedFile(msgspec.Struct, frozen=True):
    path: str
    status: str


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    ahead: int = 0
    behind: int = 0
    commits: list[Commit] = []
    """What would be merged, the newest first; of very many, the first."""
    files: list[ChangedFile] = []
    """What would change in the base; if there are conflicts, what the session's branch has changed."""
    conflicts: list[str] = []
    uncommitted: list[str] = []
    """Files in the session's worktree that are not committed, so they would not be merged."""
    blocked: str | None = None
    """Why it isn't possible, other than conflicts, as a sentence."""


class Tree(msgspec.Struct, frozen=True):
    """What changes in a worktree that has one of the branches checked out."""

    root: str
    branch: str
    commit: str
    steps: list[Step]
    entries: list[IndexChange]


class MergePlan(msgspec.Struct, frozen=True):
    worktree: Worktree
    base: str
    base_old: str
    base_new: str
    branch_old: str
    branch_new: str
    trees: list[Tree]
    files: list[str]
    """The paths that change in the base."""
    reason: str
    """For the log of the branches."""


class _Sides(NamedTuple):
    """The two branches before the merge."""

    repository: Repository
    base: str
    base_commit: str
    branch_commit: str
    ahead: int
    behind: int


class _Result(NamedTuple):
    base: str
    """The commit of the base; the tree of a merge commit that isn't made yet."""
    branch: str
    needs_commit: bool


def preview(
    worktree: Worktree, strategy: Strategy, *, tip: str | None = None, deadline_s: float | None = None
) -> Preview:
    """What merging would do, and what prevents it. `tip`: a commit of the uncommitted files, to which the branch would
    move first. Raises GitError if the repository can't be read."""
    waiting = uncommitted(worktree, deadline_s=deadline_s)
    try:
        sides = _sides(worktree, deadline_s, tip)
    except GitError as error:
        return Preview(uncommitted=waiting, blocked=error.message)
    known = Preview(
        ahead=sides.ahead,
        behind=sides.behind,
        commits=_commits(sides, deadline_s),
        uncommitted=waiting,
    )
    if not sides.ahead and waiting:
        # These can be committed and merged in one step.
        return known
    blocked = _obstacle(worktree, sides, strategy, deadline_s)
    git = sides.repository.git(deadline_s)
    try:
        result = _combined(sides, strategy, None, deadline_s)
        if result.needs_commit or result.branch != sides.branch_commit:
            committer(git)
        if not blocked:
            _trees(worktree, sides, result, deadline_s, only=sides.base if tip else None)
    except Conflicts as conflict:
        start = git.run("merge-base", sides.base_commit, sides.branch_commit).decode().split()[0]
        files = _files(sides, start, sides.branch_commit, deadline_s)
        return msgspec.structs.replace(known, files=files, conflicts=list(conflict.paths), blocked=blocked)
    except GitError as error:
        return msgspec.structs.replace(known, blocked=blocked or error.message)
    files = _files(sides, sides.base_commit, result.base, deadline_s)
    return msgspec.structs.replace(known, files=files, blocked=blocked)


def prepare(
    worktree: Worktree, strategy: Strategy, message: str | None = None, *, deadline_s: float | None = None
) -> MergePlan:
    """Make the commits. Raises MergeConflict, or GitError if something else prevents the merge."""
    sides = _sides(worktree, deadline_s)
    obstacle = _obstacle(worktree, sides, strategy, deadline_s)
    if obstacle:
        raise GitError(obstacle)
    git = sides.repository.git(deadline_s)
    is_forward = contains(git, sides.branch_commit, sides.base_commit)
    try:
        result = _combined(sides, strategy, None if is_forward else committer(git), deadline_s)
    except Conflicts as conflict:
        raise MergeConflict(conflict.paths) from None
    trees = _trees(worktree, sides, result, deadline_s)
    new = result.base
    if result.needs_commit:
        text = cleaned(message or _message(worktree, sides))
        new = commit_tree(git, result.base, [sides.base_commit, sides.branch_commit], text)
        trees = [msgspec.structs.replace(tree, commit=new) if tree.branch == sides.base else tree for tree in trees]
    return MergePlan(
        worktree=worktree,
        base=sides.base,
        base_old=sides.base_commit,
        base_new=new,
        branch_old=sides.branch_commit,
        branch_new=result.branch,
        trees=trees,
        files=sorted(differing(sides.repository, sides.base_commit, new, deadline_s=deadline_s)),
        reason=f"{strategy} (perdure) {worktree.branch}" + (": Fast-forward" if is_forward else ""),
    )


def is_ahead(worktree: Worktree, *, deadline_s: float | None = None) -> bool:
    """Whether the branch has commits that its base lacks."""
    return _sides(worktree, deadline_s).ahead > 0


def refuse(worktree: Worktree, strategy: Strategy, tip: str, *, deadline_s: float | None = None) -> None:
    """Raise what `prepare` would raise if the branch ended in the commit `tip`, which will be added to it."""
    sides = _sides(worktree, deadline_s, tip)
    obstacle = _obstacle(worktree, sides, strategy, deadline_s)
    if obstacle:
        raise GitError(obstacle)
    try:
        result = _combined(sides, strategy, None, deadline_s)
    except Conflicts as conflict:
        raise MergeConflict(conflict.paths) from None
    _trees(worktree, sides, result, deadline_s, only=sides.base)


def _sides(worktree: Worktree, deadline_s: float | None, tip: str | None = None) -> _Sides:
    """`tip`: the last commit of the branch, if it isn't the one that the branch points to."""
    repository = project(worktree, deadline_s)
    git = repository.git(deadline_s)
    branch = commit_of(git, f"refs/heads/{worktree.branch}")
    if worktree.base is None:
        raise GitError(
            f"The worktree was created from the commit {worktree.base_commit[:10]}, not from a branch (detached "
            f"HEAD), so there is no branch to merge into. Merge {shown(worktree.branch)} in a terminal."
        )
    base = commit_of(git, f"refs/heads/{worktree.base}")
    if branch is None or base is None:
        missing = worktree.base if base is None else worktree.branch
        raise GitError(f"The branch {shown(missing)} does not exist any more.")
    branch = tip or branch
    counts = git.run("rev-list", "--count", "--left-right", f"{base}...{branch}").split()
    return _Sides(repository, worktree.base, base, branch, ahead=int(counts[1]), behind=int(counts[0]))


def _commits(sides: _Sides, deadline_s: float | None) -> list[Commit]:
    chosen = ("-z", "--format=%H %s", "--encoding=UTF-8", f"--max-count={MAX_COMMITS}")
    git = sides.repository.git(deadline_s)
    output = git.run("log", *chosen, f"{sides.base_commit}..{sides.branch_commit}")
    rows = (row.decode("utf-8", "replace").partition(" ") for row in output.split(b"\0") if row)
    return [Commit(commit, subject) for commit, _, subject in rows]


def _files(sides: _Sides, before: str, after: str, deadline_s: float | None) -> list[ChangedFile]:
    found = changes(sides.repository, before, after, deadline_s=deadline_s)
    return [ChangedFile(change.path, change.status) for change in found]


def _message(worktree: Worktree, sides: _Sides) -> str:
    into = "" if sides.base in DEFAULT_BRANCHES else f" into {sides.base}"
    return f"Merge branch '{worktree.branch}'{into}"


def _obstacle(worktree: Worktree, sides: _Sides, strategy: Strategy, deadline_s: float | None) -> str | None:
    """What prevents a merge whatever the files are."""
    git = sides.repository.git(deadline_s)
    branch, base = shown(worktree.branch), shown(sides.base)
    if not sides.ahead:
        return f"There is nothing to merge: {base} has all commits of {branch}."
    if strategy == "rebase":
        if sides.ahead > MAX_COMMITS:
            return f"The branch {branch} has more than {MAX_COMMITS} commits, too many for a rebase. Merge instead."
        if int(git.run("rev-list", "--count", "--merges", f"{sides.base_commit}..{sides.branch_commit}")):
            return f"The branch {branch} has merge commits, which a rebase would lose. Merge instead."
    for place in places(sides.repository, deadline_s):
        if place.path == worktree.path and place.branch != worktree.branch and os.path.isdir(place.path):
            return f"The session's worktree has another branch or commit checked out. Switch it to {branch} first."
        for wanted in (worktree.branch, sides.base):
            if place.branch == wanted and place.is_locked and not os.path.isdir(place.path):
                return f"{shown(place.path)}, where {shown(wanted)} is checked out, is not available now."
            if place.branch is None and _is_rebased(place, wanted):
                return (
                    f"The branch {shown(wanted)} is being rebased in {shown(place.path)}. Finish or abort that first."
                )
    return None


def _is_rebased(place: Place, branch: str) -> bool:
    """Whether a rebase or bisect that isn't finished will move the branch; HEAD is detached until then."""
    tree = find(place.path) if os.path.isdir(place.path) else None
    for name in ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START") if tree else ():
        with contextlib.suppress(OSError), open(os.path.join(tree.git_dir if tree else "", name), "rb") as file:
            if os.fsdecode(file.read(4096)).strip().removeprefix("refs/heads/") == branch:
                return True
    return False


def _combined(sides: _Sides, strategy: Strategy, by: bytes | None, deadline_s: float | None) -> _Result:
    """Merge or rebase in memory. Raises Conflicts."""
    ours, theirs = sides.base_commit, sides.branch_commit
    if contains(sides.repository.git(deadline_s), theirs, ours):
        return _Result(theirs, theirs, needs_commit=False)
    with checkout.ground(sides.repository, ours, deadline_s) as ground:
        if strategy == "merge":
            return _Result(merged(ground, ours, theirs), theirs, needs_commit=True)
        tip = replayed(ground, ours, theirs, by)
        if tip == ours:
            raise GitError("There is nothing to merge: the base has the changes of all commits already.")
        return _Result(tip, tip, needs_commit=False)


def _trees(
    worktree: Worktree, sides: _Sides, result: _Result, deadline_s: float | None, only: str | None = None
) -> list[Tree]:
    """What changes in each worktree. Raises GitError if local changes or anything else on disk are in the way."""
    moves = {
        sides.base: (sides.base_commit, result.base),
        worktree.branch: (sides.branch_commit, result.branch),
    }
    trees = []
    for place in places(sides.repository, deadline_s):
        old, new = moves.get(place.branch or "", ("", ""))
        if old != new and only in (None, place.branch) and os.path.isdir(place.path):
            tree = find(place.path, deadline_s)
            if tree is None or tree.common_dir != sides.repository.common_dir:
                raise GitError(f"{shown(place.path)} is not a worktree of the repository any more.")
            refuse_operation(tree, "merge")
            trees.append(_tree(worktree, tree, place.branch or "", old, new, deadline_s))
    return trees


def _tree(worktree: Worktree, tree: Repository, branch: str, old: str, new: str, deadline_s: float | None) -> Tree:
    git = tree.git(deadline_s)
    sides = differing(tree, old, new, deadline_s=deadline_s)
    before = {path: side for path, (side, _) in sides.items() if side}
    after = {path: side for path, (_, side) in sides.items() if side}
    recorded = index.recorded(git, sides)
    staged = [path for path in sides if path in recorded and index.entry_at(recorded, path) != before.get(path)]
    staged += [path for path in before if path not in recorded]
    if staged:
        raise _in_the_way(tree, staged, "has staged changes in files that the merge changes")
    skipped = {
        path
        for path, rows in recorded.items()
        if rows[0].is_skipped and not os.path.lexists(os.path.join(tree.root, path))
    }
    with checkout.ground(tree, new, deadline_s) as ground:
        written = checkout.written(ground, _on_disk(after, skipped))
        wanted = checkout.filtered(ground.git, written, cached=True)
    found = checkout.found(tree, _on_disk(before, skipped), deadline_s)
    filtered = checkout.filtered(git, found.changed)
    if tree.root != worktree.path:
        # The session's own worktree is checked out without filters.
        configured = checkout.configured_filters(git)
        filtered |= {path: name for path, name in wanted.items() if name in configured}
    if filtered:
        filters = ", ".join(sorted(set(filtered.values())))
        raise GitError(
            f"{named(filtered)}: stored through the filter {filters}, which Perdure does not run. Merge the branch "
            f"{shown(worktree.branch)} in a terminal."
        )
    if found.changed:
        raise _in_the_way(tree, found.changed, "has local changes in files that the merge changes")
    steps = [
        Step(path, found.unchanged.get(path), written.get(path))
        for path in sides
        if found.unchanged.get(path) != written.get(path)
    ]
    _refuse_conflicts(tree, steps, deadline_s)
    entries = [IndexChange(path, *both) for path, both in sides.items()]
    return Tree(tree.root, branch, new, steps, entries)


def _on_disk(entries: dict[str, Entry], skipped: Collection[str]) -> dict[str, Entry]:
    """The files and links among the entries of a tree; a submodule's folder is never changed."""
    return {path: entry for path, entry in entries.items() if entry.mode != SUBMODULE and path not in skipped}


def _in_the_way(tree: Repository, paths: Collection[str], what: str) -> GitError:
    return GitError(f"{shown(tree.root)} {what}: {named(paths)}. Commit or undo them there, then merge.")


def _refuse_conflicts(tree: Repository, steps: Sequence[Step], deadline_s: float | None) -> None:
    conflicts = apply.check(tree, steps, deadline_s=deadline_s)
    if conflicts:
        first = conflicts[0]
        more = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise GitError(
            f"{shown(first.path)}{more} in {shown(tree.root)} is in the way of the merge. {first.reason} "
            "Move or commit it, then merge."
        )


def finish(plan: MergePlan, *, deadline_s: float | None = None) -> list[Conflict]:
    """Move the branches, then the files and the index of each worktree. Returns the files that somebody changed in the
    meantime; they are left alone. Raises GitError before any change if something prevents the merge now, and HalfDone
    if something failed after the branches have moved."""
    repository = project(plan.worktree, deadline_s)
    git = repository.git(deadline_s)
    refs: dict[str, tuple[str | None, str]] = {
        f"refs/heads/{branch}": (old, new)
        for branch, old, new in (
            (plan.base, plan.base_old, plan.base_new),
            (plan.worktree.branch, plan.branch_old, plan.branch_new),
        )
        if old != new
    }
    left: list[Conflict] = []
    with completed() as progress, contextlib.ExitStack() as stack:
        # By an earlier run.
        progress.has_moved = all(contains(git, ref, new) for ref, (_, new) in refs.items())
        opened = list(_opened(plan, repository))
        for tree, _ in sorted(opened, key=lambda pair: pair[0].git_dir):
            stack.enter_context(index.locked(tree, plan.base_new, stays=lambda: progress.has_moved))
        waiting = {ref: ends for ref, ends in refs.items() if commit_of(git, ref) == ends[0]}
        _refuse_moved(git, {ref: ends for ref, ends in refs.items() if ref not in waiting}, progress)
        if len(waiting) == len(refs):
            _check_again(plan, opened, repository, deadline_s)
        editions = [
            stack.enter_context(index.edition(tree, part.entries, deadline_s=deadline_s)) for tree, part in opened
        ]
        if waiting:
            # From the worktree of the base, so that its log shows the move too.
            inside = next((tree for tree, part in opened if part.branch == plan.base), repository)
            progress.move(inside.git(deadline_s), waiting, plan.reason)
            _refuse_moved(git, waiting, progress)
        kept = [os.path.relpath(plan.worktree.workdir, plan.worktree.path)]
        for (tree, part), edition in zip(opened, editions, strict=True):
            # Otherwise an earlier run has moved the branch, and the user has gone on from there.
            if head(tree, deadline_s) == Head(part.branch, part.commit):
                left += apply.apply(tree, part.steps, keep=kept, must_fit=True, deadline_s=deadline_s)
                # Only to save time later: the index is right without it.
                with contextlib.suppress(GitError):
                    edition.refresh()
                edition.publish()
    return left


def _refuse_moved(git: Git, refs: Mapping[str, tuple[str | None, str]], progress: Progress) -> None:
    if not all(contains(git, ref, new) for ref, (_, new) in refs.items()):
        progress.has_moved = False
        raise Outdated("The branches have changed since the merge was prepared, so nothing was merged. Try again.")


def _opened(plan: MergePlan, repository: Repository) -> Iterator[tuple[Repository, Tree]]:
    """The plan's worktrees that still exist."""
    for part in plan.trees:
        tree = find(part.root) if os.path.isdir(part.root) else None
        if tree and (tree.root, tree.common_dir) == (part.root, repository.common_dir):
            yield tree, part


def _check_again(
    plan: MergePlan, opened: Sequence[tuple[Repository, Tree]], repository: Repository, deadline_s: float | None
) -> None:
    """Before anything is changed: everything must be as it was when the merge was prepared."""
    moved = {plan.base} | ({plan.worktree.branch} if plan.branch_old != plan.branch_new else set())
    found = (place for place in places(repository, deadline_s) if place.branch in moved)
    now = {(place.path, place.branch) for place in found if os.path.isdir(place.path)}
    if now != {(part.root, part.branch) for part in plan.trees} or len(opened) != len(plan.trees):
        raise Outdated("Another branch was checked out since the merge was prepared, so nothing was merged. Try again.")
    for tree, part in opened:
        refuse_operation(tree, "merge")
        staged = index.differing(tree.git(deadline_s), part.entries)
        if staged:
            raise _in_the_way(tree, staged, "has staged changes in files that the merge changes")
        _refuse_conflicts(tree, part.steps, deadline_s)
