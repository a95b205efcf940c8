"""Finds files in a working directory by part of their path, for completion. Reads names, never contents.

Above: the verb `files` of the sessions. Below: the file system. A directory can have millions of files, so the walk is
bounded, and skips hidden folders and installed packages.
"""

import os
from pathlib import PurePath

WALKED_ENTRIES = 20_000
SKIPPED = {"node_modules", "__pycache__", "target", "dist", "venv"}


def files(root: str, wanted: str, limit: int) -> list[str]:
    """Paths relative to `root` that contain `wanted`; names that start with it come first, then shorter paths."""
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
    """Whether the path can be encoded as JSON: one that is not UTF-8 can't."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
