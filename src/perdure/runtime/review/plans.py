"""Plans of file operations: what a request means for the files as they are now, and carrying that out.

Above: operations.py, which stores a plan before it is carried out. Below: the git library and the records. Planning
changes nothing that people see; it takes a snapshot, so that what was on disk is never lost. Carrying out a plan may be
repeated after a crash at any point.

Files that somebody else changed since the session's last snapshot are never overwritten silently: the request is
refused with their list, unless it says what to do with them (`outside`).
"""

import os
from collections.abc import Callable, Collection, Iterable
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
from perdure.runtime.git.command import GitError, shown
from perdure.runtime.git.difference import SUBMODULE, is_below
from perdure.runtime.git.repository import Repository, find, in_progress
from perdure.runtime.git.snapshot import LeftAlone, Snapshot
from perdure.runtime.review import attribution
from perdure.runtime.review.attribution import Stored
from perdure.runtime.review.comparison import compared
from perdure.runtime.review.names import quoted, unquoted
from perdure.runtime.review.recorder import Recorder, ref_of
from perdure.runtime.review.records import SESSION, Change, ChangedPath, Operation, Records, Skipped, turn_name

Outside = Literal["keep", "overwrite"]
CONFLICTS_MAX = 200
CHANGED_SINCE = "It was changed after this operation."
CHANGED_SINCE_READ = "It has changed since you read it."
ALSO_CHANGED = "You or another program changed it between two turns."


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
    """Files with changes of somebody else since the session's last snapshot, which the plan keeps."""
    overwritten: list[str] = []
    """Those whose changes it doesn't keep."""
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


