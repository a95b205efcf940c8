"""`perdure chat`: the command, and the plain chat for scripts. conversation.py is the chat in a terminal.

Above: people and pipes. Below: the client. If stdin or stdout is not a terminal, each line is a message and answers are
plain text, so `echo 'say hi' | perdure chat` works. The only command here is `/agent NAME`. If the server refuses a
line, the chat continues with the next one.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from perdure.surfaces.cli.background import ServerWatch, ensure_server
from perdure.surfaces.cli.chat_commands import unescaped
from perdure.surfaces.cli.config_options import current
from perdure.surfaces.cli.directories import repository_in_words
from perdure.surfaces.cli.messages import SEND_PATIENCE_S, follow_turn
from perdure.surfaces.cli.places import (
    Place,
    Wish,
    check_current,
    choose,
    home_shortened,
    placing,
    sees_here,
    workspace_option,
)
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching, sentence_of
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client, Problem
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

TITLE_CHARS = 60
SCRATCH = "a new scratch folder"
HELP_LINE = "/help lists keys and commands."


class Beginning(NamedTuple):
    """How a chat starts: in a session, or with the settings for a new one."""

    session_id: str | None
    agent: str | None
    place: Place
    fresh: bool
    config: Mapping[str, str] = {}
    """The model and mode for a new session, if given."""
    header: str = HELP_LINE
    """The first lines of the chat: agent, model, directory and session."""
    is_local: bool = False
    """Whether the server, and so the agent, sees this machine's files."""

    @property
    def where(self) -> str:
        """Where a new session of this chat would work."""
        if self.place.workdir is not None:
            return home_shortened(self.place.workdir)
        return SCRATCH if self.place.project is None else f"project {self.place.project}"


@click.command()
@click.argument("session", required=False)
@click.option("--agent", help="Agent to talk to.")
@placing
@workspace_option
@click.option("--model", help="For a new session: model to use.")
@click.option("--mode", help="For a new session: mode to use.")
@click.option("-c", "--continue", "continues", is_flag=True, help="Continue the last session, like SESSION `last`.")
@click.option(
    "--fresh",
    "--fresh-session",
    "fresh",
    is_flag=True,
    help="Restart the agent's context and replay the conversation.",
)
@reaching
def chat_command(
    reach: Reach,
    session: str | None,
    agent: str | None,
    wish: Wish,
    workspace: str | None,
    model: str | None,
    mode: str | None,
    continues: bool,
    fresh: bool,
) -> int:
    """Chat with an agent in this terminal.

    SESSION is an id, a unique prefix of one, or `last`. Without SESSION, the first message starts a new session in the
    current directory. Starts a server in the background if none is running. In the chat, /help lists keys and commands.

    If stdin or stdout is not a terminal, each input line is a message, and `/agent NAME` switches to another agent.
    """
    if continues and session is not None:
        raise click.UsageError("Give SESSION or --continue, not both.")
    session = "last" if continues else session
    config = {name: value for name, value in (("model", model), ("mode", mode)) if value is not None}
    if session is not None and (wish.is_given or config or workspace):
        raise click.UsageError(
            "--workdir, --project, --scratch, --workspace, --model and --mode are only for a new session. Leave them "
            "or SESSION out."
        )
    if session is not None and " " in session.strip():
        raise click.UsageError(
            as_typed(f"{session!r} is not a session. Type messages in the chat, or use: perdure send --wait TEXT")
        )
    is_plain = reach.as_json or not (sys.stdin.isatty() and sys.stdout.isatty())
    if not is_plain:
        if session is None:
            check_current(wish)
        ensure_server(reach)
    with reach.client() as client:
        client.health()
        session_id = find_session(client, session, to_continue=True) if session else None
        place = _place(reach, client, wish, session_id)._replace(workspace=workspace)
        beginning = Beginning(session_id, agent, place, fresh, config)
        if is_plain:
            beginning.place.warn()
            return plain_chat(client, beginning, as_json=reach.as_json)
        from perdure.surfaces.cli.conversation import converse

        beginning = beginning._replace(header=header(client, beginning), is_local=sees_here(reach, client))
        return converse(client, beginning, ServerWatch(reach), reach.data / "chat_history")


