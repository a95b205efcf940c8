"""Writes sessions in TeamHQ's file layout: `{project}/{session}.json` and `{project}/{session}.ndjson`. Pure.

Above: `perdure export`. Below: a session and its log from the API; teamhq.py. Programs for TeamHQ's files can read
these. Everything that TeamHQ's format lacks is under the key `perdure`, from which session_reading.py restores the same
turns. A text that both parts need is written once.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from perdure.core.imported import TAKEN
from perdure.surfaces.teamhq import FOR_FILES, Teller, metadata, number_of

Json = dict[str, Any]

WITHOUT_PROJECT = "no-project"
OWN = "perdure"
"""The key of data that only Perdure uses, and the type of a line that is only for Perdure."""
KEPT = {*TAKEN, "history_changed"}
PASSING = "waiting_to_begin"
"""An event that is not exported: what a message was waiting for no longer matters."""
NOT_KEPT = ("seq", "first_seq", "session_id", "at")
SAID = {"assistant_text": ("delta", "text"), "user_message": ("text", "message"), "tool_result": ("content", "output")}
"""Texts that both formats have: the field in the event, and in TeamHQ's data."""
CHOSEN = ("model", "mode", "config")
"""Options of the agent. They mean nothing to another agent."""
ABOUT = ("title", "summary", "labels", "archived", "agent", "workdir", *CHOSEN, "limits", "parent", "created_at")


def folder_name(project: str | None) -> str:
    """The name of a project's folder. Always a single path component, whatever the project's id."""
    if project is None:
        return WITHOUT_PROJECT
    return quote(project, safe=" ").replace(".", "%2E") if project.startswith(".") else quote(project, safe=" ")


def metadata_of(session: Json) -> Json:
    """The content of the session's `.json`."""
    return {**metadata(session, session["turns"]), OWN: {name: session[name] for name in ABOUT if name in session}}


def lines_of(events: Iterable[Json]) -> Iterator[Json]:
    """The lines of the session's `.ndjson`."""
    teller = Teller(FOR_FILES)
    for event in events:
        if event["type"] == PASSING:
            continue
        line = teller.tell(event["seq"], event)
        if event["type"] in KEPT:
            line = line or {"id": number_of(event["seq"]), "timestamp": event["at"], "type": OWN, "data": {}}
            line[OWN] = {key: value for key, value in event.items() if key not in NOT_KEPT}
            name, told = SAID.get(event["type"], ("", ""))
            if name and event[name] is not None and line["data"].get(told) == event[name]:
                del line[OWN][name]
        if line is not None:
            yield line
