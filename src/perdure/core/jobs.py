"""Scheduled jobs as a pure state machine: each function takes a job and its runs, and returns the changed ones.

Above: runtime/jobs, which stores each decision under the job's revision and carries it out. Below: schedule.py.

An *open* run is `waiting` for an earlier run to end, `starting` (its message is about to be sent) or `running` (its
message was sent). A run's id derives from its due time, so a due time has only one run, even if it is decided several
times. `after_ms` is the job's position in its schedule: every due time up to it has been handled.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.clock import stamp
from perdure.core.schedule import COUNT_MAX, Schedule

GRACE_MS = 60_000
"""A run that would start later than this counts as missed."""
BACKOFF_MS = 60_000
BACKOFF_MAX_MS = 6 * 3_600_000
CLOCK_BACK_MS = 25 * 3_600_000
"""If the position is further ahead than this, the clock was wrong."""
RESULT_MAX_CHARS = 8_000
PLACE_MAX_CHARS = 40
"""The maximum length of a time, a number or an outcome in a message."""
OF_THE_SCHEDULE = ("cron", "every_s", "time_zone", "starts_at", "until", "jitter_s")
WORDS = ("job", "due", "date", "run", "last_outcome", "last_result")
_PLACE = re.compile(r"\{(" + "|".join(WORDS) + r")\}")

Missed = Literal["skip", "once", "all"]
Overlap = Literal["wait", "skip", "interrupt"]
Outcome = Literal["completed", "failed", "cancelled", "skipped"]
Trigger = Literal["schedule", "missed", "manual"]


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job as a person describes it."""

    name: str
    message: str
    cron: str | None = None
    every_s: int | None = None
    time_zone: str = "UTC"
    starts_at: str | None = None
    until: str | None = None
    max_runs: int | None = None
    jitter_s: int = 0
    missed: Missed = "once"
    missed_max: int = 10
    overlap: Overlap = "wait"
    session: str = "new"
    agent: str | None = None
    model: str | None = None
    mode: str | None = None
    project: str | None = None
    workdir: str | None = None
    labels: list[str] = []
    max_failures: int = 5
    keep_sessions: int | None = None
    keep_days: int | None = None


class Job(Struct, frozen=True, kw_only=True):
    id: str
    spec: JobSpec
    created_ms: int
    after_ms: int
    due_ms: int | None = None
    """The next due time; None if the job is paused or has no due times left."""
    start_ms: int | None = None
    """The next due time plus jitter: when the run starts."""
    paused_by: Literal["person", "failures"] | None = None
    paused_reason: str = ""
    run_count: int = 0
    scheduled_count: int = 0
    """How many runs count towards `max_runs`: all but manual ones."""
    failures: int = 0
    """How many runs have failed in a row."""
    backoff_until_ms: int | None = None
    session_id: str | None = None
    """With session = "same": the session that its runs share."""

    @property
    def position_ms(self) -> int:
        """Due times up to here have been handled, or are skipped by the backoff."""
        return max(self.after_ms, self.backoff_until_ms or 0)

    @property
    def state(self) -> Literal["active", "paused", "ended"]:
        if self.paused_by is not None:
            return "paused"
        return "active" if self.due_ms is not None else "ended"


class Run(Struct, frozen=True, kw_only=True):
    id: str
    job_id: str
    due_ms: int
    trigger: Trigger
    state: Literal["waiting", "starting", "running", "ended"]
    number: int = 0
    """The run's number, from 1; 0 if the run was skipped."""
    session_id: str | None = None
    message_id: str | None = None
    turn: int | None = None
    claimed_ms: int = 0
    """When the run was created, or last became `starting`."""
    started_ms: int | None = None
    ended_ms: int | None = None
    outcome: Outcome | None = None
    detail: str = ""
    """Why the run was skipped, failed or was cancelled, in one sentence."""
    duration_ms: int | None = None
    cost_usd: float | None = None
    text: str = ""
    """The message, while the run is `starting`."""
    result: str = ""
    """The answer, cut to RESULT_MAX_CHARS."""

    @property
    def is_open(self) -> bool:
        return self.state != "ended"


class Last(Struct, frozen=True):
    """How the previous run ended, for the next message."""

    outcome: str = "none"
    result: str = ""


class Decided(Struct, frozen=True):
    """The job after a decision, the new runs, and the changed runs."""

    job: Job
    new: list[Run] = []
    changed: list[Run] = []


# Beginning ----------------------------------------------------------------------------------------------------------


