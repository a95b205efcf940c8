"""The verbs that every surface calls. Surfaces start and change sessions only through them.

Above: surfaces. Below: the log, commands and placement, agents and projects. Each verb validates its input, asks the
state machine for a decision, and returns plain values.
"""

import asyncio
import contextlib
import mimetypes
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.decision import Decision
from perdure.core.errors import NOTHING_KEPT, UNREADABLE, Conflict, Refused, StoreError, StoreFull
from perdure.core.permissions import Rule
from perdure.core.session import create, decide
from perdure.core.slots import SLOTS_FULL, slot_project
from perdure.core.view import PAGE_TURNS, before_cursor, public_prompt, public_queue, public_session
from perdure.runtime.data.filesystem import WORKSPACES
from perdure.runtime.keeping import processes
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.log.quarantine import Damage
from perdure.runtime.log.reading import READ_BYTES
from perdure.runtime.log.records import last_line, turns_page, waiting_for
from perdure.runtime.review.working_trees import WorkingTrees
from perdure.runtime.running.clocks import Clocks
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.disk import Disk
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.placement import Placement, WhenFull
from perdure.runtime.running.runners import Runners
from perdure.runtime.verbs import listing, spending
from perdure.runtime.verbs.attachments import Attachments
from perdure.runtime.verbs.changes import Changes
from perdure.runtime.verbs.comments import Comments
from perdure.runtime.verbs.configuring import Configuring
from perdure.runtime.verbs.directories import Directories
from perdure.runtime.verbs.eraser import Eraser
from perdure.runtime.verbs.filters import checked
from perdure.runtime.verbs.history_verbs import HistoryVerbs
from perdure.runtime.verbs.imports import Import, Imports
from perdure.runtime.verbs.outgoing import Outgoing, PendingReceipt, command_of, replayed
from perdure.runtime.verbs.streams import FollowedSession
from perdure.runtime.verbs.vitals import vitals
from perdure.runtime.verbs.waiting import until, warmed_up
from perdure.runtime.verbs.workspaces import Workspaces
from perdure.stores.base import Found, Kept, Query, Receipt, Stored, TurnRow

__all__ = [
    "Import",
    "NewSession",
    "Outgoing",
    "Query",
    "Sessions",
    "Stored",
    "WhenFull",
    "new_id",
    "until",
    "warmed_up",
]

