"""Tool calls of an ACP agent. Three kinds of message all report the current state of a call.

Above: turns.py and asking.py. Below: core events. Agents differ in everything: the first message about a call may be a
`tool_call`, a `tool_call_update` or a permission request; the status may be missing; the end may never be reported.
"""

from typing import Any, Protocol, cast

from msgspec import Struct

from perdure.core.events import Event, ToolResult, ToolStatus, ToolUpdate, ToolUse
from perdure.core.images import IMAGES_MAX, digest
from perdure.drivers import jsonrpc
from perdure.drivers.acp.content import block_image, block_text

KEPT_INPUT_BYTES = 64 * 1024
KEPT_DIFF_BYTES = 256 * 1024
"""Limit for all open calls together."""
KEPT_OUTPUT_CHARS = 16 * 1024
KEPT_WORDS_CHARS = 2000
LEFT_OPEN = "left open by the agent"

_ENDED = ("completed", "failed")
_KNOWN = ("pending", "in_progress", *_ENDED)


class Tool(Struct, omit_defaults=True):
    """The stored state of a call while its turn runs."""

    name: str
    """The agent's name for the tool, or its kind; empty if it sends neither. Never the title, which the model may have
    written: permission rules match this name."""
    title: str = ""
    status: str = "pending"
    input: Any = None
    """Stored while the call is open, for a permission request that has only the id of the call."""
    kind: str = ""
    diff: list[dict[str, Any]] | None = None
    """Stored while the call is open, for the same reason."""
    output: str = ""
    """The tail of the terminal output, for agents that send it separately from the content."""
    said: bool = False
    """Whether it had text as content. A bare exit code must not replace that text."""
    words: str = ""
    """The tail of the current message of its sub-agent."""
    words_message: str | int | None = None
    words_untold: int = 0
    """How many characters were added since the last report."""
    images: list[str] = []
    """Digests of its images, because most agents repeat them."""

    @property
    def open(self) -> bool:
        return self.status not in _ENDED


class Calls(Protocol):
    """The turn that the calls are part of."""

    turn: int
    tools: dict[str, Tool]
    block_kind: str


def upsert(running: Calls, call: dict[str, Any]) -> list[Event]:
    """Update a call from a message, and return the events that report the change."""
    tool_id, turn = call["toolCallId"], running.turn
    tool = running.tools.get(tool_id)
    if tool is None:
        # Text after a new tool call starts a new block. Text after mere progress doesn't.
        running.block_kind = "tool"
        tool = running.tools[tool_id] = Tool(name=_name(call), title=_string(call, "title"))
        _remember(tool, call)
        _remember_diff(running, tool, call)
        parent = parent_of(_meta(call))
        if parent is not None and parent in running.tools:
            # After a tool call of its own, the sub-agent starts a new text.
            forget_words(running.tools[parent])
        use = ToolUse(
            turn=turn,
            tool_id=tool_id,
            name=tool.name or tool.title or "tool",
            kind=_string(call, "kind") or "other",
            title=tool.title,
            input=call.get("rawInput"),
            parent_tool_id=parent,
        )
        return [use, *_images(tool, call, turn), *_progress(tool, call, turn)]
    # Report only changes: many agents repeat the whole call with every piece of output.
    title, given = _string(call, "title"), call.get("rawInput")
    title = title if title != tool.title else ""
    given = given if given != tool.input else None
    _remember(tool, call)
    _remember_diff(running, tool, call)
    return [*_images(tool, call, turn), *_progress(tool, call, turn, title or None, given)]


def report(running: Calls, parent: str, message: str | int | None, text: str) -> list[Event]:
    """Report text of a sub-agent as progress of the call that started it. Pieces of one message are joined, and only
    the tail is shown; a new message replaces the old. Each report repeats the whole text, so one is made only when the
    text has grown by an eighth."""
    tool = running.tools.get(parent)
    if tool is None or not tool.open:
        return []
    if message != tool.words_message:
        forget_words(tool)
    tool.words = (tool.words + text)[-KEPT_WORDS_CHARS:]
    tool.words_message = message
    tool.words_untold += len(text)
    if tool.words_untold < len(tool.words) // 8:
        return []
    tool.words_untold = 0
    return [ToolUpdate(turn=running.turn, tool_id=parent, status=cast(ToolStatus, tool.status), content=tool.words)]


def forget_words(tool: Tool) -> None:
    tool.words, tool.words_untold = "", 0


def close(running: Calls) -> list[Event]:
    """Mark the calls that are still open as failed, at the end of the turn."""
    events: list[Event] = []
    for tool_id, tool in running.tools.items():
        if tool.open:
            tool.status = "failed"
            content = f"{tool.output}\n{LEFT_OPEN}" if tool.output else LEFT_OPEN
            events.append(
                ToolResult(turn=running.turn, tool_id=tool_id, status="failed", content=content, is_error=True)
            )
    return events


