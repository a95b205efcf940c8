"""A session's changes to files over HTTP: read, restore, discard, undo, commit, merge, and send comments on lines.

Above: routes.py. Below: the verbs for changes and comments. Paths are relative to the repository's root. A file name
that is no UTF-8, or begins with a quote, is written in git's quoted form.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.core.events import FileAction
from perdure.runtime.verbs.comments import COMMENTS_MAX, NewComment
from perdure.runtime.verbs.sessions import Outgoing, WhenFull
from perdure.runtime.verbs.shown_changes import IMAGES
from perdure.surfaces.http.endpoint import SESSION, Endpoint, between
from perdure.surfaces.http.fields import MessageId, Name, NonBlankText, check_paths
from perdure.surfaces.http.messages import Accepted
from perdure.surfaces.http.requests import body_of, flag, reply, verbs, whole_number
from perdure.surfaces.http.sessions import Worktree

PATHS_MAX = 10_000
CONTEXT_MAX = 10_000
TURN_MAX = 10**9

# Request bodies -------------------------------------------------------------------------------------------------------

FilePath = Annotated[str, Meta(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")]
FilePaths = Annotated[list[FilePath], Meta(min_length=1, max_length=PATHS_MAX)]
TurnNumber = Annotated[int, Meta(ge=1, le=TURN_MAX)]
Outside = Literal["keep", "overwrite"]
CommitMessage = Annotated[str, Meta(min_length=1, max_length=100_000, pattern=r"\S")]
LineNumber = Annotated[int, Meta(ge=1, le=TURN_MAX)]


class RestoreBody(Struct, kw_only=True):
    """Change files back to what they were before a turn, or after it. Files that somebody else has changed since the
    session's last turn are listed and refused, unless `outside` says what to do with them."""

    turn: TurnNumber
    point: Literal["before", "after"] = "before"
    paths: FilePaths | None = None
    outside: Outside | None = None
    preview: bool = False
    """Return what would change, without changing it."""


class DiscardBody(Struct, kw_only=True):
    """Revert a file of a turn, or of the whole session; with `hunks`, only these, numbered from 0."""

    path: FilePath
    turn: TurnNumber | None = None
    hunks: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1, max_length=PATHS_MAX)] | None = None
    new_id: Annotated[str, Meta(max_length=64)] | None = None
    """The file's `new_id`, as read: refused if the file has changed since you read it."""
    outside: Literal["overwrite"] | None = None
    """A file that somebody else changed between the session's turns is refused without `turn`, unless this is set."""


class UndoBody(Struct, kw_only=True):
    operation_id: Name
    outside: Outside | None = None


class SeenFile(Struct, kw_only=True):
    path: FilePath
    new_id: Annotated[str, Meta(max_length=64)] | None
    """As read; null for a deleted file."""


class CommitBody(Struct, kw_only=True):
    """Commit files as they are now. Default: every uncommitted file that this session has changed."""

    message: CommitMessage
    paths: FilePaths | None = None
    files: Annotated[list[SeenFile], Meta(min_length=1, max_length=PATHS_MAX)] | None = None
    """Instead of `paths`: refused if one of them has changed since you read it."""


class MergeBody(Struct, kw_only=True):
    """Merge the branch of a session's own worktree into the branch that it came from. Without `commit_message`,
    uncommitted files are not merged, and listed as `skipped`."""

    strategy: Literal["merge", "rebase"] = "merge"
    message: CommitMessage | None = None
    """The message of the merge commit."""
    commit_message: CommitMessage | None = None
    """Commit uncommitted files first, with this message."""
    preview: bool = False
    """Return what would be merged, without merging it."""


class CommentBody(Struct, kw_only=True):
    path: FilePath
    text: NonBlankText
    line: LineNumber
    end_line: LineNumber | None = None
    side: Literal["new", "old"] = "new"
    turn: TurnNumber | None = None
    """The turn whose changes were commented on. Default: those of the whole session."""
    quote: Annotated[str, Meta(max_length=100_000)] | None = None
    """The lines as the person saw them. Default: as recorded."""


