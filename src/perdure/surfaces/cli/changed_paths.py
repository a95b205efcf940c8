"""Which changed files a user means.

Above: changes.py, file_operations.py, commits.py and comments.py. Below: rows.py. As with git, a path that begins with
`.` or `..`, and an absolute one, is a path on this machine. Any other may also be a path from the top of the
repository, as `perdure changes` lists it; if it is both, the command is refused.
"""

import os
from collections.abc import Collection, Sequence
from typing import Any

import click

from perdure.surfaces.cli.reach import Failure
from perdure.surfaces.cli.rows import shown_path, unquoted

Json = dict[str, Any]

LISTED_NAMES = 10
TOO_MANY = "There are too many changed files to list, so some are missing here."


def found_paths(given: Sequence[str], changes: Json, listing: Json, there: str) -> list[str]:
    """The files in a listing that are meant, also by their folder. `there` says which files these are, for the
    error."""
    known, names = listing["files"], _names(listing)
    found: dict[str, None] = {}
    for one in given:
        place = place_of(one, changes, names)
        matching = [file["path"] for file in known if any(is_at(name, place) for name in names_of(file))]
        if not matching:
            paths = [shown_path(file["path"]) for file in known]
            some = ", ".join(paths[:LISTED_NAMES]) + (" ..." if len(paths) > LISTED_NAMES else "")
            what = f"{_named(one)} is not among the {there}. They are: {some}." if paths else f"There are no {there}."
            raise Failure(f"{what}{'' if lists_all(listing) else f' {TOO_MANY}'} (not_found)")
        found |= dict.fromkeys(matching)
    return list(found)


def only(changes: Json, given: Sequence[str]) -> Json:
    """The changes to these files, and what else to know about them."""
    paths = set(found_paths(given, changes, changes, "changes"))
    files = [file for file in changes["files"] if file["path"] in paths]
    places = [place_of(one, changes, _names(changes)) for one in given]
    counts = {name: sum(file[name] or 0 for file in files) for name in ("added", "removed")}
    notes = {
        name: [one for one in changes[name] if any(is_at(one["path"], place) for place in places)]
        for name in ("outside", "left_alone")
    }
    return {**changes, **counts, **notes, "files": files, "file_count": len(files)}


def place_of(given: str, changes: Json, names: Collection[str]) -> str:
    """The path in the repository, of which `.` is the top."""
    if not given:
        raise click.UsageError("A path must not be empty.")
    here = _from_here(given, changes)
    if os.path.isabs(given) or given.split("/", maxsplit=1)[0] in (".", ".."):
        if here is None:
            raise Failure(f"{_named(given)} is not in {shown_path(changes['directory'])}. (not_found)")
        return here
    from_top = [os.path.normpath(given), os.path.normpath(unquoted(given))]
    meant = [
        place
        for place in dict.fromkeys((*from_top, here))
        if place is not None and any(is_at(name, place) for name in names)
    ]
    if len(meant) > 1:
        top = os.path.relpath(f"/{meant[0]}", f"/{_from_here('.', changes)}")
        raise Failure(
            f"{_named(given)} is ambiguous. Give {shown_path(f'./{given}')} for {shown_path(meant[1])}, or "
            f"{shown_path(top)} for {shown_path(meant[0])}.",
            2,
        )
    return meant[0] if meant else from_top[0]


def _from_here(given: str, changes: Json) -> str | None:
    """Where a path on this machine is in the repository, or in the one that the session's worktree belongs to."""
    place = os.path.abspath(given)
    place = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
    for root in (changes["directory"], (changes.get("worktree") or {}).get("repository")):
        if root and is_at(place, os.path.realpath(root)):
            return os.path.relpath(place, os.path.realpath(root))
    return None


def is_at(name: str, path: str) -> bool:
    return path == "." or name == path or name.startswith(path + "/")


def names_of(file: Json) -> set[str]:
    """A file's name, and its earlier name if it was renamed."""
    return {file["path"], file.get("old_path") or file["path"]}


def _names(listing: Json) -> set[str]:
    return set[str]().union(*(names_of(file) for file in listing["files"]))


def lists_all(listing: Json) -> bool:
    return (listing["file_count"] or 0) <= len(listing["files"])


def _named(given: str) -> str:
    """A path in quotes."""
    shown = shown_path(given)
    return shown if shown.startswith('"') else f"'{shown}'"
