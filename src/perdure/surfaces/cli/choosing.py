"""The chat commands `/model`, `/mode`, `/agent` and `/sessions`. Those that query the server block.

Above: conversation.py, which calls them in a thread. Below: the client. Any unambiguous part of a name is accepted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.surfaces.cli.config_options import Value, values
from perdure.surfaces.cli.output import age, condition
from perdure.surfaces.cli.places import home_shortened
from perdure.surfaces.cli.prompts import NotUnderstood
from perdure.surfaces.cli.reach import find_session
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client
from perdure.surfaces.short_text import one_line, safe

Json = dict[str, Any]

RECENT_SESSIONS = 10
TITLE_CHARS = 50
ABOUT_CHARS = 60


def listing(config_id: str, offered: Sequence[Value], current: str | None) -> str:
    """A numbered list of the values."""
    if not offered:
        return f"The agent lists no {config_id}s. To set one by name, use /{config_id} NAME."
    lines = []
    for number, one in enumerate(offered, 1):
        name = f" ({one.name})" if one.name and one.name.lower() != one.value.lower() else ""
        about = f"  {one_line(one.about, ABOUT_CHARS)}" if one.about else ""
        lines.append(f"{'*' if one.value == current else ' '} {number}. {safe(one.value)}{safe(name)}{about}")
    return "\n".join([*lines, f"Choose one with /{config_id} NUMBER or NAME."])


def picked(config_id: str, offered: Sequence[Value], given: str) -> str:
    """Resolve a number, a name or a part of a name to a value. An unlisted name is passed to the agent as it is."""
    if given.isascii() and given.isdigit() and 1 <= int(given) <= len(offered):
        return offered[int(given) - 1].value
    lower = given.lower()
    for fits in (
        [one for one in offered if given == one.value],
        [one for one in offered if lower in (one.value.lower(), one.name.lower())],
        [one for one in offered if lower in one.value.lower() or lower in one.name.lower()],
    ):
        if len(fits) == 1:
            return fits[0].value
        if len(fits) > 1:
            raise NotUnderstood(f"{given!r} matches several: {', '.join(one.value for one in fits)}. Be more specific.")
    return given


def choose(client: Client, session: Json, config_id: str, given: str) -> str:
    """Set a session's model or mode. Returns a message for the user."""
    value = picked(config_id, values(session, config_id), given)
    done = client.set_config(session["id"], config_id, value)
    later = "" if done.get("applied") else ", starting with the next message"
    return f"Set {config_id} to {done['value']}{later}."


def recent(client: Client) -> list[Json]:
    found: list[Json] = client.sessions(limit=RECENT_SESSIONS)["sessions"]
    return found


def agents_text(known: Mapping[str, Json], current: str, chosen: str) -> str:
    """The reply to `/agent`: a confirmation if there is such an agent, else the list of agents."""
    if chosen in known:
        agent = known[chosen]
        ready = "" if agent["state"] == "ready" else f" It is not ready: {agent.get('reason') or agent['state']}"
        return f"The next message goes to {chosen}.{ready}"
    lines = [f"There is no agent {chosen!r}. Agents:"] if chosen else []
    width = max((len(name) for name in known), default=0)
    lines += [f"{'*' if name == current else ' '} {name:<{width}}  {known[name]['state']}" for name in known]
    return "\n".join([*lines, "Switch with /agent NAME."])


def sessions_text(sessions: Sequence[Json], current: str | None, where: str) -> str:
    """A numbered list of sessions. Shows a session's directory unless it is `where`."""
    if not sessions:
        return "There are no sessions yet. The first message starts one."
    lines = []
    for number, one in enumerate(sessions, 1):
        mark = "*" if one["id"] == current else " "
        when = age(one["last_active_at"] or one["created_at"])
        title = one_line(one["title"] or "untitled", TITLE_CHARS)
        workdir = home_shortened(one.get("workdir") or "")
        place = f", in {workdir}" if workdir not in ("", where) else ""
        lines.append(f"{mark} {number:>2}. {title}  ({one['agent']}, {condition(one)}, {when}{place})")
    return "\n".join([*lines, "Open one with /sessions NUMBER or ID. " + as_typed("`perdure sessions` lists all ids.")])


def session_meant(client: Client, listed: Sequence[Json], given: str) -> Json:
    """Resolve a number in the last list, or an id, to a session."""
    if given.isascii() and given.isdigit() and len(given) < 3:
        if not 1 <= int(given) <= len(listed):
            raise NotUnderstood(f"There is no number {given} in the list. /sessions shows the list.")
        given = str(listed[int(given) - 1]["id"])
    return client.session(find_session(client, given))
