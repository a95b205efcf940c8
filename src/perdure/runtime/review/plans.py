"""Plans of file operations: what a request means for the files as they are now, and carrying that out.

Above: operations.py, which stores a plan before it is carried out. Below: the git library and the records. Planning
changes nothing that people see; it takes a snapshot, so that what was on disk is never lost. Carrying out a plan may be
repeated after a crash at any point.

Files that somebody else changed since the session's last snapshot are never overwritten silently: the request is
refused with their list, unless it says what to do with them (`outside`).
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.core.events import FileAction
from perdure.core.state import FileOperation, Session
from perdure.runtime.git import apply, difference, discard
from perdure.runtime.git import commit as commits
from perdure.runtime.git import merge as merges
from perdure.runtime.git import worktree as worktrees
from perdure.runtime.git.command import GitError
from perdure.runtime.git.difference import SUBMODULE, is_below
from perdure.runtime.git.repository import Repository, find, head, in_progress
from perdure.runtime.git.snapshot import LeftAlone, Snapshot, ignored_between
from perdure.runtime.review.comparison import compared
from perdure.runtime.review.names import quoted, unquoted
from perdure.runtime.review.recorder import Recorder, ref_of
from perdure.runtime.review.records import SESSION, Change, ChangedPath, Operation, Records, Skipped, turn_name

Outside = Literal["keep", "overwrite"]
CONFLICTS_MAX = 200
CHANGED_OUTSIDE = "It was changed after the session's last turn."


class Impossible(Exception):
    """A file operation that can't be done. `conflicts` names the files that are in the way; `choice` says whether
    `outside` can decide what becomes of them."""

    def __init__(
        self, code: str, message: str, conflicts: Iterable[tuple[str, str]] = (), *, choice: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.conflicts = list(conflicts)[:CONFLICTS_MAX]
        self.choice = choice


class Plan(Struct, kw_only=True):
    """Everything that is needed to carry out an operation, as stored before the first file changes."""

    operation_id: str
    action: FileAction
    root: str
    message: str
    steps: list[apply.Step] = []
    keep: list[str] = []
    """Directories that stay when they become empty: the session's own."""
    commit: commits.CommitPlan | None = None
    merge: merges.MergePlan | None = None
    worktree: worktrees.Worktree | None = None
    files: list[ChangedPath] = []
    skipped: list[Skipped] = []
    outside: list[str] = []
    """Files that somebody else has changed since the session's last snapshot, and that the plan keeps."""
    turn: int | None = None
    before: str | None = None
    undoable: bool = False
    then: FileOperation | None = None
    """The operation that follows this one."""


class Done(Struct, kw_only=True):
    message: str
    skipped: list[Skipped] = []
    commit: str | None = None
    after: str | None = None
    """The tree afterwards; None if the operation changed no files."""


class Preview(Struct, kw_only=True):
    """What a restore would do."""

    files: list[ChangedPath]
    outside: list[Skipped]
    left_alone: list[Any]
    head_moved: str | None


class Facts(Struct, kw_only=True):
    """The stored records that a plan depends on."""

    turn: Change | None = None
    session: Change | None = None
    undone: Operation | None = None
    turns: list[Change] = []
    """All turns, for a restore and for a commit."""
    operations: list[Operation] = []
    """All operations, for a restore."""


