"""Conversion of ACP content: text of blocks, entries of plans, usage numbers, blocks of an input.

Above: turns.py and tools.py. Below: core events. Pure functions. Values that don't match the protocol are left out,
because agents of many versions send them.
"""

import math
from typing import Any
from urllib.parse import quote

from perdure.core.events import Image, PlanEntry
from perdure.core.images import image
from perdure.drivers.base import SendInput


def block_text(block: Any) -> str:
    """Return the text of one content block. A link represents what can't be shown as text."""
    if not isinstance(block, dict):
        return ""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    uri = block.get("uri") or (resource.get("uri") if isinstance(resource, dict) else None)
    if isinstance(uri, str):
        name = block.get("name")
        return f"[{name if isinstance(name, str) else uri}]({uri})"
    return ""


def block_image(block: Any, turn: int, tool_id: str | None = None) -> Image | None:
    """Return the image of one content block, if it is one."""
    if not isinstance(block, dict):
        return None
    resource = block.get("resource")
    if isinstance(resource, dict):
        return image(turn, resource.get("mimeType"), resource.get("blob"), tool_id)
    return image(turn, block.get("mimeType"), block.get("data"), tool_id) if block.get("type") == "image" else None


def plan_entries(update: dict[str, Any]) -> list[PlanEntry]:
    entries = update.get("entries")
    found = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            status, priority = entry.get("status"), entry.get("priority")
            found.append(
                PlanEntry(
                    content=entry["content"],
                    status=status if isinstance(status, str) else "pending",
                    priority=priority if isinstance(priority, str) else "medium",
                )
            )
    return found


_FIGURES = {
    "input_tokens": ("inputTokens", "input_tokens"),
    "output_tokens": ("outputTokens", "output_tokens"),
    "cache_read_tokens": ("cachedReadTokens", "cachedInputTokens", "cached_read_tokens"),
    "cache_write_tokens": ("cachedWriteTokens", "cacheWriteInputTokens", "cached_write_tokens"),
}


def token_figures(usage: Any) -> dict[str, int]:
    """Return token counts under our names, from any of the spellings that agents use."""
    figures: dict[str, int] = {}
    if isinstance(usage, dict):
        for name, spellings in _FIGURES.items():
            for spelling in spellings:
                count = whole(usage.get(spelling))
                if count is not None:
                    figures[name] = count
                    break
    return figures


def result_figures(result: dict[str, Any]) -> dict[str, int]:
    """Return the token counts in the reply to session/prompt: in `usage`, or in `_meta.quota` (gemini)."""
    figures = token_figures(result.get("usage"))
    meta = result.get("_meta")
    quota = meta.get("quota") if isinstance(meta, dict) else None
    if not figures and isinstance(quota, dict):
        figures = token_figures(quota.get("token_count"))
    return figures


def cost_usd(update: dict[str, Any]) -> float | None:
    """Return the running total in a usage_update."""
    cost = update.get("cost")
    if not isinstance(cost, dict) or cost.get("currency", "USD") != "USD":
        return None
    amount = cost.get("amount")
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return None
    return float(amount) if abs(amount) < 1e12 else None


def whole(value: Any) -> int | None:
    """Return a count, or None. Bounded, because stores have 64-bit integers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < 2**53 else None


def input_blocks(order: SendInput, *, pictures: bool = False) -> list[dict[str, Any]]:
    """Return text and links, which every agent must accept, and images if this agent accepts them."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": order.text}] if order.text else []
    for attachment in order.attachments:
        if pictures and isinstance(attachment.get("data"), str) and isinstance(attachment.get("mime_type"), str):
            blocks.append({"type": "image", "data": attachment["data"], "mimeType": attachment["mime_type"]})
            continue
        path, uri = attachment.get("path"), attachment.get("uri")
        if not isinstance(uri, str) and isinstance(path, str):
            uri = "file://" + quote(path, errors="replace")
        if not isinstance(uri, str):
            continue
        name = attachment.get("name")
        link: dict[str, Any] = {"type": "resource_link", "uri": uri, "name": name or uri.rsplit("/", 1)[-1] or uri}
        for ours, theirs in (("mime_type", "mimeType"), ("size", "size")):
            if attachment.get(ours) is not None:
                link[theirs] = attachment[ours]
        blocks.append(link)
    return blocks
