"""Permission rules: which requests are answered without a person. The first match wins; without a match, a person is
asked.

Above: observe.py answers prompts with them; evolve.py remembers "always"; settings and requests contain rules.
Below: events. Pure.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from perdure.core.events import PendingPrompt, PromptOption


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown fields are refused wherever a rule is read: with a misspelt `pattern`, a rule would match everything."""

    tool: str
    pattern: str = "*"
    action: Literal["allow", "ask", "deny"] = "ask"


DENY_ALL = Rule("*", "*", "deny")


class Action(Struct, frozen=True):
    """The field of a tool's input that says what the tool does (`names`: its possible names), and the `neutral` fields,
    which don't change that."""

    names: tuple[str, ...]
    neutral: frozenset[str]


_FILE = Action(
    ("file_path", "filePath", "filepath", "fileName", "absolute_path", "notebook_path", "path"),
    frozenset(
        (
            *("content", "old_string", "new_string", "replace_all", "offset", "limit", "description"),
            *("new_source", "cell_id", "cell_type", "edit_mode"),
        )
    ),
)
_EDIT = frozenset(("old_string", "new_string", "replace_all"))
"""The fields of one edit, in a list of edits to a file."""
_HEADER = re.compile(r"^(?:\+\+\+ |--- |Index: |diff |rename |copy |\*\*\* )(?P<name>[^\t\r\n]*)", re.MULTILINE)
"""A line of a diff that can name the changed file."""
_SHELL = Action(("command", "cmd"), frozenset(("cwd", "description", "timeout", "run_in_background")))
_ADDRESS = Action(("url",), frozenset(("prompt",)))
_ACTIONS = {
    **dict.fromkeys(("Bash", "execute"), _SHELL),
    **dict.fromkeys(("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "read", "edit", "delete"), _FILE),
    **dict.fromkeys(("WebFetch", "fetch"), _ADDRESS),
}
"""By tool name: Claude's names, and the kinds that ACP agents report instead."""
_OPERATORS = (";", "&", "|", "<", ">", "`", "$(", "(", "\n", "\r")
"""With these, a shell command can do more than its first words say."""
_ESCAPED = ("\\n", "\\r")
"""The newlines among them, as written in JSON."""
_UP = re.compile(r'(?:^|(?<=[/\\"]))(?:\.|%2e){2}(?=$|[/\\"?#])', re.IGNORECASE)
"""A `..` in a path, also as written in a URL or in JSON. It cancels what comes before it."""
_SET = re.compile(r"\[!?\]?[^\]]*\]")
"""A set of characters in `fnmatch` syntax: a `]` in first position is part of the set."""
STRINGS_MAX = 1000
"""An input with more strings is not searched. Every `ask` or `deny` rule for the tool then applies."""


def subject(tool: str | None, tool_input: Any) -> str:
    """The text to which an `allow` rule's pattern is compared: the field that says what the tool does, if it is a
    string and no other field can change its meaning; otherwise the whole input as JSON."""
    plain = _plain(tool, tool_input)
    return json.dumps(tool_input, sort_keys=True, default=str) if plain is None else plain


def _plain(tool: str | None, tool_input: Any) -> str | None:
    if isinstance(tool_input, str):
        return tool_input
    action = _ACTIONS.get(tool or "")
    if action is not None and isinstance(tool_input, dict):
        named = [name for name in action.names if name in tool_input]
        rest = {name: value for name, value in tool_input.items() if name not in named and name not in action.neutral}
        if len(named) == 1 and isinstance(value := tool_input[named[0]], str):
            if action is _FILE:
                rest = {name: change for name, change in rest.items() if not _changes_only(value, name, change)}
            if rest in ({}, {"commands": [value]}):
                return value
    return None


def _changes_only(path: str, name: str, change: Any) -> bool:
    """Whether these are edits, or a diff, of this file and certainly of no other."""
    if name == "edits" and isinstance(change, list):
        return all(isinstance(one, dict) and _EDIT.issuperset(one) for one in change)
    if name == "diff" and isinstance(change, str):
        return all(_same_file(path, header["name"].strip()) for header in _HEADER.finditer(change))
    return False


def _same_file(path: str, named: str) -> bool:
    """Compares whole paths: the meaning of a relative path depends on the agent's working directory."""
    return named in (path, "/dev/null", f"a/{path.lstrip('/')}", f"b/{path.lstrip('/')}")


def _allows(rule: Rule, tool: str, tool_input: Any) -> bool:
    """A lone star matches anything. Any other pattern must contain each shell operator and each `..` of the text:
    `git *` doesn't match `git status; rm -rf .`, and `/srv/*` doesn't match `/srv/../etc`, although a star could. Both
    checks apply to unknown tools, because they may run a shell or take a path."""
    text = subject(tool, tool_input)
    if not fnmatchcase(tool, rule.tool) or not fnmatchcase(text, rule.pattern):
        return False
    if rule.pattern.strip("*") == "":
        return True
    # A set such as `[!;]` contains the operator that it excludes.
    named, action = _SET.sub("?", rule.pattern), _ACTIONS.get(tool)
    if action is _ADDRESS and any(one in text for one in "\t\r\n"):
        return False  # URL parsers drop these characters, so a different address would be fetched
    operators = _OPERATORS if _plain(tool, tool_input) is not None else _OPERATORS + _ESCAPED
    if action not in (_FILE, _ADDRESS) and any(text.count(one) != named.count(one) for one in operators):
        return False
    return action is _SHELL or len(_UP.findall(text)) == len(_UP.findall(named))


def _holds_back(rule: Rule, prompt: PendingPrompt, texts: Callable[[], list[str]]) -> bool:
    """Whether an `ask` or `deny` rule matches: the tool's name or the title, and any string of the input. A title is
    free text, possibly written by a model, so it can only restrict a request and never allow one."""
    if not any(fnmatchcase(name, rule.tool) for name in (prompt.tool or "", prompt.title)):
        return False
    whole, *parts = texts()
    return len(parts) > STRINGS_MAX or any(fnmatchcase(text, rule.pattern) for text in (whole, *parts))


def _texts(value: Any) -> list[str]:
    """The strings of an input, plus one line per list with its scalar items. Stops after more than STRINGS_MAX."""
    found: list[str] = []
    left = [value]
    while left and len(found) <= STRINGS_MAX:
        one = left.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
            parts = (part for part in one if not isinstance(part, dict | list))
            found.append(" ".join(part if isinstance(part, str) else json.dumps(part, default=str) for part in parts))
    return found


class Remembered(Struct, frozen=True):
    """A request that a person answered with "always": this tool with exactly this input."""

    tool: str
    digest: str
    action: Literal["allow", "deny"]


def remembered(prompt: PendingPrompt, kind: str) -> Remembered | None:
    """What to remember of an answer, for later requests with the same input. The match is exact, because no pattern can
    safely bound a shell command. A request without tool or input can't be recognised again."""
    if prompt.kind != "permission" or not prompt.tool or not prompt.input or not kind.endswith("_always"):
        return None
    return Remembered(prompt.tool, _digest(prompt.input), "allow" if kind == "allow_always" else "deny")


def answer_again(known: list[Remembered], prompt: PendingPrompt) -> PromptOption | None:
    """The option that matches the person's earlier "always" answer to the same request."""
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
    """The option that the first matching rule chooses. None: ask a person."""
    if prompt.kind != "permission":
        return None
    # Computed once for all rules, because an input may be long.
    texts = functools.cache(lambda: [subject(prompt.tool, prompt.input), *_texts(prompt.input)])
    for rule in rules:
        if rule.action == "allow":
            if _allows(rule, prompt.tool or "", prompt.input):
                return _option(prompt, "allow")
        elif _holds_back(rule, prompt, texts):
            return None if rule.action == "ask" else _option(prompt, "deny")
    return None
