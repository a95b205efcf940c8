"""`perdure events`: follow changes in all sessions, one line for each.

Above: people with many sessions, and scripts that wait for a prompt. Below: the client's stream over all sessions.
`perdure watch` shows one session in full.
"""

from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.output import print_raw
from perdure.surfaces.cli.reach import Reach, reaching
from perdure.surfaces.short_text import one_line
from perdure.surfaces.stream import Event

Json = dict[str, Any]

TEXT_CHARS = 80


@click.command()
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type. Repeatable.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Exit after this many events.")
@reaching
def events_command(reach: Reach, types: tuple[str, ...], count: int | None) -> None:
    """Follow changes in all sessions live.

    Prints a line when a turn starts or ends, a prompt opens or closes, a title changes, a message is queued or a
    session ends. With --json, prints each event as a JSON line. `perdure watch SESSION` shows one session in full.
    """
    shown = 0
    with reach.client() as client:
        stream = client.changes(
            on_lost=lambda reason: click.echo("Reconnecting ...", err=True),
            on_back=lambda: click.echo("Reconnected.", err=True),
        )
        for event in stream:
            if types and event.type not in types:
                continue
            if reach.as_json:
                print_raw(event.raw)
            else:
                click.echo(in_line(event))
            shown += 1
            if shown == count:
                return


def in_line(event: Event) -> str:
    at = str(event.data.get("at", ""))[11:19]
    turn = f" turn {event.turn}" if event.turn is not None else ""
    more = one_line(_details(event.type, event.data), TEXT_CHARS)
    return f"{at}  {event.data['session_id']}  {event.type}{turn}{'  ' + more if more else ''}"


def _details(kind: str, data: Json) -> str:
    if kind == "session_updated":
        changed = {name: data.get(name) for name in ("labels", "archived", "summary") if data.get(name) is not None}
        return ", ".join(f"{name}: {value}" for name, value in changed.items())
    if kind == "session_created":
        return str(data["session"].get("agent", ""))
    if kind == "pending_prompt":
        return wording.short(data["title"])
    names = {
        "turn_start": "agent",
        "turn_end": "stop_reason",
        "prompt_resolved": "outcome",
        "session_end": "status",
        "error": "message",
    }
    for name in (names.get(kind), "title", "text", "agent", "reason"):
        if name is not None and data.get(name):
            return str(data[name])
    return ""
