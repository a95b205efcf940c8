"""Failures around a run: they are in its history or are retried in time, and don't affect other jobs. Nothing of an
erased session stays, and nothing that the job did not start is erased."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure.core.errors import Refused, StoreFull
from perdure.core.jobs import Run
from perdure.runtime.agents.registry import Agents
from perdure.runtime.jobs import scheduler as scheduler_module
from perdure.runtime.jobs.ledger import Ledger
from perdure.runtime.jobs.scheduler import Scheduler
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession, Sessions
from perdure.stores.sqlite import SqliteStore
from tests.runtime.job_stage import HOUR, NOON, Json, Stage, dues, eventually

LOOKS = 20


class Tries:
    """Counts how often the scheduler tries to send a message."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = 0
        original = Scheduler._try_to_send

        async def counted(scheduler: Scheduler, run: Any) -> float:
            self.number += 1
            return await original(scheduler, run)

        patch.setattr(Scheduler, "_try_to_send", counted)

    async def after_looks(self, stage: Stage) -> int:
        """Wake the scheduler repeatedly."""
        for _ in range(LOOKS):
            stage.engine.scheduler.wake()
            with contextlib.suppress(StoreFull):
                await stage.engine.scheduler.tick()
        return self.number


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(monkeypatch)


async def claimed(stage: Stage, **given: Any) -> None:
    """A run that was claimed by a server that was then killed."""
    await stage.add(**given)
    stage.store.left = 2
    stage.at(NOON + HOUR)
    await stage.until(lambda runs: runs and runs[0]["state"] == "starting")
    await stage.stop(killed=True)


async def test_a_removed_time_zone_ends_the_claimed_run_and_pauses_the_job(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tries: Tries
) -> None:
    def unknown(name: str) -> ZoneInfo:
        raise Refused("invalid", f"There is no time zone {name!r}.")

    await claimed(stage)
    monkeypatch.setattr("perdure.runtime.jobs.ledger.zone", unknown)
    await stage.start()
    (run,) = await stage.until_over(1)
    assert run["outcome"] == "failed" and "There is no time zone" in run["detail"]
    assert (await stage.engine.jobs.get("nightly"))["state"] == "paused"
    assert await tries.after_looks(stage) <= 2


async def test_a_disk_that_stays_full_is_retried_at_intervals(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tries: Tries
) -> None:
    await claimed(stage)

    async def full(*_: Any, **__: Any) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(Sessions, "create", full)
    monkeypatch.setattr(SqliteStore, "put_job", full)
    stage.time += 3_600
    await stage.start()
    await stage.until(lambda runs: tries.number > 0)
    assert await tries.after_looks(stage) <= 2
    monkeypatch.undo()


async def test_a_damaged_job_with_a_claimed_run_is_retried_at_intervals(stage: Stage, tries: Tries) -> None:
    await claimed(stage)
    await stage.start()
    row = await stage.store.load_job("nightly")
    assert row is not None
    broken = type(row)(row.job_id, row.revision + 1, row.start_at, b"{broken")
    await SqliteStore.put_job(stage.store, broken, stage.engine.log.generation, expect=row.revision)
    assert await tries.after_looks(stage) <= 2


async def test_a_bug_while_a_run_starts_is_in_its_history(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Sessions, "create", broken)
    await stage.add()
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["outcome"], run["detail"].split(";")[0]) == ("failed", "An internal error occurred at its start")
    assert "ZeroDivisionError" in caplog.text


async def test_a_bug_while_a_start_is_recorded_is_logged_and_retried_at_intervals(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tries: Tries
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scheduler_module, "sent", broken)
    await stage.add()
    stage.at(NOON + HOUR)
    await stage.until(lambda _: "starting run" in caplog.text)
    assert await tries.after_looks(stage) == 1
    assert len(await stage.sessions()) == 1


async def test_a_job_that_hangs_while_sending_delays_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    original, released = Sessions.create, asyncio.Event()

    async def slow(sessions: Sessions, new: NewSession, *given: Any, **named: Any) -> Any:
        if new.title.startswith("hog"):
            await released.wait()
        return await original(sessions, new, *given, **named)

    monkeypatch.setattr(Sessions, "create", slow)
    await stage.add(name="hog", overlap="interrupt")
    await stage.add()
    for number in range(1, 12):
        stage.at(NOON + number * HOUR)
        await stage.until_over(number)
    assert len(await stage.runs("hog")) == 11
    released.set()
    await stage.until(lambda runs: runs[-1]["outcome"] == "completed", "hog")