def planned(job: Job, schedule: Schedule) -> Job:
    """The job with its next due time, computed from its position."""
    due = None if job.paused_by is not None or _has_had_all(job) else schedule.first_after(job.position_ms)
    return replace(job, due_ms=due, start_ms=None if due is None else start_of(job, schedule, due))


def start_of(job: Job, schedule: Schedule, due: int) -> int:
    """The due time plus its jitter: deterministic, and always before the next due time."""
    jitter_ms = job.spec.jitter_s * 1000
    if not jitter_ms:
        return due
    following = schedule.first_after(due)
    most = jitter_ms if following is None else min(jitter_ms, following - due - 1)
    digest = hashlib.sha256(f"{job.id} {job.created_ms} {due}".encode()).digest()
    return due + int.from_bytes(digest[:6]) * most // 2**48


def _has_had_all(job: Job) -> bool:
    return job.spec.max_runs is not None and job.scheduled_count >= job.spec.max_runs


def paused(job: Job, opened: Sequence[Run], by: Literal["person", "failures"], reason: str, now_ms: int) -> Decided:
    """Stop the schedule and skip waiting scheduled runs. Started runs continue."""
    why = "The job was paused." if by == "person" else "The job was paused after failures."
    job = replace(job, paused_by=by, paused_reason=reason, due_ms=None, start_ms=None)
    return Decided(job, changed=_dropped(opened, why, now_ms))


def _dropped(opened: Sequence[Run], why: str, now_ms: int) -> list[Run]:
    waiting = [run for run in opened if run.state == "waiting" and run.trigger != "manual"]
    return [ended(run, "skipped", why, now_ms) for run in waiting]


def resumed(job: Job, schedule: Schedule, now_ms: int) -> Job:
    """Restart the schedule from now: due times during the pause don't count as missed."""
    job = replace(forgiven(job, now_ms), paused_by=None, paused_reason="")
    return planned(replace(job, after_ms=max(now_ms, job.after_ms)), schedule)


def forgiven(job: Job, now_ms: int) -> Job:
    """Reset failures and backoff. What the backoff skipped doesn't count as missed."""
    passed = min(now_ms, job.backoff_until_ms or 0)
    return replace(job, failures=0, backoff_until_ms=None, after_ms=max(job.after_ms, passed))


def respecified(job: Job, spec: JobSpec, schedule: Schedule, now_ms: int) -> Job:
    """Change the settings. Counts and a pause stay; a changed schedule applies from now on."""
    kept = job.session_id if spec.session == "same" and job.spec.session == "same" else None
    is_another = any(getattr(spec, name) != getattr(job.spec, name) for name in OF_THE_SCHEDULE)
    job = replace(forgiven(job, now_ms), spec=spec, session_id=kept)
    return planned(replace(job, after_ms=max(now_ms, job.after_ms)) if is_another else job, schedule)


# Due ----------------------------------------------------------------------------------------------------------------


def decide_due(job: Job, schedule: Schedule, opened: Sequence[Run], last: Last, now_ms: int) -> Decided:
    """Decide which of the due times up to now run and which are skipped, by the job's rules."""
    if job.start_ms is None or job.start_ms > now_ms:
        return Decided(job)
    spec = job.spec
    # One more than may be caught up, one on time, and one whose jitter has not passed.
    limit = 3 + (spec.missed_max if spec.missed == "all" else 1)
    found = schedule.latest(job.position_ms, now_ms, limit)
    count = len(found) if len(found) < limit else schedule.count(job.position_ms, now_ms)
    is_more = count >= COUNT_MAX
    if found and start_of(job, schedule, found[-1]) > now_ms:
        found, count = found[:-1], count - 1
    if not found:
        return Decided(planned(job, schedule))
    on_time = [moment for moment in found[-1:] if now_ms - start_of(job, schedule, moment) <= GRACE_MS]
    missed = found[: len(found) - len(on_time)]
    chosen = _caught_up(spec, missed, bool(on_time))
    new: list[Run] = []
    skipped = count - len(on_time) - len(chosen)
    if skipped > 0:
        # The note takes its id from the last skipped due time, which has no other run.
        left_out = [moment for moment in missed if moment not in chosen]
        new.append(_skipped(job, left_out[-1], "missed", _missed(skipped, is_more), now_ms))
    job = replace(job, after_ms=found[-1])
    changed: list[Run] = []
    for moment in (*chosen, *on_time):
        trigger: Trigger = "schedule" if moment in on_time else "missed"
        job, run, replaced = _decide(job, schedule, [*opened, *new], moment, trigger, last, now_ms)
        new = [replaced.get(each.id, each) for each in new] + [run]
        changed += [replaced[each.id] for each in opened if each.id in replaced]
    return Decided(planned(job, schedule), new, changed)


