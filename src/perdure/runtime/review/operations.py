"""File operations: carries out what `files_requested` asks for, on the node that has the session's directory.

Above: the engine. Below: plans.py computes what is to be done, git/ does it, and the recorder takes snapshots. Each
operation has two halves. The first computes a plan and changes nothing that people see. The plan is stored. The second
half carries it out; every step of it may be repeated. So a server that is killed in between leaves either the old
state, or a stored plan that the next server completes. The result is recorded in the log together with the change to
the history that waited for it, if there is one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.clock import stamp
from perdure.core.decision import Decision
from perdure.core.errors import NotOwner, Refused, StoreError
from perdure.core.files import history_command
from perdure.core.session import decide
from perdure.core.state import FileOperation, Session, WaitsFor
from perdure.runtime.git.command import GitError, HalfDone
from perdure.runtime.git.snapshot import OverBudget
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.review.names import quoted
from perdure.runtime.review.plans import Done, Impossible, Plan, Planner
from perdure.runtime.review.recorder import Recorder
from perdure.runtime.review.records import FILES_MAX, Change, Operation, Records, Skipped
from perdure.runtime.review.working_trees import Hanging
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.placement import Placement
from perdure.runtime.verbs.outgoing import Outgoing, PendingReceipt
from perdure.stores.base import Receipt

logger = logging.getLogger(__name__)

RETRY_S = 1.0
LOOK_S = 0.2
NOTE_S = 60.0
"""How long a note stays at least: the request is recorded after it."""
FINISHED_TIMEOUT_S = 60.0
"""How long erasing or forking a session waits for its operation."""
SHOWN_FILES = 200
"""How many files an event names."""


UNRECORDED = Impossible(
    "failed", "What has changed could not be recorded; the server's log has the cause. Look at the files yourself."
)


async def _unused(session_id: str, workdir: str) -> bool:
    return False


class Operations:
    def __init__(
        self,
        log: Log,
        facts: Facts,
        commands: Commands,
        placement: Placement,
        recorder: Recorder,
        planner: Planner,
        node_id: str,
    ) -> None:
        self._log = log
        self._facts = facts
        self._commands = commands
        self._placement = placement
        self._recorder = recorder
        self._records: Records = recorder.records
        self._planner = planner
        self._node_id = node_id
        self._running: dict[str, asyncio.Task[None]] = {}
        self._reserved: dict[str, contextlib.ExitStack] = {}
        """By session with a stored plan: its working trees, in which no turn begins until the plan is carried out."""
        self._is_started = self._is_stopping = False
        self._noting = asyncio.Lock()
        """Notes are written and deleted one after the other."""
        self.is_used: Callable[[str, str], Awaitable[bool]] = _unused
        """Whether another session works in a directory."""
        self.at: Callable[[str], None] = lambda step: None
        """Called before each step, for tests that kill the server there."""
        log.watch(self._changed)

    # Requests on any node ----------------------------------------------------------------------------------------

    @staticmethod
    def _kind(node: str) -> str:
        return f"file_operations.{node}"

    async def request(self, journal: Journal, command: cmd.RequestFiles) -> None:
        """Record a request."""
        async with self._noting:
            await self.note(journal)
            await self._commands.record(journal, command)
        self._log.announce_documents(self._kind_of(journal))

    async def note(self, journal: Journal) -> None:
        """Before something is recorded that requests an operation: the note in the store lets the session's node find
        it, even after a restart."""
        kind, when = self._kind_of(journal), self._log.stamp().encode()
        await self._log.store.put_document(kind, journal.state.id, when)

    async def _forget(self, journal: Journal) -> None:
        """Delete the note of a finished operation. With several nodes another one may just have noted the next, so old
        notes are deleted later."""
        if self._log.shared is not None:
            return
        async with self._noting:
            if not _is_waiting(journal):
                await self._log.store.put_document(self._kind(self._node_id), journal.state.id, None)

    def _kind_of(self, journal: Journal) -> str:
        return self._kind(journal.owner.node if journal.owner is not None else self._node_id)

    # On the node that has the directory --------------------------------------------------------------------------

    async def reserve(self) -> None:
        """Before any turn begins: let none begin in the working trees where an earlier server was stopped in the middle
        of an operation."""
        noted = await self._log.store.documents(self._kind(self._node_id))
        # At once: each may have to wait for a file system that hangs.
        await asyncio.gather(*(self._reserve_begun(session_id) for session_id in noted))

    async def _reserve_begun(self, session_id: str) -> None:
        journal = await self._log.readable(session_id)
        operation = journal.state.file_operation if journal is not None else None
        if journal is None or operation is None:
            return
        plan = await self._records.get(session_id, plan_name(operation.operation_id), Plan)
        if plan is not None:
            try:
                self._reserve(session_id, await self._roots(journal.state, plan))
            except Hanging:
                self._reserve(session_id, [plan.root])

    async def _roots(self, state: Session, plan: Plan | None) -> list[str]:
        """The working trees that an operation of this session may change, in the order in which to lock them. Raises
        Hanging."""
        found = await self._recorder.trees.look(state.workdir, self._planner.roots, state)
        return sorted({*found, plan.root}) if plan is not None else found

    def _reserve(self, session_id: str, roots: list[str]) -> None:
        earlier = self._reserved.get(session_id)
        self._reserved[session_id] = self._recorder.trees.reserve(roots)
        if earlier is not None:
            earlier.close()

    def _release(self, session_id: str) -> None:
        if (reserved := self._reserved.pop(session_id, None)) is not None:
            reserved.close()

    async def start(self) -> None:
        """Complete the operations that were running when an earlier server stopped."""
        self._is_started = True
        self._log.watch_documents(self._kind(self._node_id), self._noticed)
        for session_id in list(self._log.journals):
            self._changed(session_id)
        await self._look()

    async def finished(self, session_id: str) -> None:
        """Wait until no operation of this session runs on this node, but not forever."""
        if (task := self._running.get(session_id)) is not None:
            await asyncio.wait([task], timeout=FINISHED_TIMEOUT_S)

    async def stop(self) -> None:
        self._is_stopping = True
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _noticed(self) -> None:
        """Another node has recorded a request. In the background, because requests wait for this call."""
        self._log.keep(self._look())

    def look_soon(self) -> None:
        """At every poll, in case a wake-up was lost."""
        self._log.keep(self._look())

    async def _look(self) -> None:
        try:
            others = [row.node for row in await self._log.store.nodes() if row.dead] if self._log.shared else []
            for node in (self._node_id, *others):
                await self._look_for(self._kind(node))
            idle = [] if self._is_stopping else sorted(self._reserved.keys() - self._running.keys())
            for session_id in idle:
                # Another node completes it, or nobody.
                self._release(session_id)
        except (StoreError, Refused) as error:
            logger.warning("could not look for requested file operations; retrying: %s", error)
            if self._log.shared is None and not self._is_stopping:
                asyncio.get_running_loop().call_later(RETRY_S, self.look_soon)

    async def _look_for(self, kind: str) -> None:
        for session_id, noted in (await self._log.store.documents(kind)).items():
            journal = await self._log.readable(session_id)
            if journal is not None:
                await journal.catch_up()
                self._changed(session_id)
            is_old = noted.decode("utf-8", "replace") < stamp(self._log.now() - NOTE_S)
            if is_old and (journal is None or not _is_waiting(journal)):
                # Its request was refused, or the session was erased.
                await self._log.store.put_document(kind, session_id, None)

    def _changed(self, session_id: str) -> None:
        journal = self._log.journals.get(session_id)
        if journal is None or journal.state.file_operation is None or self._is_stopping or not self._is_started:
            return
        if session_id in self._running or not (journal.is_ours or self._log.may_claim(journal.owner, journal.state)):
            return
        task = asyncio.create_task(self._run(journal), name=f"files of {session_id}")
        self._running[session_id] = task

        def over(_: asyncio.Task[None]) -> None:
            self._running.pop(session_id, None)
            if not self._is_stopping:  # or a turn would begin in the middle of an operation
                self._release(session_id)
            self._changed(session_id)

        task.add_done_callback(over)

    async def _run(self, journal: Journal) -> None:
        session_id = journal.state.id
        result: Operation | None = None
        while (operation := journal.state.file_operation) is not None and not self._is_stopping:
            try:
                await self._log.claim(journal)
                if result is None:
                    result = await self._result_of(journal, operation)
                    self.at("followed")
                # If only this fails, don't carry the plan out again: people may have gone on from there.
                await self._finish(journal, operation, result)
                await self._records.drop(session_id, plan_name(operation.operation_id))
                await self._forget(journal)
                return
            except NotOwner:
                return
            except Refused as refusal:
                if refusal.code == "not_found":
                    return  # it was erased
                logger.warning(
                    "session %s: a file operation can't be recorded; retrying: %s", session_id, refusal.detail
                )
            except StoreError as error:
                logger.warning("session %s: a file operation can't be recorded; retrying: %s", session_id, error)
            except HalfDone as error:
                logger.warning("session %s: a file operation is half done; retrying: %s", session_id, error.message)
            except Exception:
                logger.exception("session %s: can't record a file operation; retrying without its details", session_id)
                result = self._refused(operation, UNRECORDED) if result is None else _without_details(result)
            if result is not None:
                # Only its record is missing. Turns need not wait for that.
                self._release(session_id)
            await asyncio.sleep(RETRY_S)

    async def _result_of(self, journal: Journal, operation: FileOperation) -> Operation:
        """Carry the operation out. An unexpected error ends it as failed, or it would block the session."""
        try:
            return await self._carry_out(journal, operation)
        except (NotOwner, StoreError, HalfDone):
            raise
        except Refused as refusal:
            if refusal.code == "not_found":
                raise
            return self._refused(operation, Impossible(refusal.code, refusal.detail))
        except Impossible as error:
            return self._refused(operation, error)
        except Exception:
            logger.exception("session %s: a file operation failed", journal.state.id)
            message = "The files could not be changed, or not all of them; the server's log has the cause."
            return self._refused(operation, Impossible("failed", message))

    async def _carry_out(self, journal: Journal, operation: FileOperation) -> Operation:
        session_id, name = journal.state.id, plan_name(operation.operation_id)
        await self._recorder.finished(session_id)
        plan = await self._records.get(session_id, name, Plan)
        committed: str | None = None
        self.at("asked")
        trees = self._recorder.trees
        try:
            roots = await self._roots(journal.state, plan)
        except Hanging as error:
            if plan is not None:
                raise HalfDone(error.message) from error
            raise Impossible("unavailable", error.message) from error
        if plan is not None:
            self._reserve(session_id, roots)
            await self._wait_for_others(journal, plan, roots)
        else:
            # Those whose turns have ended, and are only being recorded.
            for other in self._others_in(roots, session_id):
                await self._recorder.finished(other)
        async with trees.operating(roots):
            while True:
                try:
                    if plan is None:
                        await self._check(journal, operation)
                        plan = await self._planner.plan(journal.state, operation)
                        await self._records.put(session_id, name, plan)
                        # Until it is carried out, even if that takes several tries.
                        self._reserve(session_id, roots)
                        self.at("planned")
                    done = await trees.operate(self._planner.carry_out, session_id, plan)
                    self.at("carried out")
                except HalfDone:
                    raise
                except (Impossible, GitError, OverBudget) as error:
                    impossible = error if isinstance(error, Impossible) else Impossible("failed", error.message)
                    if committed is not None:
                        impossible.message += " The uncommitted files were committed to the session's branch first."
                    result = self._refused(operation, impossible)
                    if operation.action == "clean_up":
                        # Nobody waits for the answer.
                        logger.warning("session %s: %s", session_id, impossible.message)
                    if plan is not None and plan.steps:
                        await self._note_changed_files(result, session_id, plan)
                    break
                if plan.then is None:
                    result = self._result(operation, plan, done)
                    break
                # A second step, such as the merge after a commit, has a plan of its own.
                operation, plan, committed = plan.then, None, done.commit
                await self._records.drop(session_id, name)
        result.commit = result.commit or committed
        if result.after is not None:
            moved = Change(
                turn=None,
                state="ready",
                root=result.root,
                before=result.before,
                after=result.after,
                outside=[(path, "modified") for path in result.outside],
            )
            await self._recorder.follow(session_id, moved)
        return result

    async def _wait_for_others(self, journal: Journal, plan: Plan, roots: list[str]) -> None:
        """Before a stored plan is carried out: wait until no turn of another session works where it changes files. One
        may have begun there before this node took the plan over. There is no deadline: people can abort that turn."""
        session_id, is_said = journal.state.id, False
        # A commit changes no files. A clean-up changes none in the repository, where others may work, and planning it
        # asks for the sessions in the worktree.
        changed = roots if plan.merge is not None else [plan.root] if plan.steps else []
        while others := self._others_in(changed, session_id):
            if not is_said:
                why = f"session {others[0]} works in the same directory"
                logger.warning("session %s: a file operation is half done and waits: %s", session_id, why)
                is_said = True
            await asyncio.sleep(LOOK_S)
        if is_said:
            await self._log.claim(journal)

    def _others_in(self, roots: list[str], session_id: str) -> list[str]:
        return [other for root in roots for other in self._recorder.works_in(root) if other != session_id]

    async def _note_changed_files(self, result: Operation, session_id: str, plan: Plan) -> None:
        """A plan was stopped by an error: if it has changed files by then, keep what an undo needs."""
        try:
            after = await self._recorder.trees.operate(self._planner.result, session_id, plan)
        except (Impossible, GitError, OSError) as error:
            logger.warning("session %s: no snapshot of files that may have changed: %s", session_id, error)
            return
        if after != plan.before:
            result.root, result.before, result.after, result.undoable = plan.root, plan.before, after, True
            result.overwritten = plan.overwritten
            result.message += " Some files were changed before that. Undo the operation to change them back."

    async def _check(self, journal: Journal, operation: FileOperation) -> None:
        """Refuse before any file changes if the history could not be changed afterwards, or if another session needs
        the worktree."""
        state = journal.state
        if operation.action == "clean_up" and state.worktree is not None:
            path = str(state.worktree["path"])
            if await self.is_used(state.id, path):
                raise Impossible("conflict", f"The worktree {path} was kept: another session works in it.")
        if operation.then is None:
            return
        try:
            change = history_command(operation.then)
            if isinstance(change, cmd.RetryTurn):
                await self._facts.agents.ready(change.agent or state.agent)
            done = cmd.FinishFiles(operation_id=operation.operation_id, outcome="done", message="")
            decision = decide(state, done, self._facts.world(state, done, WaitsFor("slot", "")))
        except Refused as refusal:
            raise Impossible(refusal.code, refusal.detail) from refusal
        for event in decision.events:
            if isinstance(event, ev.FilesChanged) and event.outcome != "done":
                raise Impossible(event.code, event.message.strip())

    def _result(self, operation: FileOperation, plan: Plan, done: Done) -> Operation:
        return Operation(
            operation_id=operation.operation_id,
            action=plan.action,
            outcome="done",
            message=done.message,
            turn=plan.turn,
            at=self._log.stamp(),
            files=plan.files[:FILES_MAX],
            file_count=len(plan.files),
            skipped=[*plan.skipped, *done.skipped][:FILES_MAX],
            outside=plan.outside,
            overwritten=plan.overwritten,
            commit=done.commit,
            undoable=plan.undoable and done.after is not None,
            root=plan.root,
            before=plan.before,
            after=done.after,
        )

    def _refused(self, operation: FileOperation, why: Impossible) -> Operation:
        return Operation(
            operation_id=operation.operation_id,
            action=operation.action,
            outcome="conflict" if why.conflicts else "failed",
            message=why.message,
            code=why.code,
            turn=operation.details.get("turn"),
            at=self._log.stamp(),
            conflicts=[Skipped(path, reason) for path, reason in why.conflicts],
            choice=why.choice,
        )

    async def _finish(self, journal: Journal, operation: FileOperation, result: Operation) -> None:
        session_id, asked = journal.state.id, journal.state.file_operation
        if asked is None:
            return
        result.operation_id = asked.operation_id
        await self._records.put(session_id, operation_name(asked.operation_id), result)
        if result.action == "undo" and result.outcome == "done" and (result.files or not result.skipped):
            await self._mark_undone(session_id, str(operation.details.get("operation_id")))
        self.at("stored")
        command = cmd.FinishFiles(
            operation_id=asked.operation_id,
            outcome=result.outcome,
            message=result.message,
            code=result.code,
            for_turn=result.turn,
            files=tuple({"path": quoted(each.path), "change": each.change} for each in result.files[:SHOWN_FILES]),
            file_count=result.file_count,
            commit=result.commit,
            undoable=result.undoable,
        )
        try:
            decision = await self._record(journal, asked, command)
        except Refused as refusal:
            if refusal.code == "not_found":
                raise
            # The files are done, but the history can't change. Say so, and keep the history.
            message = f"{result.message} The conversation is unchanged: {refusal.detail}"
            plain = msgspec.structs.replace(command, outcome="failed", message=message, code=refusal.code)
            decision = (await self._commands.record(journal, plain, by_owner=True))[0]
        for event in decision.events:
            if isinstance(event, ev.FilesChanged) and event.outcome != result.outcome:
                result.outcome, result.code, result.message = event.outcome, event.code, event.message
                await self._records.put(session_id, operation_name(asked.operation_id), result)
        self.at("recorded")

    async def _record(self, journal: Journal, asked: FileOperation, command: cmd.FinishFiles) -> Decision:
        then = history_command(asked.then) if asked.then is not None else None
        if not isinstance(then, cmd.RetryTurn) or command.outcome != "done":
            return (await self._commands.record(journal, command, by_owner=True))[0]
        pending = PendingReceipt(Outgoing(text=then.text, message_id=then.message_id), then.message_id)

        def receipt(decision: Decision) -> Receipt | None:
            is_sent = any(isinstance(event, ev.UserMessage) for event in decision.events)
            return pending.receipt(decision) if is_sent else None

        # The turn waits for a slot like any other: placement begins it.
        waits_for = WaitsFor("slot", "")
        decision, _ = await self._commands.record(journal, command, receipt=receipt, waits_for=waits_for, by_owner=True)
        self._placement.look()
        return decision

    async def _mark_undone(self, session_id: str, operation_id: str) -> None:
        name = operation_name(operation_id)
        undone = await self._records.get(session_id, name, Operation)
        if undone is not None:
            undone.undone = True
            await self._records.put(session_id, name, undone)


def _is_waiting(journal: Journal) -> bool:
    """Whether an operation is requested, or will be when the session's turn has ended."""
    return journal.state.file_operation is not None or journal.state.wants_clean_up


def _without_details(result: Operation) -> Operation:
    """The result as it can be recorded whatever its details are. Otherwise the session would wait for it forever."""
    return msgspec.structs.replace(
        result, outcome="failed", code=UNRECORDED.code, message=UNRECORDED.message, files=[], skipped=[], conflicts=[]
    )


def plan_name(operation_id: str) -> str:
    return f"plan-{operation_id}"


def operation_name(operation_id: str) -> str:
    return f"operation-{operation_id}"