class ReviewBody(Struct, kw_only=True):
    """Comments on changed lines, sent to the agent as one message."""

    comments: Annotated[list[CommentBody], Meta(min_length=1, max_length=COMMENTS_MAX)]
    text: Annotated[str, Meta(max_length=100_000)] = ""
    """What the message begins with."""
    message_id: MessageId | None = None
    agent: Name | None = None
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    when_full: WhenFull = "wait"


# Responses ------------------------------------------------------------------------------------------------------------


class RepositoryState(Struct, kw_only=True):
    root: str
    branch: str | None
    head: str | None
    detached: bool
    dirty: int | None
    in_progress: str | None


class EditTool(Struct, kw_only=True):
    turn: int | None
    tool_id: str


class Edit(Struct, kw_only=True):
    path: str
    old_text: str | None
    new_text: str | None
    line: int | None


class ChangedFile(Struct, kw_only=True):
    path: str
    old_path: str | None
    status: Literal["added", "deleted", "modified", "renamed", "type_changed"]
    old_mode: str | None
    new_mode: str | None
    old_id: str | None
    new_id: str | None
    binary: bool
    image: bool
    added: int | None
    removed: int | None
    old_size: int | None
    new_size: int | None
    committed: bool | None
    """Whether the last commit has the file like this; null if that is not known."""
    outside: bool
    """Somebody else changed it too, between two turns of this session."""
    only_outside: bool = False
    """In the changes of a session: only somebody else changed it, no turn."""
    tools: list[EditTool]
    """The edit tools that changed it. Empty if a shell command did."""
    diffs: list[Edit] = []
    """Without snapshots: what the edit tools reported."""


class LeftAlone(Struct, kw_only=True):
    """A file that is not part of snapshots."""

    path: str
    kind: str
    reason: str
    changed: bool


class OutsideChange(Struct, kw_only=True):
    path: str
    status: str


class SharedWith(Struct, kw_only=True):
    """Another session that worked in the same directory at the same time."""

    session_id: str
    turn: int
    title: str


class ElsewhereChange(Struct, kw_only=True):
    directory: str
    files: list[str]
    reason: str


class WorktreeState(Worktree, kw_only=True):
    workdir: str = ""
    ahead: int | None
    behind: int | None
    dirty: int | None
    missing: bool | None
    reason: str | None


class TurnSummary(Struct, kw_only=True):
    turn: int
    state: str
    reason: str | None
    file_count: int | None
    added: int | None
    removed: int | None
    rewound: bool


class ChangedPath(Struct, kw_only=True):
    path: str
    change: str


class SkippedPath(Struct, kw_only=True):
    path: str
    reason: str


class Operation(Struct, kw_only=True):
    """A change to files that a person has requested."""

    operation_id: str
    action: FileAction
    outcome: Literal["done", "conflict", "failed"]
    code: str | None
    message: str
    turn: int | None
    at: str
    files: list[ChangedPath]
    file_count: int
    skipped: list[SkippedPath]
    commit: str | None
    undoable: bool
    undone: bool


class Comment(Struct, kw_only=True):
    comment_id: str
    path: str
    side: Literal["new", "old"]
    line: int
    end_line: int
    turn: int | None
    quote: str
    text: str
    sent_turn: int | None
    state: Literal["sent", "open", "addressed", "outdated"]
    """After the turn that got it: `addressed` if that turn changed the lines, `open` if it did not, `outdated` if
    somebody else changed them before."""
    at: str


class Changes(Struct, kw_only=True):
    """What a turn, or the whole session, has changed."""

    session_id: str
    turn: int | None
    source: Literal["snapshots", "stored", "edits", "none"]
    """`snapshots`: from the repository. `stored`: as stored by the node that has it. `edits`: what the agent's edit
    tools reported, because there are no snapshots."""
    state: Literal["running", "ready", "partial", "unavailable", "none"]
    reason: str | None
    node_name: str | None
    node_responds: bool
    """False if another node has the directory and did not answer."""
    repository: RepositoryState | None
    directory: str
    workdir: str
    before: str | None
    after: str | None
    head_before: str | None
    head_after: str | None
    files: list[ChangedFile]
    file_count: int | None
    added: int | None
    removed: int | None
    truncated: bool
    left_alone: list[LeftAlone]
    outside: list[OutsideChange]
    shared_with: list[SharedWith]
    elsewhere: list[ElsewhereChange]
    worktree: WorktreeState | None
    turns: list[TurnSummary]
    operations: list[Operation]
    comments: list[Comment]


