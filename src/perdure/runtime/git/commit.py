"""Commits chosen files on the current branch, as `git commit --only` does, and leaves everything else as it is staged.

Above: the verb that commits; merge.py, which also makes commits and moves branches. Below: command.py, index.py.
`prepare` makes only objects, in an index of its own, and returns a plan that can be stored. `finish` moves the branch
and updates the index, while it holds the index's lock. After a kill at any moment, or after HalfDone, `finish` with
the stored plan leads to the same state. Hooks and signing are left out on purpose: they run programs that the
repository names, and an agent may have written them.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.runtime.git import index
from perdure.runtime.git.checkout import filtered
from perdure.runtime.git.command import Git, GitError, GitTimeout, HalfDone, shown
from perdure.runtime.git.difference import SUBMODULE, Entry, differing, entries
from perdure.runtime.git.index import IndexChange, Recorded, zero_terminated
from perdure.runtime.git.repository import Head, Repository, head, in_progress, is_unfinished

MAX_NAMED = 5
"""How many paths a sentence lists."""

FileStatus = Literal["added", "modified", "deleted"]


class Outdated(GitError):
    """The repository has changed since the plan was made. Nothing was changed."""


class Progress:
    """How far a plan has been carried out."""

    has_moved = False
    """A branch has moved or may have, so the files and the index must follow."""

    def move(self, git: Git, refs: Mapping[str, tuple[str | None, str]], reason: str) -> None:
        """Move all references, or none. If a command of a killed run was faster, they stay where they are."""
        # After a timeout it isn't known.
        self.has_moved = True
        try:
            move(git, refs, reason)
        except GitError as error:
            self.has_moved = isinstance(error, GitTimeout) or (error.status or 0) < 0
            if not isinstance(error, Outdated):
                raise


@contextlib.contextmanager
def completed() -> Iterator[Progress]:
    """Carry out a plan in this. What fails after a branch has moved is raised as HalfDone."""
    progress = Progress()
    try:
        yield progress
    except (Outdated, HalfDone):
        raise
    except (GitError, OSError) as error:
        if not progress.has_moved:
            raise
        reason = error.message if isinstance(error, GitError) else f"{error.strerror}."
        raise HalfDone(f"The branch has moved, but the files or the index could not follow yet. {reason}") from error


class CommitPlan(msgspec.Struct, frozen=True):
    head: str | None
    """The commit on which the new one is based; None for the first commit."""
    branch: str | None
    """None if HEAD is detached."""
    commit: str
    subject: str
    files: dict[str, FileStatus]
    """What the commit changes. A rename is a deleted and an added file."""
    entries: list[IndexChange]


def prepare(
    repository: Repository, paths: Collection[str], message: str, *, deadline_s: float | None = None
) -> CommitPlan:
    """Make a commit of the files as they are on disk now; a path without a file is a deletion. Paths are relative to
    the top of the working tree. Raises GitError if something prevents it."""
    message = cleaned(message)
    git = repository.git(deadline_s)
    refuse_operation(repository, "commit")
    chosen = sorted(set(paths))
    if not chosen:
        raise GitError("No file was chosen. Choose at least one changed file to commit.")
    _refuse_outside(chosen)
    committer(git)
    now = head(repository, deadline_s)
    base = now.commit or git.run("mktree", input=b"").decode().strip()
    before = entries(repository, base, chosen, deadline_s=deadline_s)
    recorded = index.recorded(git, chosen)
    _refuse_entries(chosen, recorded, before)
    present = [path for path in chosen if _is_present(repository, path, path in before or path in recorded)]
    _refuse_files(git, chosen, present, recorded)
    with tempfile.TemporaryDirectory(prefix="perdure-git-") as place:
        own = {"GIT_INDEX_FILE": os.path.join(place, "index")}
        git.run("-c", "index.sparse=false", "read-tree", base, env=own)
        _add(repository, chosen, present, recorded, own, deadline_s)
        tree = git.run(*index.write_tree(git), env=own).decode().strip()
        differences = differing(repository, base, tree, deadline_s=deadline_s)
        if not differences:
            raise GitError("There is nothing to commit: the chosen files are as in the last commit.")
        # Also a chosen file that the commit doesn't change: what was staged of it isn't what is on disk.
        touched = sorted({*chosen, *differences})
        made = index.recorded(git, touched, own)
    recorded = index.recorded(git, touched)
    return CommitPlan(
        head=now.commit,
        branch=now.branch,
        commit=commit_tree(git, tree, [now.commit] if now.commit else [], message),
        subject=message.partition("\n")[0],
        files={path: _status(old, new) for path, (old, new) in differences.items()},
        entries=[IndexChange(path, index.entry_at(recorded, path), index.entry_at(made, path)) for path in touched],
    )


def finish(repository: Repository, plan: CommitPlan, *, deadline_s: float | None = None) -> None:
    """Move the branch to the plan's commit and set the index entries of its files. Raises Outdated if the branch has
    moved elsewhere, and index.Busy if another git command keeps the index locked; then nothing was changed. Raises
    HalfDone if something failed after the branch has moved."""
    git = repository.git(deadline_s)
    ref = "HEAD" if plan.branch is None else f"refs/heads/{plan.branch}"
    with completed() as progress:
        # By an earlier run.
        progress.has_moved = contains(git, ref, plan.commit)
        with (
            index.locked(repository, plan.commit, stays=lambda: progress.has_moved),
            index.edition(repository, plan.entries, deadline_s=deadline_s) as edition,
        ):
            now = head(repository, deadline_s)
            if now == Head(plan.branch, plan.head):
                refuse_operation(repository, "commit")
                progress.move(git, {ref: (plan.head, plan.commit)}, f"commit (perdure): {plan.subject}")
                now = head(repository, deadline_s)
            if not contains(git, ref, plan.commit):
                progress.has_moved = False
                raise Outdated(
                    "The branch has changed since the commit was prepared, so nothing was committed. Review the "
                    "changes and commit again."
                )
            # Otherwise an earlier run has moved the branch, and the user has gone on from there.
            if now == Head(plan.branch, plan.commit):
                edition.publish()


def cleaned(message: str) -> str:
    """The message as `git commit --cleanup=whitespace` stores it. Raises GitError if it is empty."""
    lines = [line.rstrip() for line in message.replace("\0", "").replace("\r\n", "\n").strip().split("\n")]
    kept = [line for number, line in enumerate(lines) if line or lines[number - 1]]
    if not any(kept):
        raise GitError("The commit message is empty. Write what the commit changes.")
    return "\n".join(kept) + "\n"


def committer(git: Git) -> bytes:
    """Name, address and time of a commit that is made now. Raises GitError if nobody has configured them: git would
    then guess them from the server's user and machine."""
    try:
        git.run("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
        return git.run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT").strip()
    except GitError as error:
        if "auto-detection is disabled" not in error.stderr and "ident name" not in error.stderr:
            raise
        raise GitError(
            "git doesn't know who makes the commit. Run as the server's user: git config --global user.name "
            '"Your Name", and git config --global user.email you@example.com',
            error.stderr,
        ) from None


def commit_tree(git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    """Store a commit of the configured author."""
    settings = ("-c", "user.useConfigOnly=true", "-c", "i18n.commitEncoding=UTF-8")
    arguments = [part for parent in parents for part in ("-p", parent)]
    text = message.encode("utf-8", "replace")
    return git.run(*settings, "commit-tree", tree, *arguments, "-F", "-", input=text).decode().strip()


def contains(git: Git, ref: str, commit: str) -> bool:
    """Whether a branch exists and has a commit."""
    return git.returns("merge-base", "--is-ancestor", commit, ref)[0] == 0


def move(git: Git, refs: Mapping[str, tuple[str | None, str]], reason: str) -> None:
    """Move all references from their old to their new commit, or none. Raises Outdated if one has another commit."""
    lines = ""
    for ref, (old, new) in refs.items():
        option = "option no-deref\0" if ref == "HEAD" else ""
        lines += f"{option}update {ref}\0{new}\0{old or '0' * len(new)}\0"
    try:
        git.run("update-ref", "--stdin", "-z", "-m", reason, input=os.fsencode(lines))
    except GitError as error:
        if any(sign in error.stderr for sign in ("but expected", "reference already exists", "unable to resolve")):
            raise Outdated("The branch has changed in the meantime, so nothing was done. Try again.") from None
        raise


def refuse_operation(repository: Repository, action: str) -> None:
    """Raise GitError if the state of the worktree doesn't allow a commit or merge now."""
    if is_unfinished(repository.git_dir, repository.common_dir):
        raise GitError(
            f"The files of {shown(repository.root)} were not completely checked out. Send the session a message: "
            f"Perdure then completes them. Then {action}."
        )
    operation = in_progress(repository)
    if operation:
        place = shown(repository.root)
        raise GitError(f"A {operation} is in progress in {place}. Finish or abort it in a terminal, then {action}.")


def named(paths: Collection[str]) -> str:
    """Some of the paths, and how many more there are."""
    listed = ", ".join(shown(path) for path in sorted(paths)[:MAX_NAMED])
    return listed if len(paths) <= MAX_NAMED else f"{listed} and {len(paths) - MAX_NAMED} more"


def _status(old: Entry | None, new: Entry | None) -> FileStatus:
    return "added" if old is None else "deleted" if new is None else "modified"


def _refuse_outside(paths: Collection[str]) -> None:
    for path in paths:
        if "\0" in path or any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/")):
            raise GitError(f"{shown(path)} is not a path of a file inside the repository.")


def _is_present(repository: Repository, path: str, is_known: bool) -> bool:
    """Whether there is a file or link to commit. Raises GitError if there can't be one, or never was."""
    parts, place = path.split("/"), repository.root
    try:
        for part in parts[:-1]:
            place = os.path.join(place, part)
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                raise NotADirectoryError
            if os.path.lexists(os.path.join(place, ".git")):
                inner = os.path.relpath(place, repository.root)
                raise GitError(f"{shown(path)} belongs to another repository, {shown(inner)}. Commit it there.")
        mode = os.lstat(os.path.join(place, parts[-1])).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not is_known:
            raise GitError(f"{shown(path)} does not exist.") from None
        return False
    except OSError as error:
        raise GitError(f"{shown(path)} can't be read: {error.strerror}.") from None
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        return True
    if stat.S_ISDIR(mode) and is_known:
        return False
    what = "a folder" if stat.S_ISDIR(mode) else "neither a file nor a link"
    raise GitError(f"{shown(path)} is {what}. Choose files to commit.")


def _refuse_entries(
    chosen: Collection[str], recorded: Mapping[str, Sequence[Recorded]], before: Mapping[str, Entry]
) -> None:
    """Refuse paths that git keeps in a way which a commit of the file's content would break."""
    rows = {path: recorded.get(path, ()) for path in chosen}
    conflicts = [path for path in chosen if any(row.stage for row in rows[path])]
    if conflicts:
        raise GitError(f"{named(conflicts)}: resolve the conflict and run `git add`, then commit.")
    submodules = {path for path in chosen if any(row.entry.mode == SUBMODULE for row in rows[path])}
    submodules |= {path for path in chosen if path in before and before[path].mode == SUBMODULE}
    if submodules:
        raise GitError(f"{named(submodules)}: Perdure does not commit submodules. Use `git commit` in a terminal.")


def _refuse_files(
    git: Git, chosen: Collection[str], present: Collection[str], recorded: Mapping[str, Sequence[Recorded]]
) -> None:
    left_out = [path for path in set(chosen) - set(present) if any(row.is_skipped for row in recorded.get(path, ()))]
    if left_out:
        raise GitError(
            f"{named(left_out)}: not checked out here (see `git sparse-checkout`), so it can't be committed."
        )
    found = filtered(git, present)
    if found:
        filters = ", ".join(sorted(set(found.values())))
        raise GitError(
            f"{named(found)}: stored through the filter {filters}, which Perdure does not run. Commit with "
            "`git commit` in a terminal, or leave it out."
        )


def _add(
    repository: Repository,
    chosen: Collection[str],
    present: Collection[str],
    recorded: Mapping[str, Sequence[Recorded]],
    own: Mapping[str, str],
    deadline_s: float | None,
) -> None:
    """Bring the files into the commit's own index, converted as `git add` converts them."""
    git = repository.git(deadline_s)
    gone = sorted(set(chosen) - set(present))
    index.write(repository, dict.fromkeys(gone), own, deadline_s)
    git.run("update-index", "--add", "--replace", "-z", "--stdin", input=zero_terminated(present), env=own)
    if git.returns("config", "--type=bool", "core.fileMode")[1] == b"false\n":
        # The file system can't say what is executable. The user's index does, after `git update-index --chmod`.
        made = index.recorded(git, present, own)
        staged = {path: rows[0].entry.mode for path, rows in recorded.items() if rows[0].entry.mode.startswith("100")}
        both = {path: rows[0].entry for path, rows in made.items() if path in staged}
        modes = {path: Entry(staged[path], entry.oid) for path, entry in both.items() if entry.mode.startswith("100")}
        index.write(repository, modes, own, deadline_s)
