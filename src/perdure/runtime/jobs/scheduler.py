"""The scheduler: starts the runs of jobs that are due, and records how they ended.

Above: the engine starts it. Below: the ledger, and the verbs that every surface uses to send a message. It holds no
state that matters: each tick reads from the store what to do next. Storing a run claims its due time. The ids of the
run's session and message derive from the due time, so sending is idempotent. The scheduler reads how a run ended from
its session: when that changes, and every half minute in any case.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.core import events as ev
from perdure.core.errors import UNREADABLE, Refused, StoreDamaged, StoreError
from perdure.core.jobs import (
    RESULT_MAX_CHARS,
    Decided,
    Job,
    Outcome,
    Run,
    clock_went_back,
    decide_due,
    ended,
    local_time,
    paused,
    sent,
    session_of,
    settled,
)
from perdure.runtime.jobs.ledger import Facts, Ledger, schedule_of
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import said_in_turns
from perdure.runtime.verbs.sessions import NewSession, Outgoing, Sessions

logger = logging.getLogger(__name__)

LOOK_S = 30.0
"""How often to poll without a wake-up: a wake-up can be lost, and the system time can change."""
SWEEP_S = 3_600.0
RETRY_S = 5.0
RETRY_FOR_MS = 600_000
"""How long to retry a message that the server can't accept for now."""
SEND_LIMIT_S = 60.0
"""How long sending a message may take, including a probe of the agent's program."""
DUE_AT_ONCE = 100
OTHERS_AFTER_MS = 10_000
"""How long other nodes leave a run to the one that claimed it."""
SENDING_AT_ONCE = 8
RUNS_KEPT = 1_000
ERASED_AT_ONCE = 100
DAY_MS = 86_400_000
NEWEST_TURNS = 200
"""How many of the newest turns to search for the turn of a queued message."""
WHEN_BUSY: dict[str, Any] = {"wait": "queue", "skip": "reject", "interrupt": "interrupt"}
ERASED = "Its session was erased."
OUTCOMES: dict[str, Outcome] = {"failed": "failed", "timed_out": "failed", "cancelled": "cancelled"}


