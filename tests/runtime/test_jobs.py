"""The verbs for jobs: manual runs, changes, the history, and refusals."""

import asyncio
from functools import partial

import pytest

from perdure.core import commands as cmd
from perdure.core.errors import Refused
from perdure.runtime.jobs import scheduler as scheduler_module
from perdure.runtime.jobs import zones
from perdure.runtime.verbs.sessions import NewSession
from perdure.stores.sqlite import SqliteStore
from tests.runtime.job_stage import HOUR, NOON, Json, Stage, dues

# Manual runs --------------------------------------------------------------------------------------------------------


async def test_a_run_requested_twice_with_the_same_id_happens_once(stage: Stage) -> None:
    await stage.add()
    first = await stage.engine.jobs.run("nightly", "mine")
    assert (await stage.engine.jobs.run("nightly", "mine"))["id"] == first["id"]
    (run,) = await stage.until_over(1)
    assert (run["trigger"], run["outcome"]) == ("manual", "completed")
    await stage.engine.jobs.run("nightly")
    assert len(await stage.until_over(2)) == 2


async def test_concurrent_requests_for_the_same_run_count_once(stage: Stage) -> None:
    await stage.add()
    asked = await asyncio.gather(*(stage.engine.jobs.run("nightly", "mine") for _ in range(8)))
    assert {run["id"] for run in asked} == {"manual-mine"}
    assert len(await stage.until_over(1)) == 1
    assert (await stage.engine.jobs.get("nightly"))["run_count"] == 1


async def test_the_last_run_is_the_last_that_was_not_skipped(stage: Stage) -> None:
    await stage.add(message="hang", overlap="skip")
    for number in (1, 2, 3):
        stage.at(NOON + number * HOUR)
        await stage.until(lambda runs, number=number: len(runs) == number)  # type: ignore[misc]
    last = (await stage.engine.jobs.get("nightly"))["last_run"]
    assert (last["due_at"], last["outcome"]) == ("2026-11-18T13:00:00.000Z", None)


async def test_a_requested_run_that_may_not_overlap_is_refused(stage: Stage) -> None:
    await stage.add(message="hang", overlap="skip")
    stage.at(NOON + HOUR)
    await stage.until_begun()
    with pytest.raises(Refused, match="The previous run had not ended"):
        await stage.engine.jobs.run("nightly")
    assert len(await stage.runs()) == 1


async def test_a_job_that_is_removed_while_it_runs_leaves_its_session_alone(stage: Stage) -> None:
    await stage.add(message="hang")
    stage.at(NOON + HOUR)
    (run,) = await stage.until_begun()
    await stage.engine.jobs.remove("nightly")
    with pytest.raises(Refused, match="There is no job"):
        await stage.engine.jobs.get("nightly")
    assert (await stage.engine.sessions.get(run["session_id"]))["state"] == "processing"
    assert await stage.store.open_runs() == []
    await stage.engine.sessions.do(run["session_id"], cmd.AbortTurn())


async def test_the_history_is_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "RUNS_KEPT", 3)
    await stage.add(cron="* * * * *")
    for minutes in range(1, 7):
        stage.at(NOON + minutes * 60)
        due_at = f"2026-11-18T12:{minutes:02d}:00.000Z"
        await stage.until(partial(_has_ended, due_at))
    await stage.until(lambda runs: len(runs) == 3)


def _has_ended(due_at: str, runs: list[Json]) -> bool:
    return any(run["due_at"] == due_at and run["outcome"] for run in runs)


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cron": "0 0 31 2 *"}, "never fires"),
        ({"cron": None}, "Give either cron or every_s"),
        ({"every_s": 5}, "Give either cron or every_s"),
        ({"time_zone": "Mars/Olympus"}, "There is no time zone 'Mars/Olympus'"),
        ({"time_zone": "../../etc/passwd"}, "There is no time zone"),
        ({"agent": "nobody"}, "nobody"),
        ({"project": "nothing"}, "There is no project"),
        ({"workdir": "/nowhere/at/all"}, "is not a directory"),
        ({"workdir": "relative"}, "must be an absolute path"),
        ({"session": "s_unknown"}, "There is no session"),
        ({"message": "  "}, "message must not be empty"),
        ({"until": "2026-11-18T12:30:00Z"}, "would never run"),
        ({"until": "tomorrow"}, "is not a time"),
        ({"starts_at": "2026-13-01"}, "is not a time"),
    ],
)
async def test_a_job_that_can_not_work_is_refused_with_a_sentence(stage: Stage, given: Json, words: str) -> None:
    with pytest.raises(Refused, match=words):
        await stage.add(**given)
    assert await stage.engine.jobs.all() == []


