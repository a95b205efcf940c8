"""What happened in a session, over HTTP: its transcript, its log, and the attachments of its messages.

Above: routes.py. Below: the verbs for history and attachments. Transcripts and logs can be large, so
large_responses.py sends them.
"""

import mimetypes
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.surfaces.http.endpoint import MAX_POSITION, SESSION, Endpoint, between
from perdure.surfaces.http.large_responses import LargeResponse
from perdure.surfaces.http.requests import MEDIA, flag, verbs, whole_number


class Transcript(Struct, kw_only=True):
    session_id: str
    title: str
    seq: int
    revision: int
    turns: list[dict[str, Any]]


async def get_log(request: Request) -> ASGIApp:
    session_id = request.path_params["session_id"]
    after = whole_number(request, "offset", 0)
    limit = whole_number(request, "limit", 1_000, low=1, high=MAX_POSITION)
    pieces = await verbs(request).history.lines(session_id, after, limit)
    return LargeResponse(request.app.state.large_responses, pieces, "application/x-ndjson")


async def get_transcript(request: Request) -> ASGIApp:
    session_id = request.path_params["session_id"]
    from_turn = whole_number(request, "from_turn", 1)
    # Checked for every format: invalid values are refused, never ignored.
    to_turn = whole_number(request, "to_turn", MAX_POSITION)
    rewound = flag(request, "rewound")
    how = request.query_params.get("format", "json")
    history, large_responses = verbs(request).history, request.app.state.large_responses
    if how == "markdown":
        pieces = await history.transcript_markdown(session_id, from_turn)
        return LargeResponse(large_responses, pieces, "text/markdown; charset=utf-8")
    if how != "json":
        raise Refused("invalid", "format must be json or markdown.", fields=["format"])
    pieces = await history.transcript(session_id, from_turn, to_turn=to_turn, rewound=rewound)
    return LargeResponse(large_responses, pieces, MEDIA)


async def get_attachment(request: Request) -> Response:
    """Send pictures to be displayed, and everything else as a download that never runs as a page."""
    session_id, file = request.path_params["session_id"], request.path_params["file"]
    path, is_picture = await verbs(request).attachment(session_id, file)
    kind = mimetypes.guess_type(path.name)[0]
    headers = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}
    if is_picture:
        return FileResponse(path, media_type=kind, headers=headers)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name[9:], headers=headers)


TRANSCRIPTS = [
    Endpoint(
        "GET",
        f"{SESSION}/log",
        get_log,
        "Get the session's events as JSON lines",
        query={
            "offset": (int, "Only events after this number.", between(0)),
            "limit": (int, "Number of events; default 1,000.", between(1)),
        },
        answers={200: "application/x-ndjson"},
        refusals=("not_found", "unavailable"),
    ),
    Endpoint(
        "GET",
        f"{SESSION}/transcript",
        get_transcript,
        "Get the transcript, turn by turn",
        query={
            "format": (str, "json or markdown.", {"enum": ["json", "markdown"]}),
            "from_turn": (int, "Skip the turns before this one.", between(0)),
            "to_turn": (int, "Skip the turns after this one (json only).", between(0)),
            "rewound": (bool, "Include rewound turns (json only)."),
        },
        answers={200: (Transcript, "text/markdown")},
        refusals=("not_found", "unavailable"),
    ),
    Endpoint(
        "GET",
        f"{SESSION}/attachments/{{file}}",
        get_attachment,
        "Download an attachment of a message",
        answers={200: "application/octet-stream"},
        refusals=("not_found",),
    ),
]
