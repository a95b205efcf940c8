"""`perdure sessions`, `show`, `abort` and `stop`: list, show, interrupt and end sessions."""

import os
import shutil
import sys
from typing import Any

import click

from perdure.surfaces.cli.output import GAP_COLUMNS, age, condition, duration, print_json, print_table
from perdure.surfaces.cli.plans import timer_words
from perdure.surfaces.cli.prompts import print_prompt
from perdure.surfaces.cli.reach import Reach, find_session, reaching, sentence_of
from perdure.surfaces.cli.terms import to_copy
from perdure.surfaces.client import Client, Problem
from perdure.surfaces.short_text import one_line, safe

Json = dict[str, Any]
TITLE_CHARS = 48
SHORTEST_TITLE_CHARS = 12
AGENT_CHARS = 12
SHORT_ID_CHARS = 10
_SHORT_STATES = {"waiting for you": "asks you"}
STATES = ("accepted", "processing", "idle", "ended")
STATUSES = ("running", "completed", "stopped", "timed-out", "failed")
SHOWN_FIELDS = ("agent", "project", "workdir", "model", "mode", "native_session_id", "pid", "parent", "error")


@click.command()
@click.option("--agent", help="Only sessions of this agent.")
@click.option("--project", help="Only sessions of this project.")
@click.option("--workdir", metavar="DIR", help="Only sessions in this directory; `.` is the current one.")
@click.option("--state", type=click.Choice(STATES), help="Only sessions in this state.")
@click.option("--status", type=click.Choice(STATUSES), help="Only sessions with this status.")
@click.option("--label", help="Only sessions with this label.")
@click.option("--archived", is_flag=True, help="Only archived sessions.")
@click.option("-a", "--all", "everything", is_flag=True, help="Include archived sessions.")
@click.option("-q", "--query", "q", help="Only sessions with these words in the title or transcript.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of sessions."
)
@reaching
def sessions_command(reach: Reach, limit: int, archived: bool, everything: bool, **filters: str | None) -> None:
    """List sessions, most recently active first.

    Archived sessions are hidden unless you give --archived or --all.
    """
    if archived and everything:
        raise click.UsageError("Give --archived or --all, not both.")
    wanted = None if everything else "true" if archived else "false"
    if filters["workdir"] is not None:
        filters["workdir"] = os.path.abspath(os.path.expanduser(filters["workdir"]))
    list_sessions(reach, limit, archived=wanted, **filters)


def list_sessions(reach: Reach, limit: int, **filters: str | None) -> None:
    with reach.client() as client:
        page = client.sessions(limit=limit, **filters)
    if reach.as_json:
        print_json(page)
        return
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print_table(*session_table(page["sessions"], columns), "No sessions found. Start one with `perdure chat`.")
    if page.get("next_cursor"):
        click.echo(f"There are more than {limit} sessions; use --limit to see more.", err=True)


def session_table(sessions: list[Json], columns: int | None) -> tuple[list[str], list[list[str]]]:
    """Headings and rows. For a pipe (no `columns`) in full; for a terminal shortened, to leave room for the title."""
    ids = [str(entry["id"]) for entry in sessions]
    if columns is not None:
        ids = short_ids(ids)
    has_nodes = len({entry.get("node") for entry in sessions} - {None}) > 1
    headings = ["session", "state", "agent", *(["node"] if has_nodes else []), "active", "turns", "title"]
    rows = [
        [
            short,
            condition(entry),
            entry["agent"],
            *([entry["node_name"] or ""] if has_nodes else []),
            age(entry["last_active_at"] or entry["created_at"]),
            str(entry["turn_count"]),
            " ".join((entry["title"] or "").split()),
        ]
        for short, entry in zip(ids, sessions, strict=True)
    ]
    room = TITLE_CHARS if columns is None else _room(headings, rows, columns)
    longest = max(len(row[-1]) for row in [headings, *rows])
    if columns is not None and room < min(longest, TITLE_CHARS):
        # Make room for the title: shorten the less useful columns.
        headings = [heading for heading in headings if heading != "turns"]
        rows = [
            [
                short,
                _SHORT_STATES.get(state, state),
                *(one_line(name, AGENT_CHARS) for name in names),
                active.removesuffix(" ago"),
                title,
            ]
            for short, state, *names, active, _, title in rows
        ]
        room = max(SHORTEST_TITLE_CHARS, _room(headings, rows, columns))
    return headings, [[*row[:-1], one_line(row[-1], room)] for row in rows]


def short_ids(ids: list[str]) -> list[str]:
    """A prefix of each id that is unique in this list. Commands accept it."""
    length = SHORT_ID_CHARS
    while len({each[:length] for each in ids}) < len(set(ids)):
        length += 1
    return [each[:length] for each in ids]


def _room(headings: list[str], rows: list[list[str]], columns: int) -> int:
    """How many columns are left for the last one."""
    taken = sum(max(len(row[number]) for row in [headings, *rows]) for number in range(len(headings) - 1))
    return columns - taken - GAP_COLUMNS * (len(headings) - 1)


