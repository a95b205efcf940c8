"""`perdure send` and `perdure watch`: a message into a session, and what comes out of it, as plain text.

Above: people and scripts. Below: the client and the narrator. Answers go to stdout as they are; all that is said
about them goes to stderr.
"""

import os
import sys

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.narration import Answered, Asked, Began, Ended, Finished, Line, Narrator, Piece, Rested, Said
from perdure.surfaces.cli.output import print_json, print_raw, safe
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.client import Client, WhenBusy
from perdure.surfaces.stream import EventStream

SEND_PATIENCE_S = 30.0


@click.command()
@click.argument("words", nargs=-1, metavar="[SESSION] TEXT...")
@click.option("--new", is_flag=True, help="All words are text; begin a session.")
@click.option("--agent", help="The agent that takes it; a session goes on with it.")
@click.option("--project", help="For a new session: the project it works in.")
@click.option("--workdir", metavar="DIR", help="For a new session: the directory it works in.")
@click.option("--parent", metavar="SESSION", help="For a new session: the session that starts it.")
@click.option("--kickoff", is_flag=True, help="Begin with the project's kickoff; TEXT, if any, has its place in it.")
@click.option("--fresh", "--fresh-session", "fresh", is_flag=True, help="Give the agent the transcript anew.")
@click.option("--queue", "when_busy", flag_value="queue", help="If a turn runs: wait for its end.")
@click.option("--interrupt", "when_busy", flag_value="interrupt", help="If a turn runs: interrupt it.")
@click.option("--message-id", help="The same id again is the same message, and is taken once.")
@click.option("--wait", is_flag=True, help="Write the answer to stdout until the turn ends; exit 1 if it failed.")
@reaching
def send_command(
    reach: Reach,
    words: tuple[str, ...],
    new: bool,
    agent: str | None,
    project: str | None,
    workdir: str | None,
    parent: str | None,
    kickoff: bool,
    fresh: bool,
    when_busy: WhenBusy | None,
    message_id: str | None,
    wait: bool,
) -> int | None:
    """Send a message to a session, or to a new one.

    SESSION is an id (s_...), a beginning of one, or `last`; without it a session is begun. TEXT `-` reads stdin.
    """
    session, words = _split(words, new or kickoff or bool(project or workdir or parent))
    text = given_text(" ".join(words))
    if not text.strip() and not kickoff:
        raise click.UsageError("Give a text to send.")
    with reach.client() as client:
        session_id = find_session(client, session) if session else None
        client.patience_s = SEND_PATIENCE_S if wait else 0.0
        sent = client.send(
            text,
            session_id,
            message_id=message_id,
            agent=agent,
            fresh=fresh,
            when_busy=when_busy or "reject",
            project=project,
            workdir=os.path.abspath(os.path.expanduser(workdir)) if workdir else None,
            kickoff=kickoff,
            parent=find_session(client, parent) if parent else None,
        )
        if not wait:
            _confirm(sent, reach.as_json)
            return None
        return follow_turn(client, sent, as_json=reach.as_json)


def given_text(text: str) -> str:
    """What is to be sent: the words themselves, or for `-` all of stdin."""
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    # Bytes that are not UTF-8 can't be sent; they are shown as such instead of ending the command.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _split(words: tuple[str, ...], is_new: bool) -> tuple[str | None, tuple[str, ...]]:
    """The session, if the first word looks like one and a text follows."""
    if not is_new and len(words) > 1 and (words[0] == "last" or words[0].startswith("s_")):
        return words[0], words[1:]
    return None, words


def _confirm(sent: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(sent)
        return
    click.echo(sent["session_id"])
    if sent["turn"] is None:
        click.echo("Queued: a turn is running.", err=True)


def follow_turn(client: Client, sent: dict[str, object], *, as_json: bool = False, answerable: bool = True) -> int:
    """Write the answer to a sent message as it comes. 0 if its turn ended well."""
    session_id = str(sent["session_id"])
    workdir = str(client.session(session_id)["workdir"])
    narrator = Narrator(lambda turn: list(client.transcript(session_id, turn)["turns"]), workdir)
    stream = announced(client, session_id, max(0, int(str(sent["seq"])) - 1))
    teller = PlainTeller(answers_only=True)
    ours = False
    for event in stream:
        if as_json and (ours or event.data.get("message_id") == sent["message_id"]):
            print_raw(event.raw)
        for piece in narrator.tell(event):
            if isinstance(piece, Began):
                ours = piece.message_id == sent["message_id"]
            elif isinstance(piece, Ended):
                teller.close()
                click.echo(f"perdure: The session ended ({piece.status}).", err=True)
                return 1
            elif ours and isinstance(piece, Finished):
                teller.close()
                if piece.stop_reason != "end_turn":
                    click.echo(f"perdure: {wording.finished(piece.stop_reason)}", err=True)
                return 0 if piece.stop_reason == "end_turn" else 1
            elif ours and not as_json:
                teller.show(piece)
                if isinstance(piece, Asked) and answerable:
                    prompt_id = piece.prompt["prompt_id"]
                    click.echo(f"  Answer it with: perdure answer {session_id} {prompt_id}", err=True)
    return 1


def announced(client: Client, session_id: str, position: int | None) -> EventStream:
    """A stream that says on stderr when it is not live."""
    return client.events(
        session_id,
        position,
        on_lost=lambda reason: click.echo("Reconnecting ...", err=True),
        on_back=lambda: click.echo("Connected again.", err=True),
    )


class PlainTeller:
    """Writes pieces as plain text: the answer to stdout as it is, the rest in lines of its own.

    With `answers_only` all but the answer goes to stderr, so that stdout can be piped on.
    """

    def __init__(self, *, answers_only: bool) -> None:
        self._aside = answers_only
        self._open = False
        self._safe = sys.stdout.isatty()

    def show(self, piece: Piece) -> None:
        if isinstance(piece, Said):
            self._write(safe(piece.text) if self._safe else piece.text)
        elif isinstance(piece, Line):
            self._line(_LINE_MARKS[piece.tone] + safe(piece.text))
        elif isinstance(piece, Asked):
            self._line(wording.prompt(piece.prompt))
        elif isinstance(piece, Answered):
            self._line(wording.resolved(piece.by, piece.outcome))
        elif isinstance(piece, Finished):
            self.close()
            if piece.stop_reason != "end_turn":
                self._line(wording.finished(piece.stop_reason))
        elif isinstance(piece, Ended):
            self._line(f"The session ended ({piece.status}).")
        elif isinstance(piece, Rested):
            self.close()

    def close(self) -> None:
        """End the line of text that is being written."""
        if self._open:
            self._write("\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._open = bool(text) and not text.endswith("\n") if text else self._open

    def _line(self, text: str) -> None:
        if not self._aside:
            self.close()
        click.echo(text, err=self._aside)


_LINE_MARKS = {"user": "You: ", "tool": "> ", "failed": "> ", "note": "- ", "error": "Error: ", "plan": ""}


@click.command()
@click.argument("session")
@click.option("--from", "position", type=click.IntRange(0), metavar="SEQ", help="Begin after this event.")
@reaching
def watch_command(reach: Reach, session: str, position: int | None) -> None:
    """Show what happens in a session, live, until it ends.

    It begins with the running or last turn, or after the event --from SEQ (0: from the beginning).
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        narrator = Narrator(lambda turn: list(client.transcript(session_id, turn)["turns"]))
        teller = PlainTeller(answers_only=False)
        for event in announced(client, session_id, position):
            if reach.as_json:
                print_raw(event.raw)
                continue
            for piece in narrator.tell(event):
                teller.show(piece)
