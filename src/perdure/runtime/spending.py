"""What turns have cost: tokens, money, time, and how much of the conversation had to be told again.

Above: the verb `usage` of the sessions. Below: the store's sums.
"""

import re
from typing import Any, get_args

import msgspec

from perdure.core.errors import Refused
from perdure.stores.base import Store, UsageGroup, UsageKey, UsageQuery

KEYS = get_args(UsageKey)
MAX_KEYS = 2
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?Z)?")


async def usage(store: Store, group_by: str, named: dict[str, str]) -> dict[str, Any]:
    """Sums by one key or two (`day,agent`) over the turns that `named` (since, until, agent, ...) leaves."""
    keys = tuple(group_by.split(","))
    if not set(keys) <= set(KEYS) or len(set(keys)) != len(keys) or len(keys) > MAX_KEYS:
        raise Refused("invalid", f"group_by must be one of {', '.join(KEYS)}, or two of them with a comma between.")
    for name in ("since", "until"):
        if name in named and not _TIME.fullmatch(named[name]):
            raise Refused("invalid", f"{name} must be a day (2026-01-31) or a time in UTC (2026-01-31T12:00:00Z).")
    query = msgspec.convert({**named, "group_by": keys}, UsageQuery)
    groups = await store.usage(query)
    total = await store.usage(msgspec.structs.replace(query, group_by=()))
    return {
        "group_by": list(keys),
        "usage": [{**dict(zip(keys, group.keys, strict=True)), **_figures(group)} for group in groups],
        "total": _figures(total[0]) if total else None,
    }


def _figures(group: UsageGroup) -> dict[str, Any]:
    figures = {name: getattr(group, name) for name in group.__struct_fields__}
    contexts = {name: figures.pop(name) for name in ("live", "resumed", "fresh")}
    return {"key": figures.pop("keys")[0], **figures, "contexts": contexts}
