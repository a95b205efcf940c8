"""Scheduled jobs with a controlled clock: missed and overlapping runs, failures and ends; and generated histories of a
job, in which no due time runs twice or is lost."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from perdure.core.clock import stamp
from perdure.core.jobs import (
    BACKOFF_MAX_MS,
    BACKOFF_MS,
    CLOCK_BACK_MS,
    GRACE_MS,
    Decided,
    Job,
    JobSpec,
    Last,
    Outcome,
    Run,
    clock_went_back,
    decide_due,
    ended,
    paused,
    planned,
    respecified,
    resumed,
    run_now,
    sent,
    settled,
    start_of,
)
from perdure.core.schedule import Schedule

MINUTE, HOUR = 60_000, 3_600_000
NOON = int(datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp() * 1000)


class Stage:
    """A job, its stored runs, and a clock."""

    def __init__(self, at: int = NOON, **spec: Any) -> None:
        self.now = at
        given = {"name": "nightly", "message": "go", **({} if "every_s" in spec else {"cron": "0 * * * *"}), **spec}
        made = JobSpec(**given)
        self.job = planned(Job(id="nightly", spec=made, created_ms=at, after_ms=at), self.schedule_of(made, at))
        self.runs: dict[str, Run] = {}

    @staticmethod
    def schedule_of(spec: JobSpec, created: int) -> Schedule:
        first = created + (spec.every_s or 0) * 1000
        until = None if spec.until is None else int(datetime.fromisoformat(spec.until).timestamp() * 1000)
        return Schedule(cron=spec.cron, every_s=spec.every_s, zone=UTC, starts_ms=first, until_ms=until)

    @property
    def schedule(self) -> Schedule:
        return self.schedule_of(self.job.spec, self.job.created_ms)

    @property
    def opened(self) -> list[Run]:
        return [run for run in self.runs.values() if run.is_open]

    @property
    def last(self) -> Last:
        over = [run for run in self.runs.values() if run.outcome not in (None, "skipped")]
        newest = max(over, key=lambda run: (run.ended_ms or 0, run.number), default=None)
        return Last(str(newest.outcome), newest.result) if newest is not None else Last()

    def keep(self, decided: Decided) -> list[Run]:
        """Save like the store: a new run with an existing id doesn't replace it."""
        self.job = decided.job
        for run in decided.new:
            self.runs.setdefault(run.id, run)
        for run in decided.changed:
            assert run.id in self.runs
            self.runs[run.id] = run
        return decided.new

    def look(self) -> list[Run]:
        """The scheduler decides what is due at the current time."""
        return self.keep(decide_due(self.job, self.schedule, self.opened, self.last, self.now))

    def at(self, moment: int) -> list[Run]:
        self.now = moment
        return self.look()

    def send(self, run: Run) -> None:
        self.keep(sent(self.job, self.runs[run.id], 1, self.now))

    def end(self, run: Run, outcome: Outcome = "completed", detail: str = "", result: str = "") -> None:
        over = ended(self.runs[run.id], outcome, detail, self.now, result=result)
        self.keep(settled(self.job, self.schedule, over, self.opened, self.now))

    def whole(self, moment: int, outcome: Outcome = "completed", detail: str = "") -> list[Run]:
        """A run that is due now, is sent, and ends."""
        new = self.at(moment)
        for run in new:
            if run.state == "starting":
                self.send(run)
                self.end(run, outcome, detail)
        return new

    def outcomes(self) -> list[tuple[str, str]]:
        """(hour and minute of the due time, outcome or state), in order."""
        in_order = sorted(self.runs.values(), key=lambda run: run.due_ms)
        return [(stamp(run.due_ms / 1000)[11:16], run.outcome or run.state) for run in in_order]


# Due times ----------------------------------------------------------------------------------------------------------


def test_each_due_time_has_one_run_however_often_it_is_decided() -> None:
    stage = Stage()
    assert stage.look() == [] and stage.job.due_ms == NOON + HOUR
    (run,) = stage.at(NOON + HOUR + 3)
    assert (run.state, run.trigger, run.due_ms, run.number) == ("starting", "schedule", NOON + HOUR, 1)
    assert stage.look() == [] and stage.job.due_ms == NOON + 2 * HOUR
    stage.send(run)
    stage.end(run)
    assert [stage.whole(NOON + number * HOUR)[0].number for number in (2, 3)] == [2, 3]


