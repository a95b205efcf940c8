"""Permission rules: which prompts are answered without a person. First match wins; no match asks."""

import hashlib
import json
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from perdure.core.events import PendingPrompt, PromptOption


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown fields are refused wherever a rule is read: with a misspelt `pattern` it would hold for everything."""

    tool: str
    pattern: str = "*"
    action: Literal["allow", "ask", "deny"] = "ask"


DENY_ALL = Rule("*", "*", "deny")


def subject(tool_input: Any) -> str:
    """What a pattern is matched against: the command, the path, or the whole input as JSON."""
    if isinstance(tool_input, str):
        return tool_input
    if isinstance(tool_input, dict):
        for key in ("command", "file_path", "path", "url", "pattern", "query"):
            value = tool_input.get(key)
            if isinstance(value, str):
                return value
    return json.dumps(tool_input, sort_keys=True, default=str)


class Remembered(Struct, frozen=True):
    """A request that a person has answered with "always": this tool with this very input."""

    tool: str
    digest: str
    action: Literal["allow", "deny"]


def remembered(prompt: PendingPrompt, kind: str) -> Remembered | None:
    """What an answer means for the same request later: to the letter, as no pattern is a fence around a shell. One that
    does not say what it is about is not known again."""
    if prompt.kind != "permission" or not prompt.tool or not prompt.input or not kind.endswith("_always"):
        return None
    return Remembered(prompt.tool, _digest(prompt.input), "allow" if kind == "allow_always" else "deny")


def answer_again(known: list[Remembered], prompt: PendingPrompt) -> PromptOption | None:
    """The option that the person chose for the same request before."""
    if prompt.kind != "permission" or not prompt.tool or not prompt.input:
        return None
    digest = _digest(prompt.input)
    for one in known:
        if (one.tool, one.digest) == (prompt.tool, digest):
            return _option(prompt, one.action)
    return None


def _digest(tool_input: Any) -> str:
    text = json.dumps(tool_input, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _option(prompt: PendingPrompt, action: str) -> PromptOption | None:
    wanted = ("allow_once", "allow_always") if action == "allow" else ("reject_once", "reject_always")
    for kind in wanted:
        for option in prompt.options:
            if option.kind == kind:
                return option
    return None


def answer_by_rule(rules: list[Rule], prompt: PendingPrompt) -> PromptOption | None:
    """The option that the first matching rule chooses, or None: ask the person."""
    if prompt.kind != "permission":
        return None
    text = subject(prompt.input)
    for rule in rules:
        # A title is free text that a model may have written: it can hold a request back, never let one through.
        names = [prompt.tool or ""] if rule.action == "allow" else [prompt.tool or "", prompt.title]
        if any(fnmatchcase(name, rule.tool) for name in names) and fnmatchcase(text, rule.pattern):
            return None if rule.action == "ask" else _option(prompt, rule.action)
    return None
