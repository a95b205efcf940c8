"""Turns validation errors of msgspec into readable messages.

Above: code that decodes external data (request bodies, files, settings, arguments). Below: msgspec, whose own messages
refer to its types. An unknown kind of message is passed through.
"""

import copy
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
ENTRY = "[...]"
"""What msgspec writes in place of a dictionary key."""
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.+)`$")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<bounds>[^,`]*)(?:, got `(?P<given>[^`]+)`)?$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+)`$")
_CHOICE = re.compile(r"Invalid enum value (?P<given>.+)$", re.DOTALL)


def what_is_wrong(error: msgspec.ValidationError, kind: Any, value: Any = None) -> str:
    """The problem as a clause, without full stop: "turn must be a whole number, not text". Pass the converted `value`
    if it is available, because msgspec does not say which entry of a dictionary is wrong."""
    what, path = _parts(error)
    if value is not None:
        path = _named(path, str(error), kind, value)
    if missing := _MISSING.match(what):
        return f"{'.'.join(filter(None, (path, missing['field'])))} is missing"
    if unknown := _UNKNOWN.match(what):
        return f"unknown field {'.'.join(filter(None, (path, unknown['field'])))}"
    place = path or "this"
    if expected := _EXPECTED.match(what):
        given = f", not {_words(expected['given'])}" if expected["given"] else ""
        return f"{place} must be {_words(expected['wanted'])}{expected['bounds']}{given}"
    if choice := _CHOICE.match(what):
        allowed = _choices(inspect.type_info(kind), [part for part in re.split(r"\.|\[.*?\]", path) if part])
        return f"{place} can't be {choice['given']}" + (f": use {_one_of(allowed)}" if allowed else "")
    return f"{place}: {what}"


def field_of(error: msgspec.ValidationError) -> str:
    """The path of the wrong field; empty if the whole value is wrong."""
    what, path = _parts(error)
    named = _MISSING.match(what) or _UNKNOWN.match(what)
    return ".".join(filter(None, (path, named["field"] if named else "")))


def _parts(error: msgspec.ValidationError) -> tuple[str, str]:
    found = _PLACE.match(str(error))
    assert found is not None
    return found["what"], (found["path"] or "$").removeprefix("$").removeprefix(".")


def _named(path: str, error: str, kind: Any, value: Any) -> str:
    """The path with actual keys in place of `[...]`. The right key is the one that alone causes the same error."""
    done = ""
    while ENTRY in path:
        before, _, rest = path.partition(ENTRY)
        done += before
        try:
            table = _at(value, done)
            key = next(key for key in table if _error_of(_with_only(value, done, key), kind) == error)
        except (LookupError, TypeError, StopIteration):
            return done + ENTRY + rest
        done, path = f"{done}.{key}", rest
    return done + path


def _steps(path: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in re.split(r"[.\[\]]+", path) if step]


def _at(value: Any, path: str) -> Any:
    for step in _steps(path):
        value = value[step]
    return value


def _with_only(value: Any, path: str, key: str) -> Any:
    """A copy in which the dictionary at the path has only this entry."""
    copied = copy.deepcopy(value)
    table = _at(copied, path)
    for other in [other for other in table if other != key]:
        del table[other]
    return copied


def _error_of(value: Any, kind: Any) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


def _one_of(allowed: list[str]) -> str:
    return f"{', '.join(allowed[:-1])} or {allowed[-1]}" if len(allowed) > 1 else allowed[0]


def _choices(kind: Any, path: list[str]) -> list[str]:
    """The allowed values of the field at this path, as far as the types define them."""
    match kind:
        case inspect.Metadata(type=inner):
            return _choices(inner, path)
        case inspect.UnionType(types=types):
            return [word for one in types for word in _choices(one, path)]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _choices(item, path)
        case inspect.DictType(value_type=value):
            # The dictionary key may be missing from the path, or be its next part.
            return _choices(value, path) or _choices(value, path[1:])
        case inspect.StructType(fields=fields) if path:
            return [word for one in fields if one.encode_name == path[0] for word in _choices(one.type, path[1:])]
        case inspect.LiteralType(values=values) if not path:
            return [str(value) for value in values]
    return []