def test_session_message_id_and_text_are_fixed_before_sending() -> None:
    stage = Stage(message="{job} {run} {due} {date} [{last_outcome}|{last_result}] {other}")
    (first,) = stage.at(NOON + HOUR)
    assert first.text == "nightly 1 2026-11-18T13:00:00+00:00 2026-11-18 [none|] {other}"
    assert first.session_id and first.message_id and stage.job.id in first.message_id
    stage.send(first)
    stage.end(first, result="all {run} green")
    (second,) = stage.at(NOON + 2 * HOUR)
    assert second.text.startswith("nightly 2 ") and "[completed|all {run} green]" in second.text
    assert (second.session_id, second.message_id) != (first.session_id, first.message_id)


def test_with_session_same_all_runs_use_the_session_of_the_first() -> None:
    stage = Stage(session="same")
    first, second = stage.whole(NOON + HOUR)[0], stage.whole(NOON + 2 * HOUR)[0]
    assert first.session_id == second.session_id == stage.job.session_id
    assert first.message_id != second.message_id
    assert Stage(session="s_given").at(NOON + HOUR)[0].session_id == "s_given"


def test_a_job_that_was_removed_and_created_again_has_other_message_ids() -> None:
    one, other = Stage(), Stage(NOON + 1)
    assert one.at(NOON + HOUR)[0].message_id != other.at(NOON + HOUR)[0].message_id


# Missed -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", [("15:00", "skipped")]),
        ("once", [("14:00", "skipped"), ("15:00", "completed")]),
        ("all", [("13:00", "skipped"), ("14:00", "completed"), ("15:00", "completed")]),
    ],
)
def test_runs_that_were_due_while_no_server_ran(missed: str, expected: list[tuple[str, str]]) -> None:
    stage = Stage(missed=missed, missed_max=2)
    stage.now = NOON + 3 * HOUR + 10 * MINUTE
    for run in stage.look():
        if run.is_open:
            assert run.trigger == "missed"
    while stage.opened:
        (going,) = [run for run in stage.opened if run.state == "starting"]
        stage.send(going)
        stage.end(going)
    assert stage.outcomes() == expected
    (note,) = [run for run in stage.runs.values() if run.outcome == "skipped"]
    assert "missed: the server was down, asleep or late." in note.detail
    assert note.detail.startswith({"skip": "3 runs were", "once": "2 runs were", "all": "One run was"}[missed])
    assert stage.job.due_ms == NOON + 4 * HOUR


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_run_that_is_late_by_less_than_the_grace_was_not_missed(missed: str) -> None:
    stage = Stage(missed=missed)
    (run,) = stage.at(NOON + HOUR + GRACE_MS)
    assert (run.trigger, run.state) == ("schedule", "starting")
    late = Stage(missed=missed)
    (run,) = late.at(NOON + HOUR + GRACE_MS + 1)
    assert run.trigger == "missed"


def test_with_once_a_run_that_is_due_now_replaces_the_missed_ones() -> None:
    stage = Stage(missed="once")
    stage.at(NOON + 3 * HOUR + 5)
    assert stage.outcomes() == [("14:00", "skipped"), ("15:00", "starting")]


def test_a_year_of_downtime_is_one_note() -> None:
    stage = Stage(cron="* * * * *", missed="all", missed_max=3)
    new = stage.at(NOON + 365 * 24 * HOUR + 30_000)
    assert len(new) == 5 and "996 or more runs were missed" in new[0].detail
    assert stage.job.run_count == 4


# Overlap ------------------------------------------------------------------------------------------------------------


def test_with_wait_the_next_run_begins_when_the_previous_one_has_ended_and_one_may_wait() -> None:
    stage = Stage(message="{last_result}")
    (first,) = stage.at(NOON + HOUR)
    stage.send(first)
    (second,) = stage.at(NOON + 2 * HOUR)
    (third,) = stage.at(NOON + 3 * HOUR)
    assert (second.state, second.text) == ("waiting", "")
    assert (third.outcome, third.detail) == (
        "skipped",
        "The previous run had not ended, and another run is already waiting.",
    )
    stage.end(first, result="of the first")
    begun = stage.runs[second.id]
    assert (begun.state, begun.text) == ("starting", "of the first")


