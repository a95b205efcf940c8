"""The elements of a JSON array, one by one: an array of millions is never in memory as values. Pure.

Above: whoever takes in what may be very long. Below: the bytes, which a JSON parser has found to be an array already;
it only has to be cut, and its values counted. What an element means is not looked at.
"""

import re
from collections.abc import Iterator

MARKS = (b",", b"[", b"{")
"""Each value inside of another one follows one of these."""
SMALL_BYTES = 16 * 1024
"""What is cut out of a text this long in one step, as that keeps nobody waiting."""
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = re.compile(rb'\{(?:[^"{}\[\]]++|' + _STRING + rb")*+\}", re.DOTALL)
"""An object with no object or array inside, which most events are: found in one step."""
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_GAP = re.compile(rb"[\s,]*+")
_VALUE = re.compile(_STRING + rb"|[^\s,\]]++", re.DOTALL)


class TooManyValues(Exception):
    """An element has more values inside than are wanted."""


def elements(array: bytes | bytearray | memoryview, max_values: int | None = None) -> Iterator[bytes]:
    """What is between the brackets of a valid JSON array. Raises TooManyValues at an element that surely has more than
    these, without looking at the rest of it."""
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
    """How many values there are inside, about, or a number over `limit`. Marks inside of texts are not counted. A list
    of nothing takes twenty times the memory of its JSON, so this is asked before it is read."""
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
        # A value may have a name and two brackets. The exact number is found out later, if it is not far too large.
        if max_values is not None and number > 4 * max_values:
            raise TooManyValues
        first = array[mark.start()]
        depth += (first in b"{[") - (first in b"}]")
        if not depth:
            return mark.end()
    raise ValueError("the array is not valid JSON")
