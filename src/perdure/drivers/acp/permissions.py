"""Permission requests of ACP agents: their options as ours, and a person's answer as the outcome they wait for.

Above: asking.py. Below: core events. Options are chosen by kind, never by place: gemini lists "always" first. The
answer is always an outcome and never a JSON-RPC error, after which vibe never ends its turn.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from perdure.core.events import PromptOption

Kind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]

CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}

_NEAREST: dict[str, tuple[str, ...]] = {
    "allow_once": ("allow_once",),
    "allow_always": ("allow_always", "allow_once"),
    "reject_once": ("reject_once", "reject_always"),
    "reject_always": ("reject_always", "reject_once"),
}
"""What may stand for a kind that isn't offered: never more than was granted."""


def read_options(options: Any) -> list[PromptOption]:
    """The agent's options in its own order."""
    found = []
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and isinstance(option.get("optionId"), str):
            name = option.get("name")
            found.append(
                PromptOption(
                    option_id=option["optionId"],
                    name=name if isinstance(name, str) else option["optionId"],
                    kind=_kind(option.get("kind")),
                )
            )
    return found


def covered(options: Any) -> list[str]:
    """What "always" covers, where an option says so beside its name, as vibe's do."""
    found: list[str] = []
    for option in options if isinstance(options, list) else []:
        meta = option.get("_meta") if isinstance(option, dict) and option.get("kind") == "allow_always" else None
        required = meta.get("required_permissions") if isinstance(meta, dict) else None
        for one in required if isinstance(required, list) else []:
            label = one.get("label") if isinstance(one, dict) else None
            if isinstance(label, str) and label and label not in found:
                found.append(label)
    return found


def outcome(options: Sequence[PromptOption], option_id: Any) -> dict[str, Any]:
    """The outcome for a chosen option: the option itself, or the nearest of that kind, or else a refusal."""
    if not any(option.option_id == option_id for option in options):
        option_id = _by_kind(options, option_id if option_id in _NEAREST else "reject_once")
    if option_id is None:
        return CANCELLED
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def _by_kind(options: Sequence[PromptOption], kind: str) -> str | None:
    for wanted in (*_NEAREST[kind], "reject_once", "reject_always"):
        for option in options:
            if option.kind == wanted:
                return option.option_id
    return None


def _kind(kind: Any) -> Kind:
    for known in get_args(Kind):
        if kind == known:
            return known  # type: ignore[no-any-return]
    # An unknown kind must not be taken for a grant.
    return "reject_once"
