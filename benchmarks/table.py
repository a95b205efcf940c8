"""Measured figures, what they are compared with, and the table that shows them.

Above: bench.py. Below: nothing. A missed bar is reported, never asserted: a busy machine is no reason to fail.
"""

from collections.abc import Sequence

from msgspec import Struct

HEAD = ("", "figure", "value", "C", "ratio", "bar", "")
BESIDE_COLUMN = 5


class Row(Struct, kw_only=True):
    scenario: str
    figure: str
    value: float
    unit: str = ""
    reference: float | None = None
    """The same figure of the C reference, from the same run."""
    against: str = "C"
    """Name of the reference, if it is not the C program."""
    beside: float | None = None
    """The same figure of another server (`--beside`), from the same run. Bars don't apply to it."""
    most: float | None = None
    """The bar that should not be exceeded: a value or, with `of_reference`, a ratio to the reference."""
    least: float | None = None
    of_reference: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.reference else None

    @property
    def verdict(self) -> str:
        """`ok`, or by how much the bar was missed, or "" without a bar."""
        measured = self.ratio if self.of_reference else self.value
        if measured is None or (self.most is None and self.least is None):
            return ""
        missed = 0.0
        if self.most is not None:
            missed = measured / self.most - 1
        elif self.least is not None:
            missed = self.least / max(measured, 1e-12) - 1
        return "ok" if missed <= 0 else f"MISSED by {missed:.0%}"

    @property
    def bar(self) -> str:
        limit = self.most if self.most is not None else self.least
        if limit is None:
            return ""
        sign = "<=" if self.most is not None else ">="
        return f"{sign} {limit:g}{f' x {self.against}' if self.of_reference else ''}"

    def cells(self) -> tuple[str, ...]:
        reference = "" if self.reference is None else number(self.reference)
        if reference and self.against != "C":
            reference += f" ({self.against})"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x"
        said = "  ".join(part for part in (self.verdict, self.note) if part)
        return (
            self.scenario,
            self.figure,
            f"{number(self.value)} {self.unit}".strip(),
            reference,
            ratio,
            self.bar,
            said,
        )


def number(value: float) -> str:
    """Format a number with its significant digits."""
    if value and abs(value) < 10:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def aligned(rows: Sequence[Row], beside: str = "") -> str:
    """Return the table, with a column for the other server if one was measured."""
    lines = [HEAD, *(row.cells() for row in rows)]
    if beside:
        others = [beside, *("" if row.beside is None else number(row.beside) for row in rows)]
        lines = [
            (*line[:BESIDE_COLUMN], other, *line[BESIDE_COLUMN:]) for line, other in zip(lines, others, strict=True)
        ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
