"""Texts for jobs: times in a time zone, distances, states and runs. The clock is a parameter."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.cli import job_wording

NOW = datetime(2026, 11, 18, 23, 0, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Pacific/Apia"]


def run(**fields: Any) -> dict[str, Any]:
    return {
        "id": "r", "job_id": "nightly", "due_at": "2026-11-18T08:00:00.000Z", "trigger": "schedule", "state": "ended",
        "outcome": "completed", "detail": "", "session_id": "s_1", "duration_ms": 4200, "cost_usd": None, **fields,
    }  # fmt: skip


def job(**fields: Any) -> dict[str, Any]:
    return {
        "id": "nightly", "name": "Nightly", "message": "say hello", "cron": "0 9 * * 1-5", "every_s": None,
        "schedule": "At 09:00 on Monday through Friday", "time_zone": "Europe/Berlin", "starts_at": None,
        "until": None, "max_runs": None, "jitter_s": 0, "missed": "once", "missed_max": 10, "overlap": "wait",
        "session": "new", "session_id": None, "agent": None, "model": None, "mode": None, "project": None,
        "workdir": None, "labels": [], "max_failures": 5, "keep_sessions": None, "keep_days": None,
        "state": "active", "paused_by": None, "reason": "", "failures": 0, "backoff_until": None, "run_count": 3,
        "next_run_at": "2026-11-19T08:00:00.000Z", "last_run": None, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("moment", "zone", "words"),
    [
        ("2026-11-19T09:00:00+01:00", "Europe/Berlin", "Thu 19 Nov 2026, 09:00 CET (in 9 h)"),
        ("2026-07-01T09:00:00+02:00", "Europe/Berlin", "Wed 1 Jul 2026, 09:00 CEST (141 d ago)"),
        ("2026-11-18T23:00:30.500Z", "UTC", "Wed 18 Nov 2026, 23:00:30 UTC (in 30 s)"),
        ("2026-11-18T23:30:00Z", "America/Sao_Paulo", "Wed 18 Nov 2026, 20:30 UTC-03 (in 30 min)"),
        ("2026-11-20T20:00:00Z", "Asia/Kolkata", "Sat 21 Nov 2026, 01:30 IST (in 45 h)"),
        ("2026-11-21T09:00:00+01:00", "Somewhere/Unknown", "Sat 21 Nov 2026, 09:00 UTC+01:00 (in 2 d)"),
        ("2026-11-18T23:00:00Z", "UTC", "Wed 18 Nov 2026, 23:00 UTC (now)"),
    ],
)
def test_a_time_is_shown_in_the_jobs_time_zone_with_the_time_until_then(moment: str, zone: str, words: str) -> None:
    assert job_wording.when(moment, zone, NOW) == words


@given(st.integers(0, 4 * 10**9), st.sampled_from(ZONES))
def test_a_formatted_time_can_be_parsed_back(seconds: int, zone: str) -> None:
    there = datetime.fromtimestamp(seconds, UTC).astimezone(ZoneInfo(zone))
    words = job_wording.clock_time(there.isoformat(), zone)
    said, _, word = words.rpartition(" ")
    whole = (said if there.second else f"{said}:00") + there.strftime("%z")
    assert datetime.strptime(whole, "%a %d %b %Y, %H:%M:%S%z") == there
    assert word.removeprefix("UTC") in (there.strftime("%Z"), "")


@given(st.integers(0, 10**9))
def test_relative_times_are_rounded_to_a_unit_and_are_symmetric(seconds: int) -> None:
    ahead = job_wording.away((NOW + timedelta(seconds=seconds)).isoformat(), NOW)
    past = job_wording.away((NOW - timedelta(seconds=seconds)).isoformat(), NOW)
    if seconds == 0:
        assert ahead == past == "now"
        return
    assert ahead == f"in {past.removesuffix(' ago')}"
    number, unit = ahead.removeprefix("in ").split()
    size = {"s": 1, "min": 60, "h": 3600, "d": 86400}[unit]
    assert abs(int(number) * size - seconds) <= size / 2 and int(number) > 0


def test_the_time_zone_is_shown_if_the_schedule_needs_one() -> None:
    assert job_wording.schedule_words(job()) == "At 09:00 on Monday through Friday, Europe/Berlin (0 9 * * 1-5)"
    assert job_wording.schedule_words(job(cron=None, every_s=60, schedule="Every minute")) == "Every minute"


def test_a_job_that_backs_off_or_paused_itself_says_why() -> None:
    late = job(failures=2, backoff_until="2026-11-18T23:02:00.000Z")
    assert job_wording.state_words(late, NOW) == "backing off"
    assert job_wording.reason_words(late, NOW) == (
        "Skips runs until Thu 19 Nov 2026, 00:02 CET (in 2 min), after 2 failed runs in a row."
    )
    over = NOW + timedelta(minutes=3)
    assert (job_wording.state_words(late, over), job_wording.reason_words(late, over)) == ("active", "")
    paused = job(state="paused", paused_by="failures", reason="Paused after 5 failed runs in a row.")
    assert job_wording.state_words(paused, NOW) == "paused"
    assert job_wording.reason_words(paused, NOW) == "Paused after 5 failed runs in a row."
    assert job_wording.reason_words(job(state="paused", paused_by="person"), NOW) == ""


def test_the_settings_of_a_job_are_described_in_words() -> None:
    set_up = job(
        starts_at="2026-12-01T08:00:00.000Z", until="2027-01-01T00:00:00.000Z", max_runs=7, jitter_s=300,
        missed="all", missed_max=4, overlap="skip", session="same", session_id="s_1", workdir="/srv/site",
        project="site", agent="rehearsal", labels=["a", "b"], max_failures=1, keep_sessions=1, keep_days=30,
    )  # fmt: skip
    words = dict(job_wording.settings_rows(set_up, NOW))
    assert (
        words
        | {
            "starts at": "Tue 1 Dec 2026, 09:00 CET",
            "until": "Fri 1 Jan 2027, 01:00 CET",
            "max runs": "7",
            "jitter": "up to 5 min",
            "if missed": "run each missed run, at most the newest 4",
            "if overlapping": "skip the new run",
            "session": "one for all runs (s_1)",
            "working directory": "/srv/site (project site)",
            "labels": "a, b",
            "pauses after": "1 failed run in a row",
            "keeps": "the newest 1 session, sessions for 30 days",
        }
        == words
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"workdir": "/srv/site"}, "/srv/site"),
        ({"project": "site"}, "the directory of project site"),
        ({}, "a new folder for each session"),
        ({"session": "same"}, "a new folder"),
        ({"session": "s_1"}, ""),
    ],
)
def test_the_jobs_directory_is_shown(fields: dict[str, Any], words: str) -> None:
    assert job_wording.place_words(job(**fields)) == words


def test_the_table_of_runs_omits_empty_columns() -> None:
    headings, rows = job_wording.run_table([run(), run(session_id=None, duration_ms=None)], "Europe/Berlin", NOW)
    assert headings == ["due", "outcome", "time", "session"]
    assert rows == [
        ["Wed 18 Nov, 09:00 CET", "completed", "4.2 s", "s_1"],
        ["Wed 18 Nov, 09:00 CET", "completed", "", ""],
    ]
    runs = [
        run(state="running", outcome=None, trigger="manual", duration_ms=None),
        run(outcome="failed", trigger="missed", detail="It\ncrashed.", cost_usd=1.234, due_at="2025-12-31T23:30:00Z"),
    ]
    headings, rows = job_wording.run_table(runs, "Europe/Berlin", NOW)
    assert headings == list(job_wording.RUN_HEADINGS)
    assert rows[0][:4] == ["Wed 18 Nov, 09:00 CET", "running", "manual", ""]
    # The current year in the job's time zone.
    assert rows[1][0] == "Thu 1 Jan, 00:30 CET" and rows[1][2:] == ["missed", "4.2 s", "$1.23", "s_1", "It crashed."]


def test_a_narrow_terminal_hides_the_last_run_but_never_the_ids() -> None:
    jobs = [job(last_run=run()), job(id="another-job", next_run_at=None, state="ended")]
    headings, rows = job_wording.job_table(jobs, NOW, None)
    assert headings == ["job", "state", "next run", "last run", "schedule"]
    assert rows[0] == ["nightly", "active", "in 9 h", "completed 15 h ago", "At 09:00 on Monday through Friday"]
    assert rows[1][:4] == ["another-job", "ended", "", ""]
    assert job_wording.job_table(jobs, NOW, 80) == (headings, rows)
    assert job_wording.job_table(jobs, NOW, 70)[0] == ["job", "state", "next run", "schedule"]
    skipped_ahead = job(last_run=run(outcome="skipped", due_at="2026-11-19T08:00:00.000Z"))
    assert job_wording.last_words(skipped_ahead, NOW) == "skipped"