async def test_a_send_that_takes_too_long_is_retried_and_sent_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "SEND_LIMIT_S", 0.05)
    monkeypatch.setattr(scheduler_module, "RETRY_S", 0.01)
    original, answers = Sessions.create, 0

    async def slow(*given: Any, **named: Any) -> Any:
        nonlocal answers
        made = await original(*given, **named)
        answers += 1
        await asyncio.sleep(60)
        return made

    monkeypatch.setattr(Sessions, "create", slow)
    await stage.add()
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["outcome"], answers, len(await stage.sessions())) == ("completed", 1, 1)


async def test_a_run_that_is_replaced_while_it_is_sent_is_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, asked, released = Agents.ready, asyncio.Event(), asyncio.Event()

    async def slow(agents: Agents, name: str) -> Any:
        if not asked.is_set():
            asked.set()
            await released.wait()
        return await original(agents, name)

    monkeypatch.setattr(Agents, "ready", slow)
    await stage.add(message="hang", overlap="interrupt")
    stage.at(NOON + HOUR)
    async with asyncio.timeout(20):
        await asked.wait()
    stage.at(NOON + 2 * HOUR)
    await stage.until(lambda runs: len(runs) == 2)
    released.set()
    runs = await stage.until(lambda runs: runs[1]["state"] == "running")
    assert runs[0]["detail"] == "A newer run took its place."

    async def busy() -> list[str]:
        return [found["id"] for found in await stage.sessions() if found["state"] != "idle"]

    assert await eventually(busy, lambda found: len(found) == 1) == [runs[1]["session_id"]]


async def test_a_run_that_ends_while_the_scheduler_reads_is_checked_in_the_next_tick(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "LOOK_S", 1_000.0)
    original, is_late = Ledger.opened, False

    async def late(ledger: Ledger) -> list[Run]:
        nonlocal is_late
        found = await original(ledger)
        if any(run.state == "starting" for run in found) and stage.engine.scheduler._sending and not is_late:
            # The data read before is stale by now: the run was sent, and its turn is over.
            is_late = True
            await stage.until(lambda runs: runs[0]["state"] == "running")
            await eventually(stage.sessions, lambda sessions: sessions[0]["state"] == "idle")
        return found

    monkeypatch.setattr(Ledger, "opened", late)
    await stage.add()
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert is_late and run["outcome"] == "completed"


async def test_a_session_setting_that_changes_while_a_run_is_sent_applies_to_the_next_run(stage: Stage) -> None:
    await claimed(stage)
    await stage.start()
    journal, _ = await stage.engine.sessions.create(NewSession(title="mine"))
    await stage.engine.jobs.change("nightly", {"session": journal.state.id})
    assert (await stage.until_over(1))[0]["outcome"] == "completed"


async def test_a_run_that_could_not_begin_has_no_session(stage: Stage, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    await stage.add(workdir=str(place))
    place.rmdir()
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["outcome"], run["session_id"], run["started_at"]) == ("failed", None, None)


# Erasing ------------------------------------------------------------------------------------------------------------


async def said(stage: Stage) -> tuple[str, str]:
    """The stored result and error."""
    row = await stage.store.load_run("nightly", (await stage.runs())[0]["id"])
    assert row is not None
    return row.result.decode(), row.detail.decode()


