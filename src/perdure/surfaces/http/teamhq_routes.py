"""TeamHQ's part of the table of endpoints.

Above: routes.py, which has the rest. Below: the handlers in teamhq.py.
"""

from perdure.surfaces.http import teamhq
from perdure.surfaces.http import teamhq_shapes as ts
from perdure.surfaces.http.endpoint import AT_POSITION, MAX_LIMIT, STATUS, Endpoint, between

FIRST = "The number of the first event that is wanted: the id of the last one that was seen, plus 1. The header wins."
T = "/api/projects/{project_id:path}/sessions"

TEAMHQ = [
    Endpoint(
        "POST",
        T,
        teamhq.teamhq_start,
        "TeamHQ: start a session with the project's kickoff, or with a message",
        body=ts.TeamSessionBody,
        answers={201: ts.TeamSession},
        refusals=("not_found", "slots_full", "rate_limited", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        T,
        teamhq.teamhq_list,
        "TeamHQ: the sessions of a project, newest first",
        query={
            "status": (str, "Only sessions with this status: running, completed, stopped, timed-out, failed.", STATUS),
            "state": (str, "Only sessions in this state: processing, idle, ended.", {"enum": list(ts.STATES)}),
            "limit": (int, "How many at the most (1 to 1,000; 1,000 by default).", between(1, MAX_LIMIT)),
        },
        answers={200: ts.TeamSessions},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{T}/{{session_id}}",
        teamhq.teamhq_get,
        "TeamHQ: one session",
        answers={200: ts.TeamSession},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{T}/{{session_id}}/message",
        teamhq.teamhq_message,
        "TeamHQ: send a further message",
        body=ts.TeamMessage,
        answers={202: ts.TeamAccepted},
        refusals=(
            "not_found",
            "turn_active",
            "session_ended",
            "slots_full",
            "rate_limited",
            "too_large",
            "agent_unavailable",
        ),
    ),
    Endpoint(
        "POST",
        f"{T}/{{session_id}}/stop",
        teamhq.teamhq_stop,
        "TeamHQ: end a session",
        answers={200: ts.TeamSession},
        refusals=("not_found", "session_ended"),
    ),
    Endpoint(
        "GET",
        f"{T}/{{session_id}}/events",
        teamhq.teamhq_events,
        "TeamHQ: all events of a session, then live (server-sent events)",
        query={"offset": (str, FIRST, AT_POSITION)},
        answers={200: "text/event-stream", 204: None},
        refusals=("not_found",),
    ),
]
