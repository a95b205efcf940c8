"""What is wrong with a value that does not have its shape, in words for who sent it.

Above: whoever decodes what others wrote (bodies, files, settings, arguments). Below: msgspec, whose own messages speak
of its types; one that is not known here is given as it is.
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
"""How msgspec writes the key of a dictionary's entry."""
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.+)`$")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<bounds>[^,`]*)(?:, got `(?P<given>[^`]+)`)?$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+)`$")
_CHOICE = re.compile(r"Invalid enum value (?P<given>.+)$", re.DOTALL)


def what_is_wrong(error: msgspec.ValidationError, kind: Any, value: Any = None) -> str:
    """A clause without its full stop: "turn must be a whole number, not text". `value` is what was to be converted, if
    it is at hand: msgspec does not say which entry of a dictionary is wrong."""
    what, path = _parts(error)
    if value is not None:
        path = _named(path, str(error), kind, value)
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


def field_of(error: msgspec.ValidationError) -> str:
    """The field that is wrong, as a path; empty if it is the value as a whole."""
    what, path = _parts(error)
    named = _MISSING.match(what) or _UNKNOWN.match(what)
    return ".".join(filter(None, (path, named["field"] if named else "")))


def _parts(error: msgspec.ValidationError) -> tuple[str, str]:
    found = _PLACE.match(str(error))
    assert found is not None
    return found["what"], (found["path"] or "$").removeprefix("$").removeprefix(".")


def _named(path: str, error: str, kind: Any, value: Any) -> str:
    """The path with the key of each entry in place of `[...]`: that of the one that alone leads to the same error."""
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
    """A copy in which the dictionary at the path has this entry alone."""
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
