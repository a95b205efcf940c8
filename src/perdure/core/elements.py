"""The elements of a JSON array, one by one: an array of millions is never in memory as values. Pure.

Above: whoever takes in what may be very long. Below: the bytes, which a JSON parser has found to be an array already;
it only has to be cut. What an element means is not looked at.
"""

import re
from collections.abc import Iterator

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = re.compile(rb'\{(?:[^"{}\[\]]++|' + _STRING + rb")*+\}", re.DOTALL)
"""An object with no object or array inside, which most events are: found in one step."""
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_GAP = re.compile(rb"[\s,]*+")
_VALUE = re.compile(_STRING + rb"|[^\s,\]]++", re.DOTALL)


def elements(array: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """What is between the brackets of a valid JSON array."""
    position = _GAP.match(array).end() + 1  # type: ignore[union-attr]
    end = len(array)
    while True:
        position = _GAP.match(array, position).end()  # type: ignore[union-attr]
        if position >= end or array[position] == ord("]"):
            return
        behind = _end_of(array, position)
        yield bytes(array[position:behind])
        position = behind


def _end_of(array: bytes | bytearray | memoryview, position: int) -> int:
    if array[position] not in b"{[":
        return _VALUE.match(array, position).end()  # type: ignore[union-attr]
    flat = _FLAT.match(array, position)
    if flat is not None:
        return flat.end()
    depth = 0
    for mark in _MARK.finditer(array, position):
        first = array[mark.start()]
        depth += (first in b"{[") - (first in b"}]")
        if not depth:
            return mark.end()
    raise ValueError("the array is not valid JSON")
