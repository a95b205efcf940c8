"""The verbs for a session's changes to files: read them, restore, discard, undo, commit, merge, and comment on lines.

Above: surfaces, through the sessions. Below: the records (what is stored), the repository if this node has it, and the
log, where operations are requested. With several nodes, the node that has the directory answers what only it can know,
and carries out operations; the others show what it has stored.
"""

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Refused, StoreError
from perdure.core.files import then_of
from perdure.core.scope import turns_of
from perdure.core.state import Session
from perdure.runtime.git import difference
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository, find, head
from perdure.runtime.git.snapshot import OverBudget
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.review import edits
from perdure.runtime.review.comparison import compare, compared, shown_paths
from perdure.runtime.review.names import quoted, unquoted, with_quoted_paths
from perdure.runtime.review.node_requests import NodeRequests
from perdure.runtime.review.operations import Operations, operation_name
from perdure.runtime.review.plans import Impossible, Planner, own_worktree
from perdure.runtime.review.recorder import INTERRUPTED, RUNNING, Recorder, ref_of
from perdure.runtime.review.records import FILES_MAX, PATCH_MAX_BYTES, SESSION, Change, Operation, Records, turn_name
from perdure.runtime.review.stored_patches import only
from perdure.runtime.verbs.shown_changes import (
    both_names,
    count_again,
    mark_only_outside,
    merge_preview,
    newest,
    no_turn,
    public_change,
    public_operation,
    public_repository,
    public_turn,
    public_worktree,
    refusal,
    refusal_of,
    without_snapshots,
)
from perdure.runtime.verbs.waiting import until

logger = logging.getLogger(__name__)

Strategy = Literal["merge", "rebase"]

OPERATION_TIMEOUT_S = 120.0
CONTENT_MAX_BYTES = 5 * 1024 * 1024
OPERATION_ID = re.compile(r"[\w.:-]{1,200}")
LATEST_MAX = 32
"""For how many working trees to remember the changes that were read last."""
NOT_YET = "The state after the turn is being recorded. Try again in a moment."
NOT_BEFORE = "The state before the turn is not known. These are the changes that the agent's edit tools reported."
NO_REPOSITORY = "{} is not in a git repository. These are the changes that the agent's edit tools reported."


async def _no_comments(_: str) -> list[dict[str, Any]]:
    return []


