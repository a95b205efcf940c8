"""Scheduled jobs in the engine, with the rehearsal agent and a clock that the test sets. Each due run happens once, or
as the job's rules say, despite restarts, crashes between any two steps, and clock changes."""

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure.core.errors import Refused
from perdure.runtime.agents.registry import Agents
from perdure.runtime.jobs import scheduler as scheduler_module
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession
from tests.runtime.job_stage import HOUR, NOON, Stage, dues, eventually

# Once ---------------------------------------------------------------------------------------------------------------


async def test_a_due_run_opens_a_session_and_its_history_says_how_it_ended(stage: Stage) -> None:
    await stage.add(message="say done {run} {due} after {last_outcome}: {last_result}", labels=["night"])
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["outcome"], run["trigger"], run["turn"], run["detail"]) == ("completed", "schedule", 1, "")
    assert run["duration_ms"] is not None and run["started_at"] == run["ended_at"] == "2026-11-18T13:00:00.000Z"
    session = await stage.engine.sessions.get(run["session_id"])
    assert session["title"] == "nightly 2026-11-18 13:00" and session["labels"] == ["night", "job:nightly"]
    stage.at(NOON + 2 * HOUR)
    second = (await stage.until_over(2))[1]
    first_text = "say done 1 2026-11-18T13:00:00+00:00 after none: "
    assert await stage.said(run["session_id"]) == [first_text]
    assert await stage.said(second["session_id"]) == [
        f"say done 2 2026-11-18T14:00:00+00:00 after completed: {first_text.removeprefix('say ').strip()}"
    ]
    assert len(await stage.sessions()) == 2


async def test_a_claimed_run_is_sent_by_the_next_server(stage: Stage) -> None:
    await stage.add()
    stage.store.left = 2  # the claim is stored, and nothing after it
    stage.at(NOON + HOUR)
    await stage.until(lambda runs: runs and runs[0]["state"] == "starting")
    assert await stage.sessions() == []
    await stage.stop(killed=True)
    stage.time += 1_800
    await stage.start()
    (run,) = await stage.until_over(1)
    assert run["outcome"] == "completed" and len(await stage.sessions()) == 1


@pytest.mark.long
@pytest.mark.parametrize("is_kept", [False, True], ids=["lost", "kept"])
@pytest.mark.parametrize("session", ["new", "same"])
async def test_after_a_crash_between_any_two_writes_each_due_time_runs_once(
    tmp_path: Path, session: str, is_kept: bool
) -> None:
    cut = 0
    while True:
        cut += 1
        folder = tmp_path / str(cut)
        folder.mkdir()
        stage = Stage(folder)
        await stage.start()
        await stage.add(session=session, missed="all")
        stage.store.left, stage.store.is_kept = cut, is_kept
        stage.at(NOON + HOUR)
        await _until_cut(stage)
        is_over = stage.store.left > 0
        await stage.stop(killed=True)
        await stage.start()
        stage.at(NOON + 2 * HOUR)
        runs = await stage.until_over(2)
        assert dues(runs) == [("13:00", "completed"), ("14:00", "completed")], (cut, [run["detail"] for run in runs])
        messages = [text for found in await stage.sessions() for text in await stage.said(found["id"])]
        assert sorted(messages) == ["say done 1", "say done 2"]
        assert len(await stage.sessions()) == (1 if session == "same" else 2)
        await stage.stop()
        if is_over:
            break
    assert cut > 4, "a run is more than its claim"


async def _until_cut(stage: Stage) -> None:
    """Wait until the store refuses writes, or until the run ends before that."""
    await stage.until(lambda runs: (stage.store.left or 0) <= 0 or (runs and runs[0]["outcome"]))


