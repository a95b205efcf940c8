"""The client's methods for a session's changes to files: read them, restore, discard, undo, commit, merge, and comment.

Above: client.py, which adds these methods to the client. Below: transport.py.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote

from perdure.surfaces.api_paths import given, session_path
from perdure.surfaces.idempotency import new_message_id
from perdure.surfaces.transport import Json, Transport

Outside = Literal["keep", "overwrite"]
Point = Literal["before", "after"]
Strategy = Literal["merge", "rebase"]
WhenBusy = Literal["reject", "queue", "interrupt"]

OPERATION_TIMEOUT_S = 150.0
"""Longer than the server waits for an operation on files, so that its answer arrives."""
PATHS_BYTES = 16 * 1024
"""How much of a URL the paths take. With more paths, a patch is fetched in parts."""
PATCH_MAX_BYTES = 64 * 1024 * 1024


class Patch(NamedTuple):
    """`truncated`: files at the end are missing, because there are too many."""

    content: bytes
    truncated: bool


class ChangesClient(Transport):
    """Paths are relative to the top of the repository, as the changes show them."""

    def file_changes(self, session_id: str, turn: int | None = None, *, ignore_whitespace: bool = False) -> Json:
        """What a turn, or the whole session, changed in the repository: files, counts, and what else to know."""
        params = {"turn": turn, "whitespace": "ignore" if ignore_whitespace else None}
        return self._json("GET", session_path(session_id, "changes"), params=params)

    def patch(
        self,
        session_id: str,
        turn: int | None = None,
        *,
        paths: Sequence[str] = (),
        ignore_whitespace: bool = False,
        context: int | None = None,
        binary: bool = False,
    ) -> Patch:
        """The changes as `git diff` prints them, of all files or of these. `context`: lines around each change.
        `binary`: with the contents of binary files, so that `git apply` can read the patch."""
        path = session_path(session_id, "changes", "patch")
        params: Json = {"turn": turn, "context": context, "whitespace": "ignore" if ignore_whitespace else None}
        params |= {"binary": "true"} if binary else {}
        content, truncated = bytearray(), False
        for some in _batches(paths) or [[]]:
            if truncated or len(content) >= PATCH_MAX_BYTES:
                return Patch(bytes(content), truncated=True)
            answer = self._ask("GET", path, params=params | {"path": some or None})
            content += answer.content
            truncated = answer.headers.get("perdure-truncated") == "true"
        return Patch(bytes(content), truncated)

    def file_content(self, session_id: str, path: str, turn: int | None = None, *, side: Point = "after") -> bytes:
        """A file as it was before or after a turn, or the whole session."""
        params = {"turn": turn, "path": path, "side": side}
        return self._ask("GET", session_path(session_id, "changes", "content"), params=params).content

    def restore(
        self,
        session_id: str,
        turn: int,
        *,
        point: Point = "before",
        paths: Sequence[str] | None = None,
        outside: Outside | None = None,
        preview: bool = False,
    ) -> Json:
        """Restore all files, or these, to before or after a turn. Returns the operation, or what would change.

        Fails with `files_changed` if somebody else has changed some of the files since the session's last turn:
        `outside` says whether to keep or overwrite them."""
        body = given(turn=turn, point=point, paths=None if paths is None else list(paths), outside=outside)
        return self._operation(session_id, "restore", body, preview=preview)

    def discard(
        self,
        session_id: str,
        path: str,
        *,
        turn: int | None = None,
        hunks: Sequence[int] | None = None,
        new_id: str | None = None,
        outside: Literal["overwrite"] | None = None,
    ) -> Json:
        """Revert the change to one file, or some hunks of its patch, which are counted from 0. Later changes to other
        lines stay. With `new_id` (of the file in the changes), fails with `files_changed` if the file has changed since
        you read it. Without `turn`, a file that somebody else changed too is refused, unless you `overwrite` it."""
        hunk_list = None if hunks is None else list(hunks)
        body = given(turn=turn, path=path, hunks=hunk_list, new_id=new_id, outside=outside)
        return self._operation(session_id, "discard", body)

    def undo(self, session_id: str, operation_id: str, *, outside: Outside | None = None) -> Json:
        """Undo a restore or a discard, or an earlier undo."""
        return self._operation(session_id, "undo", given(operation_id=operation_id, outside=outside))

    def commit(
        self,
        session_id: str,
        message: str,
        paths: Sequence[str] | None = None,
        *,
        files: Sequence[Json] | None = None,
    ) -> Json:
        """Commit these files, or all uncommitted changes of the session, to the branch that is checked out. `files`
        instead of `paths`: each with its `path` and its `new_id` in the changes. Fails with `files_changed` if one of
        them has changed since you read it."""
        path_list, file_list = (None if one is None else list(one) for one in (paths, files))
        body = given(message=message, paths=path_list, files=file_list)
        return self._operation(session_id, "commit", body)

    def merge(
        self,
        session_id: str,
        *,
        strategy: Strategy = "merge",
        message: str | None = None,
        commit_message: str | None = None,
        preview: bool = False,
    ) -> Json:
        """Merge the branch of the session's worktree into the branch that it comes from, or rebase it onto that. With
        `commit_message`, commits uncommitted changes first. Fails with `merge_conflict` and changes nothing if both
        branches changed the same lines."""
        body = given(strategy=strategy, message=message, commit_message=commit_message)
        return self._operation(session_id, "merge", body, preview=preview)

    def review(
        self,
        session_id: str,
        comments: Sequence[Json],
        text: str = "",
        *,
        message_id: str | None = None,
        agent: str | None = None,
        when_busy: WhenBusy = "reject",
    ) -> Json:
        """Send comments on lines to the agent as one message, after `text`. Each has `path`, `side` (`new` or `old`),
        `line`, `text`, and optionally `end_line` and `turn`. Returns what `send` returns. Idempotent for a given
        `message_id`."""
        body: Json = {"comments": list(comments), "text": text, "message_id": message_id or new_message_id()}
        body |= {"when_busy": when_busy, **given(agent=agent)}
        return self._json("POST", session_path(session_id, "review"), body=body, repeatable=True)

    def _operation(self, session_id: str, name: str, body: Json, *, preview: bool = False) -> Json:
        body |= {"preview": True} if preview else {}
        path = session_path(session_id, name)
        return self._json("POST", path, body=body, repeatable=preview, timeout_s=OPERATION_TIMEOUT_S)


def _batches(paths: Sequence[str]) -> list[list[str]]:
    """The paths in parts that fit into a URL."""
    batches: list[list[str]] = []
    room = 0
    for path in paths:
        length = len(quote(path, safe="")) + len("&path=")
        if not batches or length > room:
            batches.append([])
            room = PATHS_BYTES
        batches[-1].append(path)
        room -= length
    return batches
