"""`perdure send` and `perdure watch`: send a message to a session, and follow a session as plain text.

Above: people and scripts. Below: the client and the narrator. Answers go to stdout unchanged; everything else goes to
stderr.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.narration import (
    Answered,
    Asked,
    Began,
    Busy,
    Changed,
    Details,
    Ended,
    Finished,
    Line,
    Narrator,
    Piece,
    Rested,
    Said,
    Starts,
    Thought,
    Waits,
)
from perdure.surfaces.cli.output import print_json, print_raw
from perdure.surfaces.cli.places import Place, Wish, choose, placing, workspace_option
from perdure.surfaces.cli.prompts import MIN_LINES, RESERVED_LINES, choices
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.rows import (
    CHANGE_LINES,
    OUTPUT_FIRST_LINES,
    OUTPUT_LAST_LINES,
    Row,
    fold_end,
    fold_middle,
    lay_out,
)
from perdure.surfaces.cli.terms import as_typed, to_copy
from perdure.surfaces.client import Client, WhenBusy, WhenFull, attached
from perdure.surfaces.short_text import safe
from perdure.surfaces.stream import EventStream

Json = dict[str, Any]

SEND_PATIENCE_S = 30.0
QUEUED, QUEUED_BEHIND = "Queued: a turn is running.", "Queued: another message is waiting for a slot."
STAYS_ACCEPTED = "The message is still waiting; its turn starts when a slot is free"
MISTYPED_LAST = ("lst", "lats", "lsat", "alst", "lasst", "lastt", "Last", "LAST")
"""Typos of `last`. Without this check, the message would start a new session."""


when_full_option = click.option(
    "--when-full",
    type=click.Choice(("wait", "refuse")),
    default="wait",
    show_default=True,
    help="If no slot is free: wait for one, or fail immediately.",
)


@click.command()
@click.argument("words", nargs=-1, metavar="[SESSION] TEXT...")
@click.option("--new", is_flag=True, help="Start a new session; all words are TEXT.")
@click.option("--agent", help="Agent to send to. Later messages go to it too.")
@placing
@workspace_option
@click.option("--parent", metavar="SESSION", help="For a new session: its parent session.")
@click.option("--kickoff", is_flag=True, help="Start with the project's kickoff template; TEXT fills {message}.")
@click.option(
    "--fresh",
    "--fresh-session",
    "fresh",
    is_flag=True,
    help="Restart the agent's context and replay the conversation.",
)
@click.option("--queue", "when_busy", flag_value="queue", help="If a turn is running: send when it ends.")
@click.option("--interrupt", "when_busy", flag_value="interrupt", help="If a turn is running: interrupt it.")
@when_full_option
@click.option(
    "--attach",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, readable=True),
    metavar="FILE",
    help="Attach this file. Repeatable.",
)
@click.option("--message-id", help="Idempotency key: the same id is never sent twice.")
@click.option(
    "--wait", is_flag=True, help="Wait for the turn to end and print the answer. Exits 1 unless the turn succeeds."
)
@click.option("--full", is_flag=True, help="With --wait: don't shorten changes, commands and output.")
@reaching
def send_command(
    reach: Reach,
    words: tuple[str, ...],
    new: bool,
    agent: str | None,
    wish: Wish,
    workspace: str | None,
    parent: str | None,
    kickoff: bool,
    fresh: bool,
    when_busy: WhenBusy | None,
    when_full: WhenFull,
    attach: tuple[str, ...],
    message_id: str | None,
    wait: bool,
    full: bool,
) -> int | None:
    """Send a message to a session, or start a new session with it.

    SESSION is an id (s_...), a unique prefix of one, or `last`. Without SESSION, the message starts a new session; it
    works in the current directory if the server is on this machine. If TEXT is `-`, reads stdin. Prints the session id.
    """
    if full and not wait:
        raise click.UsageError("--full needs --wait: without --wait, the turn is not shown.")
    session, words = _split(words, new, _for_new(wish, workspace, parent, kickoff))
    text = given_text(" ".join(words))
    if not text.strip() and not kickoff:
        raise click.UsageError("Give a TEXT to send.")
    with reach.client() as client:
        session_id = find_session(client, session, to_continue=True) if session else None
        place = Place() if session_id else choose(reach, client, wish)._replace(workspace=workspace)
        place.warn()
        client.patience_s = SEND_PATIENCE_S if wait else 0.0
        fields = {"parent": find_session(client, parent) if parent else None, "kickoff": kickoff, **place.fields}
        try:
            sent = client.send(
                text,
                session_id,
                message_id=message_id,
                agent=agent,
                fresh=fresh,
                when_busy=when_busy or "reject",
                when_full=when_full,
                attachments=[attached(file) for file in attach],
                **fields,
            )
        except KeyboardInterrupt:
            look = f"perdure show {session_id}" if session_id else "perdure sessions"
            click.echo(as_typed(f"\nperdure: The server may have accepted the message. Check with: {look}"), err=True)
            raise
        if not wait:
            confirm(sent, reach.as_json)
            return None
        said = queued(sent) if sent["turn"] is None else ""
        return follow_turn(client, sent, as_json=reach.as_json, full=full, said=said)


def given_text(text: str) -> str:
    """The text itself, or all of stdin for `-`."""
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    # Replace bytes that are not UTF-8 with marks instead of failing.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _for_new(wish: Wish, workspace: str | None, parent: str | None, kickoff: bool) -> str:
    """The option that is only for a new session, if one is given."""
    options = {"--workdir": wish.workdir, "--project": wish.project, "--scratch": wish.scratch}
    options |= {"--workspace": workspace, "--parent": parent, "--kickoff": kickoff}
    return next((option for option, value in options.items() if value not in (None, False)), "")


def _split(words: tuple[str, ...], new: bool, option: str) -> tuple[str | None, tuple[str, ...]]:
    """The session, if the first word names one, and the text. With an `option` for a new session, no word may."""
    if not new and len(words) > 1 and words[0] in MISTYPED_LAST:
        raise click.UsageError(f"Did you mean `last` by {words[0]!r}? If it is part of the message, add --new.")
    if new or not words or not (words[0] == "last" or words[0].startswith("s_")):
        return None, words
    if option:
        raise click.UsageError(
            f"{option} is for a new session: leave out {words[0]!r}, or add --new if it is part of the message."
        )
    if len(words) == 1:
        raise click.UsageError(
            as_typed(f"Give a TEXT for the session: perdure send {words[0]} TEXT (`-` reads stdin). ")
            + f"To send {words[0]!r} itself as a message, add --new."
        )
    return words[0], words[1:]


def confirm(sent: Json, as_json: bool) -> None:
    """Print the session id, and what the message is waiting for."""
    if as_json:
        print_json(sent)
        return
    click.echo(sent["session_id"])
    if sent["turn"] is None:
        click.echo(queued(sent), err=True)
    say_what_it_waits_for(sent)


def queued(sent: Json) -> str:
    return QUEUED_BEHIND if sent["state"] == "accepted" else QUEUED


def say_what_it_waits_for(sent: Json) -> None:
    """Tell the sender what an accepted message is waiting for."""
    if sent.get("waits_for"):
        click.echo(sent["waits_for"]["message"], err=True)


def follow_turn(
    client: Client,
    sent: Json,
    *,
    as_json: bool = False,
    answerable: bool = True,
    full: bool = False,
    said: str = "",
) -> int:
    """Print the answer to a sent message as it arrives, after the note `said`. Returns 0 if the turn succeeded. Ctrl-C
    stops only the printing."""
    teller = PlainTeller(answers_only=True, full=full, answerable=answerable)
    teller.is_waiting = bool(sent.get("waits_for"))
    try:
        if said:
            click.echo(said, err=True)
        return _follow(client, sent, teller, as_json, answerable)
    except KeyboardInterrupt:
        teller.close()
        what = "The message stays queued"
        if sent["turn"] is not None:
            what = "The turn continues" if answerable else "The run continues"
        say_interrupted(str(sent["session_id"]), STAYS_ACCEPTED if teller.is_waiting else what)
        raise


def say_interrupted(session_id: str, what: str) -> None:
    """After Ctrl-C: say what happens to the turn, and how to watch or interrupt it."""
    begin = "\n" if sys.stderr.isatty() else ""  # the terminal has written ^C
    click.echo(f"{begin}perdure: {what}. Watch it: " + to_copy(f"watch {session_id}"), err=True)
    click.echo("         Interrupt it: " + to_copy(f"abort {session_id}"), err=True)


def _follow(client: Client, sent: Json, teller: "PlainTeller", as_json: bool, answerable: bool) -> int:
    session_id = str(sent["session_id"])
    workdir = str(client.session(session_id)["workdir"])
    narrator = Narrator(lambda turn: list(client.transcript(session_id, turn)["turns"]), workdir)
    stream = announced(client, session_id, max(0, int(str(sent["seq"])) - 1))
    ours = False
    for event in stream:
        if as_json and (ours or event.data.get("message_id") == sent["message_id"]):
            print_raw(event.raw)
        for piece in narrator.tell(event):
            if isinstance(piece, Began):
                ours = piece.message_id == sent["message_id"]
            teller.is_waiting = isinstance(piece, Waits) or (teller.is_waiting and not isinstance(piece, Starts))
            if isinstance(piece, Ended):
                teller.close()
                click.echo(f"perdure: The session ended ({piece.status}).", err=True)
                return 1
            if ours and isinstance(piece, Finished):
                teller.close()
                if piece.stop_reason != "end_turn":
                    click.echo(f"perdure: {wording.finished(piece.stop_reason, began=piece.began)}", err=True)
                return 0 if piece.stop_reason == "end_turn" else 1
            if ours and not as_json:
                teller.show(piece)
                if isinstance(piece, Asked) and answerable:
                    prompt_id = piece.prompt["prompt_id"]
                    click.echo("  Answer with: " + to_copy(f"answer {session_id} {prompt_id}"), err=True)
    return 1


def announced(client: Client, session_id: str, position: int | None) -> EventStream:
    """An event stream that reports on stderr when the connection is lost and restored."""
    return client.events(
        session_id,
        position,
        on_lost=lambda reason: click.echo("Reconnecting ...", err=True),
        on_back=lambda: click.echo("Reconnected.", err=True),
    )


class PlainTeller:
    """Prints pieces as plain text: the answer unchanged to stdout, the rest as separate lines.

    With `answers_only`, everything but the answer goes to stderr, so stdout can be piped. With `full`, nothing is
    folded. If no person can answer (not `answerable`), a prompt shows no choices, and a denial says how to allow it.
    """

    def __init__(self, *, answers_only: bool, full: bool = False, answerable: bool = True) -> None:
        self._aside = answers_only
        self._answerable = answerable
        self._tool = ""
        """The tool of the last prompt."""
        self._end = ""
        """The last two characters of the answer so far."""
        self._apart = False
        self._tools = 0
        self._full = full
        self._open = False
        self._safe = sys.stdout.isatty()
        self.is_waiting = False
        """Whether the turn is waiting for a slot."""

    def show(self, piece: Piece) -> None:
        if isinstance(piece, Said):
            text = self._separated(piece.text)
            self._write(safe(text) if self._safe else text)
        elif isinstance(piece, Line):
            self._line(_LINE_MARKS[piece.tone] + safe(piece.text))
        elif isinstance(piece, Waits):
            self._line(safe(piece.why))
        elif isinstance(piece, Starts):
            self._line(wording.BEGINS)
        elif isinstance(piece, Details):
            self._rows(piece.rows, lambda lines: self._short(piece, lines))
        elif isinstance(piece, Changed):
            self._line(as_typed(f"- {piece.words} (`perdure changes {piece.session_id} {piece.turn}`)"))
        elif isinstance(piece, Asked):
            self._rows(piece.rows, self._screenful)
            self._tool = safe(piece.prompt.get("tool") or "")
            if piece.prompt["kind"] == "permission" and self._answerable:
                self._line("")
                self._rows(choices(piece.prompt), list)
        elif isinstance(piece, Answered):
            said = wording.resolved(piece.by, piece.outcome, piece.reason)
            if not self._answerable and piece.outcome == "denied" and self._tool:
                said += f" A run can't ask you: allow it with --allow {shlex.quote(self._tool)}."
            self._line(said)
        elif isinstance(piece, Finished):
            self.close()
            if piece.stop_reason != "end_turn":
                self._line(wording.finished(piece.stop_reason, began=piece.began))
        elif isinstance(piece, Ended):
            self._line(f"The session ended ({piece.status}).")
        elif isinstance(piece, Rested):
            self.close()

        self._apart = self._apart or self._parts(piece)

    def _parts(self, piece: Piece) -> bool:
        """Whether the next text starts a new block. Progress of a running tool may arrive in the middle of a block."""
        if isinstance(piece, Busy):
            before, self._tools = self._tools, len(piece.doing)
            return self._tools > before
        return isinstance(piece, Thought | Asked) or (isinstance(piece, Line) and piece.tone in ("tool", "failed"))

    def _separated(self, text: str) -> str:
        """Put one blank line between two blocks if what came between them is not on stdout. Some agents already end a
        block with newlines."""
        if self._aside and self._apart and self._end:
            text = text.lstrip("\n")
            text = text and "\n" * (2 - (len(self._end) - len(self._end.rstrip("\n")))) + text
        self._apart = self._apart and not text
        self._end = (self._end + text)[-2:]
        return text

    def close(self) -> None:
        """End the current line of text."""
        if self._open:
            self._write("\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._open = bool(text) and not text.endswith("\n") if text else self._open

    def _rows(self, rows: Sequence[Row], fold: Callable[[list[str]], list[str]]) -> None:
        stream = sys.stderr if self._aside else sys.stdout
        columns = shutil.get_terminal_size().columns if stream.isatty() else None
        colour = columns is not None and not os.environ.get("NO_COLOR")
        lines = lay_out(rows, columns, colour=colour)
        self._line("\n".join(lines if self._full else fold(lines)), colour)

    def _short(self, piece: Details, lines: list[str]) -> list[str]:
        if piece.ends:
            return fold_middle(lines, OUTPUT_FIRST_LINES, OUTPUT_LAST_LINES)
        return fold_end(lines, CHANGE_LINES)

    def _screenful(self, lines: list[str]) -> list[str]:
        """At most a screenful on a terminal, otherwise all lines."""
        is_terminal = (sys.stderr if self._aside else sys.stdout).isatty()
        room = max(MIN_LINES, shutil.get_terminal_size().lines - RESERVED_LINES)
        return fold_end(lines, room, " (--full shows all)") if is_terminal else lines

    def _line(self, text: str, colour: bool | None = None) -> None:
        if not self._aside:
            self.close()
        click.echo(text, err=self._aside, color=colour)


_LINE_MARKS = {"user": "You: ", "tool": "> ", "failed": "> ", "note": "- ", "error": "Error: ", "plan": ""}


@click.command()
@click.argument("session")
@click.option(
    "--from",
    "position",
    type=click.IntRange(0),
    metavar="SEQ",
    help="Start after this event; 0 starts at the beginning.",
)
@click.option("--full", is_flag=True, help="Don't shorten changes, commands and output.")
@reaching
def watch_command(reach: Reach, session: str, position: int | None, full: bool) -> None:
    """Follow a session live, until it ends.

    SESSION is an id, a unique prefix of one, or `last`. Without --from, starts with the running turn, or with the last
    one if no turn is running. Press Ctrl-C to stop watching; the session continues.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        narrator = Narrator(lambda turn: list(client.transcript(session_id, turn)["turns"]))
        teller = PlainTeller(answers_only=False, full=full)
        for event in announced(client, session_id, position):
            if reach.as_json:
                print_raw(event.raw)
                continue
            for piece in narrator.tell(event):
                teller.show(piece)