# Clocks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "cron", "begin", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T00:10", ["28 02:30+01:00", "29 03:00+02:00", "30 02:30+02:00"]),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T00:10", ["24 02:30+02:00", "25 02:30+02:00", "26 02:30+01:00"]),
        ("America/New_York", "30 2 * * *", "2026-03-07T00:10", ["07 02:30-05:00", "08 03:00-04:00", "09 02:30-04:00"]),
        ("America/New_York", "30 1 * * *", "2026-10-31T00:10", ["31 01:30-04:00", "01 01:30-04:00", "02 01:30-05:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03", ["03 02:15+10:30", "04 02:30+11:00", "05 02:15+11:00"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04", ["04 01:45+11:00", "05 01:45+11:00", "06 01:45+10:30"]),
        ("UTC", "0 0 29 2 *", "2028-02-27T00:10", ["29 00:00+00:00"]),
        ("UTC", "0 0 L * *", "2026-01-30T00:10", ["31 00:00+00:00"]),
    ],
)  # fmt: skip
async def test_each_due_time_runs_once_despite_clock_and_calendar_changes(
    stage: Stage, zone: str, cron: str, begin: str, expected: list[str]
) -> None:
    start = datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(zone)).timestamp()
    stage.time = start
    await stage.add(cron=cron, time_zone=zone, message="say {due}")
    for quarter in range(4 * 72):
        stage.at(start + quarter * 900)
        if stage.time * 1000 >= ((await stage.store.due_jobs(1))[0].start_at or 0):
            await stage.until(
                lambda runs, now=stage.time: (
                    runs  # type: ignore[misc]
                    and runs[-1]["state"] == "ended"
                    and datetime.fromisoformat(runs[-1]["due_at"]).timestamp() > now - 900
                )
            )
    found = [text for run in await stage.runs() for text in await stage.said(run["session_id"])]
    # say 2026-03-28T02:30:00+01:00
    assert [f"{text[12:14]} {text[15:20]}{text[23:]}" for text in found] == expected


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", [("15:00", "skipped")]),
        ("once", [("14:00", "skipped"), ("15:00", "completed")]),
        ("all", [("13:00", "skipped"), ("14:00", "completed"), ("15:00", "completed")]),
    ],
)
async def test_a_server_that_was_down_across_several_due_times(
    stage: Stage, missed: str, expected: list[tuple[str, str]]
) -> None:
    await stage.add(missed=missed, missed_max=2)
    await stage.stop()
    stage.time = NOON + 3 * HOUR + 600
    await stage.start()
    assert dues(await stage.until_over(len(expected))) == expected
    assert (await stage.engine.jobs.get("nightly"))["next_run_at"] == "2026-11-18T16:00:00.000Z"


