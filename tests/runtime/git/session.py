"""Sessions that work in their own work trees of one project, for the tests of work trees and merges.

Above: test_worktree.py, test_merge.py, test_merge_kills.py. Below: project.py.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from perdure.runtime.git import merge
from perdure.runtime.git.apply import Conflict
from perdure.runtime.git.merge import MergePlan, Strategy
from perdure.runtime.git.worktree import create
from tests.runtime.git.project import Project

AUTHOR = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


class Session(Project):
    """A work tree of the project. The methods of Project do what its agent does."""

    def __init__(self, project: Project, name: str) -> None:
        self.project = project
        self.worktree = create(str(project.root), str(project.root.parent / "sessions" / name), f"perdure/{name}")
        self.root = Path(self.worktree.path)

    def plan(self, strategy: Strategy = "merge", message: str | None = None) -> MergePlan:
        return stored(merge.prepare(self.worktree, strategy, message))

    def bring_back(self, strategy: Strategy = "merge") -> list[Conflict]:
        return merge.finish(self.plan(strategy))


def stored(plan: MergePlan) -> MergePlan:
    """The plan as it comes back from the database."""
    return msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(plan))), MergePlan)


def state(*trees: Project) -> dict[str, Any]:
    """What a user sees of a repository and its work trees."""
    first = trees[0]
    common = Path(first.repository.common_dir)
    return {
        "refs": first.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"),
        "trees": [
            {
                "files": tree.files(),
                "index": tree.git("ls-files", "--stage", "-t", "-z"),
                "head": Path(tree.repository.git_dir, "HEAD").read_bytes(),
            }
            for tree in trees
        ],
        "leftovers": sorted(
            name
            for folder, _, names in os.walk(common)
            for name in names
            if name.endswith(".lock") or name.startswith("perdure-")
        ),
    }


def status(tree: Project) -> list[str]:
    records = tree.git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all").split(b"\0")
    return [os.fsdecode(record) for record in records if record]