class Planner:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._records: Records = recorder.records

    @staticmethod
    def roots(state: Session) -> list[str]:
        """The working trees that an operation of this session may change, in the order in which to lock them."""
        places = [state.workdir, *([state.worktree["repository"]] if state.worktree else [])]
        return sorted({root for place in places if (root := _root_of(place)) is not None})

    # Planning ------------------------------------------------------------------------------------------------------

    async def plan(self, state: Session, operation: FileOperation) -> Plan:
        """Raises Impossible, GitError or OverBudget."""
        facts = await self._facts(state.id, operation.details)
        return await asyncio.to_thread(self._plan, state, operation, facts)

    async def preview(self, state: Session, details: dict[str, Any]) -> Preview:
        """What a restore would do, without doing it."""
        facts = await self._facts(state.id, details)
        async with self._recorder.lock(facts.turn.root if facts.turn is not None else state.workdir):
            return await asyncio.to_thread(self._preview, state, details, facts)

    async def _facts(self, session_id: str, details: dict[str, Any]) -> Facts:
        turn, undone = details.get("turn"), details.get("operation_id")
        return Facts(
            turn=await self._records.get(session_id, turn_name(turn), Change) if turn is not None else None,
            session=await self._records.get(session_id, SESSION, Change),
            undone=await self._records.get(session_id, f"operation-{undone}", Operation) if undone else None,
            turns=await self._records.all(session_id, "turn-", Change)
            if turn is not None or "message" in details
            else [],
            operations=await self._records.all(session_id, "operation-", Operation) if turn is not None else [],
        )

    def _plan(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        return _PLANS[operation.action](self, state, operation, facts)

    def _restore(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        details, turn = operation.details, operation.details["turn"]
        repo, target = self._target(state, details, facts)
        taken = self._now(state, repo, operation)
        now = taken.tree
        alone = _alone(facts.turn, taken)
        steps = apply.plan(repo, now, target, paths=_paths_in(details), without=alone)
        ignored = _ignored(repo, now, target, details, [*alone, *(step.path for step in steps)])
        steps, skipped = _decided(_outside(repo, facts, details, steps), steps, details.get("outside"))
        skipped += [Skipped(one.path, one.reason) for one in ignored]
        at = "after" if details.get("point") == "after" else "before"
        count, others = _count(len(steps), "file"), "other " if skipped else ""
        message = f"Restored {count} to {at} turn {turn}."
        if not steps:
            message = f"The {others}files are already as {at} turn {turn}."
        return self._of_steps(state, operation, facts, repo, now, steps, skipped, message, turn)

    def _preview(self, state: Session, details: dict[str, Any], facts: Facts) -> Preview:
        repo, target = self._target(state, details, facts)
        taken = self._recorder.snapshot(repo, ref_of(state.id, "preview"), {}, counts=False)
        alone = _alone(facts.turn, taken)
        steps = apply.plan(repo, taken.tree, target, paths=_paths_in(details), without=alone)
        ignored = _ignored(repo, taken.tree, target, details, [*alone, *(step.path for step in steps)])
        outside = [Skipped(path, reason) for path, reason in _outside(repo, facts, details, steps)]
        change = facts.turn
        assert change is not None
        then = change.head_after if details.get("point") == "after" else change.head_before
        moved = None
        if then is not None and taken.head is not None and then != taken.head:
            moved = f"The branch stays at {taken.head[:10]}. It was at {then[:10]}: commits made since then remain."
        return Preview(files=_paths(steps), outside=outside, left_alone=[*taken.left_alone, *ignored], head_moved=moved)

    def _target(self, state: Session, details: dict[str, Any], facts: Facts) -> tuple[Repository, str]:
        """The repository, and the tree to restore."""
        change, turn = facts.turn, details["turn"]
        repo = _repository(state)
        if change is None:
            raise Impossible("not_found", f"There is no snapshot of turn {turn}, so its files can't be restored.")
        target = change.after if details.get("point") == "after" else change.before
        if target is None:
            raise Impossible("not_found", f"There is no snapshot of turn {turn}: {change.reason or 'it still runs.'}")
        _same_place(change, repo)
        return repo, target

    def _discard(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        details = operation.details
        path, hunks, turn = unquoted(details["path"]), details.get("hunks"), details.get("turn")
        change, repo = facts.turn if turn is not None else facts.session, _repository(state)
        if change is None or change.before is None or change.after is None:
            raise Impossible("not_found", "There is no snapshot of these changes, so they can't be discarded.")
        _same_place(change, repo)
        expected = details.get("new_id")
        found = next((file for file in compared(repo, change) if file.path == path), None)
        if found is None:
            raise Impossible("not_found", f"{quoted(path)} has no change to discard.")
        if expected is not None and expected != found.new_id:
            message = f"{quoted(path)} has changed since you read it. Reload the changes."
            raise Impossible("files_changed", message, [(path, "It has changed since you read it.")])
        now = self._now(state, repo, operation).tree
        steps = discard.without(repo, change.before, change.after, now, path, hunks)
        name = quoted(path)
        what = f"{_count(len(hunks), 'hunk')} of {name}" if hunks is not None else f"the change to {name}"
        message = f"Discarded {what}." if steps else f"Nothing to discard: {name} no longer has {_the(hunks)}."
        return self._of_steps(state, operation, facts, repo, now, steps, [], message, turn)

    def _undo(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        done = facts.undone
        if done is None or done.before is None or done.after is None:
            raise Impossible("not_found", "There is no such operation to undo.")
        if done.undone or not done.undoable:
            raise Impossible("conflict", "This operation was undone already." if done.undone else "It can't be undone.")
        repo = _repository(state)
        _same_place(done, repo)
        now = self._now(state, repo, operation).tree
        wanted = apply.plan(repo, done.after, done.before)
        names = [step.path for step in wanted]
        current = difference.entries(repo, now, names)
        outside = [(step.path, CHANGED_OUTSIDE) for step in wanted if current.get(step.path) != step.old]
        steps = [
            apply.Step(path=step.path, old=current.get(step.path), new=step.new)
            for step in wanted
            if current.get(step.path) != step.new
        ]
        steps, skipped = _decided(outside, steps, operation.details.get("outside"))
        message = f"Undone: {_count(len(steps), 'file')} changed back."
        return self._of_steps(state, operation, facts, repo, now, steps, skipped, message, done.turn)

    def _commit(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        repo, paths = _repository(state), _paths_in(operation.details)
        if paths is None:
            paths = _uncommitted(repo, facts)
            if not paths:
                raise Impossible("conflict", "This session has no uncommitted changes.")
        made = commits.prepare(repo, paths, operation.details["message"])
        subject = operation.details["message"].strip().split("\n")[0]
        message = f"Committed {_count(len(paths), 'file')} to {made.branch or 'the detached HEAD'}: {subject}"
        files = [ChangedPath(path, "commit") for path in paths]
        return Plan(
            operation_id=operation.operation_id,
            action=operation.action,
            root=repo.root,
            message=message,
            commit=made,
            files=files,
        )

    def _merge(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        own, details = own_worktree(state), operation.details
        self._refuse_while_others_work(state, own.repository)
        uncommitted = worktrees.uncommitted(own)
        try:
            if uncommitted and (text := details.get("commit_message")) is not None:
                repo = _repository(state)
                made = commits.prepare(repo, uncommitted, text)
                # Before anything is committed.
                merges.refuse(own, details["strategy"], made.commit)
                return Plan(
                    operation_id=operation.operation_id,
                    action=operation.action,
                    root=repo.root,
                    message="",
                    commit=made,
                    then=replace(operation, details={**details, "commit_message": None}),
                )
            if uncommitted and not merges.is_ahead(own):
                message = (
                    f"{own.branch} has no commits that {own.base} lacks, but {_count(len(uncommitted), 'file')} "
                    f"{'is' if len(uncommitted) == 1 else 'are'} not committed. Give a commit message to commit and "
                    "merge them."
                )
                raise Impossible("conflict", message, [(path, "It is not committed.") for path in uncommitted])
            made_merge = merges.prepare(own, details["strategy"], message=details.get("message"))
        except merges.MergeConflict as conflict:
            count = _count(len(conflict.paths), "file")
            raise Impossible(
                "merge_conflict",
                f"{own.branch} and {own.base} conflict in {count}, so nothing was merged. "
                f"Ask the agent to merge {own.base} into its branch, then try again.",
                [(path, "Both branches changed it.") for path in conflict.paths],
            ) from conflict
        what = "Rebased and merged" if details["strategy"] == "rebase" else "Merged"
        return Plan(
            operation_id=operation.operation_id,
            action=operation.action,
            root=own.repository,
            message=f"{what} {own.branch} into {own.base}.",
            merge=made_merge,
            files=[ChangedPath(path, "merge") for path in made_merge.files],
            skipped=[Skipped(path, "It is not committed, so it was not merged.") for path in uncommitted],
        )

    def _clean_up(self, state: Session, operation: FileOperation, facts: Facts) -> Plan:
        own = own_worktree(state)
        if (reason := worktrees.removable(own)) is not None:
            raise Impossible("conflict", f"The worktree {own.path} was kept: {reason}")
        return Plan(
            operation_id=operation.operation_id,
            action=operation.action,
            root=own.repository,
            message=f"Removed the worktree {own.path}. Nothing was lost.",
            worktree=own,
        )

    def _refuse_while_others_work(self, state: Session, root: str) -> None:
        working = [session_id for session_id in self._recorder.works_in(root) if session_id != state.id]
        if working:
            message = f"Session {working[0]} is working in {root}. Wait for its turn to end."
            raise Impossible("turn_active", message)

    def _now(self, state: Session, repo: Repository, operation: FileOperation) -> Snapshot:
        """A snapshot of the files as they are, which an undo goes back to."""
        if in_progress(repo) == "rebase":
            raise Impossible("conflict", "The repository is in the middle of a rebase. Finish or abort it first.")
        self._refuse_while_others_work(state, repo.root)
        return self._recorder.snapshot(repo, ref_of(state.id, operation.operation_id), {})

    def _of_steps(
        self,
        state: Session,
        operation: FileOperation,
        facts: Facts,
        repo: Repository,
        now: str,
        steps: list[apply.Step],
        skipped: list[Skipped],
        message: str,
        turn: int | None,
    ) -> Plan:
        in_the_way = apply.check(repo, steps)
        if in_the_way:
            found = [(conflict.path, conflict.reason) for conflict in in_the_way]
            raise Impossible(
                "files_changed", f"{_count(len(found), 'file')} can't be changed. Nothing was done.", found
            )
        return Plan(
            operation_id=operation.operation_id,
            action=operation.action,
            root=repo.root,
            message=message,
            steps=steps,
            keep=[keep] if (keep := os.path.relpath(state.workdir, repo.root)) != "." else [],
            files=_paths(steps),
            skipped=skipped,
            outside=_kept_outside(repo, facts, now, steps),
            turn=turn,
            before=now,
            undoable=bool(steps),
        )

    # Carrying out --------------------------------------------------------------------------------------------------

    def carry_out(self, session_id: str, plan: Plan) -> Done:
        """May be repeated. Blocks. Raises GitError or Impossible if the state is no longer the planned one."""
        if plan.commit is not None:
            repo = _at(plan.root)
            commits.finish(repo, plan.commit)
            return Done(message=plan.message, commit=plan.commit.commit)
        if plan.merge is not None:
            left = merges.finish(plan.merge)
            return Done(message=plan.message, skipped=[Skipped(one.path, one.reason) for one in left])
        if plan.worktree is not None:
            worktrees.remove(plan.worktree)
            return Done(message=plan.message)
        repo = _at(plan.root)
        left = apply.apply(repo, plan.steps, keep=plan.keep)
        ref = ref_of(session_id, plan.operation_id)
        try:
            after = self._recorder.snapshot(repo, ref, {}, parent=plan.before).tree
        except (GitError, OSError) as error:
            message = f"{plan.message} There is no snapshot of the result, so it can't be undone: {error}"
            return Done(message=message, skipped=_as_skipped(left))
        return Done(message=plan.message, skipped=_as_skipped(left), after=after)


_PLANS: dict[str, Callable[[Planner, Session, FileOperation, Facts], Plan]] = {
    "restore": Planner._restore,
    "discard": Planner._discard,
    "undo": Planner._undo,
    "commit": Planner._commit,
    "merge": Planner._merge,
    "clean_up": Planner._clean_up,
}


def own_worktree(state: Session) -> worktrees.Worktree:
    if state.worktree is None:
        raise Impossible("conflict", "This session works in the project's own directory, so there is nothing to merge.")
    return msgspec.convert(state.worktree, worktrees.Worktree)


def _root_of(place: str) -> str | None:
    try:
        repo = find(place)
    except GitError:
        return None
    return repo.root if repo is not None else None


def _repository(state: Session) -> Repository:
    if not os.path.isdir(state.workdir):
        what = "Restore it and try again." if state.worktree is None else "Send a message to create it again."
        raise Impossible("conflict", f"The directory {state.workdir} no longer exists. {what}")
    repo = find(state.workdir)
    if repo is None:
        raise Impossible("no_repository", f"{state.workdir} is not in a git repository, so there are no snapshots.")
    return repo


def _at(root: str) -> Repository:
    repo = find(root)
    if repo is None or repo.root != root:
        raise Impossible("unavailable", f"The repository {root} no longer exists.")
    return repo


def _same_place(change: Change | Operation, repo: Repository) -> None:
    if change.root != repo.root:
        raise Impossible("conflict", f"These changes are in {change.root}, but the session works in {repo.root} now.")


def _ignored(repo: Repository, now: str, target: str, details: dict[str, Any], others: list[str]) -> list[LeftAlone]:
    """The files that differ and stay as they are, because git ignores or ignored them. `others`: those that are left
    alone for another reason, or that change."""
    known = {path.rstrip("/") for path in others}
    found = difference.differing(repo, now, target, paths=_paths_in(details))
    left = [
        path
        for path, sides in found.items()
        if not is_below(path, known) and not any(side and side.mode == SUBMODULE for side in sides)
    ]
    return [LeftAlone(path, "ignored", "git ignores it now or did then, so it stays as it is.") for path in left]


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


def _recorded_outside(repo: Repository, facts: Facts, details: dict[str, Any]) -> dict[str, str]:
    """What others have changed since the state that is restored, with a sentence about each file: between turns, beside
    a turn, or before an operation that kept it."""
    turn, found = details["turn"], dict[str, str]()
    unknown: list[int] = []
    for change in facts.turns:
        number = change.turn or 0
        if change.state != "ready":
            unknown.append(number)
            continue
        if number > turn:
            who = f"Somebody else changed it before turn {number}."
            if unknown:
                who = f"It was changed in turn {unknown[-1]}, of which there is no snapshot, or by somebody else."
            found |= dict.fromkeys(_changed_between(repo, change), who)
        unknown = []
        if change.shared_with and number >= turn + (details.get("point") == "after"):
            other = f"It may be the work of session {change.shared_with[0].session_id}, which worked here too."
            found |= {path: other for path in _all_files(repo, change) if path not in change.tools}
    for operation in facts.operations:
        found |= dict.fromkeys(operation.outside, CHANGED_OUTSIDE)
    return found


def _outside(repo: Repository, facts: Facts, details: dict[str, Any], steps: list[apply.Step]) -> list[tuple[str, str]]:
    """The files among these that somebody else has changed: they differ from the session's last snapshot, or a record
    says so."""
    recorded = _recorded_outside(repo, facts, details)
    latest, found = facts.session, {step.path: recorded[step.path] for step in steps if step.path in recorded}
    if latest is not None and latest.after is not None:
        known = difference.entries(repo, latest.after, [step.path for step in steps])
        found |= {step.path: CHANGED_OUTSIDE for step in steps if known.get(step.path) != step.old}
    return sorted(found.items())


def _kept_outside(repo: Repository, facts: Facts, now: str, steps: list[apply.Step]) -> list[str]:
    """What differs from the session's last snapshot and stays as it is."""
    if facts.session is None or facts.session.after is None:
        return []
    changed = {step.path for step in steps}
    alone = {one.path.rstrip("/") for one in ignored_between(repo, facts.session.after, now)}
    names = difference.differing(repo, facts.session.after, now)
    return sorted(path for path in names if path not in changed and not is_below(path, alone))


def _decided(
    outside: list[tuple[str, str]], steps: list[apply.Step], choice: Outside | None
) -> tuple[list[apply.Step], list[Skipped]]:
    """The steps that remain, and the files to keep. Raises Impossible if somebody has to choose."""
    if not outside or choice == "overwrite":
        return steps, []
    if choice is None:
        message = f"{_count(len(outside), 'file')} changed since the session's last turn. Choose to keep or overwrite."
        raise Impossible("files_changed", message, outside, choice=True)
    kept = {path for path, _ in outside}
    return [step for step in steps if step.path not in kept], [Skipped(path, reason) for path, reason in outside]


def _uncommitted(repo: Repository, facts: Facts) -> list[str]:
    """The files that the session's turns have changed and that differ from the last commit."""
    whole = facts.session
    if whole is None or whole.after is None:
        return []
    commit_id, wanted = head(repo).commit, sorted(set[str]().union(*(_all_files(repo, one) for one in facts.turns)))
    then = difference.entries(repo, commit_id, wanted) if commit_id is not None else {}
    now = difference.entries(repo, whole.after, wanted)
    return [name for name in wanted if then.get(name) != now.get(name)]


def _alone(change: Change | None, taken: Snapshot) -> list[str]:
    """The paths that one of the snapshots lacks, so nothing is known about them."""
    return [one.path for one in [*(change.left_alone if change is not None else []), *taken.left_alone]]


def _paths_in(details: dict[str, Any]) -> list[str] | None:
    paths = details.get("paths")
    return [unquoted(path) for path in paths] if paths is not None else None


def _paths(steps: list[apply.Step]) -> list[ChangedPath]:
    return [
        ChangedPath(step.path, "delete" if step.new is None else "create" if step.old is None else "write")
        for step in steps
    ]


def _as_skipped(left: Iterable[apply.Conflict]) -> list[Skipped]:
    return [Skipped(one.path, one.reason) for one in left]


def _the(hunks: list[int] | None) -> str:
    return "this change" if hunks is None else "this hunk" if len(hunks) == 1 else "these hunks"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