async def test_a_clock_that_is_set_back_by_an_hour_repeats_no_run(stage: Stage) -> None:
    await stage.add(cron="*/30 * * * *")
    for minutes in (30, 60):
        stage.at(NOON + minutes * 60)
        await stage.until_over(minutes // 30)
    for minutes in (5, 30, 60, 90):
        stage.at(NOON + minutes * 60)
        await stage.engine.scheduler.tick()
    assert dues(await stage.until_over(3)) == [(when, "completed") for when in ("12:30", "13:00", "13:30")]


async def test_a_clock_that_was_far_ahead_is_detected_at_the_next_start(stage: Stage) -> None:
    await stage.add()
    stage.at(NOON + 10_000 * HOUR)
    await stage.until(lambda runs: any(run["outcome"] == "completed" for run in runs))
    await stage.stop()
    stage.time = NOON + 600
    await stage.start()
    await stage.until(lambda runs: any("The clock was set back" in run["detail"] for run in runs))
    assert (await stage.engine.jobs.get("nightly"))["next_run_at"] == "2026-11-18T13:00:00.000Z"


# Overlap ------------------------------------------------------------------------------------------------------------


async def test_a_run_waits_for_the_previous_one(stage: Stage) -> None:
    await stage.add(message="hang")
    stage.at(NOON + HOUR)
    (first,) = await stage.until_begun()
    stage.at(NOON + 2 * HOUR)
    await stage.until(lambda runs: len(runs) == 2)
    assert dues(await stage.runs()) == [("13:00", "running"), ("14:00", "waiting")]
    await stage.engine.sessions.abort(first["session_id"])
    runs = await stage.until(lambda runs: runs[1]["state"] == "running")
    assert dues(runs) == [("13:00", "cancelled"), ("14:00", "running")]


async def test_a_run_interrupts_the_previous_one(stage: Stage) -> None:
    await stage.add(message="hang", overlap="interrupt")
    stage.at(NOON + HOUR)
    await stage.until_begun()
    stage.at(NOON + 2 * HOUR)
    runs = await stage.until(lambda runs: len(runs) == 2 and runs[0]["state"] == "ended")
    assert dues(runs)[0] == ("13:00", "cancelled") and runs[1]["outcome"] is None


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("wait", ["hang", "say done 1"]), ("skip", ["hang"]), ("interrupt", ["hang", "say done 1"])],
)
async def test_a_job_sends_to_a_session_that_a_person_uses(stage: Stage, overlap: str, expected: list[str]) -> None:
    journal, _ = await stage.engine.sessions.create(NewSession(), Outgoing(text="hang"))
    session = journal.state.id
    await stage.add(session=session, overlap=overlap)
    stage.at(NOON + HOUR)
    if overlap == "wait":
        await stage.until_begun()
        assert len(await stage.engine.sessions.queue(session)) == 1
        await stage.engine.sessions.abort(session)
    (run,) = await stage.until_over(1)
    assert run["outcome"] == ("skipped" if overlap == "skip" else "completed")
    assert run["detail"] == ("Its session was busy." if overlap == "skip" else "")
    assert await stage.said(session) == expected
    assert run["turn"] == (None if overlap == "skip" else 2)


async def test_a_message_that_is_withdrawn_from_the_queue_ends_its_run(stage: Stage) -> None:
    journal, _ = await stage.engine.sessions.create(NewSession(), Outgoing(text="hang"))
    await stage.add(session=journal.state.id)
    stage.at(NOON + HOUR)
    await stage.until_begun()
    (queued,) = await stage.engine.sessions.queue(journal.state.id)
    await stage.engine.sessions.unqueue(journal.state.id, queued["message_id"])
    (run,) = await stage.until_over(1)
    assert (run["outcome"], run["detail"]) == ("cancelled", "Its message was withdrawn before its turn began.")


# Sessions -----------------------------------------------------------------------------------------------------------


async def test_one_session_serves_all_runs_until_it_ends_or_is_erased(stage: Stage) -> None:
    await stage.add(session="same")
    for number in (1, 2):
        stage.at(NOON + number * HOUR)
        await stage.until_over(number)
    first = (await stage.engine.jobs.get("nightly"))["session_id"]
    assert await stage.said(first) == ["say done 1", "say done 2"]
    await stage.engine.sessions.end(first, "completed", "closed")
    stage.at(NOON + 3 * HOUR)
    second = (await stage.until_over(3))[2]["session_id"]
    assert second != first
    await stage.engine.sessions.erase(second)
    stage.at(NOON + 4 * HOUR)
    runs = await stage.until_over(4)
    assert runs[2]["session_id"] is None and runs[3]["session_id"] not in (first, second, None)
    assert [run["outcome"] for run in runs] == ["completed"] * 4


async def test_erasing_a_session_ends_its_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.add(message="hang")
    stage.at(NOON + HOUR)
    (run,) = await stage.until_begun()
    await stage.engine.sessions.erase(run["session_id"])
    monkeypatch.setattr(scheduler_module, "LOOK_S", 0.0)
    stage.engine.scheduler.wake()
    (run,) = await stage.until_over(1)
    assert run["outcome"] == "cancelled" and run["session_id"] is None


