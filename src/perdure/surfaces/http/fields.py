"""Field types that the bodies of several nouns share: names, texts, paths, labels and limits.

Above: the request bodies. Below: the configuration, for the limits. msgspec checks the constraints when it decodes a
body. `extra_json_schema` only documents a constraint: the verbs check it later and refuse with a better message.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, to_builtins

from perdure import config
from perdure.core.errors import Refused

NON_BLANK = {"minLength": 1, "pattern": r"[^\s\u001c-\u001f\u0085\ufeff]"}
NonBlankText = Annotated[str, Meta(extra_json_schema=NON_BLANK)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
# SQLite compares JSON strings only up to the first NUL.
Label = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
Labels = Annotated[list[Label], Meta(max_length=50)]
TitleText = Annotated[str, Meta(max_length=500)]
LongText = Annotated[str, Meta(max_length=10_000)]
PathText = Annotated[str, Meta(min_length=1, max_length=4096, extra_json_schema={"pattern": r"^/[^\u0000]*$"})]
Workspace = Literal["directory", "worktree"]
ConfigValue = str | bool | int | float
MessageId = Annotated[str, Meta(min_length=1, max_length=200)]


class Limits(config.Limits, kw_only=True, omit_defaults=True):
    """The same limits as in the configuration. Unknown fields are refused: a misspelt limit would have no effect."""


def given_limits(limits: Limits) -> dict[str, Any]:
    """The limits that the request sets."""
    given: dict[str, Any] = to_builtins(limits)
    return {key: value for key, value in given.items() if value is not None}


def check_paths(field: str, paths: Iterable[str], *, or_absolute: bool = False) -> None:
    """Refuse paths that can't be in a repository. `or_absolute`: edits outside of a repository may have such a path."""
    for path in paths:
        name = path
        if len(path) > 1 and path.startswith('"') and path.endswith('"'):
            # In git's quoted form.
            name = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8) & 0xFF), path[1:-1])
        is_below = not name.startswith("/") or or_absolute
        if not name or "\0" in name or not is_below or ".." in name.split("/"):
            detail = f"{field} must be relative to the repository's root and inside it, not {path[:200]!r}."
            raise Refused("invalid", detail, fields=[field])


def wants_fresh(fresh: bool | UnsetType, force_fresh_session: bool | UnsetType) -> bool:
    """Whether to restart the context. `forceFreshSession` is an alias of `fresh`; conflicting values are refused."""
    if fresh is not UNSET and force_fresh_session is not UNSET and fresh != force_fresh_session:
        raise Refused("invalid", "fresh and forceFreshSession mean the same. Send only one of them, or the same value.")
    return fresh is True or force_fresh_session is True
