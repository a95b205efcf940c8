"""Permission requests of ACP agents: converts their options to ours, and answers to outcomes.

Above: asking.py. Below: core events. Options are chosen by kind, never by order: gemini lists "always" first. The
answer is always an outcome, never a JSON-RPC error: after an error, vibe never ends its turn.
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
"""Substitutes for a kind that isn't offered. They never grant more than the person did."""


def read_options(options: Any) -> list[PromptOption]:
    """Return the agent's options in their original order."""
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
    """Return what "always" covers, if an option says so in addition to its name, as in vibe."""
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
    """Return the outcome for a chosen option: the option itself, the nearest of that kind, or a rejection."""
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
    # An unknown kind must not count as a grant.
    return "reject_once"