async def test_old_sessions_are_erased_except_those_a_person_continued(stage: Stage) -> None:
    await stage.add(keep_sessions=1)
    stage.at(NOON + HOUR)
    (first,) = await stage.until_over(1)
    await stage.engine.sessions.send(first["session_id"], Outgoing(text="say more"))
    for number in (2, 3, 4):
        stage.at(NOON + number * HOUR)
        await stage.until_over(number)
    runs = await stage.until(lambda runs: sum(run["session_id"] is None for run in runs) == 2)
    assert [run["session_id"] is None for run in runs] == [False, True, True, False]
    assert {found["id"] for found in await stage.sessions()} == {runs[0]["session_id"], runs[3]["session_id"]}


async def test_sessions_are_erased_by_age(stage: Stage) -> None:
    await stage.add(keep_days=2)
    stage.at(NOON + HOUR)
    await stage.until_over(1)
    stage.at(NOON + 50 * HOUR)
    runs = await stage.until(lambda runs: runs[0]["session_id"] is None)
    assert runs[-1]["session_id"] is not None


# Failures -----------------------------------------------------------------------------------------------------------


async def test_a_job_whose_directory_is_missing_says_so_backs_off_and_is_paused(stage: Stage, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    await stage.add(workdir=str(place), cron="* * * * *", max_failures=2)
    shutil.rmtree(place)
    stage.at(NOON + 60)
    (run,) = [run for run in await stage.until_over(1) if run["outcome"] == "failed"]
    assert "is not a directory" in run["detail"]
    job = await stage.engine.jobs.get("nightly")
    assert (job["failures"], job["backoff_until"]) == (1, "2026-11-18T12:02:00.000Z")
    stage.at(NOON + 180)
    await stage.until(lambda runs: sum(run["outcome"] == "failed" for run in runs) == 2)
    job = await stage.engine.jobs.get("nightly")
    assert (job["state"], job["paused_by"], job["next_run_at"]) == ("paused", "failures", None)
    assert job["reason"].startswith("Paused after 2 failed runs in a row. workdir")
    place.mkdir()
    resumed = await stage.engine.jobs.resume("nightly")
    assert (resumed["state"], resumed["failures"]) == ("active", 0)
    stage.at(NOON + 240)
    assert (await stage.until(lambda runs: runs[-1]["outcome"] == "completed"))[-1]["outcome"] == "completed"


async def test_a_turn_that_fails_is_a_failed_run(stage: Stage) -> None:
    await stage.add(message="crash")
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert run["outcome"] == "failed" and run["detail"] and run["turn"] == 1


async def test_a_missing_agent_is_reported_in_the_history(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.add(agent="rehearsal")

    async def gone(_: object, name: str) -> None:
        raise Refused("agent_unavailable", f"Agent {name!r} is not installed.")

    monkeypatch.setattr(Agents, "ready", gone)
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["outcome"], run["detail"]) == ("failed", "Agent 'rehearsal' is not installed.")


async def test_a_removed_time_zone_pauses_the_job_with_a_reason(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.add(time_zone="Europe/Berlin")

    def unknown(name: str) -> ZoneInfo:
        raise Refused("invalid", f"There is no time zone {name!r}.")

    with monkeypatch.context() as patched:
        patched.setattr("perdure.runtime.jobs.ledger.zone", unknown)
        stage.at(NOON + HOUR)
        job = await eventually(lambda: stage.engine.jobs.get("nightly"), lambda job: job["state"] == "paused")
    assert job["reason"] == "Paused. There is no time zone 'Europe/Berlin'."
    changed = await stage.engine.jobs.change("nightly", {"time_zone": "UTC"})
    assert changed["state"] == "paused"
    assert (await stage.engine.jobs.resume("nightly"))["state"] == "active"


async def test_a_store_that_is_briefly_full_delays_a_run_and_loses_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "RETRY_S", 0.01)
    await stage.add()
    tries = 0
    create = type(stage.engine.sessions).create

    async def full(sessions: Any, *given: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Refused("unavailable", "The disk is full.")
        return await create(sessions, *given, **named)

    monkeypatch.setattr(type(stage.engine.sessions), "create", full)
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["outcome"], tries) == ("completed", 4)
