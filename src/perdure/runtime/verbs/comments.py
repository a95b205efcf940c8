"""The verbs for comments on changed lines: sent to the agent as one message, and followed through its next turn.

Above: surfaces, through the sessions. Below: the records, and the verbs that send a message. The message is the
comment: it names file and lines and quotes the code. A comment's record only says what became of those lines:
`addressed` if the turn that got the comment changed them, `open` if it did not, `outdated` if somebody else changed
them before.
"""

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from perdure.core.errors import Refused
from perdure.runtime.git import difference
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository, find
from perdure.runtime.log.journal import Journal
from perdure.runtime.review.lines import replacement, touched
from perdure.runtime.review.names import unquoted
from perdure.runtime.review.records import SESSION, Change, Comment, turn_name
from perdure.runtime.verbs.changes import Changes
from perdure.runtime.verbs.outgoing import Outgoing

if TYPE_CHECKING:
    from perdure.runtime.verbs.sessions import Sessions

COMMENTS_MAX = 100
QUOTE_MAX_CHARS = 4_000
SHOWN_MAX = 200

Side = Literal["new", "old"]


class NewComment(Struct, frozen=True, kw_only=True):
    path: str
    text: str
    line: int
    end_line: int | None = None
    side: Side = "new"
    turn: int | None = None
    quote: str | None = None


class Comments:
    def __init__(self, sessions: "Sessions", changes: Changes) -> None:
        self._sessions = sessions
        self._changes = changes
        self._records = changes.records
        changes.comments = self.all

    async def send(self, session_id: str, comments: list[NewComment], intro: str, message: Outgoing) -> dict[str, Any]:
        """Send the comments as one message. `message` says how; its text is replaced."""
        if not comments:
            raise Refused("invalid", "Give at least one comment.", fields=["comments"])
        if len(comments) > COMMENTS_MAX:
            raise Refused("invalid", f"Send at most {COMMENTS_MAX} comments at once.", fields=["comments"])
        await self._changes.settle(session_id)
        message_id = message.message_id or f"m_{secrets.token_hex(8)}"
        drafted = [
            await self._sent_before(session_id, comment, message_id, number)
            or await self._drafted(session_id, comment, message_id)
            for number, comment in enumerate(comments)
        ]
        text = written(drafted, intro)
        names = []
        for number, comment in enumerate(drafted):
            if comment.comment_id:
                continue
            # Before the message, whose turn may end before this returns.
            comment.comment_id, comment.at = f"{message_id}.{number}", self._sessions.log.stamp()
            await self._records.put(session_id, _name(message_id, number), comment)
            names.append(_name(message_id, number))
        try:
            return await self._sessions.send(
                session_id, msgspec.structs.replace(message, text=text, message_id=message_id)
            )
        except Refused:
            for name in names:
                await self._records.drop(session_id, name)
            raise

    async def _sent_before(self, session_id: str, new: NewComment, message_id: str, number: int) -> Comment | None:
        """The same comment, if this message was sent before. The lines that it quoted may have changed since."""
        known = await self._records.get(session_id, _name(message_id, number), Comment)
        if known is None or (known.path, known.side, known.turn, known.text) != (
            new.path,
            new.side,
            new.turn,
            new.text,
        ):
            return None
        return known

    async def _drafted(self, session_id: str, new: NewComment, message_id: str) -> Comment:
        name = SESSION if new.turn is None else turn_name(new.turn)
        change = await self._records.get(session_id, name, Change)
        first, last = new.line, max(new.line, new.end_line or new.line)
        tree = None if change is None else change.before if new.side == "old" else change.after
        lines = await self._lines(session_id, new, change)
        quote = "\n".join(lines[first - 1 : last]) if lines is not None else ""
        if new.quote is not None and lines is not None and new.quote != quote:
            # The file has changed since the comment was written.
            found = nearest(lines, new.quote.split("\n"), first)
            first, last, tree = (found, found + last - first, tree) if found is not None else (first, last, None)
        elif new.quote is None and lines is not None and first > len(lines):
            many = f"{len(lines)} line" + ("s" if len(lines) != 1 else "")
            raise Refused("invalid", f"{new.path} has {many}, so there is no line {first}.", fields=["comments"])
        return Comment(
            comment_id="",
            path=new.path,
            side=new.side,
            line=first,
            end_line=last,
            turn=new.turn,
            quote=(quote if new.quote is None else new.quote)[:QUOTE_MAX_CHARS],
            text=new.text,
            message_id=message_id,
            tree=tree,
        )

    async def _lines(self, session_id: str, new: NewComment, change: Change | None) -> list[str] | None:
        """The lines of the file that the comment is about; None if they are not known here."""
        try:
            data = await self._changes.content(
                session_id, new.turn, new.path, "before" if new.side == "old" else "after"
            )
        except Refused as refusal:
            if refusal.code not in ("not_found", "too_large"):
                raise
            shown = await self._changes.read(session_id, new.turn)
            files = [file for file in shown["files"] if new.path in (file["path"], file["old_path"])]
            if not files:
                raise Refused("not_found", f"{new.path} is not among the changes.", fields=["comments"]) from refusal
            return _passage(files[0].get("diffs") or [], new)
        lines = data.decode("utf-8", "replace").split("\n")
        return lines[:-1] if lines[-1] == "" else lines

    async def all(self, session_id: str) -> list[dict[str, Any]]:
        found = await self._records.all(session_id, "comment-", Comment)
        found.sort(key=lambda comment: comment.at)
        if any(comment.state == "sent" for comment in found):
            await self._settle(session_id, found)
        names = ("comment_id", "path", "side", "line", "end_line", "turn", "quote", "text", "sent_turn", "state", "at")
        return [{name: getattr(comment, name) for name in names} for comment in found[-SHOWN_MAX:]]

    async def compare(self, journal: Journal, change: Change) -> None:
        """After a turn: what became of the lines that its message commented on."""
        session_id, turn = journal.state.id, change.turn
        rows = await self._sessions.log.store.read_turns(session_id, from_turn=turn or 0, hidden=True)
        message = next((msgspec.json.decode(row.public)["message_id"] for row in rows if row.turn == turn), None)
        for name in await self._records.names(session_id, _name(str(message))):
            comment = await self._records.get(session_id, name, Comment)
            if comment is not None and comment.state == "sent":
                comment.state = await asyncio.to_thread(_state_of, comment, change)
                comment.sent_turn = turn
                await self._records.put(session_id, name, comment)

    async def _settle(self, session_id: str, comments: list[Comment]) -> None:
        """Comments whose turn has ended without snapshots: addressed if the agent's edit tools changed the file."""
        rows = await self._sessions.log.store.read_turns(session_id, hidden=True)
        turns = {turn["message_id"]: turn for turn in (msgspec.json.decode(row.public) for row in rows)}
        for comment in comments:
            turn = turns.get(comment.message_id)
            if comment.state != "sent" or turn is None or turn["stop_reason"] is None:
                continue
            change = await self._records.get(session_id, turn_name(turn["turn"]), Change)
            if change is not None and change.state != "unavailable":
                continue  # the recorder does it
            edited = await self._changes.edited(session_id, turn["turn"])
            comment.state, comment.sent_turn = "addressed" if comment.path in edited else "open", turn["turn"]
            number = int(comment.comment_id.rpartition(".")[2])
            await self._records.put(session_id, _name(comment.message_id, number), comment)


