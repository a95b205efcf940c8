"""Times as values: RFC 3339 in UTC with milliseconds. Nothing here reads a clock."""

from datetime import UTC, datetime


def stamp(seconds: float) -> str:
    """Seconds since 1970 in the format of the API."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def ms_between(start: str, end: str) -> int:
    """Milliseconds between two times; never negative, even if the clock was set back."""
    return max(0, round((seconds(end) - seconds(start)) * 1000))
