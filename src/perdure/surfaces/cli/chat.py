"""`perdure chat`: the command, and the plain chat for scripts. In a terminal, conversation.py takes over.

Above: people and pipes. Below: the client. Where stdin or stdout is not a terminal each line is a message and answers
are plain text, so that `echo 'say hi' | perdure chat` works; only `/agent NAME` is no message here either.
"""

import os
import sys
from typing import NamedTuple

import click

from perdure.surfaces.cli.messages import SEND_PATIENCE_S, follow_turn
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.client import Client


class Beginning(NamedTuple):
    """Where a chat begins: in a session, or with what the first message makes one from."""

    session_id: str | None
    agent: str | None
    project: str | None
    workdir: str | None
    fresh: bool


@click.command()
@click.argument("session", required=False)
@click.option("--agent", help="The agent to talk with.")
@click.option("--project", help="For a new session: the project it works in.")
@click.option("--workdir", metavar="DIR", help="For a new session: the directory it works in.")
@click.option("--fresh", "--fresh-session", "fresh", is_flag=True, help="Give the agent the transcript anew.")
@reaching
def chat_command(
    reach: Reach, session: str | None, agent: str | None, project: str | None, workdir: str | None, fresh: bool
) -> int:
    """Talk with an agent in this terminal.

    Without a SESSION the first message begins one. /help in the chat lists what can be done. If stdin is not a
    terminal, each line is a message, and `/agent NAME` goes on with another agent.
    """
    with reach.client() as client:
        client.health()
        session_id = find_session(client, session) if session else None
        place = os.path.abspath(os.path.expanduser(workdir)) if workdir else None
        beginning = Beginning(session_id, agent, project, place, fresh)
        if reach.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return plain_chat(client, beginning, as_json=reach.as_json)
        from perdure.surfaces.cli.conversation import converse

        return converse(client, beginning, reach.data / "chat_history")


def chosen_agent(client: Client, name: str) -> str | None:
    """The agent that the next message goes to; None, and a sentence, if there is none of this name."""
    known = [agent["name"] for agent in client.agents()]
    if name in known:
        return name
    problem = f"There is no agent {name!r}. " if name else ""
    click.echo(f"perdure: {problem}Agents: {', '.join(known)}", err=True)
    return None


def plain_chat(client: Client, beginning: Beginning, *, as_json: bool) -> int:
    """One message per line of stdin. 1 if a turn did not end well."""
    client.patience_s = SEND_PATIENCE_S
    worst = 0
    session_id, agent, fresh = beginning.session_id, beginning.agent, beginning.fresh
    for raw in sys.stdin.buffer:
        line = raw.decode("utf-8", "replace")
        if not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "/agent":
            chosen = chosen_agent(client, rest.strip())
            agent, worst = chosen or agent, max(worst, 0 if chosen else 1)
            continue
        sent = client.send(
            line.rstrip("\n"),
            session_id,
            agent=agent,
            fresh=fresh,
            when_busy="queue",
            project=beginning.project if session_id is None else None,
            workdir=beginning.workdir if session_id is None else None,
        )
        session_id, agent, fresh = str(sent["session_id"]), None, False
        worst = max(worst, follow_turn(client, sent, as_json=as_json))
    return worst