def test_with_skip_a_run_that_is_due_too_early_is_skipped() -> None:
    stage = Stage(overlap="skip")
    (first,) = stage.at(NOON + HOUR)
    (second,) = stage.at(NOON + 2 * HOUR)
    assert (second.outcome, second.detail) == ("skipped", "The previous run had not ended.")
    stage.send(first)
    stage.end(first)
    assert stage.at(NOON + 3 * HOUR)[0].state == "starting"
    assert stage.job.run_count == 2


def test_with_interrupt_the_newest_run_begins_and_replaces_unsent_ones() -> None:
    stage = Stage(overlap="interrupt")
    (first,) = stage.at(NOON + HOUR)
    (second,) = stage.at(NOON + 2 * HOUR)
    assert stage.runs[first.id].outcome == "skipped" and second.state == "starting"
    stage.send(second)
    (third,) = stage.at(NOON + 3 * HOUR)
    assert (stage.runs[second.id].state, third.state) == ("running", "starting")


# Clocks -------------------------------------------------------------------------------------------------------------


def test_after_a_clock_is_set_back_by_an_hour_nothing_repeats_and_the_job_continues() -> None:
    stage = Stage(cron="*/10 * * * *")
    for minutes in range(10, 70, 10):
        stage.whole(NOON + minutes * MINUTE)
    stage.now = NOON + 5 * MINUTE
    assert clock_went_back(stage.job, stage.schedule, stage.now) is None
    for minutes in range(5, 90, 5):
        stage.whole(NOON + minutes * MINUTE)
    assert Counter(when for when, _ in stage.outcomes()).most_common(1)[0][1] == 1
    assert stage.outcomes() == [(f"{12 + m // 60}:{m % 60:02d}", "completed") for m in range(10, 90, 10)]


def test_a_clock_that_was_far_ahead_does_not_stop_the_job_for_ever() -> None:
    stage = Stage()
    stage.whole(NOON + HOUR)
    stage.whole(NOON + 10_000 * HOUR)
    stage.now = NOON + HOUR + 5 * MINUTE
    decided = clock_went_back(stage.job, stage.schedule, stage.now)
    assert decided is not None
    (note,) = stage.keep(decided)
    assert "The clock was set back from 2028" in note.detail
    stage.whole(NOON + 2 * HOUR)
    assert stage.outcomes()[:3] == [("13:00", "completed"), ("13:05", "skipped"), ("14:00", "completed")]
    assert clock_went_back(stage.job, stage.schedule, stage.now) is None
    assert stage.job.after_ms - stage.now < CLOCK_BACK_MS


@given(st.integers(1, 86_400), st.integers(1, 86_400), st.integers(0, 10**6))
def test_jitter_is_the_same_each_time_and_ends_before_the_next_due_time(every: int, jitter: int, number: int) -> None:
    stage = Stage(every_s=every, jitter_s=jitter)
    due = NOON + (number + 1) * every * 1000
    start = start_of(stage.job, stage.schedule, due)
    assert due <= start < min(due + jitter * 1000 + 1, due + every * 1000)
    assert start == start_of(stage.job, stage.schedule, due)


def test_with_jitter_a_run_begins_late_and_its_id_is_the_due_time() -> None:
    stage = Stage(jitter_s=1_800)
    start = stage.job.start_ms
    assert start is not None and NOON + HOUR < start <= NOON + HOUR + 30 * MINUTE
    assert stage.at(start - 1) == []
    assert [run.due_ms for run in stage.at(start)] == [NOON + HOUR]


def test_a_due_time_whose_jitter_is_not_over_is_left_for_later() -> None:
    stage = Stage(jitter_s=3_000)
    second = start_of(stage.job, stage.schedule, NOON + 2 * HOUR)
    assert second > NOON + 2 * HOUR + 1
    assert [run.due_ms for run in stage.at(NOON + 2 * HOUR + 1) if run.is_open] == [NOON + HOUR]
    assert stage.job.start_ms == second


# Ends, pauses, changes ----------------------------------------------------------------------------------------------


def test_a_job_ends_after_max_runs_and_manual_runs_do_not_count() -> None:
    stage = Stage(max_runs=2)
    decided, run = run_now(stage.job, stage.schedule, [], Last(), NOON + 5, "mine")
    stage.keep(decided)
    stage.send(run)
    stage.end(run)
    stage.whole(NOON + HOUR)
    assert stage.job.state == "active"
    stage.whole(NOON + 2 * HOUR)
    assert (stage.job.state, stage.job.run_count) == ("ended", 3)
    assert stage.at(NOON + 3 * HOUR) == []


