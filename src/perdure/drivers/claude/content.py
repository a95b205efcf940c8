"""Conversion of message content: blocks of an input, usage numbers, entries of plans, text.

Above: turns.py, working.py and asking.py. Below: core events. Pure functions. Values with an unexpected type are left
out, because versions differ.
"""

import re
from typing import Any

from perdure.core.events import Image, PlanEntry
from perdure.core.images import IMAGES_MAX, KINDS, image
from perdure.drivers.base import SendInput
from perdure.drivers.claude import wire

NO_COMMAND = "(This is a message and not a command.)\n"
LEAVES_THE_SESSION = ("clear", "reset", "new", "resume", "continue", "branch", "fork", "rewind", "exit", "quit")
"""Commands that would switch the agent to a session that Perdure does not know."""

_COMMAND = re.compile(r"/(\S*)")


def slash_command(text: str) -> str | None:
    """Return the name of the command if the agent would read this text as one."""
    found = _COMMAND.match(text.lstrip())
    return found.group(1) if found is not None else None


def input_content(order: SendInput, commands: list[str]) -> str | list[dict[str, Any]]:
    """Return the content of a user message; empty if there is nothing to send.

    Only commands that the agent lists are sent as they are. It would answer any other text that starts with a slash
    ("/etc is full") with "Unknown command", without asking the model.
    """
    text, images = order.text, []
    mentions = []
    for attachment in order.attachments:
        data, media_type = attachment.get("data"), attachment.get("mime_type") or attachment.get("media_type")
        place = attachment.get("path") or attachment.get("uri")
        if isinstance(data, str) and media_type in KINDS:
            source = {"type": "base64", "media_type": media_type, "data": data}
            images.append({"type": "image", "source": source})
        elif isinstance(place, str):
            mentions.append(f"[Attached: {place}]")
    name = slash_command(text)
    if name is not None and (name not in commands or images):
        text = NO_COMMAND + text
    text = "\n".join([*([text] if text else []), *mentions])
    if not images:
        return text
    return [*images, *([{"type": "text", "text": text}] if text else [])]


def figures(result: dict[str, Any]) -> dict[str, int]:
    """Return the token counts of a turn, and the size of the context window."""
    usage, found = wire.part(result, "usage"), dict[str, int]()
    for ours, theirs in (
        ("input_tokens", "input_tokens"),
        ("output_tokens", "output_tokens"),
        ("cache_read_tokens", "cache_read_input_tokens"),
        ("cache_write_tokens", "cache_creation_input_tokens"),
    ):
        count = wire.whole(usage.get(theirs))
        if count is not None:
            found[ours] = count
    models = wire.part(result, "modelUsage")
    sizes = [wire.whole(model.get("contextWindow")) for model in models.values() if isinstance(model, dict)]
    known = [size for size in sizes if size]
    if known:
        found["context_size"] = max(known)
    return found


def cost_usd(models: Any) -> float | None:
    """Return the sum over the models that were used."""
    if not isinstance(models, dict):
        return None
    costs = [wire.amount(model.get("costUSD")) for model in models.values() if isinstance(model, dict)]
    return None if None in costs else float(sum(cost for cost in costs if cost is not None))


def context_used(usage: Any) -> int | None:
    """Return the context size at the start of one model call."""
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    counts = [wire.whole(usage.get(key)) for key in keys] if isinstance(usage, dict) else []
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def plan_entries(given: Any) -> list[PlanEntry]:
    return [
        PlanEntry(
            content=wire.string(todo, "content"),
            status=wire.string(todo, "status") or "pending",
            priority=wire.string(todo, "priority") or "medium",
        )
        for todo in wire.items(given, "todos")
        if wire.string(todo, "content")
    ]


def text_of(content: Any) -> str:
    """Return the text of a string or of blocks, with placeholders for what can't be shown as text."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content if isinstance(content, list) else []:
        kind = wire.string(block, "type")
        if kind == "text":
            texts.append(wire.string(block, "text"))
        elif kind in ("image", "document"):
            texts.append(f"[{kind}]")
    return "\n".join(text for text in texts if text)


def images(content: Any, turn: int, tool_id: str) -> list[Image]:
    """Return the images in a tool result."""
    found: list[Image] = []
    for block in content if isinstance(content, list) else []:
        source = wire.part(block, "source") if wire.string(block, "type") == "image" else {}
        shown = image(turn, source.get("media_type"), source.get("data"), tool_id)
        if shown is not None and len(found) < IMAGES_MAX:
            found.append(shown)
    return found


def commands(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the agent's slash commands, without those that would leave the session."""
    return [
        {"name": wire.string(item, "name"), "description": wire.string(item, "description")}
        for item in wire.items(response, "commands")
        if wire.string(item, "name") and wire.string(item, "name") not in LEAVES_THE_SESSION
    ]