def run_now(
    job: Job, schedule: Schedule, opened: Sequence[Run], last: Last, now_ms: int, key: str
) -> tuple[Decided, Run]:
    """Start a manual run, outside the schedule. The overlap rule applies."""
    job, run, replaced = _decide(job, schedule, opened, now_ms, "manual", last, now_ms, key=key)
    return Decided(job, [run], list(replaced.values())), run


def _caught_up(spec: JobSpec, missed: list[int], is_on_time: bool) -> list[int]:
    if spec.missed == "all":
        return missed[-spec.missed_max :]
    return missed[-1:] if spec.missed == "once" and not is_on_time else []


def _missed(number: int, is_more: bool) -> str:
    return f"{_runs(number, is_more)} missed: the server was down, asleep or late."


def _runs(number: int, is_more: bool) -> str:
    if is_more:
        return f"{number} or more runs were"
    return "One run was" if number == 1 else f"{number} runs were"


def _decide(
    job: Job,
    schedule: Schedule,
    opened: Sequence[Run],
    moment: int,
    trigger: Trigger,
    last: Last,
    now_ms: int,
    key: str | None = None,
) -> tuple[Job, Run, dict[str, Run]]:
    """Decide one due time. Returns the job, the new run, and the earlier runs that it replaces, by id."""
    spec, busy = job.spec, [run for run in opened if run.is_open]
    refusal = ""
    if trigger != "manual" and _has_had_all(job):
        refusal = f"The job has reached its limit of {spec.max_runs} runs."
    elif busy and spec.overlap == "skip":
        refusal = "The previous run had not ended."
    elif spec.overlap == "wait":
        room = spec.missed_max if spec.missed == "all" else 1
        if sum(run.state == "waiting" for run in busy) >= room:
            refusal = "The previous run had not ended, and another run is already waiting."
    if refusal:
        return job, _skipped(job, moment, trigger, refusal, now_ms, key), {}
    replaced: dict[str, Run] = {}
    if spec.overlap == "interrupt":
        unsent = [run for run in busy if run.state in ("waiting", "starting")]
        replaced = {run.id: ended(run, "skipped", "A newer run took its place.", now_ms) for run in unsent}
    counted = job.scheduled_count + (trigger != "manual")
    job = replace(job, run_count=job.run_count + 1, scheduled_count=counted)
    run = replace(
        _run(job, moment, trigger, now_ms, key),
        state="waiting" if busy and spec.overlap == "wait" else "starting",
        number=job.run_count,
    )
    return job, begun(job, schedule, run, last, now_ms) if run.state == "starting" else run, replaced


def begun(job: Job, schedule: Schedule, run: Run, last: Last, now_ms: int) -> Run:
    """Fix the run's session, message id and text. From here on, sending it is idempotent."""
    if job.spec.session == "new":
        session_id = session_of(job, run)
    elif job.spec.session == "same":
        session_id = job.session_id or session_of(job, run)
    else:
        session_id = job.spec.session
    run = replace(run, state="starting", session_id=session_id, message_id=message_id_of(job, run), claimed_ms=now_ms)
    return replace(run, text=message_text(job, schedule, run, last))


def message_id_of(job: Job, run: Run) -> str:
    return f"job:{job.id}:{job.created_ms}:{run.id}"


def session_of(job: Job, run: Run) -> str:
    """The id of the session that a run opens, the same on every try."""
    return "s_" + hashlib.sha256(message_id_of(job, run).encode()).hexdigest()[:21]


def longest_chars(spec: JobSpec) -> int:
    """The maximum length of the job's message, with all placeholders filled."""
    longest = {"job": len(spec.name), "last_result": RESULT_MAX_CHARS + 1}
    places = [longest.get(place.group(1), PLACE_MAX_CHARS) for place in _PLACE.finditer(spec.message)]
    return len(spec.message) + sum(places)


def message_text(job: Job, schedule: Schedule, run: Run, last: Last) -> str:
    moment = local_time(schedule, run.due_ms)
    given = {
        "job": job.spec.name,
        "due": moment,
        "date": moment[:10],
        "run": str(run.number),
        "last_outcome": last.outcome,
        "last_result": last.result,
    }
    return _PLACE.sub(lambda place: given[place.group(1)], job.spec.message)


def local_time(schedule: Schedule, ms: int) -> str:
    """ISO 8601 in the job's time zone, to the second, with the UTC offset."""
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(schedule.zone).isoformat()


