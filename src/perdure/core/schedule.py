"""When a job is due: a cron expression in a time zone, or an interval. Pure: the time zone is passed in as a value.

Above: jobs.py. Below: cronsim, which follows the rules of Debian's cron. A fixed time that a clock change skips is due
right after the change; a time that occurs twice is due the first time. These exceptions don't apply to an expression
whose minute or hour starts with a star: `*/30 * * * *` is due every half hour, even across clock changes. Times are
milliseconds since 1970.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice

from cronsim import CronSim, CronSimError
from msgspec import Struct

from perdure.core.errors import Refused

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = "minute, hour, day of month, month, day of week"
MAX_CHARS = 200
FIRST_WINDOW_MS = 60_000
WINDOW_FACTOR = 4
COUNT_MAX = 1_000
"""Missed times beyond this many are not counted."""
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


class Schedule(Struct, frozen=True, kw_only=True):
    """Exactly one of `cron` and `every_s` is set. An interval is first due at `starts_ms`."""

    cron: str | None
    every_s: int | None
    zone: tzinfo
    starts_ms: int
    until_ms: int | None = None

    def after(self, ms: int) -> Iterator[int]:
        """Every due time after this time, in order."""
        for due in self._cron_after(max(ms, self.starts_ms - 1)) if self.cron else self._every_after(ms):
            if self.until_ms is not None and due > self.until_ms:
                return
            yield due

    def first_after(self, ms: int) -> int | None:
        return next(self.after(ms), None)

    def latest(self, after: int, upto: int, limit: int) -> list[int]:
        """The last `limit` due times in (after, upto]. Searches backwards in growing windows, so a long downtime takes
        no longer than a short one."""
        window = FIRST_WINDOW_MS
        while True:
            begin = max(after, upto - window)
            found = []
            for due in self.after(begin):
                if due > upto:
                    break
                found.append(due)
            if len(found) >= limit or begin == after:
                return found[-limit:]
            window *= WINDOW_FACTOR

    def count(self, after: int, upto: int) -> int:
        """How many due times lie in (after, upto], at most COUNT_MAX."""
        number = 0
        for due in islice(self.after(after), COUNT_MAX):
            if due > upto:
                break
            number += 1
        return number

    def _cron_after(self, ms: int) -> Iterator[int]:
        assert self.cron is not None
        previous = ms
        for moment in CronSim(MACROS.get(self.cron, self.cron), _moment(ms, self.zone)):
            due = int(moment.timestamp()) * 1000
            # Within the second pass of an hour that occurs twice, cronsim may return a time of the first pass.
            if due > previous:
                previous = due
                yield due

    def _every_after(self, ms: int) -> Iterator[int]:
        assert self.every_s is not None
        step = self.every_s * 1000
        due = self.starts_ms + max(0, (ms - self.starts_ms) // step + 1) * step
        while True:
            yield due
            due += step


def check_cron(expression: str, zone: tzinfo, now_ms: int) -> None:
    """Refuse an expression that is not valid, or that never fires."""
    plain = MACROS.get(expression, expression)
    if expression.startswith("@") and expression not in MACROS:
        raise Refused("invalid", f"cron {expression!r} is unknown. Use {', '.join(MACROS)}.", fields=["cron"])
    if len(expression) > MAX_CHARS or len(plain.split()) != 5:
        raise Refused("invalid", f"cron must have five fields: {FIELDS}. Example: 0 9 * * 1-5.", fields=["cron"])
    try:
        due = next(CronSim(plain, _moment(now_ms, zone)), None)
    except (CronSimError, AssertionError) as error:
        wrong = str(error).removeprefix("Bad ").replace("-", " ") or "expression"
        if wrong != "day of month" or not _is_day(plain.split()[2]):
            raise Refused(
                "invalid", f"cron {expression!r}: the {wrong} is wrong. The fields are {FIELDS}.", fields=["cron"]
            ) from error
        due = None
    if due is None:
        raise Refused("invalid", f"cron {expression!r} never fires: no month has that day.", fields=["cron"])


def _is_day(field: str) -> bool:
    """Whether this day field is valid by itself. If it is, the expression fails because no given month has that day."""
    try:
        CronSim(f"0 0 {field} * *", datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError):
        return False
    return True


def in_words(cron: str | None, every_s: int | None) -> str:
    """A schedule in readable words."""
    if cron is not None:
        words: str = CronSim(MACROS.get(cron, cron), datetime(2000, 1, 1, tzinfo=UTC)).explain()
        return words
    assert every_s is not None
    size, name = next((size, name) for size, name in _UNITS if every_s % size == 0)
    number = every_s // size
    return f"Every {name}" if number == 1 else f"Every {number} {name}s"


def _moment(ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(zone)
