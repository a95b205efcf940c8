"""Splits a JSON array into its elements, one by one, so that a huge array is never decoded in one piece. Pure.

Above: imports, which may be very long. Below: only bytes. A JSON parser has already validated the array; this module
only splits it and counts values. It doesn't interpret elements.
"""

import re
from collections.abc import Iterator

MARKS = (b",", b"[", b"{")
"""Each nested value follows one of these."""
SMALL_BYTES = 16 * 1024
"""Up to this length, strings are removed in one step, because that is fast enough not to block."""
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = re.compile(rb'\{(?:[^"{}\[\]]++|' + _STRING + rb")*+\}", re.DOTALL)
"""An object without nested objects or arrays, as most events are: matched in one step."""
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_GAP = re.compile(rb"[\s,]*+")
_VALUE = re.compile(_STRING + rb"|[^\s,\]]++", re.DOTALL)


class TooManyValues(Exception):
    """An element contains more values than allowed."""


def elements(array: bytes | bytearray | memoryview, max_values: int | None = None) -> Iterator[bytes]:
    """The elements of a valid JSON array. Raises TooManyValues at an element that certainly has more than `max_values`
    values, without reading the rest of it."""
    position = _GAP.match(array).end() + 1  # type: ignore[union-attr]
    end = len(array)
    while True:
        position = _GAP.match(array, position).end()  # type: ignore[union-attr]
        if position >= end or array[position] == ord("]"):
            return
        behind = _end_of(array, position, max_values)
        yield bytes(array[position:behind])
        position = behind


def count_values(element: bytes, limit: int) -> int:
    """Approximately how many values an element contains, or any number above `limit`. Marks inside strings don't count.
    Call it before decoding: a list of empty lists takes twenty times the memory of its JSON."""
    if len(element) <= SMALL_BYTES:
        bare = _TEXT.sub(b"", element)
        return sum(bare.count(mark) for mark in MARKS)
    count = position = 0
    for text in _TEXT.finditer(element):
        count += sum(element.count(mark, position, text.start()) for mark in MARKS)
        position = text.end()
        if count > limit:
            return count
    return count + sum(element.count(mark, position) for mark in MARKS)


def _end_of(array: bytes | bytearray | memoryview, position: int, max_values: int | None) -> int:
    if array[position] not in b"{[":
        return _VALUE.match(array, position).end()  # type: ignore[union-attr]
    flat = _FLAT.match(array, position)
    if flat is not None:
        return flat.end()
    depth = 0
    for number, mark in enumerate(_MARK.finditer(array, position)):
        # A value can have a name and two brackets, so this only catches far too many. The exact count comes later.
        if max_values is not None and number > 4 * max_values:
            raise TooManyValues
        first = array[mark.start()]
        depth += (first in b"{[") - (first in b"}]")
        if not depth:
            return mark.end()
    raise ValueError("the array is not valid JSON")
