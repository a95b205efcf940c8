"""`perdure sessions`, `show`, `abort` and `stop`: finding sessions, looking at them, ending them."""

import sys
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.output import age, condition, duration, one_line, print_json, print_table, safe
from perdure.surfaces.cli.plans import timer_words
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.client import Client, Problem

Json = dict[str, Any]
TITLE_CHARS = 48
STATES = ("processing", "idle", "ended")
STATUSES = ("running", "completed", "stopped", "timed-out", "failed")
SHOWN_FIELDS = ("agent", "project", "workdir", "model", "mode", "native_session_id", "pid", "parent", "error")


@click.command()
@click.option("--agent", help="Only of this agent.")
@click.option("--project", help="Only of this project.")
@click.option("--state", type=click.Choice(STATES), help="Only in this state.")
@click.option("--status", type=click.Choice(STATUSES), help="Only with this status.")
@click.option("--label", help="Only with this label.")
@click.option("-q", "--query", "q", help="Only with these words in the title or the transcript.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most this many.")
@reaching
def sessions_command(reach: Reach, limit: int, **filters: str | None) -> None:
    """List sessions, the most recently active first."""
    list_sessions(reach, limit, **filters)


def list_sessions(reach: Reach, limit: int, **filters: str | None) -> None:
    with reach.client() as client:
        page = client.sessions(limit=limit, **filters)
    if reach.as_json:
        print_json(page)
        return
    print_table(*session_table(page["sessions"]), "There is no such session. Begin one with `perdure chat`.")
    if page.get("next_cursor"):
        click.echo(f"There are more than {limit}; --limit shows more.", err=True)


def session_table(sessions: list[Json]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            entry["id"],
            condition(entry),
            entry["agent"],
            age(entry["last_active_at"] or entry["created_at"]),
            str(entry["turn_count"]),
            one_line(entry["title"] or "", TITLE_CHARS),
        ]
        for entry in sessions
    ]
    return ["session", "state", "agent", "active", "turns", "title"], rows


@click.command()
@click.argument("session")
@click.option("--markdown", is_flag=True, help="The whole transcript as markdown.")
@click.option("--rewound", is_flag=True, help="The turns that are no longer part of the conversation.")
@reaching
def show_command(reach: Reach, session: str, markdown: bool, rewound: bool) -> None:
    """Show one session: its state, why it is in it, and its turns.

    SESSION is an id, a unique beginning of one, or `last`. With --rewound, the turns that were dropped are shown
    instead; with --json as well, that is the transcript of all turns, each marked.
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
        shown = client.session(session_id)
        if reach.as_json:
            print_json(shown)
            return
        why = client.explain(session_id)
        prompts = client.prompts(session_id)
    _show(shown, why, prompts)


def _show(shown: Json, why: Json, prompts: list[Json]) -> None:
    click.echo(f"{one_line(shown['title'] or 'Untitled', 200)}\n  id: {shown['id']}")
    click.echo(f"  state: {condition(shown)}. {why.get('why', '')}")
    for field in SHOWN_FIELDS:
        if shown.get(field) is not None:
            click.echo(f"  {field.replace('_', ' ')}: {one_line(str(shown[field]), 300)}")
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
            turn["stop_reason"] or "running",
            duration(turn["duration_ms"]) if turn["stop_reason"] else "",
            turn["context"] or "",
            _told(turn),
            one_line(turn["context_reason"] or "", 60),
        ]
        for turn in shown.get("turns", [])
    ]
    print_table(["turn", "agent", "end", "time", "context", "told", "reason"], rows, "No turn yet.")
    for prompt in prompts:
        click.echo(f"\n{wording.prompt(prompt)}\n  perdure answer {shown['id']} {prompt['prompt_id']}")


def _told(turn: Json) -> str:
    """What the agent was told besides the message, where that is neither nothing nor everything."""
    counts = (("catch_up", "missed"), ("digested", "in short"), ("left_out", "left out"))
    return ", ".join(f"{turn[name]} {what}" for name, what in counts if turn.get(name))


def show_rewound(transcript: Json, as_json: bool) -> None:
    """What was asked and answered in the turns that are no longer visible."""
    if as_json:
        print_json(transcript)
        return
    gone = [turn for turn in transcript["turns"] if turn["rewound"]]
    if not gone:
        click.echo("All turns are part of the conversation.", err=True)
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
    """Interrupt the running turn; the session stays usable."""
    with reach.client() as client:
        answer = client.abort(find_session(client, session))
    if reach.as_json:
        print_json(answer)
    else:
        click.echo("Interrupting the turn. What was said so far is kept.")


@click.command()
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session that has not ended.")
@reaching
def stop_command(reach: Reach, session: str | None, everything: bool) -> int | None:
    """End a session, or all. Its history stays."""
    if everything == (session is not None):
        raise click.UsageError("Give a session, or --all.")
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
    # Listed before the first is ended: ending changes the order that the pages follow.
    running = [entry["id"] for entry in list(client.all_sessions(status="running"))]
    stopped: list[Json] = []
    failed = 0
    for session_id in running:
        try:
            stopped.append(client.stop(session_id))
        except Problem as problem:
            failed += 1
            click.echo(f"perdure: {session_id}: {problem.detail} ({problem.code})", err=True)
    if as_json:
        print_json({"sessions": stopped})
    else:
        click.echo(f"Ended {len(stopped)} session{'' if len(stopped) == 1 else 's'}.")
    return 1 if failed else 0
