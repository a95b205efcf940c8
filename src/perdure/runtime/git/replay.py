"""Merging two branches, or replaying the commits of one on the other, without a work tree: only objects are made.

Above: merge.py. Below: command.py, with `git merge-tree --write-tree`, which detects renames as `git merge` does. It
can't be given a base. So to replay a commit, a temporary one is made that has the same parent, and the tree so far as
its content: the only merge base of the two is then that parent. The author, date and message of replayed commits are
kept byte by byte, and signatures are dropped, as they would no longer be valid.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.runtime.git.checkout import Ground
from perdure.runtime.git.command import Git, GitError

MAX_COMMITS = 1000
"""Replaying more commits would take minutes."""
_DROPPED = (b"gpgsig", b"gpgsig-sha256", b"mergetag")


class Conflicts(Exception):
    """The two sides changed the same places; `paths` names the files."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths = tuple(paths)


class Parsed(NamedTuple):
    """A commit object."""

    tree: str
    parents: list[str]
    author: bytes
    """Name, address and date."""
    others: list[bytes]
    """Further header lines that a rewritten commit keeps, such as the encoding."""
    message: bytes


def merged(ground: Ground, ours: str, theirs: str) -> str:
    """The tree of a merge. Raises Conflicts."""
    arguments = ("merge-tree", "--write-tree", "--name-only", "--messages", "-z", ours, theirs)
    status, output = ground.git.returns(*arguments, ok=(0, 1))
    tree, *fields = output.split(b"\0")
    if status == 0:
        return tree.decode()
    # git doesn't list a path for each kind of conflict, such as a folder of which it can't say where it was moved.
    end = fields.index(b"")
    names = fields[:end] or list(_named(fields[end + 1 : -1]))
    raise Conflicts([os.fsdecode(name) for name in dict.fromkeys(names)])


def _named(fields: Sequence[bytes]) -> Iterator[bytes]:
    """The paths that the messages of `git merge-tree -z` name: each has their number, they, its kind, and its text."""
    position = 0
    while position < len(fields):
        count = int(fields[position])
        kind = fields[position + count + 1]
        if kind.startswith(b"CONFLICT"):
            yield from fields[position + 1 : position + count + 1]
        position += count + 3


def replayed(ground: Ground, base: str, branch: str, committer: bytes | None) -> str:
    """The last commit of a branch's own commits on top of `base`. Those whose change `base` has already are left out.
    Without a committer, the authors are named, so that a preview makes the same objects each time. Raises Conflicts."""
    git = ground.git
    chosen = ("--reverse", "--topo-order", "--no-merges", "--right-only", "--cherry-pick")
    listed = git.run("rev-list", *chosen, f"{base}...{branch}").decode().split()
    tip, tip_tree = base, parsed(git, base).tree
    for commit in listed:
        made = parsed(git, commit)
        if len(made.parents) != 1:
            raise GitError(f"The commit {commit[:10]} has no parent, so it can't be rebased. Merge instead.")
        parent = made.parents[0]
        if parent == tip:
            tip, tip_tree = commit, made.tree
            continue
        before = parsed(git, parent).tree
        tree = tip_tree
        if before != made.tree:
            tree = merged(ground, stored(git, made._replace(tree=tip_tree, parents=[parent]), made.author), commit)
            if tree == tip_tree:
                continue
        tip = stored(git, made._replace(tree=tree, parents=[tip]), committer or made.author)
        tip_tree = tree
    return tip


def parsed(git: Git, commit: str) -> Parsed:
    header, _, message = git.run("cat-file", "commit", commit).partition(b"\n\n")
    lines: list[bytes] = []
    for line in header.split(b"\n"):
        if line.startswith(b" "):
            lines[-1] += b"\n" + line
        else:
            lines.append(line)
    fields = [(key, value) for key, _, value in (line.partition(b" ") for line in lines)]
    replaced = (b"tree", b"parent", b"author", b"committer", *_DROPPED)
    return Parsed(
        tree=next(value for key, value in fields if key == b"tree").decode(),
        parents=[value.decode() for key, value in fields if key == b"parent"],
        author=next(value for key, value in fields if key == b"author"),
        others=[key + b" " + value for key, value in fields if key not in replaced],
        message=message,
    )


def stored(git: Git, commit: Parsed, committer: bytes) -> str:
    """Store a commit object and return its id."""
    lines = [b"tree " + commit.tree.encode(), *(b"parent " + parent.encode() for parent in commit.parents)]
    lines += [b"author " + commit.author, b"committer " + committer, *commit.others]
    content = b"\n".join(lines) + b"\n\n" + commit.message
    return git.run("hash-object", "-t", "commit", "-w", "--stdin", input=content).decode().strip()