class RestorePreview(Struct, kw_only=True):
    preview: Literal[True]
    turn: int
    point: Literal["before", "after"]
    files: list[ChangedPath]
    file_count: int
    outside: list[SkippedPath]
    left_alone: list[dict[str, Any]]
    head_moved: str | None


class PreviewedCommit(Struct, kw_only=True):
    commit: str
    subject: str


class MergePreview(Struct, kw_only=True):
    preview: Literal[True]
    strategy: Literal["merge", "rebase"]
    base: str | None
    branch: str
    ahead: int
    behind: int
    commits: list[PreviewedCommit]
    files: list[OutsideChange]
    conflicts: list[str]
    uncommitted: list[str]
    blocked: str | None


# Handlers -------------------------------------------------------------------------------------------------------------


def _session(request: Request) -> str:
    found: str = request.path_params["session_id"]
    return found


def _turn(request: Request) -> int | None:
    return whole_number(request, "turn", 0, low=1, high=TURN_MAX) or None


def _ignores_whitespace(request: Request) -> bool:
    given = request.query_params.get("whitespace", "show")
    if given not in ("show", "ignore"):
        raise Refused("invalid", "whitespace must be show or ignore.", fields=["whitespace"])
    return given == "ignore"


async def get_changes(request: Request) -> Response:
    changes = verbs(request).changes
    whitespace = _ignores_whitespace(request)
    return reply(await changes.read(_session(request), _turn(request), ignore_whitespace=whitespace))


async def get_patch(request: Request) -> Response:
    paths = request.query_params.getlist("path")[:PATHS_MAX]
    check_paths("path", paths, or_absolute=True)
    patch, is_truncated = await verbs(request).changes.patch(
        _session(request),
        _turn(request),
        paths,
        ignore_whitespace=_ignores_whitespace(request),
        context=whole_number(request, "context", 3, high=CONTEXT_MAX),
        binary=flag(request, "binary"),
    )
    headers = {"perdure-truncated": "true"} if is_truncated else {}
    if flag(request, "download"):
        headers["content-disposition"] = 'attachment; filename="changes.patch"'
    return Response(patch, media_type="text/x-diff", headers=headers)


async def get_changed_content(request: Request) -> Response:
    turn, path, side = _turn(request), request.query_params.get("path"), request.query_params.get("side", "after")
    if side not in ("before", "after"):
        raise Refused("invalid", "side must be before or after.", fields=["side"])
    if path is None:
        raise Refused("not_found", "Give the path of a changed file, as `path`.")
    check_paths("path", [path])
    data = await verbs(request).changes.content(_session(request), turn, path, side)
    kind = IMAGES.get(path.rpartition(".")[2].lower())
    headers = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}
    if kind is None:
        headers["content-disposition"] = "attachment"
    return Response(data, media_type=kind or "application/octet-stream", headers=headers)


async def restore_files(request: Request) -> Response:
    body, changes = await body_of(request, RestoreBody), verbs(request).changes
    where = (_session(request), body.turn)
    check_paths("paths", body.paths or [])
    if body.preview:
        return reply(await changes.preview_restore(*where, point=body.point, paths=body.paths))
    return reply(await changes.restore(*where, point=body.point, paths=body.paths, outside=body.outside))


async def discard_changes(request: Request) -> Response:
    body, changes = await body_of(request, DiscardBody), verbs(request).changes
    check_paths("path", [body.path])
    answer = changes.discard(
        _session(request), body.path, turn=body.turn, hunks=body.hunks, new_id=body.new_id, outside=body.outside
    )
    return reply(await answer)


async def undo_operation(request: Request) -> Response:
    body = await body_of(request, UndoBody)
    return reply(await verbs(request).changes.undo(_session(request), body.operation_id, body.outside))


async def commit_files(request: Request) -> Response:
    body = await body_of(request, CommitBody)
    if body.paths is not None and body.files is not None:
        raise Refused("invalid", "Give either paths or files.")
    expected = {file.path: file.new_id for file in body.files or []}
    paths = body.paths if body.files is None else list(expected)
    check_paths("paths", paths or [])
    return reply(await verbs(request).changes.commit(_session(request), body.message, paths, expected))


