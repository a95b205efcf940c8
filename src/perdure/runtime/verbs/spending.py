"""Usage of turns: tokens, cost, time, and how much of the conversation had to be sent again.

Above: the verb `usage` of the sessions. Below: the store's sums.
"""

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec

from perdure.core.clock import stamp
from perdure.core.errors import Refused
from perdure.stores.base import Store, UsageGroup, UsageKey, UsageQuery

KEYS = get_args(UsageKey)
MAX_KEYS = 2


async def usage(store: Store, group_by: str, named: dict[str, str]) -> dict[str, Any]:
    """Sums by one or two keys (`day,agent`) over the turns that match the filters in `named` (since, until, agent)."""
    keys = tuple(group_by.split(","))
    if not set(keys) <= set(KEYS) or len(set(keys)) != len(keys) or len(keys) > MAX_KEYS:
        allowed = f"{', '.join(KEYS)}, or two of them separated by a comma"
        raise Refused("invalid", f"group_by must be one of {allowed}.", fields=["group_by"])
    named = {name: _moment(name, value) if name in ("since", "until") else value for name, value in named.items()}
    query = msgspec.convert({**named, "group_by": keys}, UsageQuery)
    groups = await store.usage(query)
    total = await store.usage(msgspec.structs.replace(query, group_by=()))
    return {
        "group_by": list(keys),
        "usage": [{**dict(zip(keys, group.keys, strict=True)), **_figures(group)} for group in groups],
        "total": _figures(total[0]) if total else None,
    }


def _moment(name: str, given: str) -> str:
    """The time in the stored format, in which times compare as text. A day starts at midnight UTC."""
    try:
        moment = datetime.fromisoformat(given)
        return stamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        raise Refused(
            "invalid",
            f"{name} must be a day (2026-01-31) or a time (2026-01-31T12:00:00Z), not {given!r}.",
            fields=[name],
        ) from error


def _figures(group: UsageGroup) -> dict[str, Any]:
    figures = {name: getattr(group, name) for name in group.__struct_fields__}
    contexts = {name: figures.pop(name) for name in ("live", "resumed", "fresh")}
    return {"key": figures.pop("keys")[0], **figures, "contexts": contexts}
