"""Parts of a stored patch: the sections of some files.

Above: the verbs for changes, on a node that doesn't have the repository. Below: nothing.
"""

from collections.abc import Collection

_BEGIN = b"diff --git "


def only(patch: bytes, paths: Collection[str]) -> bytes:
    """The sections of these files; all of them if there are no paths."""
    if not paths:
        return patch
    names = {name for path in paths for name in _names(path)}
    return b"".join(section for section in _sections(patch) if _is_of(section, names))


def _sections(patch: bytes) -> list[bytes]:
    # Each line of a file's content starts with a blank or a sign, so only a header starts like this.
    pieces = patch.split(b"\n" + _BEGIN)
    found = [pieces[0] + b"\n", *(_BEGIN + piece + b"\n" for piece in pieces[1:])]
    if patch.endswith(b"\n"):
        found[-1] = found[-1][:-1]
    return found


def _names(path: str) -> list[bytes]:
    """The path as git writes it in a header, after `a/` and `b/`."""
    raw = path.encode("utf-8", "surrogateescape")
    return [side + raw for side in (b"a/", b"b/")] + [b'"' + side + _c_quoted(raw) + b'"' for side in (b"a/", b"b/")]


def _c_quoted(raw: bytes) -> bytes:
    short = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
    return b"".join(
        short[byte] if byte in short else bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte for byte in raw
    )


def _is_of(section: bytes, names: Collection[bytes]) -> bool:
    header = section[len(_BEGIN) : section.index(b"\n")]
    return any(header.startswith(name + b" ") or header.endswith(b" " + name) for name in names)
