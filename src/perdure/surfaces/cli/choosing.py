"""What `/model`, `/mode` and `/sessions` do in a chat. Each is one blocking call for a thread.

Above: conversation.py, which has the screen. Below: the client. A name may be shortened as long as it means one thing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.surfaces.cli.config_options import Value, values
from perdure.surfaces.cli.output import age, condition, one_line, safe
from perdure.surfaces.cli.places import home_shortened
from perdure.surfaces.cli.prompts import NotUnderstood
from perdure.surfaces.cli.reach import find_session
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client

Json = dict[str, Any]

RECENT_SESSIONS = 10
TITLE_CHARS = 50
ABOUT_CHARS = 60


def listing(config_id: str, offered: Sequence[Value], current: str | None) -> str:
    """The values with their numbers."""
    if not offered:
        return f"The agent lists no {config_id}s. If it knows one by name, /{config_id} NAME asks for it."
    lines = []
    for number, one in enumerate(offered, 1):
        name = f" ({one.name})" if one.name and one.name.lower() != one.value.lower() else ""
        about = f"  {one_line(one.about, ABOUT_CHARS)}" if one.about else ""
        lines.append(f"{'*' if one.value == current else ' '} {number}. {safe(one.value)}{safe(name)}{about}")
    return "\n".join([*lines, f"/{config_id} NUMBER or NAME chooses one."])


def picked(config_id: str, offered: Sequence[Value], given: str) -> str:
    """The value that is meant: by its number, its name, or a part of either. Of what nobody lists, the agent judges."""
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
            raise NotUnderstood(f"{given!r} fits several: {', '.join(one.value for one in fits)}. Give more of it.")
    return given


def choose(client: Client, session: Json, config_id: str, given: str) -> str:
    """Set a session's model or mode. The answer is for the person."""
    value = picked(config_id, values(session, config_id), given)
    done = client.set_config(session["id"], config_id, value)
    later = "" if done.get("applied") else ", from the next message on"
    return f"The {config_id} is {done['value']}{later}."


def recent(client: Client) -> list[Json]:
    found: list[Json] = client.sessions(limit=RECENT_SESSIONS)["sessions"]
    return found


def agents_text(known: Mapping[str, Json], current: str, chosen: str) -> str:
    """What `/agent` answers: for the name of an agent that the next message goes to it, else which agents there are."""
    if chosen in known:
        agent = known[chosen]
        ready = "" if agent["state"] == "ready" else f" It can't work yet: {agent.get('reason') or agent['state']}"
        return f"The next message goes to {chosen}.{ready}"
    lines = [f"There is no agent {chosen!r}. Agents:"] if chosen else []
    width = max((len(name) for name in known), default=0)
    lines += [f"{'*' if name == current else ' '} {name:<{width}}  {known[name]['state']}" for name in known]
    return "\n".join([*lines, "/agent NAME continues with another one."])


def sessions_text(sessions: Sequence[Json], current: str | None, where: str) -> str:
    """The sessions with their numbers. `where` is the directory that needs no mention."""
    if not sessions:
        return "There is no session yet. The first message begins one."
    lines = []
    for number, one in enumerate(sessions, 1):
        mark = "*" if one["id"] == current else " "
        when = age(one["last_active_at"] or one["created_at"])
        title = one_line(one["title"] or "untitled", TITLE_CHARS)
        workdir = home_shortened(one.get("workdir") or "")
        place = f", in {workdir}" if workdir not in ("", where) else ""
        lines.append(f"{mark} {number:>2}. {title}  ({one['agent']}, {condition(one)}, {when}{place})")
    return "\n".join([*lines, "/sessions NUMBER opens one; so does its id, from " + as_typed("`perdure sessions`.")])


def session_meant(client: Client, listed: Sequence[Json], given: str) -> Json:
    """The session that is to be opened: by its number in the last list, or by its id."""
    if given.isascii() and given.isdigit() and len(given) < 3:
        if not 1 <= int(given) <= len(listed):
            raise NotUnderstood(f"There is no number {given} in the list. /sessions shows it.")
        given = str(listed[int(given) - 1]["id"])
    return client.session(find_session(client, given))