@pytest.mark.parametrize("moment", ["result", "put_job"])
async def test_a_session_erased_while_its_end_is_recorded_leaves_no_text(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    await stage.add(message="say walnut")
    result, put_job = Scheduler._result, SqliteStore.put_job

    async def erase_after_reading(scheduler: Scheduler, session_id: str, turn: int) -> str:
        found = await result(scheduler, session_id, turn)
        if moment == "result":
            await stage.engine.sessions.erase(session_id)
        return found

    async def erase_before_keeping(store: SqliteStore, *given: Any, **named: Any) -> None:
        (run,) = named.get("changed") or [None]
        if moment == "put_job" and run is not None and not run.is_open and run.session_id:
            await stage.engine.sessions.erase(run.session_id)
        await put_job(store, *given, **named)

    monkeypatch.setattr(Scheduler, "_result", erase_after_reading)
    monkeypatch.setattr(SqliteStore, "put_job", erase_before_keeping)
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert run["session_id"] is None and run["outcome"] == "completed"
    assert await said(stage) == ("", "Its session was erased.")


async def test_a_session_that_the_job_did_not_create_is_not_erased(stage: Stage) -> None:
    journal, _ = await stage.engine.sessions.create(NewSession(title="mine"))
    await stage.add(session=journal.state.id)
    stage.at(NOON + HOUR)
    await stage.until_over(1)
    await stage.engine.jobs.change("nightly", {"session": "new", "keep_sessions": 0})
    for number in (2, 3):
        stage.at(NOON + number * HOUR)
        await stage.until_over(number)
    runs = await stage.until(lambda runs: [run["session_id"] is None for run in runs] == [False, True, True])
    assert runs[0]["session_id"] == journal.state.id
    assert [found["id"] for found in await stage.sessions()] == [journal.state.id]


# Changes ------------------------------------------------------------------------------------------------------------


async def test_concurrent_changes_are_all_stored(stage: Stage) -> None:
    await stage.add()
    changes: list[Json] = [{"name": "other"}, {"message": "say other"}, {"jitter_s": 9}, {"labels": ["x"]}]
    await asyncio.gather(*(stage.engine.jobs.change("nightly", change) for change in changes))
    job = await stage.engine.jobs.get("nightly")
    assert [job[name] for name in ("name", "message", "jitter_s", "labels")] == ["other", "say other", 9, ["x"]]


async def test_a_job_for_an_existing_session_drops_the_settings_for_new_ones(stage: Stage) -> None:
    journal, _ = await stage.engine.sessions.create(NewSession(title="mine"))
    await stage.add(labels=["x"], mode="plan")
    job = await stage.engine.jobs.change("nightly", {"session": journal.state.id})
    assert (job["labels"], job["mode"], job["session"]) == ([], None, journal.state.id)
    with pytest.raises(Refused, match="labels is for new sessions"):
        await stage.engine.jobs.change("nightly", {"labels": ["y"]})


async def test_null_restores_a_default(stage: Stage) -> None:
    await stage.add(missed="all", overlap="skip", jitter_s=5)
    job = await stage.engine.jobs.change("nightly", {"missed": None, "overlap": None, "jitter_s": None})
    assert (job["missed"], job["overlap"], job["jitter_s"]) == ("once", "wait", 0)


@pytest.mark.parametrize(
    "given", [{"starts_at": year} for year in ("0001-01-01", "9999-12-31T23:59:59-12:00", "1969-12-31")]
)
async def test_an_impossible_time_is_refused(stage: Stage, given: Json) -> None:
    with pytest.raises(Refused, match="is not a time"):
        await stage.add(**given)
    with pytest.raises(Refused, match="is not a time"):
        await stage.add(cron=None, every_s=315_360_000, **given)
    assert await stage.engine.jobs.all() == []


async def test_a_message_that_could_get_too_large_is_refused(stage: Stage) -> None:
    with pytest.raises(Refused, match="can exceed max_message_bytes") as refused:
        await stage.add(message="{last_result}" * 1_000)
    assert refused.value.code == "too_large"


async def test_the_last_run_is_found_behind_many_that_were_skipped(stage: Stage) -> None:
    await stage.add(message="hang", overlap="skip", cron="* * * * *")
    for number in range(1, 24):
        stage.at(NOON + number * 60)
        await stage.until(lambda runs, number=number: len(runs) == number)  # type: ignore[misc]
    last = (await stage.engine.jobs.get("nightly"))["last_run"]
    assert (last["due_at"], last["state"]) == ("2026-11-18T12:01:00.000Z", "running")
    await stage.engine.sessions.abort(last["session_id"])
    runs = await stage.until(lambda runs: runs[0]["state"] == "ended")
    assert dues(runs)[0] == ("12:01", "cancelled")


async def test_a_job_sends_to_a_session_during_a_conversation(stage: Stage) -> None:
    journal, _ = await stage.engine.sessions.create(NewSession(), Outgoing(text="say one"))
    await stage.add(session=journal.state.id)
    stage.at(NOON + HOUR)
    (run,) = await stage.until_over(1)
    assert (run["turn"], await stage.said(journal.state.id)) == (2, ["say one", "say done 1"])
