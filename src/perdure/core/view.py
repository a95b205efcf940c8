"""The view of a turn: its events folded into parts, for snapshots and transcripts.

Above: the journal (live views), transcript.py, surfaces. Below: events and state. A view is derived from the log and is
never a source of facts.

A live view has a bounded amount of text and a bounded number of parts, so its memory is bounded however long the turn
is. The view of a transcript is complete.

A live view drops the oldest text beyond LIVE_TEXT_CHARS, the inputs and outputs of older tools, and the oldest parts
beyond LIVE_PARTS. When it drops a text part, it preserves the text itself, so dropping parts changes neither `text` and
`text_offset` nor search and the last line. Of the old parts, it preserves the plan and the newest tools that are still
running. `parts_offset` counts the dropped parts. A tool that is reported again after its part was dropped becomes a new
part.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.core import events as ev
from perdure.core.clock import ms_between
from perdure.core.errors import Refused
from perdure.core.scope import turns_of
from perdure.core.state import Session, Turn

LIVE_TEXT_CHARS = 256 * 1024
LIVE_IMAGE_CHARS = 4 * 1024 * 1024
"""A live view holds the newest images up to this limit. Older ones remain without their data."""
LIVE_TOOLS_BYTES = 4 * 1024 * 1024
"""When the inputs and outputs of tools exceed twice this, the oldest are dropped down to this. Those tools get an
`offset` instead."""
TOOL_CONTENT_CHARS = 64 * 1024
LIVE_PARTS = 2_000
"""When a live view has twice this many parts, the oldest are dropped down to this."""
LIVE_PARTS_BYTES = 4 * 1024 * 1024
"""The same for the bytes of parts, without text, images, and inputs and outputs of tools."""
LIVE_OLD_TOOLS = 100
"""How many running tools, the newest ones, survive when old parts are dropped."""
LIVE_PROMPTS = 1_000
"""Maximum number of open prompts. Beyond it, the answer to the oldest is shown without its question."""
PAGE_TURNS = 50
"""How many of its newest turns a session is shown with, by default and in snapshots."""

CURSOR_MAX_DIGITS = 15

NO_BLOCK = -1
PART_BYTES = 300
"""Approximate overhead of a part or prompt: its object, and its entries in lists."""

ITEM_BYTES = 100
"""Approximate overhead of each item of a list or object."""
WIDE_CHAR_BYTES = 4
"""In Python, one wide character makes every character of its string this wide."""

_OF_A_TOOL = ("input", "diff", "locations", "content")
_OVER = ("completed", "failed")


def size_of(value: Any) -> int:
    """The approximate size of a value in memory, in bytes."""
    size, todo = 0, [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            size += len(one) if one.isascii() else len(one) * WIDE_CHAR_BYTES
        elif isinstance(one, dict | list):
            size += len(one) * ITEM_BYTES
            todo.extend(one.values() if isinstance(one, dict) else one)
        elif isinstance(one, msgspec.Struct):
            todo.extend(getattr(one, name) for name in one.__struct_fields__)
    return size


class TextPart:
    """A block of text or thinking. Its first `offset` characters were dropped."""

    __slots__ = ("at", "block", "chunks", "kind", "length", "offset")

    def __init__(self, kind: str, block: int) -> None:
        self.kind = kind
        self.block = block
        self.chunks: list[str] = []
        self.length = 0
        self.offset = 0
        self.at = ""
        """The time of its last delta; set only in a journal's view (turn_record.py)."""

    def text(self) -> str:
        if len(self.chunks) > 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""

    def trim(self, keep: int) -> int:
        """Drop all but the last `keep` characters, and return how many were dropped."""
        text = self.text()
        drop = max(0, len(text) - keep)
        if drop:
            self.chunks = [text[drop:]]
            self.length -= drop
            self.offset += drop
        return drop


