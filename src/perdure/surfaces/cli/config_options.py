"""The model, mode and other options of a session or an agent: offered values and the current one.

Above: the chat's status line, `/model` and `/mode`; `perdure config`, `model` and `mode`; shell completion. Below: the
API's sessions and agents. Pure. Agents report these in two ways: as options with an id and a category, or as lists of
models and modes. Options are newer and take precedence.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]

# Key of the object, key of the list in it, key of an entry's id, and key of the current id.
_LISTS = {
    "model": ("models", "availableModels", "modelId", "currentModelId"),
    "mode": ("modes", "availableModes", "id", "currentModeId"),
}


class Value(NamedTuple):
    """One value of an option, as the agent reports it."""

    value: str
    name: str = ""
    about: str = ""


def values(known: Json, config_id: str) -> list[Value]:
    """The values that a session or an agent offers for an option."""
    option = _option(known.get("config_options"), config_id)
    if option is not None:
        inner = [one for entry in option.get("options") or [] for one in entry.get("options") or [entry]]
        return [_value(one, "value") for one in inner if one.get("value") is not None]
    if config_id not in _LISTS:
        return []
    outer, each, key, _ = _LISTS[config_id]
    return [_value(one, key) for one in (known.get(outer) or {}).get(each) or [] if one.get(key)]


def current(known: Json, config_id: str) -> str | None:
    """The value that was chosen or last reported, else the option's current value, else the agent's initial one."""
    option = _option(known.get("config_options"), config_id) or {}
    began = None
    if config_id in _LISTS:
        outer, _, _, key = _LISTS[config_id]
        began = (known.get(outer) or {}).get(key)
    found = known.get(config_id) or option.get("currentValue") or began
    return None if found is None else str(found)


def role(options: Sequence[Json] | None, config_id: str) -> str:
    """The option's category if it is `model` or `mode`, else its id."""
    found = next((one for one in options or [] if one.get("id") == config_id), {})
    return str(found["category"]) if found.get("category") in _LISTS else config_id


def _option(options: Sequence[Json] | None, config_id: str) -> Json | None:
    for key in ("id", "category"):
        for option in options or []:
            if option.get(key) == config_id:
                return option
    return None


def _value(entry: Json, key: str) -> Value:
    return Value(str(entry[key]), str(entry.get("name") or ""), str(entry.get("description") or ""))
