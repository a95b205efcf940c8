"""Sessions as files, in TeamHQ's layout: `{project}/{session}.json` and `{session}.ndjson`. How they are written. Pure.

Above: `perdure export`. Below: a session and its log as the API shows them, and TeamHQ's words. A program made for
TeamHQ's files reads these. What it has no word for stands beside, under `perdure`, so that session_reading.py can make
the same turns of them again; a text that both need is written once.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from perdure.core.imported import TAKEN
from perdure.surfaces.teamhq import FOR_FILES, Teller, metadata, number_of

Json = dict[str, Any]

WITHOUT_PROJECT = "no-project"
OWN = "perdure"
"""The key of what only Perdure knows, and the type of a line that is only for it."""
KEPT = {*TAKEN, "history_changed"}
PASSING = "waiting_to_begin"
"""What a message waited for says nothing to whoever reads the file later."""
NOT_KEPT = ("seq", "first_seq", "session_id", "at")
SAID = {"assistant_text": ("delta", "text"), "user_message": ("text", "message"), "tool_result": ("content", "output")}
"""Where both have the same text: its name in the event, and in TeamHQ's data."""
CHOSEN = ("model", "mode", "config")
"""What was chosen of the agent's own options: it means nothing to another agent."""
ABOUT = ("title", "summary", "labels", "archived", "agent", "workdir", *CHOSEN, "limits", "parent", "created_at")


def folder_name(project: str | None) -> str:
    """A project's folder; whatever it is called, a single name below the one that is written to."""
    if project is None:
        return WITHOUT_PROJECT
    return quote(project, safe=" ").replace(".", "%2E") if project.startswith(".") else quote(project, safe=" ")


def metadata_of(session: Json) -> Json:
    """The session's `.json`."""
    return {**metadata(session, session["turns"]), OWN: {name: session[name] for name in ABOUT if name in session}}


def lines_of(events: Iterable[Json]) -> Iterator[Json]:
    """The lines of its `.ndjson`."""
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
