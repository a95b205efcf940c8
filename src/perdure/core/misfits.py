"""What is wrong with a value that does not have its shape, in words for who sent it.

Above: whoever decodes what others wrote (bodies, files, settings, arguments). Below: msgspec, whose own messages speak
of its types; one that is not known here is given as it is.
"""

import re
from typing import Any

import msgspec
from msgspec import inspect

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.+)`$")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<bounds>[^,`]*)(?:, got `(?P<given>[^`]+)`)?$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+)`$")
_CHOICE = re.compile(r"Invalid enum value (?P<given>.+)$", re.DOTALL)


def what_is_wrong(error: msgspec.ValidationError, kind: Any) -> str:
    """A clause without its full stop: "turn must be a whole number, not text"."""
    found = _PLACE.match(str(error))
    assert found is not None
    what, path = found["what"], (found["path"] or "$").removeprefix("$").removeprefix(".")
    if missing := _MISSING.match(what):
        return f"{'.'.join(filter(None, (path, missing['field'])))} is missing"
    if unknown := _UNKNOWN.match(what):
        return f"there is no {'.'.join(filter(None, (path, unknown['field'])))}"
    place = path or "this"
    if expected := _EXPECTED.match(what):
        given = f", not {_words(expected['given'])}" if expected["given"] else ""
        return f"{place} must be {_words(expected['wanted'])}{expected['bounds']}{given}"
    if choice := _CHOICE.match(what):
        allowed = _choices(inspect.type_info(kind), [part for part in re.split(r"\.|\[.*?\]", path) if part])
        return f"{place} can't be {choice['given']}" + (f": use {_one_of(allowed)}" if allowed else "")
    return f"{place}: {what}"


def _words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


def _one_of(allowed: list[str]) -> str:
    return f"{', '.join(allowed[:-1])} or {allowed[-1]}" if len(allowed) > 1 else allowed[0]


def _choices(kind: Any, path: list[str]) -> list[str]:
    """The words that the field at this path may have, as far as the types on the way say it."""
    match kind:
        case inspect.Metadata(type=inner):
            return _choices(inner, path)
        case inspect.UnionType(types=types):
            return [word for one in types for word in _choices(one, path)]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _choices(item, path)
        case inspect.DictType(value_type=value):
            # A dictionary's own key is not in the path, or is its next part.
            return _choices(value, path) or _choices(value, path[1:])
        case inspect.StructType(fields=fields) if path:
            return [word for one in fields if one.encode_name == path[0] for word in _choices(one.type, path[1:])]
        case inspect.LiteralType(values=values) if not path:
            return [str(value) for value in values]
    return []
