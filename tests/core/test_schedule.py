"""When jobs are due: daylight-saving changes, leap days, ends of months; and generated schedules, compared with the
cron parser's own iteration."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.core.errors import Refused
from perdure.core.schedule import COUNT_MAX, MACROS, Schedule, check_cron, in_words

BERLIN, NEW_YORK, LORD_HOWE = (ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"))
"""Lord Howe's clocks change by half an hour, and in the opposite seasons."""
ZONES = (BERLIN, NEW_YORK, LORD_HOWE, ZoneInfo("UTC"), ZoneInfo("Asia/Kathmandu"), UTC)


def day(date: str, zone: ZoneInfo | timezone) -> datetime:
    return datetime.fromisoformat(date).replace(tzinfo=zone)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def cron(
    expression: str, zone: ZoneInfo | timezone = BERLIN, starts_ms: int = 0, until_ms: int | None = None
) -> Schedule:
    return Schedule(cron=expression, every_s=None, zone=zone, starts_ms=starts_ms, until_ms=until_ms)


def every(seconds: int, starts_ms: int, until_ms: int | None = None) -> Schedule:
    return Schedule(cron=None, every_s=seconds, zone=BERLIN, starts_ms=starts_ms, until_ms=until_ms)


def shown(schedule: Schedule, start: datetime, number: int) -> list[str]:
    """Due times on the wall clock, with their offset from UTC."""
    found = islice(schedule.after(ms(start)), number)
    return [datetime.fromtimestamp(due / 1000, UTC).astimezone(schedule.zone).strftime("%d %H:%M %z") for due in found]


# Clocks go forward --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "start", "expected"),
    [
        (BERLIN, "2026-03-28", ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]),
        (NEW_YORK, "2026-03-07", ["07 02:30 -0500", "08 03:00 -0400", "09 02:30 -0400"]),
    ],
)
def test_a_time_that_does_not_exist_is_due_once_right_after_the_change(
    zone: ZoneInfo, start: str, expected: list[str]
) -> None:
    assert shown(cron("30 2 * * *", zone), day(start, zone), 3) == expected


def test_a_clock_change_of_half_an_hour_skips_only_times_within_it() -> None:
    start = datetime(2026, 10, 3, 0, tzinfo=LORD_HOWE)
    assert shown(cron("15 2 * * *", LORD_HOWE), start, 3) == ["03 02:15 +1030", "04 02:30 +1100", "05 02:15 +1100"]
    assert shown(cron("45 2 * * *", LORD_HOWE), start, 3) == ["03 02:45 +1030", "04 02:45 +1100", "05 02:45 +1100"]


def test_several_times_that_do_not_exist_are_due_once_together() -> None:
    start = datetime(2026, 3, 29, 0, tzinfo=BERLIN)
    assert shown(cron("0,15,30 2 * * *"), start, 3) == ["29 03:00 +0200", "30 02:00 +0200", "30 02:15 +0200"]


# Clocks go back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        (BERLIN, "30 2 * * *", "2026-10-24", ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),
        (NEW_YORK, "30 1 * * *", "2026-10-31", ["31 01:30 -0400", "01 01:30 -0400", "02 01:30 -0500"]),
        (LORD_HOWE, "45 1 * * *", "2026-04-04", ["04 01:45 +1100", "05 01:45 +1100", "06 01:45 +1030"]),
    ],
)
def test_a_time_that_occurs_twice_is_due_once(zone: ZoneInfo, expression: str, start: str, expected: list[str]) -> None:
    assert shown(cron(expression, zone), day(start, zone), 3) == expected


def test_a_start_in_the_second_repeated_hour_does_not_repeat_due_times_of_the_first() -> None:
    second_hour = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)
    assert shown(cron("30 2 * * *"), second_hour, 2) == ["26 02:30 +0100", "27 02:30 +0100"]


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
@pytest.mark.parametrize("month", [3, 4, 10, 11])
def test_every_half_hour_stays_every_half_hour_over_each_change(zone: ZoneInfo, month: int) -> None:
    begin = ms(datetime(2026, month, 1, tzinfo=zone))
    found = list(islice(cron("*/30 * * * *", zone).after(begin), 48 * 30))
    assert {later - earlier for earlier, later in pairwise(found)} == {1_800_000}


# The calendar -------------------------------------------------------------------------------------------------------


def test_the_29th_of_february_is_due_in_leap_years() -> None:
    found = islice(cron("0 0 29 2 *", UTC).after(ms(datetime(2026, 1, 1, tzinfo=UTC))), 3)
    assert [datetime.fromtimestamp(due / 1000, UTC).year for due in found] == [2028, 2032, 2036]


def test_the_31st_is_due_in_months_that_have_one_and_the_last_day_in_all() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert [day[:2] for day in shown(cron("0 0 31 * *", UTC), start, 4)] == ["31"] * 4
    assert [day[:2] for day in shown(cron("0 0 L * *", UTC), start, 4)] == ["31", "28", "31", "30"]


# Intervals ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.integers(0, 10**12), st.integers(0, 10**12))
def test_an_interval_counts_from_its_start(seconds: int, starts: int, after: int) -> None:
    found = list(islice(every(seconds, starts).after(after), 5))
    assert all(due > after and due >= starts and (due - starts) % (seconds * 1000) == 0 for due in found)
    assert {later - earlier for earlier, later in pairwise(found)} == {seconds * 1000}
    assert found[0] == starts or found[0] - seconds * 1000 <= max(after, starts)


# Generated ----------------------------------------------------------------------------------------------------------


def _field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.integers(1, 30).map(lambda step: f"*/{step}"),
        st.lists(number, min_size=1, max_size=4).map(lambda found: ",".join(map(str, found))),
        *map(st.just, more),
    )