@click.command()
@click.argument("session")
@click.option("--markdown", is_flag=True, help="Print the whole transcript as Markdown.")
@click.option("--rewound", is_flag=True, help="Show the rewound turns instead.")
@click.option("--full", is_flag=True, help="Don't shorten changes and commands in open prompts.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of turns.")
@reaching
def show_command(reach: Reach, session: str, markdown: bool, rewound: bool, full: bool, limit: int) -> None:
    """Show one session: its state and the reason for it, its newest turns and open prompts.

    SESSION is an id, a unique prefix of one, or `last`. --rewound --json prints the transcript of all turns, in which
    `rewound` marks those that were removed from the conversation.
    """
    if markdown and rewound:
        raise click.UsageError("Give --markdown or --rewound, not both.")
    with reach.client() as client:
        session_id = find_session(client, session)
        if markdown:
            text = client.transcript_markdown(session_id)
            click.echo(safe(text) if sys.stdout.isatty() else text, nl=False)
            return
        if rewound:
            show_rewound(client.transcript(session_id, rewound=True), reach.as_json)
            return
        shown = client.session(session_id, limit=limit)
        if reach.as_json:
            print_json(shown)
            return
        why = client.explain(session_id)
        prompts = client.prompts(session_id)
    _show(shown, why, prompts, full)


def _show(shown: Json, why: Json, prompts: list[Json], full: bool) -> None:
    click.echo(f"{one_line(shown['title'] or 'Untitled', 200)}\n  id: {shown['id']}")
    click.echo(f"  state: {condition(shown)}. {why.get('why', '')}")
    for field in SHOWN_FIELDS:
        if shown.get(field) is not None:
            click.echo(f"  {field.replace('_', ' ')}: {one_line(str(shown[field]), 300)}")
    if own := shown.get("worktree"):
        click.echo(f"  worktree: branch {safe(own['branch'])} from {safe(own['base'] or own['base_commit'])}")
    origin = shown.get("forked_from")
    if origin:
        after = f", after turn {origin['turn']}" if origin.get("turn") else ""
        click.echo(f"  forked from: {origin['session_id']}{after}")
    for timer in why.get("timers", []):
        click.echo(f"  {timer_words(timer)}")
    click.echo("")
    rows = [
        [
            str(turn["turn"]),
            turn["agent"],
            turn["stop_reason"] or ("waiting" if turn["context"] is None else "running"),
            duration(turn["duration_ms"]) if turn["stop_reason"] else "",
            turn["context"] or "",
            _earlier_turns(turn),
            one_line(turn["context_reason"] or "", 60),
        ]
        for turn in shown.get("turns", [])
    ]
    print_table(["turn", "agent", "end", "time", "context", "earlier turns", "reason"], rows, "No turns yet.")
    if shown.get("next_cursor"):
        click.echo(f"There are more than {len(rows)} turns; use --limit to see more.", err=True)
    for prompt in prompts:
        click.echo("")
        print_prompt(prompt, shown["workdir"], full=full)
        click.echo("  " + to_copy(f"answer {shown['id']} {prompt['prompt_id']}"))


def _earlier_turns(turn: Json) -> str:
    """How many earlier turns were sent with the message, and how many of a replay were shortened or omitted."""
    counts = (("catch_up", "sent"), ("digested", "shortened"), ("left_out", "omitted"))
    return ", ".join(f"{turn[name]} {what}" for name, what in counts if turn.get(name))


def show_rewound(transcript: Json, as_json: bool) -> None:
    """Print the messages and answers of rewound turns."""
    if as_json:
        print_json(transcript)
        return
    gone = [turn for turn in transcript["turns"] if turn["rewound"]]
    if not gone:
        click.echo("No turns were rewound.", err=True)
    for turn in gone:
        click.echo(f"Turn {turn['turn']}, {turn['agent']}, {turn['started_at']}")
        message = turn["message"] or {}
        click.echo(("" if message.get("origin") == "agent" else "You: ") + safe(message.get("text", "")))
        answer = "".join(part["text"] for part in turn["parts"] if part["type"] == "text")
        click.echo(safe(answer).strip() + "\n")


@click.command()
@click.argument("session")
@reaching
def abort_command(reach: Reach, session: str) -> None:
    """Interrupt the running turn. The session stays open.

    SESSION is an id, a unique prefix of one, or `last`.
    """
    with reach.client() as client:
        answer = client.abort(find_session(client, session))
    if reach.as_json:
        print_json(answer)
    else:
        begun = answer["state"] != "idle"
        click.echo("Interrupting the turn. Its output so far is saved." if begun else "Cancelled before it started.")


@click.command()
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="End every session that has not ended yet.")
@reaching
def stop_command(reach: Reach, session: str | None, everything: bool) -> int | None:
    """End a session, or all sessions. Their history stays.

    SESSION is an id, a unique prefix of one, or `last`.
    """
    if everything == (session is not None):
        raise click.UsageError("Give a SESSION or --all.")
    with reach.client() as client:
        if not everything:
            assert session is not None
            stopped = client.stop(find_session(client, session))
            if reach.as_json:
                print_json(stopped)
            else:
                click.echo(f"Ended {stopped['id']} ({stopped['status']}).")
            return None
        return _stop_all(client, reach.as_json)


def _stop_all(client: Client, as_json: bool) -> int:
    # List all sessions before ending the first: ending one changes the order of the pages.
    running = [entry["id"] for entry in list(client.all_sessions(status="running"))]
    stopped: list[Json] = []
    failed = 0
    for session_id in running:
        try:
            stopped.append(client.stop(session_id))
        except Problem as problem:
            failed += 1
            click.echo(f"perdure: {session_id}: {sentence_of(problem)}", err=True)
    if as_json:
        print_json({"sessions": stopped})
    else:
        click.echo(f"Ended {len(stopped)} session{'' if len(stopped) == 1 else 's'}.")
    return 1 if failed else 0