class Planner:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._records: Records = recorder.records

    @staticmethod
    def roots(state: Session) -> list[str]:
        """The working trees that an operation of this session may change, in the order in which to lock them."""
        places = [state.workdir, *(_places_of_merge(own_worktree(state)) if state.worktree is not None else [])]
        return sorted({root for place in places if (root := _root_of(place)) is not None})

    # Planning ------------------------------------------------------------------------------------------------------

    async def plan(self, state: Session, operation: FileOperation) -> Plan:
        """Raises Impossible, GitError or OverBudget."""
        stored = await self._stored(state.id, operation.details)
        return await self._recorder.trees.operate(self._plan, state, operation, stored)

    async def preview(self, state: Session, details: dict[str, Any]) -> Preview:
        """What a restore would do, without doing it."""
        stored, trees = await self._stored(state.id, details), self._recorder.trees
        root = stored.turn.root if stored.turn is not None else state.workdir
        async with trees.within_budget(root, counts=False):
            return await trees.in_thread(self._preview, state, details, stored)

    async def _stored(self, session_id: str, details: dict[str, Any]) -> Stored:
        turn, undone = details.get("turn"), details.get("operation_id")
        return Stored(
            turn=await self._records.get(session_id, turn_name(turn), Change) if turn is not None else None,
            session=await self._records.get(session_id, SESSION, Change),
            undone=await self._records.get(session_id, f"operation-{undone}", Operation) if undone else None,
            turns=await self._records.all(session_id, "turn-", Change) if undone is None else [],
            operations=await self._records.all(session_id, "operation-", Operation) if turn is not None else [],
        )

    def _plan(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
        return _PLANS[operation.action](self, state, operation, stored)

    def _restore(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
        details, turn = operation.details, operation.details["turn"]
        repo, target = self._target(state, details, stored)
        taken = self._now(state, repo, operation)
        now = taken.tree
        alone = _alone(stored.turn, taken)
        steps = apply.plan(repo, now, target, paths=_paths_in(details), without=alone)
        ignored = _ignored(repo, now, target, details, [*alone, *(step.path for step in steps)])
        steps, skipped = _decided(attribution.changed(repo, stored, details, steps), steps, details.get("outside"))
        skipped += [Skipped(one.path, one.reason) for one in ignored]
        at = "after" if details.get("point") == "after" else "before"
        count, rest = _count(len(steps), "file"), "other " if skipped else ""
        message = f"Restored {count} to {at} turn {turn}."
        if not steps:
            message = f"The {rest}files are already as {at} turn {turn}."
        return self._of_steps(state, operation, stored, repo, now, steps, skipped, message, turn)

    def _preview(self, state: Session, details: dict[str, Any], stored: Stored) -> Preview:
        repo, target = self._target(state, details, stored)
        taken = self._recorder.trees.snapshot(repo, ref_of(state.id, "preview"), {}, counts=False)
        alone = _alone(stored.turn, taken)
        steps = apply.plan(repo, taken.tree, target, paths=_paths_in(details), without=alone)
        ignored = _ignored(repo, taken.tree, target, details, [*alone, *(step.path for step in steps)])
        outside = [Skipped(path, reason) for path, reason in attribution.changed(repo, stored, details, steps)]
        change = stored.turn
        assert change is not None
        then = change.head_after if details.get("point") == "after" else change.head_before
        moved = None
        if then is not None and taken.head is not None and then != taken.head:
            moved = f"The branch stays at {taken.head[:10]}. It was at {then[:10]}: commits made since then remain."
        return Preview(files=_paths(steps), outside=outside, left_alone=[*taken.left_alone, *ignored], head_moved=moved)

    def _target(self, state: Session, details: dict[str, Any], stored: Stored) -> tuple[Repository, str]:
        """The repository, and the tree to restore."""
        change, turn = stored.turn, details["turn"]
        if turn > state.last_turn:
            raise Impossible("not_found", f"There is no turn {turn}.")
        repo = _repository(state)
        if change is None:
            raise Impossible("not_found", f"There is no snapshot of turn {turn}, so its files can't be restored.")
        target = change.after if details.get("point") == "after" else change.before
        if target is None:
            raise Impossible("not_found", f"There is no snapshot of turn {turn}: {change.reason or 'it still runs.'}")
        _same_place(change, repo)
        return repo, target

    def _discard(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
        details = operation.details
        path, hunks, turn = unquoted(details["path"]), details.get("hunks"), details.get("turn")
        change, repo = stored.turn if turn is not None else stored.session, _repository(state)
        if change is None or change.before is None or change.after is None:
            raise Impossible("not_found", "There is no snapshot of these changes, so they can't be discarded.")
        _same_place(change, repo)
        expected = details.get("new_id")
        found = next((file for file in compared(repo, change) if file.path == path), None)
        if found is None:
            raise Impossible("not_found", f"{quoted(path)} has no change to discard.")
        if expected is not None and expected != found.new_id:
            message = f"{quoted(path)} has changed since you read it. Reload the changes."
            raise Impossible("files_changed", message, [(path, CHANGED_SINCE_READ)])
        is_mixed = turn is None and not attribution.between_turns(repo, stored).isdisjoint((path, found.old_path))
        if is_mixed and details.get("outside") != "overwrite":
            message = (
                f"{quoted(path)} also has changes from outside this session. Give a turn to discard only its change, "
                "or choose to overwrite both."
            )
            raise Impossible("files_changed", message, [(path, ALSO_CHANGED)], choice=True)
        now = self._now(state, repo, operation).tree
        steps = discard.without(repo, change.before, change.after, now, path, hunks)
        name = quoted(path)
        what = f"{_count(len(hunks), 'hunk')} of {name}" if hunks is not None else f"the change to {name}"
        message = f"Discarded {what}." if steps else f"Nothing to discard: {name} no longer has {_the(hunks)}."
        # It merges: what somebody else has changed in the same file since then stays.
        kept = attribution.foreign(repo, stored, steps)
        return self._of_steps(state, operation, stored, repo, now, steps, [], message, turn, kept)

    def _undo(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
        done = stored.undone
        if done is None or done.before is None or done.after is None:
            raise Impossible("not_found", "This session has no such operation to undo.")
        if done.undone or not done.undoable:
            raise Impossible("conflict", "This operation was undone already." if done.undone else "It can't be undone.")
        repo = _repository(state)
        _same_place(done, repo)
        now = self._now(state, repo, operation).tree
        wanted = apply.plan(repo, done.after, done.before)
        names = [step.path for step in wanted]
        current = difference.entries(repo, now, names)
        outside = [(step.path, CHANGED_SINCE) for step in wanted if current.get(step.path) != step.old]
        steps = [
            apply.Step(path=step.path, old=current.get(step.path), new=step.new)
            for step in wanted
            if current.get(step.path) != step.new
        ]
        choice, said = operation.details.get("outside"), "{} changed since this operation."
        steps, skipped = _decided(outside, steps, choice, said=said)
        message = f"Undone: {_count(len(steps), 'file')} changed back." if steps else "No file was changed back."
        return self._of_steps(state, operation, stored, repo, now, steps, skipped, message, done.turn, done.overwritten)

    def _commit(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
        repo, details = _repository(state), operation.details
        paths, skipped = _paths_in(details), list[Skipped]()
        if paths is None:
            # What another session is writing may be half done, and nobody has chosen it.
            self._refuse_while_others_work(state, repo.root)
            commits.refuse_operation(repo, "commit")
            paths, skipped = attribution.uncommitted(repo, stored)
            if not paths:
                found = [(one.path, one.reason) for one in skipped]
                raise Impossible("conflict", "This session has no uncommitted changes.", found)
        made = commits.prepare(repo, paths, details["message"])
        if expected := details.get("expected"):
            # After `prepare`, so that the commit has what is compared here.
            self._refuse_other_contents(state, repo, {unquoted(path): oid for path, oid in expected.items()})
        subject = details["message"].strip().split("\n")[0]
        branch = shown(made.branch) if made.branch is not None else "the detached HEAD"
        return Plan(
            operation_id=operation.operation_id,
            action=operation.action,
            root=repo.root,
            message=f"Committed {_count(len(paths), 'file')} to {branch}: {subject}",
            commit=made,
            files=[ChangedPath(path, "commit") for path in paths],
            skipped=skipped,
        )

    def _refuse_other_contents(self, state: Session, repo: Repository, expected: dict[str, str | None]) -> None:
        """Raise Impossible if files are no longer what the person has seen."""
        tree = self._recorder.trees.snapshot(repo, ref_of(state.id, "preview"), {}, counts=False).tree
        now = difference.entries(repo, tree, list(expected))
        changed = [path for path, oid in expected.items() if (now[path].oid if path in now else None) != oid]
        if changed:
            count = _count(len(changed), "file")
            message = f"{count} changed since you read the changes, so nothing was committed. Reload the changes."
            raise Impossible("files_changed", message, [(path, CHANGED_SINCE_READ) for path in changed])

    def _merge(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
        own, details = own_worktree(state), operation.details
        for place in _places_of_merge(own):
            self._refuse_while_others_work(state, place)
        uncommitted = worktrees.uncommitted(own)
        try:
            if uncommitted and (text := details.get("commit_message")) is not None:
                repo = _repository(state)
                self._refuse_while_others_work(state, repo.root)
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

    def _clean_up(self, state: Session, operation: FileOperation, stored: Stored) -> Plan:
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
        return self._recorder.trees.snapshot(repo, ref_of(state.id, operation.operation_id), {})

    def _of_steps(
        self,
        state: Session,
        operation: FileOperation,
        stored: Stored,
        repo: Repository,
        now: str,
        steps: list[apply.Step],
        skipped: list[Skipped],
        message: str,
        turn: int | None,
        kept: Collection[str] = (),
    ) -> Plan:
        """`kept`: the files that these steps change, but that keep what somebody else has changed in them."""
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
            outside=sorted({*attribution.kept(repo, stored, now, steps), *kept}),
            overwritten=sorted(set(attribution.foreign(repo, stored, steps)) - set(kept)),
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
        left = apply.apply(_at(plan.root), plan.steps, keep=plan.keep)
        try:
            after = self.result(session_id, plan)
        except (GitError, OSError) as error:
            message = f"{plan.message} There is no snapshot of the result, so it can't be undone: {error}"
            return Done(message=message, skipped=_as_skipped(left))
        return Done(message=plan.message, skipped=_as_skipped(left), after=after)

    def result(self, session_id: str, plan: Plan) -> str:
        """The files before a plan, with what it has changed since: an undo goes back from there. What others change at
        the same time remains theirs. Blocks."""
        repo, ref = _at(plan.root), ref_of(session_id, plan.operation_id)
        assert plan.before is not None
        after = apply.outcome(repo, plan.before, plan.steps)
        self._recorder.trees.keep(repo, ref, after, plan.before, {})
        return after


_PLANS: dict[str, Callable[[Planner, Session, FileOperation, Stored], Plan]] = {
    "restore": Planner._restore,
    "discard": Planner._discard,
    "undo": Planner._undo,
    "commit": Planner._commit,
    "merge": Planner._merge,
    "clean_up": Planner._clean_up,
}


def own_worktree(state: Session) -> worktrees.Worktree:
    if state.worktree is None:
        raise Impossible(
            "conflict", "This session has no worktree of its own. Start one with the workspace setting `worktree`."
        )
    return msgspec.convert(state.worktree, worktrees.Worktree)


def _places_of_merge(own: worktrees.Worktree) -> list[str]:
    """The working trees that a merge of a session's branch may change, besides its own: the repository, and those that
    have the base branch checked out."""
    try:
        repo = find(own.repository)
        known = worktrees.places(repo) if repo is not None else ()
        on_base = [place.path for place in known if own.base is not None and place.branch == own.base]
        return sorted({own.repository, *on_base})
    except GitError:
        return [own.repository]


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


def _decided(
    outside: list[tuple[str, str]],
    steps: list[apply.Step],
    choice: Outside | None,
    *,
    said: str = "{} also changed outside this session.",
) -> tuple[list[apply.Step], list[Skipped]]:
    """The steps that remain, and the files to keep. Raises Impossible if somebody has to choose."""
    if not outside or choice == "overwrite":
        return steps, []
    if choice is None:
        message = said.format(_count(len(outside), "file"))
        raise Impossible("files_changed", f"{message} Choose to keep or overwrite.", outside, choice=True)
    kept = {path for path, _ in outside}
    return [step for step in steps if step.path not in kept], [Skipped(path, reason) for path, reason in outside]


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