def test_a_job_ends_at_its_end_date() -> None:
    stage = Stage(until="2026-11-18T14:30:00Z")
    stage.whole(NOON + HOUR)
    stage.whole(NOON + 2 * HOUR)
    assert stage.job.state == "ended" and stage.at(NOON + 9 * HOUR) == []


def test_catching_up_stops_at_the_number_of_runs() -> None:
    stage = Stage(missed="all", missed_max=5, max_runs=2)
    stage.at(NOON + 4 * HOUR + 10 * MINUTE)
    assert stage.outcomes() == [("13:00", "starting"), ("14:00", "waiting"), ("15:00", "skipped"), ("16:00", "skipped")]
    assert stage.job.state == "ended"


def test_due_times_during_a_pause_are_neither_run_nor_missed() -> None:
    stage = Stage()
    (first,) = stage.at(NOON + HOUR)
    (second,) = stage.at(NOON + 2 * HOUR)
    stage.keep(paused(stage.job, stage.opened, "person", "", stage.now))
    assert stage.job.state == "paused" and stage.runs[second.id].detail == "The job was paused."
    assert stage.runs[first.id].is_open
    assert stage.at(NOON + 5 * HOUR) == []
    stage.keep(Decided(resumed(stage.job, stage.schedule, NOON + 5 * HOUR + 5)))
    assert stage.job.due_ms == NOON + 6 * HOUR


def test_changing_or_resuming_a_job_ends_its_backoff() -> None:
    for is_change in (True, False):
        stage = Stage(cron="* * * * *", max_failures=9)
        moment = NOON
        for _ in range(5):
            moment = stage.job.start_ms or 0
            stage.whole(moment, "failed")
        assert stage.job.due_ms == moment + 17 * MINUTE
        stage.now = moment + 30_000
        if is_change:
            spec = replace(stage.job.spec, name="other")
            stage.job = respecified(stage.job, spec, stage.schedule, stage.now)
        else:
            stage.keep(paused(stage.job, stage.opened, "person", "", stage.now))
            stage.job = resumed(stage.job, stage.schedule, stage.now)
        assert stage.job.due_ms == moment + MINUTE
        assert [run.trigger for run in stage.whole(moment + MINUTE)] == ["schedule"], "nothing was missed"


def test_a_run_that_completes_during_a_backoff_ends_it_and_nothing_counts_as_missed() -> None:
    stage = Stage(cron="* * * * *", missed="all")
    for _ in range(4):
        stage.whole(stage.job.start_ms or 0, "failed")
    stage.now += 3 * MINUTE
    decided, run = run_now(stage.job, stage.schedule, [], Last(), stage.now, "asked")
    stage.keep(decided)
    stage.send(run)
    stage.end(run)
    assert stage.job.due_ms == stage.now + MINUTE
    assert len(stage.whole(stage.now + MINUTE)) == 1


def test_renaming_a_job_moves_no_due_time_whose_jitter_has_not_passed() -> None:
    stage = Stage(jitter_s=3_000)
    start = stage.job.start_ms
    stage.now = NOON + HOUR + 1
    assert start is not None and start > stage.now
    spec = replace(stage.job.spec, name="other")
    stage.job = respecified(stage.job, spec, stage.schedule, stage.now)
    assert (stage.job.due_ms, stage.job.start_ms) == (NOON + HOUR, start)


def test_a_clock_that_was_ahead_of_the_end_date_does_not_end_the_job() -> None:
    stage = Stage(until="2026-11-25T00:00:00Z")
    stage.whole(NOON + 10_000 * HOUR)
    assert stage.job.state == "ended"
    stage.now = NOON + 30 * MINUTE
    decided = clock_went_back(stage.job, stage.schedule, stage.now)
    assert decided is not None and decided.job.due_ms == NOON + HOUR


def test_a_changed_schedule_applies_from_now_on() -> None:
    stage = Stage()
    stage.now = NOON + 30 * MINUTE
    spec = replace(stage.job.spec, cron="*/20 * * * *")
    stage.job = respecified(stage.job, spec, stage.schedule_of(spec, NOON), stage.now)
    assert stage.job.due_ms == NOON + 40 * MINUTE


