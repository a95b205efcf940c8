"""Files below a working directory that fit a few letters, to complete what a person types. It reads names, never files.

Above: the verb `files` of the sessions. Below: the file system. A directory may hold millions of files, so the walk has
a bound, and what nobody wants to name by hand (hidden folders, installed packages) is left out.
"""

import os
from pathlib import PurePath

WALKED_ENTRIES = 20_000
SKIPPED = {"node_modules", "__pycache__", "target", "dist", "venv"}


def files(root: str, wanted: str, limit: int) -> list[str]:
    """Paths relative to `root` that hold the letters; names that begin with them first, then the shorter ones."""
    lower = wanted.lower()
    found: list[str] = []
    left = WALKED_ENTRIES
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        inside = os.path.relpath(folder, root)
        for name in sorted(names):
            path = name if inside == "." else f"{inside}/{name}"
            if lower in path.lower() and _is_text(path):
                found.append(path)
        left -= len(names) + len(folders)
        if left <= 0:
            break
    found.sort(key=lambda path: (not PurePath(path).name.lower().startswith(lower), path.count("/"), len(path), path))
    return found[:limit]


def _is_text(path: str) -> bool:
    """Whether the name can be written as JSON: one that is not UTF-8 can't."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
