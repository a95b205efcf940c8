"""The ignore rules of a recorded state: which files git ignored when the files were those of a tree.

Above: apply.py, discard.py and snapshot.py. Below: `git check-ignore`, in a temporary folder that has only the tree's
`.gitignore` files. A snapshot doesn't contain ignored files. So if such a file is missing from a tree, this doesn't
mean that there was none: whoever deletes files to get back to a tree must leave these alone.

The alternative would be to record with each snapshot what git ignores: a second walk through all folders for each turn.
The rules are only needed when they change or when files are deleted, and they are in the trees already. What is not in
a tree, such as `.git/info/exclude` and the user's own rules, counts as it is now.
"""

import os
import tempfile
from collections.abc import Collection, Iterator

from perdure.runtime.git.command import Git
from perdure.runtime.git.difference import EXECUTABLE, contents, entries
from perdure.runtime.git.index import zero_terminated
from perdure.runtime.git.repository import Repository

RULES = ".gitignore"

_FILES = ("100644", EXECUTABLE)


def ignored(
    repository: Repository, tree: str, paths: Collection[str], *, deadline_s: float | None = None
) -> dict[str, str]:
    """Those of some paths that the rules of a tree ignore. The value is the topmost folder that is ignored as a whole
    and of which the tree has no file, with a slash at its end; or the path."""
    if not paths:
        return {}
    folders = sorted({folder for path in paths for folder in _folders(path)})
    rules = entries(repository, tree, [RULES, *(folder + RULES for folder in folders)], deadline_s=deadline_s)
    with tempfile.TemporaryDirectory(prefix="perdure-git-") as place:
        places: dict[str, list[str]] = {}
        for path, entry in rules.items():
            if entry.mode in _FILES:
                places.setdefault(entry.oid, []).append(os.path.join(place, path))
        with contents(repository, places, deadline_s=deadline_s) as stored:
            for oid, names in places.items():
                for name in names:
                    os.makedirs(os.path.dirname(name), exist_ok=True)
                    with open(name, "wb") as file:
                        file.writelines(stored.parts(oid))
        git = Git(place, deadline_s=deadline_s, env={"GIT_DIR": repository.git_dir, "GIT_WORK_TREE": place})
        # The command has no literal paths; with a dot in front, nothing in them is special.
        asked = zero_terminated([f"./{path}" for path in (*paths, *folders)])
        options = ("check-ignore", "--no-index", "-z", "--stdin")
        output = git.run(*options, input=asked, ok=(0, 1), env={"GIT_LITERAL_PATHSPECS": "0"})
    found = {os.fsdecode(path[2:]) for path in output.split(b"\0")[:-1]}
    whole = [folder for folder in folders if folder in found]
    used = {folder for path in entries(repository, tree, whole, deadline_s=deadline_s) for folder in _folders(path)}
    empty = set(whole) - used
    tops = {path: next((folder for folder in _folders(path) if folder in empty), path) for path in paths}
    return {path: top for path, top in tops.items() if path in found}


def _folders(path: str) -> Iterator[str]:
    """The folders above a path, the topmost first, each with a slash at its end."""
    position = path.find("/")
    while position >= 0:
        yield path[: position + 1]
        position = path.find("/", position + 1)
