"""The event streams: one session, several, or the changes of all. A handler chooses the position to start from.

Above: routes.py. Below: viewers.py, which writes the events.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.surfaces.http.connection_takeover import EventStream
from perdure.surfaces.http.endpoint import AT_POSITION, AT_POSITIONS, POSITION, SESSION, Endpoint
from perdure.surfaces.http.requests import flag, position_of
from perdure.surfaces.http.viewers import ChangesViewer, Hub, ManyViewer, SessionViewer, cursors_of

MAX_SESSIONS = 200
ALL_DIGITS = 40
"""The longest position in the stream of all sessions. With PostgreSQL it includes a transaction id."""


async def session_events(request: Request) -> ASGIApp:
    hub: Hub = request.app.state.hub
    journal = await hub.streams.open(request.path_params["session_id"])
    text, epoch = position_of(request)
    position = None if text is None else single(text)
    if not hub.streams.is_valid(epoch):
        position = None
    if position is not None and position > journal.last_seq:
        # Another node may have written events that this one hasn't read yet.
        await journal.catch_up()
    if position is not None and journal.state.phase == "ended" and position == journal.last_seq:
        return Response(status_code=204)
    return EventStream(SessionViewer(hub, journal, position))


async def many_events(request: Request) -> ASGIApp:
    hub: Hub = request.app.state.hub
    is_all = flag(request, "all")
    text, epoch = position_of(request, ALL_DIGITS) if is_all else position_of(request)
    if not hub.streams.is_valid(epoch):
        text = None
    if is_all:
        start = await hub.streams.newest_change()
        given = single(text) if text is not None else start
        return EventStream(ChangesViewer(hub, min(given, start)))
    names = [name for name in request.query_params.get("sessions", "").split(",") if name]
    if not names:
        raise Refused("invalid", "Name the sessions (?sessions=a,b) or ask for all (?all=true).")
    if len(names) > MAX_SESSIONS:
        raise Refused("invalid", f"At most {MAX_SESSIONS} sessions can be watched over one stream.")
    journals = [await hub.streams.open(name) for name in dict.fromkeys(names)]
    positions = cursors_of(text, journals) if text is not None else None
    ends = [journal.last_seq if journal.state.phase == "ended" else None for journal in journals]
    if positions is not None and positions == ends:
        return Response(status_code=204)
    return EventStream(ManyViewer(hub, journals, positions))


def single(text: str) -> int:
    if "." in text:
        raise Refused("invalid", "This position belongs to a stream over many sessions.")
    return int(text)


EVENTS = [
    Endpoint(
        "GET",
        f"{SESSION}/events",
        session_events,
        "Stream the events of a session (server-sent events)",
        query={"offset": (str, POSITION, AT_POSITION)},
        answers={200: "text/event-stream", 204: None},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/events",
        many_events,
        "Stream the events of several sessions",
        query={
            "sessions": (str, "Session ids, separated by commas."),
            "all": (bool, "State changes of all sessions."),
            "offset": (str, POSITION, AT_POSITIONS),
        },
        answers={200: "text/event-stream", 204: None},
        refusals=("not_found",),
    ),
]