# Failures -----------------------------------------------------------------------------------------------------------


def test_a_job_whose_runs_fail_backs_off_and_finally_pauses_itself() -> None:
    stage = Stage(cron="* * * * *", max_failures=4)
    stage.whole(NOON + MINUTE, "failed", "The agent exited.")
    assert stage.job.backoff_until_ms == NOON + MINUTE + BACKOFF_MS
    assert stage.job.due_ms == NOON + 3 * MINUTE
    stage.whole(NOON + 3 * MINUTE, "failed")
    assert stage.job.due_ms == NOON + 6 * MINUTE
    note = stage.runs[f"backoff-{NOON + 3 * MINUTE}"]
    assert note.detail == (
        "2 runs were skipped. The job backs off until 2026-11-18 12:05 (UTC), after 2 failed runs in a row."
    )
    stage.whole(NOON + 6 * MINUTE, "failed")
    stage.whole(NOON + 11 * MINUTE, "failed", "The agent exited.")
    assert (stage.job.state, stage.job.paused_by) == ("paused", "failures")
    assert stage.job.paused_reason == "Paused after 4 failed runs in a row."
    stage.keep(Decided(resumed(stage.job, stage.schedule, stage.now)))
    assert (stage.job.failures, stage.job.due_ms) == (0, NOON + 12 * MINUTE)


def test_a_completed_run_ends_the_backoff() -> None:
    stage = Stage(cron="* * * * *")
    stage.whole(NOON + MINUTE, "failed")
    stage.whole(NOON + 3 * MINUTE)
    assert (stage.job.failures, stage.job.backoff_until_ms, stage.job.due_ms) == (0, None, NOON + 4 * MINUTE)


def test_a_cancelled_run_is_not_a_failure() -> None:
    stage = Stage(max_failures=1)
    stage.whole(NOON + HOUR, "cancelled")
    assert (stage.job.failures, stage.job.state) == (0, "active")