class Scheduler:
    def __init__(self, log: Log, ledger: Ledger, sessions: Sessions) -> None:
        self._log = log
        self._ledger = ledger
        self._sessions = sessions
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}
        """Send tasks by job, so that a slow job doesn't delay others."""
        self._room = asyncio.Semaphore(SENDING_AT_ONCE)
        self._untidy: set[str] = set()
        self._tidying: asyncio.Task[None] | None = None
        self._sessions_of_runs: set[str] = set()
        self._touched: set[str] = set()
        """Sessions of open runs that have changed since the last check."""
        self._looked_s = self._swept_s = float("-inf")
        ledger.on_change = self.wake

    def start(self) -> None:
        self._log.watch(self._changed)
        self._task = asyncio.create_task(self._run(), name="scheduler")

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._tidying, *self._sending.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Check soon for work."""
        self._news.set()

    def _changed(self, session_id: str) -> None:
        if session_id in self._sessions_of_runs:
            self._touched.add(session_id)
            self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            wait_s = LOOK_S
            try:
                wait_s = await self.tick()
            except StoreError as error:
                logger.warning("could not check for due jobs; retrying: %s", error)
                wait_s = RETRY_S
            except Exception:
                logger.exception("the scheduler failed; retrying")
                wait_s = LOOK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

    async def tick(self) -> float:
        """Do what is due. Returns how many seconds to wait if nothing wakes it."""
        steady = self._log.steady()
        if steady - self._swept_s >= SWEEP_S:
            self._swept_s = steady
            await self._sweep()
        broken: set[str] = set()
        for row in await self._log.store.due_jobs(DUE_AT_ONCE) if not self._log.is_draining() else ():
            if (row.start_at or 0) <= self._ledger.now_ms() and not await self._guarded(
                row.job_id, self._claim(row.job_id)
            ):
                broken.add(row.job_id)
        await self._look_after_runs(steady)
        rows = await self._log.store.due_jobs(DUE_AT_ONCE)
        soonest_ms = min((row.start_at or 0 for row in rows if row.job_id not in broken), default=None)
        left_s = LOOK_S if soonest_ms is None else (soonest_ms - self._ledger.now_ms()) / 1000
        return max(0.0, min(LOOK_S, left_s))

    async def _guarded(self, job_id: str, work: Awaitable[Any]) -> bool:
        """Keep a job that fails from stopping the others. Returns whether it succeeded."""
        try:
            await work
            return True
        except Refused as refusal:
            if refusal.code == "invalid":
                await self._pause(job_id, refusal.detail)
            elif refusal.code != "not_found":
                logger.warning("job %s failed; retrying later: %s", job_id, refusal.detail)
        except StoreDamaged as error:
            logger.warning("job %s failed; retrying later: %s", job_id, error)
        except StoreError:
            raise
        except Exception:
            logger.exception("job %s failed; retrying", job_id)
        return False

    async def _pause(self, job_id: str, why: str) -> None:
        """Pause a job whose schedule has become invalid, for example because its time zone no longer exists here."""
        logger.warning("job %s: pausing it: %s", job_id, why)
        await self._ledger.decide(
            job_id, lambda facts: paused(facts.job, facts.opened, "failures", f"Paused. {why}", facts.now_ms)
        )

    async def _claim(self, job_id: str) -> None:
        await self._ledger.decide(
            job_id, lambda facts: decide_due(facts.job, facts.schedule, facts.opened, facts.last, facts.now_ms)
        )

    # Runs -----------------------------------------------------------------------------------------------------------

    async def _look_after_runs(self, steady: float) -> None:
        # Take these before reading: later changes are for the next tick.
        touched, self._touched = self._touched, set()
        is_time = steady - self._looked_s >= LOOK_S
        if is_time:
            self._looked_s = steady
        opened = await self._ledger.opened()
        self._sessions_of_runs = {run.session_id for run in opened if run.session_id is not None}
        for run in opened:
            if run.state == "starting" and run.job_id not in self._sending and self._is_ours(run):
                self._sending[run.job_id] = asyncio.create_task(self._send(run), name=f"job {run.job_id}")
            elif run.state == "running" and (is_time or run.session_id in touched):
                await self._guarded(run.job_id, self._look(run))

    def _is_ours(self, run: Run) -> bool:
        """With several nodes, the node that claimed a run sends it. If it doesn't, others do after OTHERS_AFTER_MS."""
        is_young = self._ledger.now_ms() - run.claimed_ms < OTHERS_AFTER_MS
        return self._log.shared is None or run.job_id in self._ledger.decided_here or not is_young

    async def _send(self, run: Run) -> None:
        """Send its message, or record why that is impossible. Retries after a pause."""
        try:
            pause_s = await self._try_to_send(run)
        except Exception:
            logger.exception("job %s: starting run %s failed; retrying", run.job_id, run.id)
            pause_s = LOOK_S
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._sending.pop(run.job_id, None)
            self._news.set()

    async def _try_to_send(self, run: Run) -> float:
        """Try once. Returns how many seconds to wait before the next attempt; 0 if none is needed."""
        try:
            async with self._room, asyncio.timeout(SEND_LIMIT_S):
                now = await self._ledger.run(run.job_id, run.id)
                if now is None or now.state != "starting":
                    return 0.0
                if now.session_id is None:
                    await self._end(now, "cancelled", ERASED)
                    return 0.0
                job = await self._ledger.load(run.job_id)
                now, answer = await self._sent(job, now)
        except Refused as refusal:
            if refusal.code == "turn_active":
                return await self._not_sent(run, "skipped", "Its session was busy.")
            if refusal.code != "unavailable":
                return await self._not_sent(run, "failed", refusal.detail)
            return await self._later_or_never(run, refusal.detail)
        except TimeoutError:
            # The message may have been sent. If so, the next attempt finds its receipt.
            return await self._later_or_never(run, f"Its message could not be sent within {SEND_LIMIT_S:g} s.")
        except StoreError as error:
            return await self._later_or_never(run, str(error))
        except Exception:
            logger.exception("job %s: could not start run %s", run.job_id, run.id)
            return await self._not_sent(run, "failed", "An internal error occurred at its start; see the server's log.")
        return await self._note_sent(now, answer.get("turn"))

    async def _later_or_never(self, run: Run, why: str) -> float:
        if self._ledger.now_ms() - run.claimed_ms > RETRY_FOR_MS:
            return await self._not_sent(run, "failed", why)
        return self._later(run, why)

    async def _note_sent(self, run: Run, turn: int | None) -> float:
        try:
            is_open = await self._change(run, lambda facts, now: sent(facts.job, now, turn, facts.now_ms))
        except (Refused, StoreError) as error:
            return self._later(run, str(error))
        if not is_open:
            # A newer run took its place while it was sent.
            with contextlib.suppress(Refused):
                await self._sessions.abort(str(run.session_id))
        # The turn may already have ended: check all running ones now.
        self._looked_s = float("-inf")
        return 0.0

    async def _not_sent(self, run: Run, outcome: Outcome, detail: str) -> float:
        try:
            await self._end(run, outcome, detail)
        except Refused as refusal:
            logger.warning("job %s: could not record the end of run %s; retrying: %s", run.job_id, run.id, refusal)
            return LOOK_S
        except StoreError as error:
            return self._later(run, str(error))
        return 0.0

    @staticmethod
    def _later(run: Run, why: str) -> float:
        logger.warning("job %s: run %s can't start yet; retrying: %s", run.job_id, run.id, why)
        return RETRY_S

    async def _sent(self, job: Job, run: Run) -> tuple[Run, dict[str, Any]]:
        """Send its message; idempotent. Returns the run and the receipt."""
        spec, sessions = job.spec, self._sessions
        message = Outgoing(
            text=run.text,
            message_id=run.message_id,
            agent=spec.agent,
            when_busy=WHEN_BUSY[spec.overlap],
        )
        if spec.overlap == "interrupt":
            await self._interrupt_others(run)
        if spec.session == "same" and not await self._is_open(run):
            run = await self._moved(job, run)
        session_id = str(run.session_id)
        if session_id == session_of(job, run):
            return run, await sessions.create_once(session_id, new_session_of(job, run), message)
        return run, await sessions.send(session_id, message)

    async def _is_open(self, run: Run) -> bool:
        """Whether the session that the job's runs share accepts this one, or already has."""
        session_id = str(run.session_id)
        if await self._log.store.find_receipt(session_id, str(run.message_id)) is not None:
            return True
        if not await self._sessions.exists(session_id):
            return False
        return (await self._log.open(session_id)).state.phase != "ended"

    async def _moved(self, job: Job, run: Run) -> Run:
        """Give the run a new session: the one that the job's runs share is gone or has ended."""
        session_id = session_of(job, run)
        await self._change(run, lambda facts, now: Decided(facts.job, changed=[replace(now, session_id=session_id)]))
        return replace(run, session_id=session_id)

    async def _interrupt_others(self, run: Run) -> None:
        for other in await self._ledger.opened():
            is_sent = other.job_id == run.job_id and other.state == "running"
            if is_sent and other.session_id not in (None, run.session_id):
                with contextlib.suppress(Refused):
                    await self._sessions.abort(str(other.session_id))

    async def _look(self, run: Run) -> None:
        try:
            await self._look_at(run)
        except (Refused, StoreDamaged, *UNREADABLE) as error:
            if isinstance(error, Refused) and error.code not in ("damaged", "not_found"):
                raise
            await self._end(run, "failed", f"Can't read how its turn ended: {error}")

    async def _look_at(self, run: Run) -> None:
        """Record how the run's turn ended, if it has."""
        store, session_id = self._log.store, str(run.session_id)
        receipt = await store.find_receipt(session_id, str(run.message_id))
        if run.session_id is None or receipt is None:
            await self._end(run, "cancelled", ERASED)
            return
        turn = run.turn or await self._turn_of(session_id, run, receipt.answer)
        if turn is None:
            return
        if turn == 0:
            await self._end(run, "cancelled", "Its message was withdrawn before its turn began.")
            return
        rows = await store.read_turns(session_id, from_turn=turn, before=turn + 1, hidden=True)
        about = msgspec.json.decode(rows[0].public, type=dict[str, Any]) if rows else {}
        if not about.get("ended_at"):
            return
        outcome = OUTCOMES.get(about["stop_reason"], "completed")
        await self._end(
            run,
            outcome,
            about.get("error") or "" if outcome != "completed" else "",
            turn=turn,
            duration_ms=about.get("duration_ms"),
            cost_usd=about.get("cost_usd"),
            result=await self._result(session_id, turn),
        )

    async def _turn_of(self, session_id: str, run: Run, answer: bytes) -> int | None:
        """The turn of its message: None while it is queued, 0 if it will never have one."""
        with contextlib.suppress(*UNREADABLE):
            found = msgspec.json.decode(answer, type=dict[str, Any]).get("turn")
            if found is not None:
                return int(found)
        state = (await self._log.open(session_id)).state
        if any(queued.message_id == run.message_id for queued in state.queue):
            return None
        for row in await self._log.store.read_turns(session_id, last=NEWEST_TURNS, hidden=True):
            if msgspec.json.decode(row.public, type=dict[str, Any]).get("message_id") == run.message_id:
                return row.turn
        return 0

    async def _result(self, session_id: str, turn: int) -> str:
        """The agent's last text, cut to RESULT_MAX_CHARS."""
        journal = await self._log.open(session_id)
        text, block = "", None
        async for events in said_in_turns(self._log.store, session_id, turn, turn, journal.last_seq):
            for event in events:
                if isinstance(event, ev.AssistantText):
                    text = (text if event.block == block else "") + event.delta
                    block = event.block
        return text if len(text) <= RESULT_MAX_CHARS else text[:RESULT_MAX_CHARS] + "…"

    async def _end(self, run: Run, outcome: Outcome, detail: str, **about: Any) -> None:
        def made(facts: Facts, now: Run) -> Decided:
            over = ended(now, outcome, detail, facts.now_ms, **about)
            if now.session_id is None and now.started_ms is not None:
                # The session was erased in the meantime: store nothing of the conversation.
                over = replace(over, detail=ERASED, result="")
            try:
                return settled(facts.job, facts.schedule, over, facts.opened, facts.now_ms)
            except Refused as refusal:
                left = [other for other in facts.opened if other.id != run.id]
                pausing = paused(facts.job, left, "failures", f"Paused. {refusal.detail}", facts.now_ms)
                return Decided(pausing.job, changed=[over, *pausing.changed])

        await self._change(run, made)
        self._tidy([run.job_id])

    async def _change(self, run: Run, make: Callable[[Facts, Run], Decided]) -> bool:
        """Change a run if it is still open. Returns whether it was."""
        is_open = False

        def made(facts: Facts) -> Decided | None:
            nonlocal is_open
            now = next((other for other in facts.opened if other.id == run.id), None)
            is_open = now is not None
            return None if now is None else make(facts, now)

        try:
            await self._ledger.decide(run.job_id, made)
        except Refused as refusal:
            if refusal.code != "not_found":
                raise
            return True  # the job was removed, but a run that has started continues
        return is_open

    # Periodic cleanup -----------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        jobs = await self._ledger.all()
        for job in jobs:
            await self._guarded(
                job.id,
                self._ledger.decide(job.id, lambda facts: clock_went_back(facts.job, facts.schedule, facts.now_ms)),
            )
        self._tidy([job.id for job in jobs])

    def _tidy(self, job_ids: list[str]) -> None:
        """Clean up in a separate task, so that due runs don't wait for it."""
        self._untidy |= set(job_ids)
        if self._untidy and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy_up(), name="old runs of jobs")

    async def _tidy_up(self) -> None:
        while self._untidy:
            job_id = self._untidy.pop()
            try:
                await self._guarded(job_id, self._keep_few(job_id))
            except StoreError as error:
                logger.warning("job %s: could not remove old runs; retrying later: %s", job_id, error)

    async def _keep_few(self, job_id: str) -> None:
        """Erase the sessions of old runs according to the job's settings, and delete the oldest runs."""
        job = await self._ledger.load(job_id)
        spec = job.spec
        if spec.session == "new" and (spec.keep_sessions is not None or spec.keep_days is not None):
            most = RUNS_KEPT if spec.keep_sessions is None else spec.keep_sessions
            oldest_ms = 0 if spec.keep_days is None else self._ledger.now_ms() - spec.keep_days * DAY_MS
            runs = await self._ledger.runs(job_id, 2 * RUNS_KEPT, held=True)
            # Only sessions that the job created, not one that a person chose for it.
            held = [run for run in runs if not run.is_open and run.session_id == session_of(job, run)]
            old = [run for at, run in enumerate(held) if at >= most or (run.ended_ms or 0) < oldest_ms]
            for run in old[-ERASED_AT_ONCE:]:
                await self._erase(run)
        await self._ledger.trim(job_id, RUNS_KEPT)

    async def _erase(self, run: Run) -> None:
        """Erase a run's session, unless a person has continued it."""
        session_id = str(run.session_id)
        try:
            journal = await self._log.open(session_id)
            if journal.state.phase in ("idle", "ended") and journal.state.turn_count <= 1 and not journal.state.queue:
                await self._sessions.erase(session_id)
        except (Refused, StoreError) as error:
            logger.info("job %s: could not erase session %s; retrying later: %s", run.job_id, session_id, error)


def new_session_of(job: Job, run: Run) -> NewSession:
    spec = job.spec
    shown = local_time(schedule_of(spec, job.created_ms), run.due_ms)[:16].replace("T", " ")
    return NewSession(
        project=spec.project,
        workdir=spec.workdir,
        agent=spec.agent,
        title=f"{spec.name} {shown}",
        model=spec.model,
        mode=spec.mode,
        labels=(*spec.labels, f"job:{job.id}"),
    )