expressions = st.tuples(
    _field(0, 59), _field(0, 23), _field(1, 31, "L", "LW"), _field(1, 12), _field(0, 7, "MON#2", "5L", "SUN")
).map(" ".join)
moments = st.integers(ms(day("2025-01-01", UTC)), ms(day("2030-01-01", UTC)))
around_changes = st.tuples(
    st.sampled_from(["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-04-05", "2026-10-04"]),
    st.integers(-36 * 3600, 36 * 3600),
).map(lambda drawn: ms(day(drawn[0], UTC) + timedelta(seconds=drawn[1])))
starts = moments | around_changes


def fires(expression: str, zone: ZoneInfo | timezone, at: int) -> bool:
    try:
        check_cron(expression, zone, at)
    except Refused:
        return False
    return True


@given(expressions, st.sampled_from(ZONES), starts)
def test_generated_schedules_are_due_when_the_parser_says(
    expression: str, zone: ZoneInfo | timezone, start: int
) -> None:
    assume(fires(expression, zone, start))
    found = list(islice(cron(expression, zone).after(start), 20))
    own = CronSim(expression, datetime.fromtimestamp(start // 1000, UTC).astimezone(zone))
    named = [ms(moment) for moment in islice(own, 25)]
    # Within an hour that occurs twice, the parser may return a time in the past.
    assert found == [due for due in named if due > start][: len(found)]
    assert found == sorted(set(found))


@given(expressions, st.sampled_from(ZONES), starts, st.integers(0, 19))
def test_the_due_times_after_any_of_them_are_the_rest_of_them(
    expression: str, zone: ZoneInfo | timezone, start: int, cut: int
) -> None:
    assume(fires(expression, zone, start))
    schedule = cron(expression, zone)
    found = list(islice(schedule.after(start), 20))
    assume(len(found) == 20)
    assert list(islice(schedule.after(found[cut]), 19 - cut)) == found[cut + 1 :]


@given(expressions, st.sampled_from(ZONES), starts, st.integers(1, 30), st.integers(0, 40), st.integers(0, 86_400_000))
def test_the_latest_due_times_are_the_end_of_all_of_them(
    expression: str, zone: ZoneInfo | timezone, start: int, limit: int, number: int, more: int
) -> None:
    assume(fires(expression, zone, start))
    schedule = cron(expression, zone)
    upto = [start, *islice(schedule.after(start), number)][-1] + more
    passed = []
    for due in islice(schedule.after(start), 5_000):
        if due > upto:
            break
        passed.append(due)
    else:
        assume(False)
    assert schedule.latest(start, upto, limit) == passed[-limit:]
    assert schedule.count(start, upto) == min(len(passed), COUNT_MAX)


def test_a_year_of_downtime_is_searched_as_fast_as_an_hour() -> None:
    begin = ms(datetime(2026, 1, 1, tzinfo=BERLIN))
    year = begin + 365 * 86_400_000
    calls = 0

    class Counted(Schedule, frozen=True, kw_only=True):
        def _cron_after(self, at: int) -> object:  # type: ignore[override]
            nonlocal calls
            for due in super()._cron_after(at):
                calls += 1
                yield due

    schedule = Counted(cron="* * * * *", every_s=None, zone=BERLIN, starts_ms=0)
    assert schedule.latest(begin, year, 10) == [year - number * 60_000 for number in reversed(range(10))]
    assert calls < 200


@given(expressions, st.sampled_from(ZONES), starts, st.integers(1, 10**9), st.integers(1, 10**10))
def test_nothing_is_due_before_the_start_or_after_the_end(
    expression: str, zone: ZoneInfo | timezone, start: int, wait: int, lasts: int
) -> None:
    assume(fires(expression, zone, start))
    begin, end = start + wait, start + wait + lasts
    everything = [due for due in islice(cron(expression, zone).after(start), 200) if begin <= due <= end]
    bounded = list(islice(cron(expression, zone, begin, end).after(start), len(everything) + 1))
    assert bounded[: len(everything)] == everything
    assert all(begin <= due <= end for due in bounded)


# Descriptions and errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 9 * *", "must have five fields"),
        ("0 0 9 * * *", "must have five fields"),
        ("", "must have five fields"),
        ("61 * * * *", "the minute is wrong"),
        ("* 25 * * *", "the hour is wrong"),
        ("* * 32 * *", "the day of month is wrong"),
        ("* * * 13 *", "the month is wrong"),
        ("* * * * 8", "the day of week is wrong"),
        ("*/0 * * * *", "the minute is wrong"),
        ("0 0 31 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("0 0 */31 2 2#5", "never fires"),
        ("@reboot", "@hourly"),
        ("0 9 * * " + "1," * 200 + "1", "must have five fields"),
    ],
)
def test_an_expression_that_is_wrong_is_refused_in_one_sentence(expression: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        check_cron(expression, BERLIN, ms(datetime(2026, 1, 1, tzinfo=UTC)))
    assert refused.value.code == "invalid" and refused.value.facts == {"fields": ["cron"]}


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    start = ms(datetime(2026, 1, 1, tzinfo=UTC))
    if fires(text, BERLIN, start):
        assert in_words(text, None)
        assert cron(text).first_after(start)


def test_schedules_in_words() -> None:
    assert in_words("0 9 * * 1-5", None) == "At 09:00 on Monday through Friday"
    assert [in_words(macro, None) for macro in ("@hourly", "@daily")] == [
        "At the start of every hour",
        "At 00:00 every day",
    ]
    said = {1: "Every second", 90: "Every 90 seconds", 60: "Every minute", 7_200: "Every 2 hours", 86_400: "Every day"}
    assert {seconds: in_words(None, seconds) for seconds in said} == said
    assert all(in_words(macro, None) for macro in MACROS)
