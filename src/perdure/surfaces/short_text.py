"""Text from agents and files, sanitized and shortened for one line. Pure.

Above: the command line, and the progress messages of the MCP server. Below: nothing.
"""

import re
from typing import Any

TOOL_CHARS = 100
# C0 and C1 controls except newline and tab, and bidi controls. They could move the cursor or fake a prompt.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """The text without control characters that a terminal would act on."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n"))


def one_line(text: str, limit: int) -> str:
    """The text on one line, cut to `limit` characters."""
    flat = " ".join(safe(text).split())
    return flat if len(flat) <= limit else flat[: limit - 3].rstrip() + "..."


def running_tool(part: dict[str, Any], workdir: str = "") -> str:
    """The title of a running tool. Paths inside the working directory are shown relative to it."""
    title = str(part.get("title") or part["name"])
    return one_line(title.replace(workdir.rstrip("/") + "/", "") if workdir.strip("/") else title, TOOL_CHARS)