class TurnView:
    """The parts of one turn, in order."""

    def __init__(self, turn: int | None, *, live_chars: int | None = LIVE_TEXT_CHARS) -> None:
        self.turn = turn
        self.message: dict[str, Any] | None = None
        self.parts: list[TextPart | dict[str, Any]] = []
        self.tools: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, ev.PendingPrompt] = {}
        self.text_offset = 0
        self.thinking_offset = 0
        """How many characters of thinking were dropped."""
        self.parts_offset = 0
        """How many parts were dropped."""
        self.notices_offset = 0
        """How many of the dropped parts were neither text, thinking, a tool nor a plan."""
        self.dropped_text = TextPart("text", NO_BLOCK)
        """The preserved text of dropped parts. It comes before the text of `parts`."""
        self._dropped_block_chars = 0
        self._images: deque[dict[str, Any]] = deque()
        self._plan_part: dict[str, Any] | None = None
        self._live_chars = live_chars
        self._kept = 0
        self._is_wide = False
        self._of_tools = 0
        self._of_parts = 0
        self._of_images = 0
        self._of_messages = 0
        self._parts_bytes_max = 2 * LIVE_PARTS_BYTES

    @property
    def size(self) -> int:
        """Its approximate size in memory, in bytes."""
        text = self._kept * WIDE_CHAR_BYTES if self._is_wide else self._kept
        content = text + self._of_tools + self._of_parts + self._of_images + self._of_messages
        return content + (len(self.parts) + len(self._asked)) * PART_BYTES

    def fold(self, event: ev.Event) -> None:
        if event.turn == self.turn and (show := SHOWN.get(type(event))) is not None:
            show(self, event)

    def _assistant_text(self, event: ev.AssistantText) -> None:
        self._text("text", event.block, event.delta)

    def _assistant_thinking(self, event: ev.AssistantThinking) -> None:
        self._text("thinking", event.block, event.delta)

    def _user_message(self, event: ev.UserMessage) -> None:
        message = {
            "message_id": event.message_id,
            "text": event.text,
            "at": event.at,
            "attachments": event.attachments,
        }
        if event.origin != "person":
            message["origin"] = event.origin
        self._say(message)

    def _history_changed(self, event: ev.HistoryChanged) -> None:
        if event.change == "edit" and self.message is not None:
            self._say({**self.message, "text": event.text, "edited_at": event.at})

    def _notice(self, event: ev.Event) -> None:
        part = msgspec.to_builtins(event)
        shown = {key: part[key] for key in part if key not in ("session_id", "turn", "answer")}
        if isinstance(event, ev.PromptResolved):
            shown.update(self._about(event))
        self._add(shown)

    def _say(self, message: dict[str, Any]) -> None:
        self._of_messages += size_of(message) - size_of(self.message)
        self.message = message

    def _ask(self, prompt: ev.PendingPrompt) -> None:
        self._of_messages += size_of(prompt) - size_of(self._asked.get(prompt.prompt_id))
        self._asked[prompt.prompt_id] = prompt
        if self._live_chars is not None and len(self._asked) > LIVE_PROMPTS:
            self._of_messages -= size_of(self._asked.pop(next(iter(self._asked))))

    def _add(self, part: TextPart | dict[str, Any]) -> None:
        if not isinstance(part, TextPart):
            self._of_parts += size_of(part)
        self.parts.append(part)
        if self._live_chars is not None and (
            len(self.parts) > 2 * LIVE_PARTS or self._of_parts > self._parts_bytes_max
        ):
            self._drop_parts()

    def _drop_parts(self) -> None:
        """Drop the oldest parts. Runs at twice the bound, so its cost is amortized over many parts."""
        first, room = len(self.parts), LIVE_PARTS_BYTES
        while first > 0 and len(self.parts) - first < LIVE_PARTS:
            part = self.parts[first - 1]
            room -= 0 if isinstance(part, TextPart) else self._part_bytes(part)
            if room < 0 and first < len(self.parts):
                break
            first -= 1
        old, newest = self.parts[:first], self.parts[first:]
        kept = {index for index, part in enumerate(old) if part is self._plan_part}
        kept.update([index for index, part in enumerate(old) if _runs(part)][-LIVE_OLD_TOOLS:])
        for index, part in enumerate(old):
            if index not in kept:
                self._drop(part)
        self.parts = [old[index] for index in sorted(kept)] + newest
        self._of_parts = sum(self._part_bytes(part) for part in self.parts if not isinstance(part, TextPart))
        # The remaining parts may exceed the bound. Raise it, or every new part would trigger this again.
        self._parts_bytes_max = 2 * max(LIVE_PARTS_BYTES, self._of_parts)

    def _drop(self, part: TextPart | dict[str, Any]) -> None:
        self.parts_offset += 1
        if isinstance(part, TextPart) and part.kind == "text":
            self._keep_text(part)
        elif isinstance(part, TextPart):
            self._kept -= part.length
            self.thinking_offset += part.length
        elif part["type"] == "tool":
            self._of_tools -= sum(size_of(part.get(key)) for key in _OF_A_TOOL)
            del self.tools[part["tool_id"]]
        else:
            self.notices_offset += 1
            if part["type"] == "image" and part["data"] is not None:
                # Images are dropped in order, so this is the oldest one.
                self._of_images -= len(self._images.popleft()["data"])

    def _keep_text(self, part: TextPart) -> None:
        text, before = part.text(), self.dropped_text
        if part.block != before.block and text.strip():
            before.block, self._dropped_block_chars = part.block, 0
        elif part.block != before.block:
            # A blank block shows nothing, but still separates the next text from the block before it.
            before.block = NO_BLOCK
        before.chunks.append(text)
        before.length += part.length
        self._dropped_block_chars += part.length

    def dropped_block(self) -> str:
        """What remains of the last non-blank block of the dropped text."""
        text = self.dropped_text.text()
        return text[len(text) - min(len(text), self._dropped_block_chars) :]

    @staticmethod
    def _part_bytes(part: dict[str, Any]) -> int:
        """The size of a part, without the fields that are counted elsewhere."""
        apart = _OF_A_TOOL if part["type"] == "tool" else ("data",) if part["type"] == "image" else ()
        return size_of({key: value for key, value in part.items() if key not in apart})

    def _about(self, event: ev.PromptResolved) -> dict[str, Any]:
        """The question and its answer, because the prompt itself is no longer open."""
        answer = event.answer or {}
        about: dict[str, Any] = {"reason": answer["reason"]} if answer.get("reason") else {}
        prompt = self._asked.pop(event.prompt_id, None)
        if prompt is not None:
            self._of_messages -= size_of(prompt)
            about.update(title=prompt.title, kind=prompt.kind)
            if prompt.questions:
                about["questions"] = [msgspec.to_builtins(question) for question in prompt.questions]
                about["answers"] = answer.get("answers")
        return about

    def text(self) -> str:
        """The turn's text parts, concatenated, from `text_offset` on."""
        texts = [part for part in self.parts if isinstance(part, TextPart) and part.kind == "text"]
        return "".join(part.text() for part in (self.dropped_text, *texts))

    def show(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        for part in self.parts:
            if not isinstance(part, TextPart):
                shown.append(part)
            elif part.length or not part.offset:
                entry = {"type": part.kind, "block": part.block, "text": part.text()}
                if part.offset:
                    entry["offset"] = part.offset
                shown.append(entry)
        return shown

    def _text(self, kind: str, block: int, delta: str) -> None:
        last = self.parts[-1] if self.parts else None
        if not (isinstance(last, TextPart) and last.kind == kind and last.block == block):
            last = TextPart(kind, block)
            self._add(last)
        chars = len(delta)
        last.chunks.append(delta)
        last.length += chars
        self._kept += chars
        if not delta.isascii():
            self._is_wide = True
        if self._live_chars is not None and self._kept > 2 * self._live_chars:
            self._trim()

    def _trim(self) -> None:
        """Drop the oldest text. Runs at twice the bound, so its cost is amortized over many deltas."""
        assert self._live_chars is not None
        excess = self._kept - self._live_chars
        for part in (self.dropped_text, *self.parts):
            if excess <= 0:
                break
            if isinstance(part, TextPart) and part.length:
                dropped = part.trim(max(0, part.length - excess))
                excess -= dropped
                self._kept -= dropped
                if part.kind == "text":
                    self.text_offset += dropped
                else:
                    self.thinking_offset += dropped

    def _tool_use(self, event: ev.ToolUse) -> None:
        known = self.tools.get(event.tool_id)
        if known is not None:
            known.update(name=event.name, kind=event.kind)
            self._name(known, event.title or known["title"])
            if event.input is not None:
                self._put(known, "input", event.input)
            return
        tool = {
            "type": "tool",
            "tool_id": event.tool_id,
            "name": event.name,
            "kind": event.kind,
            "title": event.title,
            "status": "pending",
            "input": None,
            "parent_tool_id": event.parent_tool_id,
            "started_at": event.at,
        }
        self.tools[event.tool_id] = tool
        self._add(tool)
        self._put(tool, "input", event.input)

    def _tool_update(self, event: ev.ToolUpdate | ev.ToolResult) -> None:
        tool = self.tools.get(event.tool_id)
        if tool is None:
            return
        tool["status"] = event.status
        if event.title is not None:
            self._name(tool, event.title)
        for key in ("input", "diff", "locations"):
            value = getattr(event, key)
            if value is not None:
                self._put(tool, key, value)
        if event.content is not None:
            limit = TOOL_CONTENT_CHARS if self._live_chars is not None else None
            self._put(tool, "content", event.content if limit is None else event.content[-limit:])
        if isinstance(event, ev.ToolResult):
            tool["is_error"] = event.is_error
            tool["ended_at"] = event.at
            if event.outcome is not None:
                tool["outcome"] = event.outcome
            if event.waited_ms:
                tool["waited_ms"] = event.waited_ms

    def _name(self, tool: dict[str, Any], title: str) -> None:
        self._of_parts += size_of(title) - size_of(tool["title"])
        tool["title"] = title

    def _put(self, tool: dict[str, Any], key: str, value: Any) -> None:
        self._of_tools += size_of(value) - size_of(tool.get(key))
        tool[key] = value
        if self._live_chars is not None and self._of_tools > 2 * LIVE_TOOLS_BYTES:
            self._trim_tools()

    def _trim_tools(self) -> None:
        """Drop the inputs and outputs of the oldest tools."""
        for tool in self.tools.values():
            if self._of_tools <= LIVE_TOOLS_BYTES:
                break
            dropped = sum(size_of(tool.pop(key, None)) for key in _OF_A_TOOL)
            self._of_tools -= dropped
            tool["input"] = None
            if dropped:
                tool["offset"] = tool.get("offset", 0) + dropped

    def _image(self, event: ev.Image) -> None:
        part = {"type": "image", "mime_type": event.mime_type, "size": event.size, "data": None}
        self._add(part | {"tool_id": event.tool_id})
        if event.data is None:
            return
        # Set the data after `_add`, which may have dropped older images.
        shown = self.parts[-1]
        assert isinstance(shown, dict)
        shown["data"] = event.data
        self._of_images += len(event.data)
        self._images.append(shown)
        while self._live_chars is not None and self._of_images > LIVE_IMAGE_CHARS:
            oldest = self._images.popleft()
            self._of_images -= len(oldest["data"])
            oldest["data"] = None

    def _plan(self, event: ev.Plan) -> None:
        entries = [msgspec.to_builtins(entry) for entry in event.entries]
        if self._plan_part is None:
            self._plan_part = {"type": "plan", "entries": entries}
            self._add(self._plan_part)
            return
        self._of_parts += size_of(entries) - size_of(self._plan_part["entries"])
        self._plan_part["entries"] = entries


SHOWN: dict[type[ev.Event], Callable[[TurnView, Any], None]] = {
    ev.AssistantText: TurnView._assistant_text,
    ev.AssistantThinking: TurnView._assistant_thinking,
    ev.ToolUse: TurnView._tool_use,
    ev.ToolUpdate: TurnView._tool_update,
    ev.ToolResult: TurnView._tool_update,
    ev.UserMessage: TurnView._user_message,
    ev.Plan: TurnView._plan,
    ev.Image: TurnView._image,
    ev.PendingPrompt: TurnView._ask,
    ev.HistoryChanged: TurnView._history_changed,
    ev.PromptResolved: TurnView._notice,
    ev.Error: TurnView._notice,
    ev.System: TurnView._notice,
    ev.ContextFallback: TurnView._notice,
    ev.HistoryShortened: TurnView._notice,
}
# fmt: off
NOT_SHOWN: tuple[type[ev.Event], ...] = (
    # About the session: its state shows them.
    ev.SessionCreated, ev.SessionUpdated, ev.SessionEnd, ev.Title, ev.Config, ev.WaitingForInput, ev.WaitingUntil,
    ev.MessageQueued, ev.QueuedMessageEdited, ev.MessageUnqueued,
    # About the turn: its figures show them (`public_turn`).
    ev.WaitingToBegin, ev.TurnStart, ev.TurnEnd, ev.Usage, ev.AbortRequested,
    # About the process, and what could not be understood.
    ev.AgentLaunched, ev.AgentAttached, ev.AgentDetached, ev.DriverFallback, ev.Unrecognised,
    # About files: the session's changes show them.
    ev.TurnChanges, ev.FilesRequested, ev.FilesChanged,
)
# fmt: on


def _runs(part: TextPart | dict[str, Any]) -> bool:
    return not isinstance(part, TextPart) and part["type"] == "tool" and part["status"] not in _OVER


TURN_FIELDS = (
    "turn",
    "run_id",
    "message_id",
    "agent",
    "started_at",
    "ended_at",
    "duration_ms",
    "stop_reason",
    "exit_code",
    "error",
    "usage",
    "cost_usd",
    "context",
    "context_reason",
    "input_bytes",
    "model",
    "catch_up",
    "replayed",
    "digested",
    "left_out",
)
TOOL_FIELDS = ("tool_id", "name", "kind", "title", "status", "input", "parent_tool_id")


def public_turn(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in TURN_FIELDS}


def public_prompt(prompt: ev.PendingPrompt) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(prompt)
    return {key: value for key, value in shown.items() if key not in ("type", "at", "session_id")}


def public_session(state: Session, event_count: int) -> dict[str, Any]:
    """A session as the API shows it, without `turns`."""
    attached = state.attached
    binding = state.bindings.get(state.agent)
    native = attached.native_session_id if attached else None
    ended = state.ended_at
    return {
        "id": state.id,
        "project": state.project,
        "agent": state.agent,
        "title": state.title,
        "summary": state.summary,
        "workdir": state.workdir,
        "labels": state.labels,
        "archived": state.archived,
        "state": state.state,
        "status": state.status,
        "attached": "ended" if ended else ("live" if attached else "suspended"),
        "created_at": state.created_at,
        "started_at": state.started_at,
        "last_active_at": state.last_active_at,
        "ended_at": ended,
        "duration_ms": _duration_ms(state),
        "event_count": event_count,
        "turn_count": state.turn_count,
        "native_session_id": native or (binding.native_session_id if binding else None),
        "pid": attached.pid if attached else None,
        "model": state.model,
        "mode": state.mode,
        "models": state.models,
        "modes": state.modes,
        "config": {name: value for name, value in state.config.items() if name not in ("model", "mode")},
        "config_options": state.config_options,
        "commands": state.commands,
        "error": state.error,
        "parent": state.parent,
        "forked_from": state.forked_from,
        "worktree": state.worktree,
        "file_operation": state.file_operation.public() if state.file_operation is not None else None,
        "revision": state.revision,
        "limits": state.limits,
        "permissions": [msgspec.to_builtins(rule) for rule in state.permissions],
        "single_shot": state.single_shot,
        "queue_length": len(state.queue),
        "pending_prompts": len(state.prompts),
        "waiting_until": state.waiting_until,
        "waiting_reason": state.waiting_reason,
        "waits_for": msgspec.to_builtins(state.waits_for),
        "usage": state.usage,
    }


def _duration_ms(state: Session) -> int | None:
    if state.ended_at is None:
        return None
    return ms_between(state.started_at or state.created_at, state.ended_at)


def visible_turns(state: Session) -> list[int]:
    return turns_of(state.visible)


def older_than(state: Session, turn: int | None) -> str | None:
    """The cursor for the page before the one that starts with this turn; None if there is none."""
    return str(turn) if turn is not None and state.visible and state.visible[0].first < turn else None


def before_cursor(cursor: str | None) -> int | None:
    """The turn before which a page ends. None: the page with the newest turns."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_MAX_DIGITS):
        raise Refused(
            "invalid",
            "This cursor is not valid. Omit it to start with the newest turns.",
            fields=["cursor"],
        )
    return int(cursor)


def snapshot(
    state: Session,
    view: TurnView,
    seq: int,
    turns: Sequence[Any],
    now: str,
    last_event_at: str = "",
    *,
    next_cursor: str | None = None,
) -> dict[str, Any]:
    """Everything that a viewer needs to start, without replaying events. Not stored."""
    return {
        "seq": seq,
        "type": "snapshot",
        "at": now,
        "last_event_at": last_event_at or now,
        "session_id": state.id,
        "turn": state.turn.turn if state.turn else view.turn,
        "session": {**public_session(state, seq), "turns": turns, "next_cursor": next_cursor},
        "visible_turns": visible_turns(state),
        "message": view.message,
        "parts": view.show(),
        "text": view.text(),
        "text_offset": view.text_offset,
        "thinking_offset": view.thinking_offset,
        "parts_offset": view.parts_offset,
        "notices_offset": view.notices_offset,
        "tools": [{key: tool[key] for key in TOOL_FIELDS} for tool in view.tools.values()],
        "pending_prompts": [public_prompt(prompt) for prompt in state.prompts.values()],
        "queue": public_queue(state),
    }


def public_queue(state: Session) -> list[dict[str, Any]]:
    """The queued messages, with everything that a client needs to withdraw one, change it and send it again."""
    return [
        {
            "message_id": queued.message_id,
            "text": queued.text,
            "agent": queued.agent,
            "attachments": queued.attachments,
            "queued_at": queued.queued_at,
            "first": queued.first,
        }
        for queued in state.queue
    ]
