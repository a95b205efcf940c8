"""File names as text for JSON. Git's names are bytes; those that are no UTF-8 are shown in git's own quoted form.

Above: the verbs for changes and the records. Below: nothing. `quoted` and `unquoted` are inverse, so a client can send
back what it has read.
"""

import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(rb'\\([0-7]{3}|["\\])')


def quoted(path: str) -> str:
    """The name as text. Quoted like in C if it is not UTF-8, or begins with a quote."""
    if not path.startswith('"') and not _SURROGATE.search(path):
        return path
    raw = path.encode("utf-8", "surrogateescape")
    return '"' + "".join(_escape(byte) for byte in raw) + '"'


def _escape(byte: int) -> str:
    if byte in b'"\\':
        return f"\\{chr(byte)}"
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def unquoted(text: str) -> str:
    """The name that a client means."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    raw = text[1:-1].encode("utf-8", "surrogatepass")
    return _ESCAPED.sub(_byte, raw).decode("utf-8", "surrogateescape")


def _byte(match: "re.Match[bytes]") -> bytes:
    found = match[1]
    return found if len(found) == 1 else bytes([int(found, 8) & 0xFF])


def with_quoted_paths(value: Any) -> Any:
    """The value with every `path` and `old_path` in it quoted where that is necessary."""
    if isinstance(value, list):
        return [with_quoted_paths(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: quoted(item) if name in ("path", "old_path") and isinstance(item, str) else with_quoted_paths(item)
        for name, item in value.items()
    }
