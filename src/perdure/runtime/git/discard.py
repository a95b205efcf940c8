"""Taking back what a turn changed in one file, or some hunks of it.

Above: the verb that discards changes. Below: difference.py, core/patch.py, and `git merge-file` where the file was
changed again since. Nothing here writes into the working tree: the result is steps for apply.py. The hunks are those of
`git diff BEFORE AFTER -- PATH`, numbered from 0; of a renamed file, those of the diff with both names.
"""

import os
import tempfile
from collections.abc import Sequence

from perdure.core import patch as patches
from perdure.runtime.git.apply import Step
from perdure.runtime.git.command import GitError, shown
from perdure.runtime.git.difference import (
    LINK,
    SUBMODULE,
    Entry,
    FileChange,
    blob,
    changes,
    differing,
    entries,
    patch,
)
from perdure.runtime.git.ignore_rules import ignored
from perdure.runtime.git.repository import Repository

FILE_BYTES = 64 * 1024 * 1024
"""Parts of larger files can't be discarded."""
PATCH_BYTES = 2 * FILE_BYTES


def without(
    repository: Repository,
    before_tree: str,
    after_tree: str,
    now_tree: str,
    path: str,
    hunks: Sequence[int] | None = None,
    *,
    deadline_s: float | None = None,
) -> list[Step]:
    """The steps that change the working tree, with the state `now_tree`, to one without a file's change between two
    trees; with `hunks`, without these parts of it. Empty if it is gone already. Raises GitError if that isn't
    possible."""
    change = _change(repository, before_tree, after_tree, path, deadline_s)
    if change is None:
        raise GitError(f"{shown(path)} has no change to discard.")
    if change.status == "added" and ignored(repository, before_tree, [path], deadline_s=deadline_s):
        name = shown(path)
        raise GitError(f"git ignored {name} before the change, so nobody knows whether it is new. Delete it yourself.")
    discard = _Discard(repository, change, now_tree, deadline_s)
    if hunks is None:
        return discard.whole()
    if change.binary or LINK in (change.old_mode, change.new_mode):
        raise GitError(f"{shown(path)} has no lines. Discard the whole change.")
    names = [change.path] if change.old_path is None else [change.old_path, change.path]
    text, truncated = patch(
        repository, before_tree, after_tree, paths=names, max_bytes=PATCH_BYTES, deadline_s=deadline_s
    )
    if truncated:
        raise GitError(f"The change of {shown(path)} is too large. Discard the whole change.")
    return discard.hunks(patches.hunks(text), hunks)


def _change(repository: Repository, before: str, after: str, path: str, deadline_s: float | None) -> FileChange | None:
    """The change of a path. If it was added, it may be one side of a rename, for which all paths must be compared."""
    sides = differing(repository, before, after, paths=(path,), deadline_s=deadline_s).get(path)
    if sides is None:
        return None
    is_new = sides[0] is None
    found = changes(repository, before, after, paths=None if is_new else (path,), deadline_s=deadline_s)
    return next((change for change in found if change.path == path), None)


class _Discard:
    """One change, compared with the file's state now."""

    def __init__(self, repository: Repository, change: FileChange, now_tree: str, deadline_s: float | None) -> None:
        self._repository = repository
        self._deadline_s = deadline_s
        self._change = change
        self._name = shown(change.path)
        self._old_path = change.old_path
        self._before = _side(change.old_mode, change.old_id)
        self._after = _side(change.new_mode, change.new_id)
        paths = [change.path, *([self._old_path] if self._old_path is not None else [])]
        self._all_now = entries(repository, now_tree, paths, deadline_s=deadline_s)
        self._now = self._all_now.get(change.path)
        if any(side and side.mode == SUBMODULE for side in (self._before, self._after, self._now)):
            raise GitError(f"{self._name} is a submodule, which is left alone.")

    def whole(self) -> list[Step]:
        """Without the whole change, including its rename and its mode."""
        path, before, after, now = self._change.path, self._before, self._after, self._now
        if self._old_path is not None:
            return self._rename_back(self._old_path)
        if now == before:
            return []
        if now == after:
            return [Step(path, now, before)]
        return [Step(path, now, self._merged(before))]

    def _rename_back(self, old_path: str) -> list[Step]:
        assert self._before and self._after
        path, there = self._change.path, self._all_now.get(old_path)
        if self._now is None and there is not None:
            return []
        if there is not None:
            raise GitError(f"{shown(old_path)} exists, so {self._name} can't get this name back.")
        back = self._before if self._now == self._after else self._merged(self._before)
        return [Step(path, self._now, None), Step(old_path, None, back)]

    def hunks(self, all_hunks: Sequence[patches.Hunk], chosen: Sequence[int]) -> list[Step]:
        """Without some hunks. The name and the mode stay, unless nothing is left of a new or deleted file's change."""
        if not chosen:
            return []
        if not all(0 <= number < len(all_hunks) for number in chosen):
            raise GitError(f"{self._name} has changes in {len(all_hunks)} places, numbered from 0.")
        if (self._before is None or self._after is None) and len(set(chosen)) == len(all_hunks):
            return self.whole()
        assert self._after
        text = patches.without(self._content(self._after), all_hunks, chosen)
        wanted = Entry(self._after.mode, self._stored(text))
        new = wanted if self._now == self._after else self._merged(wanted)
        return [] if new == self._now else [Step(self._change.path, self._now, new)]

    def _merged(self, wanted: Entry | None) -> Entry:
        """What the file has now, with the way from `after` to `wanted`. The mode is that of the side that changed."""
        now, after = self._now, self._after
        if now is None:
            raise GitError(f"{self._name} was deleted since. Restore it first.")
        if after is None:
            raise GitError(f"{self._name} was deleted and then created again, so it can't be restored.")
        if wanted is None:
            raise GitError(f"{self._name} was changed since, so it can't be deleted.")
        mode = wanted.mode if now.mode == after.mode else now.mode
        if LINK in (now.mode, after.mode, wanted.mode):
            raise GitError(f"{self._name} was changed since, and is or was a link, so it can't be merged.")
        if wanted.oid in (now.oid, after.oid):
            return Entry(mode, now.oid)
        if now.oid == after.oid:
            return Entry(mode, wanted.oid)
        return Entry(mode, self._stored(self._merge(self._content(now), self._content(after), self._content(wanted))))

    def _merge(self, now: bytes, after: bytes, wanted: bytes) -> bytes:
        with tempfile.TemporaryDirectory(prefix="perdure-merge-") as folder:
            for name, text in (("now", now), ("after", after), ("wanted", wanted)):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(text)
            names = [os.path.join(folder, name) for name in ("now", "after", "wanted")]
            git = self._repository.git(self._deadline_s)
            status, merged = git.returns("merge-file", "--stdout", "--quiet", *names)
        if status:
            # The number of conflicts, or 255 if a file is binary.
            raise GitError(
                f"{self._name} was changed later in the same place, so this change can't be taken out. Discard the "
                "later one first, or edit the file."
            )
        return merged

    def _content(self, entry: Entry) -> bytes:
        return blob(self._repository, entry.oid, FILE_BYTES, deadline_s=self._deadline_s)

    def _stored(self, text: bytes) -> str:
        git = self._repository.git(self._deadline_s)
        return git.run("hash-object", "-w", "--no-filters", "--stdin", input=text).decode().strip()


def _side(mode: str | None, oid: str | None) -> Entry | None:
    return None if mode is None or oid is None else Entry(mode, oid)