def test_the_backoff_has_a_limit() -> None:
    stage = Stage(every_s=HOUR * 24 // 1000, max_failures=1_000)
    for _ in range(40):
        assert stage.job.start_ms is not None
        stage.whole(stage.job.start_ms, "failed")
    assert stage.job.backoff_until_ms == stage.now + BACKOFF_MAX_MS


def test_runs_that_wait_behind_a_failed_one_are_skipped_except_manual_ones() -> None:
    stage = Stage(missed="all")
    (first,) = stage.at(NOON + HOUR)
    (waiting,) = stage.at(NOON + 2 * HOUR)
    decided, asked = run_now(stage.job, stage.schedule, stage.opened, Last(), stage.now, "asked")
    stage.keep(decided)
    stage.send(first)
    stage.end(first, "failed")
    assert stage.runs[waiting.id].outcome == "skipped"
    assert stage.runs[asked.id].state == "starting"


# Generated ----------------------------------------------------------------------------------------------------------


class Lives(RuleBasedStateMachine):
    """A job through restarts, clock changes, and runs with random ends."""

    @initialize(
        minutes=st.sampled_from([1, 7, 60]),
        missed=st.sampled_from(["skip", "once", "all"]),
        overlap=st.sampled_from(["wait", "skip", "interrupt"]),
        jitter=st.sampled_from([0, 45]),
        max_runs=st.none() | st.integers(1, 8),
        session=st.sampled_from(["new", "same"]),
    )
    def begin(self, minutes: int, missed: str, overlap: str, jitter: int, max_runs: int | None, session: str) -> None:
        self.stage = Stage(
            every_s=minutes * 60,
            missed=missed,
            missed_max=3,
            overlap=overlap,
            jitter_s=jitter,
            max_runs=max_runs,
            max_failures=3,
            session=session,
        )
        self.step = minutes * MINUTE
        self.begun_of: Counter[tuple[str | None, str | None]] = Counter()

    @rule(seconds=st.integers(1, 200))
    def time_passes(self, seconds: int) -> None:
        self.stage.now += seconds * 1000
        self.stage.look()

    @rule(steps=st.integers(1, 30), extra=st.integers(0, 59))
    def the_server_is_down(self, steps: int, extra: int) -> None:
        self.stage.now += steps * self.step + extra * 1000
        self.stage.look()

    @rule(seconds=st.integers(1, 3_600))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.stage.now -= seconds * 1000
        self.stage.look()

    @rule()
    def a_message_is_sent(self) -> None:
        for run in self.stage.opened:
            if run.state == "starting":
                self.begun_of[run.session_id, run.message_id] += 1
                self.stage.send(run)
                return

    @rule(outcome=st.sampled_from(["completed", "failed", "cancelled"]))
    def a_run_ends(self, outcome: Outcome) -> None:
        for run in self.stage.opened:
            if run.state == "running":
                self.stage.end(run, outcome)
                return

    @precondition(lambda self: self.stage.job.paused_by is not None)
    @rule()
    def a_person_resumes_it(self) -> None:
        self.stage.keep(Decided(resumed(self.stage.job, self.stage.schedule, self.stage.now)))

    @rule()
    def a_person_pauses_it(self) -> None:
        if self.stage.job.paused_by is None:
            self.stage.keep(paused(self.stage.job, self.stage.opened, "person", "", self.stage.now))

    @rule(number=st.integers(0, 10**6))
    def a_person_runs_it(self, number: int) -> None:
        stage = self.stage
        decided, run = run_now(stage.job, stage.schedule, stage.opened, stage.last, stage.now, f"manual-{number}")
        if run.id not in stage.runs and run.outcome != "skipped":
            stage.keep(decided)

    @invariant()
    def no_message_is_sent_twice(self) -> None:
        assert all(number == 1 for number in self.begun_of.values())

    @invariant()
    def no_due_time_has_two_runs_and_each_is_one_of_the_schedule(self) -> None:
        scheduled = [run for run in self.stage.runs.values() if run.trigger != "manual" and "backoff" not in run.id]
        assert len({run.due_ms for run in scheduled}) == len(scheduled)
        assert all((run.due_ms - NOON) % self.step == 0 for run in scheduled)

    @invariant()
    def runs_follow_the_rule_for_overlaps(self) -> None:
        active = [run for run in self.stage.opened if run.state in ("starting", "running")]
        waiting = [run for run in self.stage.opened if run.state == "waiting"]
        if self.stage.job.spec.overlap != "interrupt":
            assert len(active) <= 1
        assert not waiting or active, "what waits, waits for something"
        assert len(waiting) <= (3 if self.stage.job.spec.missed == "all" else 1)
        assert sum(run.state == "starting" for run in active) <= 1

    @invariant()
    def the_job_counts_what_it_has_begun(self) -> None:
        job = self.stage.job
        numbered = [run for run in self.stage.runs.values() if run.number]
        assert len(numbered) == job.run_count == len({run.number for run in numbered})
        scheduled = sum(run.trigger != "manual" for run in numbered)
        assert scheduled == job.scheduled_count
        assert job.spec.max_runs is None or scheduled <= job.spec.max_runs

    @invariant()
    def nothing_is_due_that_was_not_decided_on(self) -> None:
        job = self.stage.job
        if job.state == "active":
            assert job.due_ms is not None and job.due_ms > job.after_ms
            assert job.start_ms is not None and job.due_ms <= job.start_ms < job.due_ms + self.step
        else:
            assert job.due_ms is None and job.start_ms is None
        assert job.paused_by != "failures" or job.paused_reason


Lives.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["*/5 * * * *", "0 * * * *", "7,31 */2 * * *"]),
    st.lists(st.tuples(st.integers(1, 7_200), st.booleans()), min_size=1, max_size=40),
    st.sampled_from(["skip", "once", "all"]),
)
def test_every_due_time_is_run_or_accounted_for(cron: str, naps: list[tuple[int, bool]], missed: str) -> None:
    """However long the server was down, each due time has a run or is counted in a note."""
    stage = Stage(cron=cron, missed=missed, missed_max=4)
    for seconds, is_down in naps:
        end = stage.now + seconds * 1000
        while not is_down and stage.job.start_ms is not None and stage.job.start_ms <= end:
            stage.whole(stage.job.start_ms)
        stage.whole(end)
        while going := [run for run in stage.opened if run.state == "starting"]:
            stage.send(going[0])
            stage.end(going[0])
    passed = stage.schedule.count(NOON, stage.now)
    runs = sum(run.number > 0 for run in stage.runs.values())
    notes = [run.detail.split(" ")[0] for run in stage.runs.values() if run.outcome == "skipped"]
    assert runs + sum(1 if word == "One" else int(word) for word in notes) == passed
