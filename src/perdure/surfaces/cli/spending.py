"""`perdure usage`: tokens, cost and time of turns, as a table.

Above: people and scripts. Below: the client; the server computes the sums.
"""

from collections.abc import Callable
from typing import Any

import click

from perdure.surfaces.cli.output import duration, print_json, print_table, size
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

KEY_CHARS = 40
NAMELESS = {"project": "(no project)", "model": "(not reported)"}
# Field of a group, its heading and its format. Some agents include cached tokens in the input tokens and others don't,
# so the two are never added up.
FIGURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("turns", "turns", "{:,}".format),
    ("fresh", "fresh", "{:,}".format),
    ("input_tokens", "tokens in", "{:,}".format),
    ("cache_read_tokens", "cache read", "{:,}".format),
    ("cache_write_tokens", "cache write", "{:,}".format),
    ("output_tokens", "tokens out", "{:,}".format),
    ("cost_usd", "cost USD", "{:.4f}".format),
    ("input_bytes", "sent", size),
    ("saved_bytes", "context reused", size),
    ("duration_ms", "time", duration),
)


@click.command()
@click.option(
    "--by",
    "group_by",
    default="day",
    show_default=True,
    metavar="KEY[,KEY]",
    help="Group by day, agent, project, session or model, or by two of them.",
)
@click.option("--since", metavar="TIME", help="Only turns since this day (2026-01-31) or time (2026-01-31T12:00:00Z).")
@click.option("--until", metavar="TIME", help="Only turns before this day or time.")
@click.option("--agent", help="Only turns of this agent.")
@click.option("--project", help="Only turns in this project.")
@click.option("--session", help="Only turns of this session.")
@reaching
def usage_command(reach: Reach, group_by: str, session: str | None, **filters: str | None) -> None:
    """Show what turns have used: tokens, cost and time, as the agents report them.

    `fresh` counts turns in a new native session (a first turn or a replay). `sent` is the size of the input.
    `context reused` is the context that agents already held, so it was not sent again.
    """
    with reach.client() as client:
        named = {**filters, "session": find_session(client, session) if session else None}
        usage = client.usage(group_by, **named)
    if reach.as_json:
        print_json(usage)
        return
    print_table(*usage_table(usage), "No turns found.", figures_from=len(usage["group_by"]))


def usage_table(usage: Json) -> tuple[list[str], list[list[str]]]:
    """Headings and rows; the last row is the total. A column whose total is zero is left out."""
    if not usage["usage"]:
        return [], []
    keys: list[str] = usage["group_by"]
    total = _flat(usage["total"])
    shown = [figure for figure in FIGURES if total[figure[0]]]
    rows = [[*(_name(key, group[key]) for key in keys), *_figures(_flat(group), shown)] for group in usage["usage"]]
    rows.append(["total", *("" for _ in keys[1:]), *_figures(total, shown)])
    return [*keys, *(heading for _, heading, _ in shown)], rows


def _flat(group: Json) -> Json:
    return {**group, **group["contexts"]}


def _figures(group: Json, shown: list[tuple[str, str, Callable[[Any], str]]]) -> list[str]:
    return [written(group[name]) for name, _, written in shown]


def _name(key: str, value: str) -> str:
    return one_line(value, KEY_CHARS) or NAMELESS.get(key, "")