async def merge_worktree(request: Request) -> Response:
    body, changes = await body_of(request, MergeBody), verbs(request).changes
    if body.preview:
        return reply(await changes.preview_merge(_session(request), body.strategy, body.commit_message))
    return reply(await changes.merge(_session(request), body.strategy, body.message, body.commit_message))


async def send_review(request: Request) -> Response:
    body = await body_of(request, ReviewBody)
    check_paths("path", [comment.path for comment in body.comments], or_absolute=True)
    comments = [
        NewComment(
            path=comment.path,
            text=comment.text,
            line=comment.line,
            end_line=comment.end_line,
            side=comment.side,
            turn=comment.turn,
            quote=comment.quote,
        )
        for comment in body.comments
    ]
    message = Outgoing(
        text="",
        message_id=body.message_id,
        agent=body.agent,
        when_busy=body.when_busy,
        when_full=body.when_full,
    )
    return reply(await verbs(request).comments.send(_session(request), comments, body.text, message), 202)


# Endpoints ------------------------------------------------------------------------------------------------------------

OF_TURN = (int, "The turn. Default: all changes of the session.", between(1, TURN_MAX))
WHITESPACE = (str, "`ignore`: don't count lines in which only whitespace has changed.", {"enum": ["show", "ignore"]})
REFUSALS = ("not_found", "turn_active", "conflict", "no_repository", "files_changed", "unavailable")

CHANGES = [
    Endpoint(
        "GET",
        f"{SESSION}/changes",
        get_changes,
        "Get the files that a turn, or the whole session, has changed",
        query={"turn": OF_TURN, "whitespace": WHITESPACE},
        answers={200: Changes},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{SESSION}/changes/patch",
        get_patch,
        "Get changes as a patch, as `git diff` prints it",
        query={
            "turn": OF_TURN,
            "path": (str, "Only this file; may be repeated."),
            "whitespace": WHITESPACE,
            "context": (int, "Lines around each change; default 3.", between(0, CONTEXT_MAX)),
            "binary": (
                bool,
                "As `git diff --binary` prints it, so that `git apply` can read changes of binary files.",
            ),
            "download": (bool, "Send it as a download."),
        },
        answers={200: "text/x-diff"},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{SESSION}/changes/content",
        get_changed_content,
        "Get a file as it was before or after the change",
        query={
            "turn": OF_TURN,
            "path": (str, "The file."),
            "side": (str, "Default: after.", {"enum": ["before", "after"]}),
        },
        answers={200: "application/octet-stream"},
        refusals=("not_found", "too_large"),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/restore",
        restore_files,
        "Restore files to what they were before or after a turn",
        body=RestoreBody,
        answers={200: (Operation, RestorePreview)},
        refusals=REFUSALS,
    ),
    Endpoint(
        "POST",
        f"{SESSION}/discard",
        discard_changes,
        "Discard the change to a file, or some hunks of it",
        body=DiscardBody,
        answers={200: Operation},
        refusals=REFUSALS,
    ),
    Endpoint(
        "POST",
        f"{SESSION}/undo",
        undo_operation,
        "Undo a restore, a discard or another undo",
        body=UndoBody,
        answers={200: Operation},
        refusals=REFUSALS,
    ),
    Endpoint(
        "POST",
        f"{SESSION}/commit",
        commit_files,
        "Commit files, without the repository's hooks and filters",
        body=CommitBody,
        answers={200: Operation},
        refusals=REFUSALS,
    ),
    Endpoint(
        "POST",
        f"{SESSION}/merge",
        merge_worktree,
        "Merge the branch of the session's worktree into the branch that it came from",
        body=MergeBody,
        answers={200: (Operation, MergePreview)},
        refusals=(*REFUSALS, "merge_conflict"),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/review",
        send_review,
        "Send comments on changed lines to the agent, as one message",
        body=ReviewBody,
        answers={202: Accepted},
        refusals=(
            "not_found",
            "turn_active",
            "session_ended",
            "conflict",
            "queue_full",
            "slots_full",
            "too_large",
            "agent_unavailable",
        ),
    ),
]
