"""Time zones by name, and the local one. Above: the ledger and the verbs. Below: zoneinfo, tzdata and tzlocal."""

from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import tzlocal

from perdure.core.errors import Refused

MAX_KEPT = 256


@lru_cache(MAX_KEPT)
def zone(name: str) -> ZoneInfo:
    """The time zone with this name. Raises Refused if it is unknown."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Refused(
            "invalid",
            f"There is no time zone {name!r}. Use a name such as Europe/Berlin, America/New_York or UTC.",
            fields=["time_zone"],
        ) from error


def local_zone() -> str:
    """The name of the machine's time zone, or UTC if it has no name."""
    try:
        name = tzlocal.get_localzone_name()
        return zone(name).key if name else "UTC"
    except (Refused, LookupError, ValueError, OSError):
        return "UTC"
