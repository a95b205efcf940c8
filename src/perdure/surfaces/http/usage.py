"""Usage over HTTP: tokens, costs and bytes of turns, summed up by day, agent, project, session or model.

Above: routes.py. Below: the verb for usage.
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.surfaces.http.endpoint import Endpoint, QueryFields
from perdure.surfaces.http.requests import reply, verbs

FILTERS = ("since", "until", "agent", "project", "session")
KEYS = ("day", "agent", "project", "session", "model")


class UsageGroup(Struct, kw_only=True):
    key: str
    turns: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    contexts: dict[str, int]
    input_bytes: int
    saved_bytes: int
    duration_ms: int


class Usage(Struct, kw_only=True):
    group_by: list[str]
    usage: list[UsageGroup]
    total: UsageGroup | None


async def get_usage(request: Request) -> Response:
    given = request.query_params
    named = {name: given[name] for name in FILTERS if name in given}
    return reply(await verbs(request).usage(given.get("group_by", "day"), named))


GROUPS = [*KEYS, *(f"{one},{other}" for one in KEYS for other in KEYS if one != other)]
MOMENT = {
    "pattern": r"^(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)?$"
}
"""Only matches valid times. The server accepts further formats."""
QUERY: QueryFields = {
    "group_by": (
        str,
        "day, agent, project, session or model, or two of them separated by a comma; default day.",
        {"enum": GROUPS},
    ),
    "since": (str, "Only turns that began at or after this time (RFC 3339) or day.", MOMENT),
    "until": (str, "Only turns that began before this time or day.", MOMENT),
    "agent": (str, "Only turns of this agent."),
    "project": (str, "Only turns in this project."),
    "session": (str, "Only turns of this session."),
}

USAGE = [
    Endpoint(
        "GET",
        "/api/usage",
        get_usage,
        "Sum up the usage and cost of turns",
        query=QUERY,
        answers={200: Usage},
    ),
]
