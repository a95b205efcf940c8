"""The two event endpoints: where a viewer begins, and what it is given first."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.surfaces.http.requests import flag, position_of
from perdure.surfaces.http.takeover import EventStream
from perdure.surfaces.http.viewers import ChangesViewer, Hub, ManyViewer, SessionViewer, cursors_of

MAX_SESSIONS = 200
ALL_DIGITS = 40
"""A shared store's position among all sessions holds its transaction too."""


async def session_events(request: Request) -> ASGIApp:
    hub: Hub = request.app.state.hub
    journal = await hub.log.open(request.path_params["session_id"])
    text, epoch = position_of(request)
    position = None if text is None else single(text)
    if epoch not in (None, hub.log.epoch):
        position = None
    if position is not None and position > journal.last_seq:
        # Another node may be ahead of what was seen here.
        await journal.catch_up()
    if position is not None and journal.state.phase == "ended" and position == journal.last_seq:
        return Response(status_code=204)
    return EventStream(SessionViewer(hub, journal, position))


async def many_events(request: Request) -> ASGIApp:
    hub: Hub = request.app.state.hub
    is_all = flag(request, "all")
    text, epoch = position_of(request, ALL_DIGITS) if is_all else position_of(request)
    if epoch not in (None, hub.log.epoch):
        text = None
    if is_all:
        start = await hub.feed.newest()
        given = single(text) if text is not None else start
        return EventStream(ChangesViewer(hub, min(given, start)))
    names = [name for name in request.query_params.get("sessions", "").split(",") if name]
    if not names:
        raise Refused("invalid", "Name the sessions (?sessions=a,b) or ask for all (?all=true).")
    if len(names) > MAX_SESSIONS:
        raise Refused("invalid", f"At most {MAX_SESSIONS} sessions can be watched over one stream.")
    journals = [await hub.log.open(name) for name in dict.fromkeys(names)]
    positions = cursors_of(text, journals) if text is not None else None
    ends = [journal.last_seq if journal.state.phase == "ended" else None for journal in journals]
    if positions is not None and positions == ends:
        return Response(status_code=204)
    return EventStream(ManyViewer(hub, journals, positions))


def single(text: str) -> int:
    if "." in text:
        raise Refused("invalid", "This position belongs to a stream over many sessions.")
    return int(text)