def _run(job: Job, moment: int, trigger: Trigger, now_ms: int, key: str | None = None) -> Run:
    return Run(
        id=key or stamp(moment / 1000),
        job_id=job.id,
        due_ms=moment,
        trigger=trigger,
        state="waiting",
        claimed_ms=now_ms,
    )


def _skipped(job: Job, moment: int, trigger: Trigger, why: str, now_ms: int, key: str | None = None) -> Run:
    return ended(_run(job, moment, trigger, now_ms, key), "skipped", why, now_ms)


def _failures(number: int) -> str:
    return "a failed run" if number == 1 else f"{number} failed runs in a row"


# Ending -------------------------------------------------------------------------------------------------------------


def ended(run: Run, outcome: Outcome, detail: str, now_ms: int, **about: Any) -> Run:
    """The run in its final state. A run that was never sent has no session."""
    session_id = run.session_id if run.started_ms is not None else None
    run = replace(run, state="ended", outcome=outcome, detail=detail, ended_ms=now_ms, text="", session_id=session_id)
    return replace(run, **about)


def settled(job: Job, schedule: Schedule, run: Run, opened: Sequence[Run], now_ms: int) -> Decided:
    """A run has ended: reset or back off, pause after too many failures, and start the next waiting run."""
    opened = [other for other in opened if other.id != run.id]
    new: list[Run] = []
    dropped: list[Run] = []
    if run.outcome == "completed":
        job = planned(forgiven(job, now_ms), schedule)
    elif run.outcome == "failed":
        job = replace(job, failures=job.failures + 1)
        if job.failures >= job.spec.max_failures and job.paused_by is None:
            pausing = paused(job, opened, "failures", f"Paused after {_failures(job.failures)}.", now_ms)
            job, dropped = pausing.job, pausing.changed
        else:
            job, new = _backed_off(job, schedule, now_ms)
            dropped = _dropped(opened, _backing_off(job, schedule), now_ms)
    gone = {other.id for other in dropped}
    left = [other for other in opened if other.id not in gone]
    waiting = [other for other in left if other.state == "waiting"]
    changed = [run, *dropped]
    if waiting and len(waiting) == len(left):
        following = min(waiting, key=lambda other: other.number)
        changed.append(begun(job, schedule, following, Last(run.outcome or "none", run.result), now_ms))
    return Decided(job, new, changed)


def _backed_off(job: Job, schedule: Schedule, now_ms: int) -> tuple[Job, list[Run]]:
    """Skip due times for a minute, doubled after each further failure. One skipped run represents all of them."""
    until = now_ms + min(BACKOFF_MS * 2 ** min(job.failures - 1, 30), BACKOFF_MAX_MS)
    job = replace(job, backoff_until_ms=until)
    if job.due_ms is None or job.due_ms > until:
        return job, []
    number = schedule.count(job.after_ms, until)
    why = f"{_runs(number, number >= COUNT_MAX)} skipped. {_backing_off(job, schedule)}"
    note = _skipped(job, now_ms, "schedule", why, now_ms, key=f"backoff-{now_ms}")
    return planned(job, schedule), [note]


def _backing_off(job: Job, schedule: Schedule) -> str:
    assert job.backoff_until_ms is not None
    return f"The job backs off until {_said(job, schedule, job.backoff_until_ms)}, after {_failures(job.failures)}."


def _said(job: Job, schedule: Schedule, ms: int) -> str:
    """A time for people, in the job's time zone."""
    return f"{local_time(schedule, ms)[:16].replace('T', ' ')} ({job.spec.time_zone})"


def sent(job: Job, run: Run, turn: int | None, now_ms: int) -> Decided:
    """The session accepted the run's message."""
    if job.spec.session == "same" and job.session_id != run.session_id:
        job = replace(job, session_id=run.session_id)
    return Decided(job, changed=[replace(run, state="running", turn=turn, started_ms=now_ms, text="")])


def clock_went_back(job: Job, schedule: Schedule, now_ms: int) -> Decided | None:
    """Restart the schedule if the clock was set back by more than CLOCK_BACK_MS. Due times that already have a run keep
    it. After a smaller step back, the job waits for its next due time."""
    if job.position_ms - now_ms <= CLOCK_BACK_MS or job.paused_by is not None:
        return None
    why = f"The clock was set back from {_said(job, schedule, job.position_ms)}: the schedule restarts from now."
    note = _skipped(job, now_ms, "schedule", why, now_ms, key=f"clock-{now_ms}")
    return Decided(planned(replace(job, after_ms=now_ms, backoff_until_ms=None), schedule), [note])