class Changes:
    def __init__(
        self, log: Log, recorder: Recorder, operations: Operations, planner: Planner, requests: NodeRequests
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._trees = recorder.trees
        self.records: Records = recorder.records
        self.comments: Callable[[str], Awaitable[list[dict[str, Any]]]] = _no_comments
        """The comments on a session's changes."""
        self._operations = operations
        self._planner = planner
        self._requests = requests
        self._latest: dict[str, tuple[Any, float, Change]] = {}
        """By working tree: the changes of a running turn that were read last, of which turn, and since when."""
        requests.handle("changes", self._read_here)
        requests.handle("patch", self._patch_here)
        requests.handle("content", self._content_here)
        requests.handle("preview_restore", self._preview_restore_here)
        requests.handle("preview_merge", self._preview_merge_here)
        requests.handle("settle", self._settle_here)

    # Reading -------------------------------------------------------------------------------------------------------

    async def read(
        self, session_id: str, turn: int | None = None, *, ignore_whitespace: bool = False
    ) -> dict[str, Any]:
        """The changes of a turn, or of the whole session."""
        journal = await self._log.open(session_id)
        given = {"session_id": session_id, "turn": turn, "ignore_whitespace": ignore_whitespace}
        found = await self._requests.ask(journal, "changes", given)
        responds = found is not None
        if found is None:
            found = with_quoted_paths(await self._stored(journal, turn))
        about = await self._about(journal)
        if turn is None:
            await self._name_tools(session_id, found)
            found["reason"] = found["reason"] or without_snapshots(about["turns"])
        return {**found, **about, "node_responds": responds}

    async def copy(self, origin: str, session_id: str, turns: set[int]) -> None:
        """Copy the changes of these turns to a session that was forked."""
        await self._recorder.finished(origin)
        try:
            await self.records.copy(origin, session_id, turns)
            await self._recorder.adopt(session_id, await self.records.all(session_id, "turn-", Change))
        except StoreError as error:
            logger.warning("session %s: could not copy the changes of its turns: %s", session_id, error)

    async def settle(self, session_id: str) -> None:
        """Wait until the changes of a turn that has just ended are recorded, and no operation runs. Not forever."""
        journal = await self._log.open(session_id)
        with contextlib.suppress(Refused):  # an older node doesn't know the request
            await self._requests.ask(journal, "settle", {"session_id": session_id})

    async def settle_here(self, session_id: str) -> None:
        """The same on this node, also for a session that was just erased."""
        await self._recorder.finished(session_id)
        await self._operations.finished(session_id)

    async def _settle_here(self, given: dict[str, Any]) -> dict[str, Any]:
        # This node may not know yet that the turn has ended.
        await (await self._log.open(given["session_id"])).catch_up()
        await self.settle_here(given["session_id"])
        return {}

    async def _about(self, journal: Journal) -> dict[str, Any]:
        """What every node knows: the list of turns, operations and comments."""
        session_id, state = journal.state.id, journal.state
        visible = set(turns_of(state.visible))
        turns = [
            {**public_turn(change), "rewound": change.turn not in visible}
            for change in await self.records.all(session_id, "turn-", Change)
        ]
        done = await self.records.all(session_id, "operation-", Operation)
        done.sort(key=lambda operation: operation.at, reverse=True)
        return {
            "turns": turns,
            "operations": [public_operation(operation) for operation in newest(done)],
            "comments": await self.comments(session_id),
            "node_name": self._log.name_of_node(journal.owner.node) if journal.owner is not None else None,
        }

    async def _read_here(self, given: dict[str, Any]) -> dict[str, Any]:
        journal = await self._log.open(given["session_id"])
        turn = given["turn"]
        change = await self._change(journal, turn)
        if change is None or change.state == "unavailable":
            edited: dict[str, Any] = with_quoted_paths(await self._edits(journal, turn, change))
            return edited
        shown = await self._trees.read(self._live, journal.state, change, given["ignore_whitespace"])
        # Quoted here already, because nodes exchange JSON.
        quoted_: dict[str, Any] = with_quoted_paths(await self._with_titles(shown))
        return quoted_

    async def _name_tools(self, session_id: str, found: dict[str, Any]) -> None:
        """In the changes of a whole session: the tools of all turns, by file; and the files that no turn changed."""
        tools: dict[str, list[dict[str, Any]]] = {}
        turns = await self.records.all(session_id, "turn-", Change)
        for change in turns:
            for path, ids in change.tools.items():
                tools.setdefault(quoted(path), []).extend({"turn": change.turn, "tool_id": tool_id} for tool_id in ids)
        for file in found["files"]:
            file["tools"] = tools.get(file["path"]) or file["tools"]
        mark_only_outside(found["files"], turns)

    async def _change(self, journal: Journal, turn: int | None) -> Change | None:
        """The record of a turn or of the session; for a running turn, what it has changed so far."""
        is_stored = await self._recorder.finished(journal.state.id)
        state, session_id = journal.state, journal.state.id
        name = SESSION if turn is None else turn_name(turn)
        change = await self.records.get(session_id, name, Change)
        running = state.turn.turn if state.working and state.turn is not None else None
        if turn is not None and turn != running and change is not None and change.state == RUNNING:
            return msgspec.structs.replace(change, state="unavailable", reason=INTERRUPTED if is_stored else NOT_YET)
        if turn is not None and turn not in (running, None) and change is None and turn > state.last_turn:
            raise Refused("not_found", no_turn(turn, state.last_turn))
        if running is None or turn not in (None, running):
            return change
        current = change if turn is not None else await self.records.get(session_id, turn_name(running), Change)
        if current is None and change is not None and turn is None:
            # Its first snapshot is being taken, so nothing has changed since.
            return msgspec.structs.replace(change, state=RUNNING)
        if current is None or current.state != RUNNING:
            return change
        key, asked_s = (session_id, turn, running), self._log.steady()
        try:
            async with self._trees.within_budget(current.root, counts=False):
                latest, taken_s, found = self._latest.get(current.root, (None, asked_s, current))
                # Many may read at once, and each snapshot holds up those who wait for the lock.
                if latest != key or taken_s < asked_s:
                    taken_s = self._log.steady()
                    found = await self._trees.in_thread(self._so_far, session_id, change or current, current)
                    self._latest.pop(current.root, None)
                    self._latest[current.root] = (key, taken_s, found)
                    if len(self._latest) > LATEST_MAX:
                        del self._latest[next(iter(self._latest))]
                return found
        except OverBudget as error:
            return msgspec.structs.replace(change or current, reason=error.message)

    def _so_far(self, session_id: str, change: Change, current: Change) -> Change:
        """The change with the files as they are now, while the turn runs."""
        repo = _find(current.root)
        if isinstance(repo, str) or repo.root != current.root:
            return change
        try:
            taken = self._trees.snapshot(repo, ref_of(session_id, "now"), {}, counts=False)
            alone = [*change.left_alone, *taken.left_alone]
            change = msgspec.structs.replace(change, after=taken.tree, state=RUNNING, left_alone=alone)
            return compare(repo, change)[0]
        except (GitError, OverBudget) as error:
            return msgspec.structs.replace(change, reason=error.message)

    def _live(self, state: Session, change: Change, ignore_whitespace: bool) -> dict[str, Any]:
        """The stored change, with what only the repository can say."""
        repo = _find(state.workdir)
        shown = {**public_change(state, change), "worktree": public_worktree(state, live=True)}
        if isinstance(repo, str):
            return {**shown, "source": "stored", "reason": shown["reason"] or repo or None}
        shown["repository"] = public_repository(repo)
        if repo.root != change.root or change.before is None or change.after is None:
            return {**shown, "source": "stored"}
        try:
            if ignore_whitespace:
                count_again(shown, compared(repo, change, ignore_whitespace=True))
            paths = [file["path"] for file in shown["files"]]
            commit = head(repo).commit
            committed = difference.entries(repo, commit, paths) if commit is not None else {}
            for file in shown["files"]:
                entry = committed.get(file["path"])
                found = (entry.oid, entry.mode) if entry is not None else (None, None)
                file["committed"] = found == (file["new_id"], file["new_mode"])
        except GitError:
            return {**shown, "source": "stored"}
        return {**shown, "source": "snapshots"}

    async def _with_titles(self, shown: dict[str, Any]) -> dict[str, Any]:
        for other in shown["shared_with"]:
            with contextlib.suppress(Refused, StoreError):
                other["title"] = (await self._log.open(other["session_id"])).state.title
        return shown

    async def _stored(self, journal: Journal, turn: int | None) -> dict[str, Any]:
        """What the node that has the directory has stored."""
        change = await self.records.get(journal.state.id, SESSION if turn is None else turn_name(turn), Change)
        if change is None or change.state == "unavailable":
            return await self._edits(journal, turn, change)
        return await self._with_titles({**public_change(journal.state, change), "source": "stored"})

    async def _edits(self, journal: Journal, turn: int | None, change: Change | None) -> dict[str, Any]:
        """Without snapshots: what the agent's own edit tools reported."""
        state = journal.state
        repo = await self._trees.read(_find, state.workdir)
        reason = change.reason if change is not None else None
        if reason is None and not isinstance(repo, Repository):
            reason = repo if repo != "" else NO_REPOSITORY.format(state.workdir)
        elif reason is None and turn is not None:
            reason = NOT_BEFORE
        history = await self._log.history(state.id, turn or 1, turn or None)
        visible = set(turns_of(state.visible)) if turn is None else {turn}
        views = [view for number, view in history.views.items() if number in visible]
        files = await self._trees.read(edits.files, views, state.workdir)
        empty = Change(turn=turn, state="unavailable" if change is not None else "none", reason=reason)
        shown = public_change(state, empty)
        if isinstance(repo, Repository):
            shown["repository"] = await self._trees.read(public_repository, repo)
        shown["worktree"] = await self._trees.read(public_worktree, state, live=True)
        shown.update(
            source="edits" if files else "none",
            files=files[:FILES_MAX],
            file_count=len(files),
            added=sum(file["added"] for file in files),
            removed=sum(file["removed"] for file in files),
            truncated=len(files) > FILES_MAX,
        )
        return shown

    async def edited(self, session_id: str, turn: int) -> set[str]:
        """The files that the agent's edit tools changed in a turn."""
        shown = await self._edits(await self._log.open(session_id), turn, None)
        return {file["path"] for file in shown["files"]}

    async def patch(
        self,
        session_id: str,
        turn: int | None,
        paths: list[str],
        *,
        ignore_whitespace: bool,
        context: int,
        binary: bool = False,
    ) -> tuple[bytes, bool]:
        """The change as `git diff` prints it, and whether files at its end are missing. `binary`: with the contents of
        binary files, unless only the stored patch is left, which doesn't have them."""
        journal = await self._log.open(session_id)
        names = [unquoted(path) for path in paths]
        given = {
            "session_id": session_id,
            "turn": turn,
            "paths": paths,
            "ignore_whitespace": ignore_whitespace,
            "context": context,
            "binary": binary,
        }
        found = await self._requests.ask(journal, "patch", given)
        if found is not None:
            return _text_bytes(found["patch"]), found["truncated"]
        patch = await self.records.patch(session_id, SESSION if turn is None else turn_name(turn))
        if patch is None:
            shown = await self._edits(journal, turn, None)
            return await self._trees.read(edits.patch, shown["files"], paths), False
        change = await self._change(journal, turn)
        wanted = both_names(change, names)
        return only(patch, wanted), change is not None and change.truncated

    async def _patch_here(self, given: dict[str, Any]) -> dict[str, Any] | None:
        journal = await self._log.open(given["session_id"])
        change = await self._change(journal, given["turn"])
        if change is None or change.before is None or change.after is None:
            return None
        paths = both_names(change, [unquoted(path) for path in given["paths"]])

        def work() -> tuple[bytes, bool] | None:
            if (repo := _objects_of(journal.state, change)) is None:
                return None
            return difference.patch(
                repo,
                str(change.before),
                str(change.after),
                paths=paths or shown_paths(change, change.files),
                ignore_whitespace=given["ignore_whitespace"],
                # An older node does not ask for it.
                binary=given.get("binary", False),
                context=given["context"],
                max_bytes=8 * PATCH_MAX_BYTES,
            )

        try:
            found = await self._trees.read(work)
        except GitError:
            return None
        return {"patch": _bytes_text(found[0]), "truncated": found[1]} if found is not None else None

    async def content(self, session_id: str, turn: int | None, path: str, side: str) -> bytes:
        """A file as it was before or after the change."""
        journal = await self._log.open(session_id)
        given = {"session_id": session_id, "turn": turn, "path": path, "side": side}
        found = await self._requests.ask(journal, "content", given)
        if found is None:
            words = f"There is no file {path} {side} this change"
            raise Refused("not_found", words + ("." if self._log.shared is None else ", or its node does not respond."))
        if found.get("too_large"):
            raise Refused("too_large", f"{path} is larger than {CONTENT_MAX_BYTES} bytes.")
        return _text_bytes(found["content"])

    async def _content_here(self, given: dict[str, Any]) -> dict[str, Any] | None:
        journal = await self._log.open(given["session_id"])
        change = await self._change(journal, given["turn"])
        tree = None if change is None else change.before if given["side"] == "before" else change.after
        if change is None or tree is None:
            return None

        def work() -> dict[str, Any] | None:
            if (repo := _objects_of(journal.state, change)) is None:
                return None
            path = unquoted(given["path"])
            entry = difference.entries(repo, tree, [path]).get(path)
            if entry is None:
                return None
            try:
                return {"content": _bytes_text(difference.blob(repo, entry.oid, CONTENT_MAX_BYTES))}
            except difference.TooLarge:
                return {"too_large": True}

        try:
            return await self._trees.read(work)
        except GitError:
            return None

    async def directories_of(self, node: str, path: str | None, limit: int, *, recent: bool) -> dict[str, Any]:
        """The directories that another node can see."""
        found = None
        if self._requests.is_alive(node):
            given = {"path": path, "limit": limit, "recent": recent}
            found = await self._requests.ask_node(node, "directories", given)
        if found is None:
            raise Refused("not_found", f"There is no node {node}, or it does not respond. `perdure nodes` lists them.")
        return found

    # Operations ----------------------------------------------------------------------------------------------------

    async def restore(
        self,
        session_id: str,
        turn: int,
        *,
        point: str = "before",
        paths: list[str] | None = None,
        outside: str | None = None,
    ) -> dict[str, Any]:
        await self._check_turn(session_id, turn)
        return await self._request(
            session_id, "restore", _details(turn=turn, point=point, paths=paths, outside=outside)
        )

    async def _check_turn(self, session_id: str, turn: int) -> None:
        last = (await self._log.open(session_id)).state.last_turn
        if turn > last:
            raise Refused("not_found", no_turn(turn, last))

    async def restore_and(
        self, session_id: str, command: cmd.EditMessage | cmd.Rewind | cmd.RetryTurn, outside: str | None
    ) -> dict[str, Any]:
        """Restore the files to before a turn, and change the history in the same step."""
        details = _details(turn=command.turn, point="before", outside=outside)
        return await self._request(session_id, "restore", details, then=then_of(command))

    async def discard(
        self,
        session_id: str,
        path: str,
        *,
        turn: int | None,
        hunks: list[int] | None,
        new_id: str | None,
        outside: str | None = None,
    ) -> dict[str, Any]:
        details = _details(path=path, turn=turn, hunks=hunks, new_id=new_id, outside=outside)
        return await self._request(session_id, "discard", details)

    async def undo(self, session_id: str, operation_id: str, outside: str | None = None) -> dict[str, Any]:
        if not OPERATION_ID.fullmatch(operation_id):
            raise Refused("not_found", "There is no such operation to undo.")
        return await self._request(session_id, "undo", _details(operation_id=operation_id, outside=outside))

    async def commit(
        self,
        session_id: str,
        message: str,
        paths: list[str] | None,
        expected: dict[str, str | None] | None = None,
    ) -> dict[str, Any]:
        """`expected`: the ids of the files' contents as the person has seen them; None for a deleted file."""
        details = _details(message=message, paths=paths, expected=expected or None)
        return await self._request(session_id, "commit", details)

    async def merge(
        self, session_id: str, strategy: Strategy, message: str | None, commit_message: str | None
    ) -> dict[str, Any]:
        details = _details(strategy=strategy, message=message, commit_message=commit_message)
        return await self._request(session_id, "merge", details)

    async def preview_restore(
        self, session_id: str, turn: int, *, point: str = "before", paths: list[str] | None = None
    ) -> dict[str, Any]:
        await self._check_turn(session_id, turn)
        given = {"session_id": session_id, "details": _details(turn=turn, point=point, paths=paths)}
        return {
            "preview": True,
            "turn": turn,
            "point": point,
            **await self._asked(session_id, "preview_restore", given),
        }

    async def _preview_restore_here(self, given: dict[str, Any]) -> dict[str, Any]:
        journal = await self._log.open(given["session_id"])
        await self._recorder.finished(journal.state.id)
        try:
            found = await self._planner.preview(journal.state, given["details"])
        except (Impossible, GitError, OverBudget) as error:
            raise refusal(error) from error
        shown: dict[str, Any] = with_quoted_paths({**msgspec.to_builtins(found), "file_count": len(found.files)})
        return shown

    async def preview_merge(
        self, session_id: str, strategy: Strategy, commit_message: str | None = None
    ) -> dict[str, Any]:
        """`commit_message`: as if the uncommitted files were committed first."""
        given = {"session_id": session_id, "strategy": strategy, "commit_message": commit_message}
        return {"preview": True, "strategy": strategy, **await self._asked(session_id, "preview_merge", given)}

    async def _preview_merge_here(self, given: dict[str, Any]) -> dict[str, Any]:
        journal = await self._log.open(given["session_id"])
        try:
            own = own_worktree(journal.state)
            found = await self._trees.read(merge_preview, own, given["strategy"], given.get("commit_message"))
        except (Impossible, GitError) as error:
            raise refusal(error) from error
        shown = with_quoted_paths({"base": own.base, "branch": own.branch, **msgspec.to_builtins(found)})
        lists = {name: [quoted(path) for path in shown[name]] for name in ("conflicts", "uncommitted")}
        return {**shown, **lists}

    async def _asked(self, session_id: str, what: str, given: dict[str, Any]) -> dict[str, Any]:
        journal = await self._log.open(session_id)
        found = await self._requests.ask(journal, what, given)
        if found is None:
            raise self._unreachable(journal)
        return found

    async def _request(
        self, session_id: str, action: Any, details: dict[str, Any], then: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Request an operation, and wait until it is done."""
        journal = await self._log.open(session_id)
        if not await self._requests.can_reach(journal):
            raise self._unreachable(journal)
        operation_id = f"f_{secrets.token_hex(8)}"
        command = cmd.RequestFiles(operation_id=operation_id, action=action, details=details, then=then)
        before = journal.decided_seq
        await self._operations.request(journal, command)

        def is_done() -> bool:
            asked = journal.state.file_operation
            return asked is None or asked.operation_id != operation_id

        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                await until(journal, is_done)
        except TimeoutError:
            words = "The files are still being changed. The session's changes show the result when it is done."
            raise Refused("unavailable", words, operation_id=operation_id) from None
        done = await self.records.get(session_id, operation_name(operation_id), Operation)
        if done is None:
            raise Refused("unavailable", "The result of the operation can't be read. Look at the session's changes.")
        if (event := await _result_in(journal, operation_id, before)) is not None:
            # The record is stored before it is known whether the history could change too.
            done.outcome, done.code, done.message = event.outcome, event.code, event.message
        if done.outcome != "done":
            raise refusal_of(done)
        return public_operation(done)

    async def before_clean_up(self, journal: Journal) -> None:
        """Before a session is archived, which requests that its worktree be removed."""
        if journal.state.worktree is not None:
            await self._operations.note(journal)

    def _unreachable(self, journal: Journal) -> Refused:
        node = f"Node {self._log.name_of_node(journal.owner.node)}" if journal.owner is not None else "The node that"
        return Refused("unavailable", f"{node} has the session's directory and does not respond. Try again later.")


async def _result_in(journal: Journal, operation_id: str, position: int) -> ev.FilesChanged | None:
    """The result of an operation, as it is in the log after this position."""
    while found := await journal.decisive_after(position):
        for _, event in found:
            if isinstance(event, ev.FilesChanged) and event.operation_id == operation_id:
                return event
        position = found[-1][0]
    return None


def _details(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _objects_of(state: Session, change: Change) -> Repository | None:
    """A repository that has the snapshots: the session's, or the one that its removed worktree belonged to."""
    for place in (change.root, (state.worktree or {}).get("repository", "")):
        if place and isinstance(repo := _find(place), Repository) and (repo.root == place):
            return repo
    return None


def _find(place: str) -> Repository | str:
    """The repository around a directory; or why it can't be used, empty if there is none."""
    try:
        return find(place) or ""
    except GitError as error:
        return error.message


def _bytes_text(data: bytes) -> str:
    """Bytes as text for JSON, without loss: nodes exchange it through the store."""
    return data.decode("latin-1")


def _text_bytes(text: str) -> bytes:
    return text.encode("latin-1")