def _place(reach: Reach, client: Client, wish: Wish, session_id: str | None) -> Place:
    if session_id is None:
        return choose(reach, client, wish)
    # For a session that the user may start later. An unsuitable directory must not end this chat.
    try:
        return choose(reach, client, wish)
    except Failure:
        return Place()


def header(client: Client, beginning: Beginning) -> str:
    """The chat's header: agent, model and directory; title and session id; warnings. One per line."""
    session = client.session(beginning.session_id) if beginning.session_id else None
    known = {entry["name"]: entry for entry in client.agents()}
    project = session["project"] if session else beginning.place.project
    settings = next((one for one in client.projects() if project in (one["id"], one["name"])), None)
    if project is not None and settings is None and session is None:
        raise Failure(f"There is no project {project!r}. `perdure projects` lists all projects. (not_found)")
    its_agent = session["agent"] if session else settings and settings["agent"]
    name = beginning.agent or its_agent or client.default_agent()
    agent = known.get(name, {"name": name, "state": "missing", "reason": "the server no longer has this agent."})
    if beginning.agent is not None and name not in known:
        raise Failure(f"There is no agent {beginning.agent!r}. Agents: {', '.join(known)} (not_found)")
    goes_on = session is not None and agent["name"] == its_agent
    model = beginning.config.get("model") or _model(session if goes_on and session else agent)
    where = home_shortened(session["workdir"]) if session else beginning.where
    path = session["workdir"] if session else beginning.place.workdir or (settings["path"] if settings else None)
    if settings is not None:
        where = home_shortened(settings["path"]) if where.startswith("project ") else where
        where += f" (project {settings['name']})"
    if path is not None and (git := repository_in_words(client, path)):
        where += f", {git}"
    if session is None and beginning.place.workspace == "worktree":
        where += ", in a new worktree"
    lines = [f"Perdure: {agent['name']}, {model}, in {where}"]
    if session is None:
        lines.append(f"New session. {HELP_LINE}")
    else:
        if session["title"]:
            lines.append(f'"{one_line(session["title"], TITLE_CHARS)}"')
        lines.append(f"Session {session['id']}. {HELP_LINE}")
    if agent["state"] != "ready":
        lines.append(f"{agent['name']} is not ready: {agent['reason']}")
    if session is None and beginning.place.warning:
        lines.append(beginning.place.warning)
    return "\n".join(lines)


def _model(known: Json) -> str:
    """The model of a session, or an agent's default model."""
    return current(known, "model") or "its default model"


def chosen_agent(client: Client, name: str) -> str | None:
    """The name if there is such an agent; otherwise prints the agents and returns None."""
    known = [agent["name"] for agent in client.agents()]
    if name in known:
        return name
    problem = f"There is no agent {name!r}. " if name else ""
    click.echo(f"perdure: {problem}Agents: {', '.join(known)}", err=True)
    return None


def plain_chat(client: Client, beginning: Beginning, *, as_json: bool) -> int:
    """Send each line of stdin as a message. Returns 1 if a line was refused or a turn failed."""
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
        new = {**beginning.place.fields, **beginning.config} if session_id is None else {}
        try:
            sent = client.send(
                unescaped(line.rstrip("\n")), session_id, agent=agent, fresh=fresh, when_busy="queue", **new
            )
        except Problem as problem:
            click.echo(f"perdure: {sentence_of(problem)}", err=True)
            worst = 1
            continue
        session_id, agent, fresh = str(sent["session_id"]), None, False
        worst = max(worst, follow_turn(client, sent, as_json=as_json))
    return worst