def _progress(tool: Tool, call: dict[str, Any], turn: int, title: str | None = None, given: Any = None) -> list[Event]:
    was_open, before = tool.open, tool.status
    status = call.get("status")
    if was_open and status in _KNOWN:
        tool.status = cast(str, status)
    diff, locations = diff_of(call), _locations(call)
    ends = was_open and not tool.open
    content = _content(tool, call, ends)
    if ends:
        tool.input, tool.diff, tool.output = None, None, ""
        forget_words(tool)
    elif tool.status == before and not (content or diff or locations or title or given):
        return []
    kind = ToolResult if ends else ToolUpdate
    return [
        kind(
            turn=turn,
            tool_id=call["toolCallId"],
            status=cast(ToolStatus, tool.status),
            content=content,
            diff=diff,
            locations=locations,
            is_error=tool.status == "failed",
            title=title,
            input=given,
        )
    ]


def _remember(tool: Tool, call: dict[str, Any]) -> None:
    tool.name = tool.name or _name(call)
    tool.title = _string(call, "title") or tool.title
    tool.kind = _string(call, "kind") or tool.kind
    given = call.get("rawInput")
    if given is not None and tool.open:
        tool.input = given if len(jsonrpc.encoded(given)) <= KEPT_INPUT_BYTES else None
    for key in ("terminal_output", "terminal_output_delta"):
        printed = _meta(call).get(key)
        if isinstance(printed, dict) and isinstance(printed.get("data"), str) and tool.open:
            tool.output = (tool.output + printed["data"])[-KEPT_OUTPUT_CHARS:]


def _remember_diff(running: Calls, tool: Tool, call: dict[str, Any]) -> None:
    """Store the diff of an open call. When the limit is exceeded, drop the diffs of the oldest calls."""
    diff = diff_of(call)
    if diff is None or not tool.open:
        return
    tool.diff, left = diff, KEPT_DIFF_BYTES
    for other in reversed([one for one in running.tools.values() if one.diff is not None]):
        size = len(jsonrpc.encoded(other.diff))
        other.diff = other.diff if size <= left else None
        left -= size if size <= left else 0


def text_of(call: dict[str, Any]) -> str:
    """Return the text content in a message about a call."""
    blocks = call.get("content")
    texts = [
        block_text(block.get("content"))
        for block in (blocks if isinstance(blocks, list) else [])
        if isinstance(block, dict) and block.get("type") == "content"
    ]
    return "\n".join(text for text in texts if text)


def _content(tool: Tool, call: dict[str, Any], ends: bool) -> str | None:
    text = text_of(call)
    if text:
        tool.said = True
        return text
    raw = call.get("rawOutput")
    if isinstance(raw, str) and raw:
        tool.said = True
        return raw
    if ends and tool.output and not tool.said:
        return tool.output
    if raw is not None and raw != "" and not tool.said:
        return _readable(raw)
    return None


def _images(tool: Tool, call: dict[str, Any], turn: int) -> list[Event]:
    """Return the images that this message adds."""
    found: list[Event] = []
    blocks = call.get("content")
    for block in blocks if isinstance(blocks, list) else []:
        inner = block.get("content") if isinstance(block, dict) and block.get("type") == "content" else None
        shown = block_image(inner, turn, call["toolCallId"])
        if shown is not None and tool.open and digest(shown) not in tool.images and len(tool.images) < IMAGES_MAX:
            tool.images = [*tool.images, digest(shown)]
            found.append(shown)
    return found


def _readable(raw: Any) -> str:
    """Return a tool's raw result as text: its text field if it has one, or else all of it as JSON."""
    for key in ("output", "content", "text", "stdout") if isinstance(raw, dict) else ():
        if isinstance(raw.get(key), str) and raw[key]:
            return str(raw[key])
    return jsonrpc.encoded(raw).decode()


def diff_of(call: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the file changes in a message about a call."""
    blocks = call.get("content")
    found = [
        {"path": block["path"], "old_text": block.get("oldText"), "new_text": block["newText"]}
        for block in (blocks if isinstance(blocks, list) else [])
        if isinstance(block, dict) and block.get("type") == "diff" and _is_text(block)
    ]
    return found or None


def _is_text(block: dict[str, Any]) -> bool:
    """Return whether a change is valid: its readers compare texts."""
    old = block.get("oldText")
    return (old is None or isinstance(old, str)) and all(isinstance(block.get(key), str) for key in ("path", "newText"))


def _locations(call: dict[str, Any]) -> list[dict[str, Any]] | None:
    locations = call.get("locations")
    if not isinstance(locations, list):
        return None
    return [
        {key: place[key] for key in ("path", "line") if key in place} for place in locations if isinstance(place, dict)
    ] or None


def _name(call: dict[str, Any]) -> str:
    meta = _meta(call)
    claude = meta.get("claudeCode")
    inner = claude.get("toolName") if isinstance(claude, dict) else None
    for name in (call.get("name"), inner, meta.get("tool_name")):
        if isinstance(name, str) and name:
            return name
    return _string(call, "kind")


def parent_of(meta: Any) -> str | None:
    """Return the call whose sub-agent sent this. ACP has no field for it; this is the extension of claude-agent-acp."""
    claude = meta.get("claudeCode") if isinstance(meta, dict) else None
    parent = claude.get("parentToolUseId") if isinstance(claude, dict) else None
    return parent if isinstance(parent, str) else None


def _meta(call: dict[str, Any]) -> dict[str, Any]:
    meta = call.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _string(call: dict[str, Any], key: str) -> str:
    value = call.get(key)
    return value if isinstance(value, str) else ""
