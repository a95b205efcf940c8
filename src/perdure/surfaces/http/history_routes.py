"""The endpoints about what was said, and about what it has cost."""

from typing import Any

from perdure.surfaces.http import bodies, histories
from perdure.surfaces.http import shapes as sh
from perdure.surfaces.http.endpoint import Endpoint

S = "/api/sessions/{session_id}"
OF_A_CHANGE = ("not_found", "turn_active", "session_ended", "conflict")
KEYS = ("day", "agent", "project", "session", "model")
GROUPS = [*KEYS, *(f"{one},{other}" for one in KEYS for other in KEYS if one != other)]
MOMENT = {
    "pattern": r"^(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)?$"
}
"""Those that are surely times: more are taken."""
USAGE_QUERY: dict[str, tuple[Any, ...]] = {
    "group_by": (
        str,
        "day, agent, project, session or model, or two of them with a comma between; day by default.",
        {"enum": GROUPS},
    ),
    "since": (str, "Only turns that began at this time (RFC 3339) or day, or later.", MOMENT),
    "until": (str, "Only turns that began before this time or day.", MOMENT),
    "agent": (str, "Only turns of this agent."),
    "project": (str, "Only turns in this project."),
    "session": (str, "Only turns of this session."),
}

HISTORY = [
    Endpoint(
        "PATCH",
        f"{S}/messages/{{message_id:path}}",
        histories.edit_message,
        "Edit a message of the history in its place",
        body=bodies.EditBody,
        answers={200: sh.Session},
        refusals=(*OF_A_CHANGE, "too_large"),
    ),
    Endpoint(
        "POST",
        f"{S}/rewind",
        histories.rewind,
        "Drop a turn and all after it from the visible history",
        body=bodies.RewindBody,
        answers={200: sh.Session},
        refusals=OF_A_CHANGE,
    ),
    Endpoint(
        "POST",
        f"{S}/retry",
        histories.retry,
        "Drop a turn and all after it, and send its message again",
        body=bodies.RetryBody,
        answers={202: sh.Accepted},
        refusals=(*OF_A_CHANGE, "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "POST",
        f"{S}/fork",
        histories.fork,
        "A new session that begins with this history",
        body=bodies.ForkBody,
        answers={201: sh.Session},
        refusals=("not_found", "turn_active"),
    ),
    Endpoint(
        "POST",
        "/api/import",
        histories.import_session,
        "Take a session in that was kept elsewhere, with its finished turns",
        body=bodies.ImportBody,
        answers={201: sh.Session},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "POST",
        f"{S}/plan",
        histories.plan,
        "What the next turn would do, and why",
        body=bodies.PlanBody,
        answers={200: sh.Plan},
        refusals=("not_found", "turn_active", "session_ended"),
    ),
    Endpoint(
        "GET",
        f"{S}/attachments/{{file}}",
        histories.get_attachment,
        "A file that came with a message",
        answers={200: "application/octet-stream"},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/usage",
        histories.get_usage,
        "What turns have cost, summed up",
        query=USAGE_QUERY,
        answers={200: sh.Usage},
    ),
]
