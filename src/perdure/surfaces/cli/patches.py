"""A patch, as `git diff` prints it, as rows for a terminal.

Above: changes.py. Below: diffs.py and rows.py. Pure. It reads the numbers of lines in the hunks' headers, so a changed
line that looks like a header is not taken for one. Programs and pipes get the patch unchanged, not these rows.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from perdure.surfaces.cli.diffs import GAP, NO_NEWLINE, DiffLine, rows_of
from perdure.surfaces.cli.rows import Row, quoted, unquoted, visible

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
# Headers that say more than the file's name, and how they are shown.
_NOTES = {
    "new file mode 120000": "new symbolic link",
    "new file mode 100755": "new file, executable",
    "new file mode": "new file",
    "deleted file mode": "deleted",
    "old mode 100644": "now executable",
    "old mode 100755": "no longer executable",
    "rename from": "renamed from",
    "Binary files": "binary",
}


class Hunk(NamedTuple):
    """`about` is what the header says about the place, such as the name of the function."""

    lines: list[DiffLine]
    about: str


class FilePatch(NamedTuple):
    path: str
    notes: list[str]
    hunks: list[Hunk]

    @property
    def counts(self) -> str:
        marks = [line.mark for hunk in self.hunks for line in hunk.lines]
        return f"+{marks.count('+')} -{marks.count('-')}" if self.hunks else ""

    def row_count(self, chosen: Collection[int] = ()) -> int:
        shown = [hunk for number, hunk in enumerate(self.hunks, 1) if not chosen or number in chosen]
        return 1 + sum(len(hunk.lines) for hunk in shown) + (len(shown) if len(self.hunks) > 1 else 0)


def parsed(patch: bytes) -> list[FilePatch]:
    """The files in a patch, in order."""
    lines = iter(patch.decode("utf-8", "surrogateescape").split("\n"))
    files: list[FilePatch] = []
    for line in lines:
        if line.startswith("diff --git "):
            files.append(FilePatch(_path(line), [], []))
        elif files and (head := _HUNK.fullmatch(line)):
            old, new = (1 if count is None else int(count) for count in (head[2], head[4]))
            files[-1].hunks.append(Hunk(list(_hunk(lines, int(head[1]), int(head[3]), old, new)), head[5].strip()))
        elif files and line.startswith("\\") and files[-1].hunks:
            files[-1].hunks[-1].lines.append(DiffLine("\\", NO_NEWLINE, None))
        elif files and (note := _note(line)):
            files[-1].notes.append(note)
    return files


def rows(file: FilePatch, *, numbered: bool = True, chosen: Collection[int] = (), most: int | None = None) -> list[Row]:
    """A heading with the file's name, then its hunks, or only those with the `chosen` numbers from 1, up to about
    `most` rows. With several hunks, each has its number, unless the patch is not the one whose hunks `perdure discard`
    counts."""
    counts = "" if chosen else file.counts
    heading = "  ".join(part for part in (file.path, counts, *file.notes) if part)
    found = [Row(visible(heading).replace("\n", " "), "heading")]
    numbers = [line.number for hunk in file.hunks for line in hunk.lines if line.number is not None]
    width = len(str(max(numbers, default=0)))
    for number, hunk in enumerate(file.hunks, 1):
        if chosen and number not in chosen:
            continue
        if most is not None and len(found) >= most:
            break
        if len(file.hunks) > 1:
            name = f"hunk {number}" if numbered else GAP
            found.append(Row(name + (f"  {visible(hunk.about)}" if hunk.about else ""), "dim", "  "))
        # Laying out all lines of a long file takes seconds.
        found += rows_of(hunk.lines if most is None else hunk.lines[: most - len(found)], width)
    return found


def _hunk(lines: Iterator[str], old_at: int, new_at: int, old: int, new: int) -> Iterator[DiffLine]:
    """The lines of a hunk. Removed lines have their number before the change."""
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        mark, text = line[:1] or " ", line[1:]
        if mark == "\\":
            yield DiffLine("\\", NO_NEWLINE, None)
            continue
        yield DiffLine(mark, text, old_at if mark == "-" else new_at)
        old, old_at = (old, old_at) if mark == "+" else (old - 1, old_at + 1)
        new, new_at = (new, new_at) if mark == "-" else (new - 1, new_at + 1)


def _path(line: str) -> str:
    """The new name in `diff --git a/OLD b/NEW`. Without a rename, both names are equally long."""
    names = line.removeprefix("diff --git ")
    half = len(names) // 2
    old, new = names[:half], names[half + 1 :]
    if old.lstrip('"').removeprefix("a/") == new.lstrip('"').removeprefix("b/"):
        return new.removeprefix("b/") if not new.startswith('"') else _read(f'"{new[3:]}')
    in_quotes = re.search(r' "b/(.*)"$', names)
    return _read(f'"{in_quotes[1]}"') if in_quotes else names.rpartition(" b/")[2]


def _read(name: str) -> str:
    """A name as the lists show it: git also quotes letters that are not ASCII."""
    return quoted(unquoted(name))


def _note(line: str) -> str:
    for start, what in _NOTES.items():
        if line.startswith(start):
            rest = _read(line.removeprefix(start).strip()) if what.endswith("from") else ""
            return f"{what} {rest}".strip()
    return ""
