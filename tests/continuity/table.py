"""The table of what was measured, and the page docs/continuity.md around it.

Above: `./run continuity`. Below: verdicts. Functions from values to text.
"""

from typing import NamedTuple

from tests.continuity.scenarios import SCENARIOS, Verdict


class Row(NamedTuple):
    """One agent: the packages that it was installed from, and what came of each event."""

    packages: list[str]
    verdicts: dict[str, Verdict]


def matrix(rows: dict[str, Row]) -> str:
    """Agents by events, in Markdown."""
    events = [event for event in SCENARIOS if any(event in row.verdicts for row in rows.values())]
    lines = ["| agent | " + " | ".join(events) + " |", "| --- |" + " --- |" * len(events)]
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(_cell(row.verdicts.get(event)) for event in events) + " |")
    return "\n".join(lines)


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    return f"{'holds' if verdict.held else '**broken**'}: {verdict.plan}" if verdict.plan else "**broken**"


def page(rows: dict[str, Row]) -> str:
    return matrix(rows) + "\n"