def _name(message_id: str, number: int | str = "") -> str:
    """The name of a comment's record. A message's id may contain anything, so it can't be a part of it."""
    return f"comment-{hashlib.sha256(message_id.encode()).hexdigest()[:32]}.{number}"


def _passage(diffs: list[dict[str, Any]], new: NewComment) -> list[str] | None:
    """The lines up to the end of the reported edit that the comment is about, empty before it."""
    for diff in diffs:
        before = (diff.get("line") or 1) - 1
        lines = str(diff["old_text" if new.side == "old" else "new_text"] or "").split("\n")
        if before < new.line <= before + len(lines):
            return [""] * before + lines
    return None


def nearest(lines: list[str], wanted: list[str], line: int) -> int | None:
    """Where these lines are in a file, nearest to a line."""
    starts = (at for at in range(len(lines) - len(wanted) + 1) if lines[at : at + len(wanted)] == wanted)
    found = min(starts, key=lambda at: abs(at + 1 - line), default=None)
    return None if found is None else found + 1


def _state_of(comment: Comment, change: Change) -> str:
    path = unquoted(comment.path)
    if comment.tree is None or change.before is None or change.after is None:
        return "addressed" if path in {file.path for file in change.files} else "open"
    try:
        repo = find(change.root)
        if repo is None:
            return "open"
        lines = (comment.line, comment.end_line)
        if comment.side == "old":
            # These lines are gone already: look at what is there instead.
            patch, _ = difference.patch(repo, comment.tree, change.before, paths=[path], context=0)
            around = replacement(patch, lines)
            return "open" if _followed(repo, change.before, change.after, path, around) is not None else "addressed"
        where = _followed(repo, comment.tree, change.before, path, lines)
        if where is None:
            return "outdated"
        return "open" if _followed(repo, change.before, change.after, path, where) is not None else "addressed"
    except GitError:
        return "open"


def _followed(repo: Repository, before: str, after: str, path: str, lines: tuple[int, int]) -> tuple[int, int] | None:
    """Where these lines are afterwards; None if one of them has changed."""
    patch, _ = difference.patch(repo, before, after, paths=[path], context=0)
    return touched(patch, lines)


def written(comments: list[Comment], intro: str) -> str:
    """The message: each comment with its file, lines and code."""
    parts = [intro.strip()] if intro.strip() else ["Please address these review comments."]
    for comment in comments:
        lines = (
            f"line {comment.line}" if comment.line == comment.end_line else f"lines {comment.line}-{comment.end_line}"
        )
        removed = ", before the change" if comment.side == "old" else ""
        fence = "`" * max(3, _longest_fence(comment.quote) + 1)
        code = f"\n{fence}\n{comment.quote}\n{fence}" if comment.quote else ""
        parts.append(f"**{comment.path}**, {lines}{removed}:{code}\n{comment.text.strip()}")
    return "\n\n".join(parts)


def _longest_fence(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