MAX_TITLE_CHARS = 500
WAITS_FOR_ROOM = "The disk is full or nearly full. The agent is paused, and continues when there is space."
ELSEWHERE = "Waiting for a node that can run this session."
DISK_IS_FULL = "The disk is full. Free some space and try again; nothing was saved."


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a new session."""

    project: str | None = None
    workdir: str | None = None
    agent: str | None = None
    title: str = ""
    model: str | None = None
    mode: str | None = None
    labels: tuple[str, ...] = ()
    limits: dict[str, Any] = {}
    parent: str | None = None
    """The session that starts this one. For display only: parent and child end and are erased independently."""
    permissions: tuple[Rule, ...] = ()
    single_shot: bool = False
    warm: bool = False
    """Start its agent immediately, unless the agent uses one process per turn."""
    workspace: Literal["directory", "worktree"] | None = None
    """Whether it gets a git worktree of its own; None: as the project says."""


class Sessions:
    def __init__(
        self,
        log: Log,
        facts: Facts,
        commands: Commands,
        placement: Placement,
        runners: Runners,
        launcher: Launcher,
        clocks: Clocks,
        disk: Disk,
        attachments: Attachments,
        changes: Changes,
        trees: WorkingTrees,
        data: Path,
    ) -> None:
        self._since = log.now()
        self.log = log
        self.facts = facts
        self.settings = facts.settings
        """The server's settings."""
        self.agents = facts.agents
        """The configured agents."""
        self.projects = facts.projects
        """The projects: the configured ones, and those that people have created."""
        self.runners = runners
        self.attachments = attachments
        self._commands = commands
        self._placement = placement
        self._launcher = launcher
        self._clocks = clocks
        self._disk = disk
        root = Path(facts.settings.workspaces) if facts.settings.workspaces is not None else data / WORKSPACES
        self.workspaces = Workspaces(root, data, log.store, self.projects, trees)
        """The directories of sessions that were created without one."""
        self.directories = Directories(data, root, log.store, self.projects)
        """Directories to choose from, and their git repositories."""
        self.eraser = Eraser(log, runners, launcher, attachments, self.workspaces, data, changes.settle_here)
        self.history = HistoryVerbs(self)
        """Verbs that read or change the history: edit, rewind, retry, fork, transcript."""
        self.imports = Imports(self)
        """Verbs that import sessions."""
        self.configuring = Configuring(self)
        self.changes = changes
        """Verbs for changes to files: read, restore, discard, commit, merge."""
        self.comments = Comments(self, changes)
        """Verbs that send comments on changed lines."""

    # Creating and finding ----------------------------------------------------------------------------------------

    async def exists(self, session_id: str) -> bool:
        # A session in memory may have been erased by another node.
        is_known = session_id in self.log.journals and self.log.shared is None
        return is_known or await self.log.store.load(session_id) is not None

    async def create(
        self, new: NewSession, message: Outgoing | None = None, *, session_id: str | None = None
    ) -> tuple[FollowedSession, dict[str, Any]]:
        """Create a session and, with a message, its first turn, in one commit. Returns the session and the response to
        the sender."""
        if message is not None:
            self.check_size(message)
        if session_id is not None:
            await self.eraser.check_free(session_id)
        if new.parent is not None and not await self.exists(new.parent):
            raise Refused("not_found", f"There is no session {new.parent} to be the parent. Leave parent out.")
        project, given, agent = self.place(new.project, new.workdir, new.agent)
        await self.agents.ready(agent)
        if message is not None and message.agent is not None and message.agent != agent:
            await self.agents.ready(message.agent)
        session_id = session_id or new_id("s")
        own = None
        if self._wants_worktree(new, project):
            if await self.exists(session_id):
                raise Refused("conflict", f"There is already a session {session_id}.")
            own = await self.workspaces.make_worktree(given, session_id, new.title or (message.text if message else ""))
        workdir = own.workdir if own is not None else self.workspaces.path(given, session_id)
        command = cmd.CreateSession(
            session_id=session_id,
            project=project,
            agent=agent,
            workdir=workdir,
            title=new.title,
            labels=new.labels,
            limits=new.limits,
            model=new.model,
            mode=new.mode,
            parent=new.parent,
            permissions=new.permissions,
            single_shot=new.single_shot,
            worktree=msgspec.to_builtins(own),
        )
        made, slots_of = own is not None, project if own is None else None
        try:
            turn, when_full = message is not None, message.when_full if message is not None else "refuse"
            async with self._placement.slot(session_id, slots_of, workdir, turn=turn, when_full=when_full) as waits_for:
                made = made or (given is None and self.workspaces.make(session_id))
                journal, answer = await self.log.shielded(self._begin(command, message, waits_for))
                if message is None and waits_for is None:
                    self.runners.prewarm(journal, asked=new.warm)
                return journal, answer
        except Exception as error:
            # Keep the workspace if it is not known whether the session was stored.
            if made and (isinstance(error, (Refused, *NOTHING_KEPT)) or not await self._may_exist(session_id, error)):
                await self.workspaces.take_back(session_id, error, own)
            if isinstance(error, StoreFull):
                raise Refused("unavailable", DISK_IS_FULL) from error
            raise

    async def _may_exist(self, session_id: str, error: Exception) -> bool:
        """Whether the session may have been stored, after an unexpected error."""
        return isinstance(error, StoreError) or await self.exists(session_id)

    def _wants_worktree(self, new: NewSession, project: str | None) -> bool:
        settings = self.projects.settings_of(project)
        return (new.workspace or (settings.workspace if settings is not None else "directory")) == "worktree"

    async def _begin(
        self, command: cmd.CreateSession, message: Outgoing | None, waits_for: st.WaitsFor | None
    ) -> tuple[Journal, dict[str, Any]]:
        decision = create(command, self.facts.world(_unborn(command)))
        if message is None:
            return (await self.log.create(decision))[0], {}
        if waits_for is None and self.log.node is not None and not self.log.may_claim(None, decision.state):
            waits_for = st.WaitsFor("owner", ELSEWHERE)
        message_id = message.message_id or new_id("m")
        pending = PendingReceipt(message, message_id)
        async with self._files_stored(command.session_id, message) as stored:
            sent = command_of(stored, message_id)
            first = decide(decision.state, sent, self.facts.world(decision.state, sent, waits_for))
            first.events[:0] = decision.events
            journal, kept = await self.log.create(first, receipt=pending.receipt)
        return journal, pending.answer(kept)

    async def create_once(self, session_id: str, new: NewSession, message: Outgoing) -> dict[str, Any]:
        """Create a session with its first message. If it already exists, send the message to it; a repeated message
        gets its first response again."""
        if not await self.exists(session_id):
            try:
                return (await self.create(new, message, session_id=session_id))[1]
            except Refused as refusal:
                # Another node may have created it in the meantime.
                if refusal.code != "conflict" or not await self.exists(session_id):
                    raise
        return await self.send(session_id, message)

    @contextlib.asynccontextmanager
    async def _files_stored(self, session_id: str, message: Outgoing) -> AsyncIterator[Outgoing]:
        """The message with its files stored. They are deleted again if the message is not accepted."""
        if not message.attachments:
            yield message
            return
        attachments = self.attachments
        kept = await attachments.keep(session_id, message.attachments)
        try:
            yield msgspec.structs.replace(message, attachments=kept)
        except Exception as error:
            # Not on cancellation or after an unknown commit: the message may have been accepted.
            if not isinstance(error, StoreError) or isinstance(error, NOTHING_KEPT):
                await attachments.withdraw(session_id, kept)
            raise

    def place(self, given: str | None, workdir: str | None, agent: str | None) -> tuple[str | None, str | None, str]:
        """Resolve the project, the directory and the agent."""
        project = None
        if given is not None:
            project, settings = self.projects.find(given)
            workdir, agent = self.workspaces.of_project(workdir, settings.path), agent or settings.agent
        agent = agent or self.agents.default()
        self.agents.settings(agent)
        return project, workdir, agent

    async def get(self, session_id: str, *, limit: int = PAGE_TURNS, cursor: str | None = None) -> dict[str, Any]:
        """A session with its newest turns, or with the turns before a cursor."""
        before = before_cursor(cursor)
        journal = await self.log.open(session_id)
        rows = await self.log.store.read_turns(session_id, before=before, last=limit)
        turns, older = turns_page(journal.state, rows, limit, before)
        shown = {**public_session(journal.state, journal.last_seq), "turns": turns, "next_cursor": older}
        if journal.state.phase == "accepted" and journal.state.waits_for is None:
            shown["waits_for"] = msgspec.to_builtins(journal.owner_reason)
        return shown | self._node(journal.owner.node if journal.owner is not None else None)

    def _node(self, node: str | None) -> dict[str, Any]:
        """The fields for the node that owns a session."""
        return {"node": node, "node_name": None if node is None else self.log.name_of_node(node)}

    async def search(self, query: Query) -> tuple[list[dict[str, Any]], str | None]:
        page = await self.log.store.list_sessions(checked(query))
        shown = []
        for found in page.found:
            entry = await self._listed(found)
            if entry is None:
                continue
            entry |= {"event_count": found.last_seq, **self._node(found.node)}
            if found.snippet is not None:
                entry.update(snippet=found.snippet, snippet_turn=found.snippet_turn)
            shown.append(entry)
        return shown, page.next_cursor

    async def _listed(self, found: Found) -> dict[str, Any] | None:
        """A session's entry in lists, rebuilt if the stored entry is damaged."""
        if found.session_id in self.log.erased.under_way:
            return None
        try:
            return msgspec.json.decode(found.public, type=dict[str, Any])
        except UNREADABLE:
            journal = await self.log.readable(found.session_id)
        if journal is None:
            return None
        extra = {"last_line": last_line(journal.view, ()), "waiting_for": waiting_for(journal.state)}
        return {**public_session(journal.state, journal.last_seq), **extra}

    async def usage(self, group_by: str, named: dict[str, str]) -> dict[str, Any]:
        return await spending.usage(self.log.store, group_by, named)

    async def active_in(self, project: str) -> str | None:
        """The project's most recently active session that has not ended."""
        page = await self.log.store.list_sessions(Query(project=project, status="running", limit=1))
        return page.found[0].session_id if page.found else None

    # Messages ------------------------------------------------------------------------------------------------------

    async def send(self, session_id: str, message: Outgoing, *, retry: cmd.Rewind | None = None) -> dict[str, Any]:
        """Send a message; with `retry`, it replaces that turn and all after it."""
        self.check_size(message)
        journal = await self.log.open(session_id)
        message_id = message.message_id or new_id("m")
        if message.message_id is not None:
            earlier = await self.log.store.find_receipt(session_id, message_id)
            if earlier is not None:
                return self._replay(earlier, message)
        if message.agent is not None:
            self.agents.settings(message.agent)
        attached, agent = journal.state.attached, message.agent or journal.state.agent
        if journal.state.phase == "idle" and (attached is None or attached.agent != agent):
            await self.agents.ready(agent)
        pending = PendingReceipt(message, message_id)
        try:
            if message.attachments and retry is None:
                kept = await self._send_with_files(journal, message, pending)
            else:
                command = command_of(message, message_id, retry)
                _, kept = await self._placement.send(journal, command, pending.receipt, message.when_full)
        except StoreFull as error:
            what = "The disk is full. Free some space and send the message again; it was not accepted."
            raise Refused("unavailable", what) from error
        except (Refused, Conflict):
            # A repeated send of the same message may have been accepted in the meantime.
            earlier = await self.log.store.find_receipt(session_id, message_id)
            if earlier is None:
                raise
            return self._replay(earlier, message)
        return pending.answer(kept)

    async def _send_with_files(self, journal: Journal, message: Outgoing, pending: PendingReceipt) -> Kept:
        async with self._files_stored(journal.state.id, message) as stored:
            command = command_of(stored, pending.message_id)
            return (await self._placement.send(journal, command, pending.receipt, message.when_full))[1]

    async def replayed(self, session_id: str, message_id: str, text: str | None) -> dict[str, Any] | None:
        """The earlier response to this message, if it was already accepted."""
        earlier = await self.log.store.find_receipt(session_id, message_id)
        if earlier is None:
            return None
        return replayed(earlier) if text is None else self._replay(earlier, Outgoing(text=text))

    @staticmethod
    def new_session_id() -> str:
        return new_id("s")

    @staticmethod
    def new_message_id() -> str:
        return new_id("m")

    @staticmethod
    def _replay(earlier: Receipt, message: Outgoing) -> dict[str, Any]:
        if earlier.digest != message.digest:
            raise Refused(
                "conflict", "This message_id was used for another text. Use a new one.", fields=["message_id"]
            )
        return replayed(earlier)

    def check_size(self, message: Outgoing) -> None:
        if not message.text.strip():
            raise Refused("invalid", "text must not be empty.")
        limit = self.facts.settings.max_message_bytes
        size = len(message.text.encode("utf-8", "surrogatepass"))
        # The data of files has a separate limit.
        named = [{name: value for name, value in each.items() if name != "data"} for each in message.attachments]
        size += len(msgspec.json.encode(named)) if named else 0
        if size > limit:
            raise Refused("too_large", f"The message is larger than max_message_bytes ({limit}). Send a file instead.")

    async def queue(self, session_id: str) -> list[dict[str, Any]]:
        journal = await self.log.open(session_id)
        return public_queue(journal.state)

    async def edit_queued(self, session_id: str, message_id: str, text: str) -> None:
        """Replace the text of a queued message. Repeating the send that queued it still returns the first response."""
        self.check_size(Outgoing(text=text))
        await self.do(session_id, cmd.EditQueuedMessage(message_id, text))

    async def unqueue(self, session_id: str, message_id: str) -> None:
        journal = await self.log.open(session_id)
        waiting = [queued for queued in journal.state.queue if queued.message_id == message_id]
        await self.do(session_id, cmd.UnqueueMessage(message_id))
        for queued in waiting:
            await self.attachments.withdraw(session_id, tuple(queued.attachments))

    # Ending --------------------------------------------------------------------------------------------------------

    async def abort(self, session_id: str) -> dict[str, Any]:
        journal = await self.do(session_id, cmd.AbortTurn())
        return {
            "session_id": session_id,
            "turn": journal.state.turn.turn if journal.state.turn else None,
            "state": journal.state.state,
        }

    async def end(self, session_id: str, status: Literal["completed", "stopped"], reason: str) -> dict[str, Any]:
        """Stop or close a session. Idempotent."""
        await self._end(session_id, cmd.EndSession(status, reason))
        return await self.get(session_id)

    async def _end(self, session_id: str, command: cmd.EndSession) -> None:
        journal = await self.log.open(session_id)
        if journal.state.phase != "ended":
            try:
                await self.do(session_id, command)
            except Refused as refusal:
                if refusal.code != "session_ended":
                    raise

    async def erase(self, session_id: str) -> None:
        """Close a session, then erase all its data. A damaged session can't be closed and is erased directly."""
        if session_id in self.log.quarantine:
            await self.log.shielded(self.eraser.erase(session_id, str(self.workspaces.of(session_id))))
            return
        await self._end(session_id, cmd.EndSession("completed", "purged"))
        journal = await self.log.open(session_id)
        await self.runners.wait_gone(session_id)
        await self.changes.settle(session_id)
        for follower in list(journal.followers):
            follower.wake()
        state = journal.state
        await self.log.shielded(self.eraser.erase(session_id, state.workdir, state.worktree))

    # Prompts and settings --------------------------------------------------------------------------------------------

    async def prompts(self, session_id: str) -> list[dict[str, Any]]:
        journal = await self.log.open(session_id)
        return [public_prompt(prompt) for prompt in journal.state.prompts.values()]

    async def answer(self, session_id: str, command: cmd.AnswerPrompt) -> dict[str, Any]:
        decision = await self._record(await self.log.open(session_id), command)
        resolved = next(event for event in decision.events if isinstance(event, ev.PromptResolved))
        return {
            "prompt_id": resolved.prompt_id,
            "by": resolved.by,
            "outcome": resolved.outcome,
            "delivered": resolved.delivered,
        }

    async def configure(self, session_id: str, config_id: str, value: Any) -> dict[str, Any]:
        return await self.configuring.set(session_id, config_id, value)

    async def update(self, session_id: str, command: cmd.UpdateSession) -> dict[str, Any]:
        if command.title is not None and len(command.title) > MAX_TITLE_CHARS:
            raise Refused("invalid", f"title must have at most {MAX_TITLE_CHARS} characters.", fields=["title"])
        await self.do(session_id, command)
        return await self.get(session_id)

    async def _record(self, journal: Journal, command: cmd.Command) -> Decision:
        try:
            return (await self._commands.record(journal, command))[0]
        except StoreFull as error:
            raise Refused("unavailable", DISK_IS_FULL) from error

    async def do(self, session_id: str, command: cmd.Command) -> Journal:
        journal = await self.log.open(session_id)
        if isinstance(command, cmd.UpdateSession) and command.archived:
            await self.changes.before_clean_up(journal)
        await self._record(journal, command)
        return journal

    # Reading ---------------------------------------------------------------------------------------------------------

    async def read(self, session_id: str, after: int, limit: int) -> list[Stored]:
        """The next events after a position: fewer than `limit` if they are large, but at least one if there are any."""
        await self.log.open(session_id)
        return await self.log.store.read(session_id, after, limit=limit, max_bytes=READ_BYTES)

    async def journal(self, session_id: str) -> FollowedSession:
        """A session, to be followed."""
        return await self.log.open(session_id)

    async def turns(self, session_id: str, *, from_turn: int = 1, hidden: bool = False) -> list[TurnRow]:
        return await self.log.store.read_turns(session_id, from_turn=from_turn, hidden=hidden)

    async def attachment(self, session_id: str, name: str) -> tuple[Path, bool]:
        """A file attached to a message, and whether it is an image."""
        await self.log.open(session_id)
        path = await self.attachments.find(session_id, name)
        return path, mimetypes.guess_type(path.name)[0] in self.attachments.pictures

    def now(self) -> float:
        return self.log.now()

    @property
    def slots(self) -> int:
        """How many turns this server runs at the same time; 0 if there is no limit."""
        return self.facts.config.slots

    async def freshen(self) -> None:
        """Before a request: reload the projects, sign-ins and agent metadata that other nodes have changed."""
        await self.log.freshen_documents()

    def damaged(self) -> list[Damage]:
        return self.log.quarantine.all()

    async def files(self, session_id: str, wanted: str, limit: int) -> list[str]:
        """Files in the session's working directory whose paths contain this text."""
        journal = await self.log.open(session_id)
        return await asyncio.to_thread(listing.files, journal.state.workdir, wanted, limit)

    async def _why(self, state: st.Session) -> str:
        if state.working and self._disk.is_full:
            return WAITS_FOR_ROOM
        if state.waits_for is not None and state.waits_for.code == SLOTS_FULL:
            # Look up the current holders of the slots, which change while it waits.
            taken = await self._placement.takers(state.project)
            return f"Its turn waits for a free slot. {taken.detail}" if taken is not None else state.waits_for.message
        return why(state)

    async def full(self, state: st.Session) -> Refused | None:
        """Why a turn of the session could not begin now; None if a slot is free."""
        return await self._placement.takers(slot_project(state))

    def orders(self, journal: Journal) -> Orders:
        return Orders(journal, self.facts, self.attachments.shown)

    async def vitals(self) -> dict[str, Any]:
        return await vitals(self.log, self.runners, self._launcher, self.facts.config.slots, self._since)

    async def explain(self, session_id: str) -> dict[str, Any]:
        """Why the session is in this state, and what happens next without further action."""
        journal = await self.log.open(session_id)
        state = journal.state
        rows = await self.log.store.read(session_id, max(0, journal.last_seq - 1), limit=1)
        # This node knows nothing about processes on other nodes.
        pid = state.attached.pid if state.attached and not journal.has_foreign_agent else None
        timers = self._clocks.left(journal)
        return {
            "session_id": session_id,
            "state": state.state,
            "status": state.status,
            "why": await self._why(state),
            "last_event": {"seq": rows[-1].seq, "type": rows[-1].type, **_when(rows[-1])} if rows else None,
            "quiet_for_s": round(self.log.steady() - journal.last_event_s, 1),
            "processes": [msgspec.to_builtins(process) for process in processes.describe_tree(pid)] if pid else [],
            "open_tools": state.turn.open_tools if state.turn and state.working else [],
            "prompts": [public_prompt(prompt) for prompt in state.prompts.values()],
            "queue_length": len(state.queue),
            "waits_for": msgspec.to_builtins(state.waits_for),
            "next_timer": timers[0] if timers else None,
            "timers": timers,
        }


def why(state: st.Session) -> str:
    """Why the session is in this state, in one sentence."""
    if state.phase == "ended":
        return f"It ended as {state.status}."
    if state.phase == "accepted":
        return state.waits_for.message if state.waits_for is not None else "Its turn is about to start."
    if state.prompts:
        return f"It waits for a person to answer {len(state.prompts)} prompt{'s' if len(state.prompts) > 1 else ''}."
    if state.phase == "aborting":
        return f"Its turn is being stopped ({state.abort_reason})."
    if state.phase == "working":
        if state.attached is None or not state.attached.opened:
            return "Its agent is starting."
        return "Its turn is running a tool." if state.turn and state.turn.open_tools else "Its turn is running."
    agent = "ready." if state.attached else "not running and starts with the message."
    return f"It waits for a message; its agent is {agent}"


def new_id(kind: str) -> str:
    """A new id that sorts by time and can't be guessed."""
    return f"{kind}_{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def _when(row: Stored) -> dict[str, Any]:
    return {"at": ev.decode(row.body).at}


def _unborn(command: cmd.CreateSession) -> st.Session:
    return st.Session(
        id=command.session_id, project=command.project, agent=command.agent, workdir=command.workdir, created_at=""
    )