async def test_settings_for_new_sessions_are_refused_with_an_existing_one(stage: Stage) -> None:
    journal, _ = await stage.engine.sessions.create(NewSession())
    with pytest.raises(Refused, match="model is for new sessions"):
        await stage.add(session=journal.state.id, model="large")


async def test_times_without_an_offset_are_in_the_jobs_time_zone(stage: Stage) -> None:
    await stage.add(time_zone="America/New_York", starts_at="2026-11-18T09:30", until="2026-11-18T11:30")
    job = await stage.engine.jobs.get("nightly")
    assert (job["starts_at"], job["until"]) == ("2026-11-18T14:30:00.000Z", "2026-11-18T16:30:00.000Z")
    assert job["next_runs"] == ["2026-11-18T10:00:00-05:00", "2026-11-18T11:00:00-05:00"]


async def test_jobs_with_the_same_name_have_different_ids_and_a_change_keeps_the_rest(stage: Stage) -> None:
    assert [await stage.add(name="Every Night!") for _ in range(3)] == ["every-night", "every-night-2", "every-night-3"]
    changed = await stage.engine.jobs.change("every-night", {"every_s": 60, "max_runs": 3, "labels": ["x"]})
    assert (changed["cron"], changed["every_s"], changed["max_runs"], changed["name"]) == (None, 60, 3, "Every Night!")
    again = await stage.engine.jobs.change("every-night", {"cron": "@daily", "max_runs": None})
    assert (again["cron"], again["every_s"], again["max_runs"], again["labels"]) == ("@daily", None, None, ["x"])
    with pytest.raises(Refused, match="the hour is wrong"):
        await stage.engine.jobs.change("every-night", {"cron": "0 99 * * *"})
    assert (await stage.engine.jobs.get("every-night"))["cron"] == "@daily"


async def test_a_damaged_job_is_reported_and_stops_no_other(stage: Stage) -> None:
    await stage.add()
    await stage.add(name="other")
    row = await stage.store.load_job("nightly")
    assert row is not None
    await stage.store.remove_job("nightly", stage.engine.log.generation)
    broken = type(row)(row.job_id, 1, row.start_at, b"{broken")
    await SqliteStore.put_job(stage.store, broken, stage.engine.log.generation, expect=None)
    assert [job["id"] for job in await stage.engine.jobs.all()] == ["other"]
    assert [(each.kind, each.id) for each in stage.engine.log.quarantine.all()] == [("job", "nightly")]
    stage.at(NOON + HOUR)
    assert dues(await stage.until_over(1, "other")) == [("13:00", "completed")]
    assert await stage.engine.scheduler.tick() > 1, "an unreadable job is not retried over and over"
    await stage.engine.jobs.remove("nightly")
    assert await stage.store.load_job("nightly") is None and stage.engine.log.quarantine.all() == []


def test_the_machines_own_time_zone_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert zones.zone(zones.local_zone())
    for broken in (lambda: None, lambda: "Not/AZone"):
        monkeypatch.setattr("tzlocal.get_localzone_name", broken)
        assert zones.local_zone() == "UTC"


async def test_a_job_that_paused_itself_is_acknowledged_by_pausing_it(stage: Stage) -> None:
    await stage.add(message="crash", max_failures=1)
    stage.at(NOON + HOUR)
    await stage.until_over(1)
    assert (await stage.engine.jobs.get("nightly"))["paused_by"] == "failures"
    assert (await stage.engine.jobs.pause("nightly"))["paused_by"] == "person"


async def test_an_ended_job_can_be_renamed_and_extended(stage: Stage) -> None:
    await stage.add(until="2026-11-18T13:30:00Z")
    stage.at(NOON + HOUR)
    await stage.until_over(1)
    stage.time = NOON + 5 * HOUR
    assert (await stage.engine.jobs.change("nightly", {"name": "old"}))["state"] == "ended"
    with pytest.raises(Refused, match="would never run"):
        await stage.engine.jobs.change("nightly", {"until": "2026-11-18T14:00:00Z"})
    assert (await stage.engine.jobs.change("nightly", {"until": None}))["state"] == "active"


async def test_no_job_gets_a_reserved_id(stage: Stage) -> None:
    assert [await stage.add(name=name) for name in ("New", "preview", "?")] == ["new-2", "preview-2", "job"]
