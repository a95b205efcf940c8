"""Model, mode and other settings of an ACP agent, in any of the three ways that agents offer them.

Above: choosing.py. Below: nothing. Newer agents list `configOptions`; older ones list `modes`, and `models` from a
withdrawn draft; several list all three. The state has only ids and values; the full lists are passed on unread.
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

ConfigOptions = list[dict[str, Any]]


class Setting(Struct, omit_defaults=True):
    """One setting, and how to change it."""

    config_id: str
    role: str
    """The option's category, such as "model". Users say "model", whatever the agent calls it."""
    via: Literal["option", "mode", "model"]
    values: list[str] = []
    boolean: bool = False
    current: Any = None

    def allows(self, value: Any) -> bool:
        return isinstance(value, bool) if self.boolean else value in self.values


def read_settings(result: dict[str, Any]) -> list[Setting]:
    """Return the settings in a reply to session/new, load or resume."""
    settings = [_option(option) for option in options_in(result)]
    modes, models = _dict(result.get("modes")), _dict(result.get("models"))
    if modes and find(settings, "mode") is None:
        values = _strings(modes.get("availableModes"), "id")
        settings.append(Setting("mode", "mode", "mode", values, current=modes.get("currentModeId")))
    if models and find(settings, "model") is None:
        values = _strings(models.get("availableModels"), "modelId")
        settings.append(Setting("model", "model", "model", values, current=models.get("currentModelId")))
    return settings


def options_in(message: dict[str, Any]) -> ConfigOptions:
    """Return the readable `configOptions` of a reply or an update."""
    options = message.get("configOptions")
    if not isinstance(options, list):
        return []
    return [option for option in options if isinstance(option, dict) and isinstance(option.get("id"), str)]


def updated(settings: Sequence[Setting], options: ConfigOptions) -> tuple[list[Setting], list[Setting]]:
    """Return all settings after the agent has listed its options again, and those that changed."""
    listed = [_option(option) for option in options]
    before = {setting.config_id: setting for setting in settings if setting.via == "option"}
    others = [setting for setting in settings if setting.via != "option"]
    return listed + others, [setting for setting in listed if before.get(setting.config_id) != setting]


def find(settings: Sequence[Setting], config_id: str) -> Setting | None:
    """Find a setting by the agent's id, or else by category."""
    for setting in settings:
        if setting.config_id == config_id:
            return setting
    for setting in settings:
        if setting.role == config_id:
            return setting
    return None


def request_for(setting: Setting, session_id: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the method and parameters that set `value`."""
    if setting.via == "mode":
        return "session/set_mode", {"sessionId": session_id, "modeId": value}
    if setting.via == "model":
        return "session/set_model", {"sessionId": session_id, "modelId": value}
    params = {"sessionId": session_id, "configId": setting.config_id, "value": value}
    if setting.boolean:
        params["type"] = "boolean"
    return "session/set_config_option", params


def modes_in(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the agent's modes in the format of `modes`, even if it has only options."""
    modes = _dict(result.get("modes"))
    if modes:
        return modes
    option = _option_of("mode", result)
    if option is None:
        return None
    available = [{"id": choice.get("value"), **_named(choice)} for choice in _choices(option)]
    return {"currentModeId": option.get("currentValue"), "availableModes": available}


def models_in(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the agent's models in the format of `models`, even if it has only options."""
    models = _dict(result.get("models"))
    if models:
        return models
    option = _option_of("model", result)
    if option is None:
        return None
    available = [{"modelId": choice.get("value"), **_named(choice)} for choice in _choices(option)]
    return {"currentModelId": option.get("currentValue"), "availableModels": available}


def _option(option: dict[str, Any]) -> Setting:
    category = option.get("category")
    return Setting(
        config_id=option["id"],
        role=category if isinstance(category, str) else option["id"],
        via="option",
        values=_strings(_choices(option), "value"),
        boolean=option.get("type") == "boolean",
        current=option.get("currentValue"),
    )


def _option_of(role: str, result: dict[str, Any]) -> dict[str, Any] | None:
    for option in options_in(result):
        if role in (option["id"], option.get("category")):
            return option
    return None


def _choices(option: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of an option as a flat list. The agent may group them."""
    found: list[dict[str, Any]] = []
    options = option.get("options")
    for choice in options if isinstance(options, list) else []:
        if not isinstance(choice, dict):
            continue
        group = choice.get("options")
        if isinstance(group, list):
            found.extend(inner for inner in group if isinstance(inner, dict))
        else:
            found.append(choice)
    return found


def _named(choice: dict[str, Any]) -> dict[str, Any]:
    return {key: choice[key] for key in ("name", "description") if key in choice}


def _strings(items: Any, key: str) -> list[str]:
    if not isinstance(items, list):
        return []
    return [item[key] for item in items if isinstance(item, dict) and isinstance(item.get(key), str)]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
