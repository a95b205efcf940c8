"""Rules that answer permission prompts: the first match decides, and doubt asks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import events as ev
from perdure.core.permissions import Rule, answer_by_rule, subject
from tests.core.stage import ALLOW, REJECT, prompt

ALWAYS = ev.PromptOption("always", "Always", "allow_always")
NEVER = ev.PromptOption("never", "Never", "reject_always")


def answered(rules: list[Rule], **given: Any) -> str | None:
    option = answer_by_rule(rules, prompt(1, **given))
    return option.option_id if option else None


def test_the_first_rule_that_matches_decides() -> None:
    rules = [Rule("Bash", "git push*", "ask"), Rule("Bash", "git *", "allow"), Rule("*", "*", "deny")]
    assert answered(rules, input={"command": "git push origin"}) is None
    assert answered(rules, input={"command": "git status"}) == "yes"
    assert answered(rules, input={"command": "rm"}) == "no"
    assert answered(rules, tool="Write", input={"file_path": "/a"}) == "no"
    assert answered([], input={}) is None


@pytest.mark.parametrize(
    ("action", "options", "expected"),
    [
        ("allow", [ALWAYS, ALLOW], "yes"),
        ("allow", [ALWAYS], "always"),
        ("allow", [REJECT], None),
        ("deny", [NEVER, REJECT], "no"),
        ("deny", [NEVER], "never"),
        ("deny", [ALLOW], None),
    ],
)
def test_a_rule_takes_the_smallest_option_of_its_kind_or_asks(
    action: Any, options: list[ev.PromptOption], expected: str | None
) -> None:
    assert answered([Rule("Bash", "*", action)], options=options) == expected


def test_a_title_may_hold_a_request_back_but_never_lets_one_through() -> None:
    assert answered([Rule("Read", "*", "allow")], tool="Bash", title="Read") is None
    assert answered([Rule("Read", "*", "allow")], tool=None, title="Read") is None
    assert answered([Rule("Delete*", "*", "deny")], tool="other", title="Delete everything") == "no"
    assert answered([Rule("*", "*", "allow")], tool=None) == "yes"


def test_a_question_is_always_for_a_person() -> None:
    assert answered([Rule("*", "*", "allow")], kind="question") is None


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Bash", "ls", "ls"),
        ("Bash", {"command": "ls", "description": "look"}, "ls"),
        ("execute", {"command": "ls", "cwd": "/srv"}, "ls"),
        ("execute", {"command": "ls", "commands": ["ls"]}, "ls"),
        ("Edit", {"file_path": "/a", "old_string": "b", "new_string": "c"}, "/a"),
        ("edit", {"filepath": "/a", "diff": "..."}, "/a"),
        ("WebFetch", {"url": "https://a.example", "prompt": "read"}, "https://a.example"),
        ("Bash", {"command": ["ls"]}, None),
        ("Bash", {"command": "ls", "path": "/a"}, None),
        ("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, None),
        ("execute", {"command": "ls", "commands": ["ls", "rm -rf /"]}, None),
        ("execute", {"command": "ls", "cmd": "rm -rf /"}, None),
        ("edit", {"path": "/a", "file_path": "/b"}, None),
        ("edit", {"tool": "write_file", "arguments": {"path": "/a"}}, None),
        ("mcp__shell__run", {"command": "ls"}, None),
        ("Bash", None, None),
    ],
)
def test_an_allowing_pattern_is_compared_with_the_field_that_says_what_is_done_or_with_everything(
    tool: str, given: Any, expected: str | None
) -> None:
    assert subject(tool, given) == (json.dumps(given, sort_keys=True) if expected is None else expected)


def test_a_rule_for_one_command_lets_no_other_one_through_whatever_else_the_input_says() -> None:
    git = [Rule("*", "git *", "allow")]
    assert answered(git, tool="Bash", input={"command": "git status"}) == "yes"
    for tool in ("Bash", "execute", "run"):
        assert answered(git, tool=tool, input={"path": "git x", "command": ["rm", "-rf", "/"]}) is None
        assert answered(git, tool=tool, input={"query": "git x", "command": "rm -rf /"}) is None
        assert answered(git, tool=tool, input={"command": "git x", "cmd": "rm -rf /"}) is None


@given(
    st.sampled_from([";", "&&", "||", "|", "&", ">", "<", "`", "$(", "\n", "("]),
    st.text(max_size=5),
    st.text(max_size=5),
)
def test_a_star_never_stands_for_a_second_command(operator: str, before: str, after: str) -> None:
    command = {"command": f"git log {before}{operator}{after}rm -rf /"}
    assert answered([Rule("Bash", "git *", "allow")], input=command) is None
    assert answered([Rule("Bash", "*", "allow")], input=command) == "yes"
    assert answered([Rule("Bash", "git *", "deny")], input=command) == "no"


def test_a_pattern_may_name_the_operators_that_it_allows() -> None:
    rule = [Rule("Bash", "git log * | head *", "allow")]
    assert answered(rule, input={"command": "git log --oneline | head -3"}) == "yes"
    assert answered(rule, input={"command": "git log --oneline | head -3 | sh"}) is None
    assert answered([Rule("Edit", "/srv/*", "allow")], tool="Edit", input={"file_path": "/srv/a (1).txt"}) == "yes"


@pytest.mark.parametrize("given", [{"command": ["rm", "-rf", "/"]}, {"arguments": {"run": "rm -rf /"}}, "rm -rf /"])
def test_a_denial_finds_what_it_is_about_wherever_the_input_says_it(given: Any) -> None:
    rules = [Rule("*", "rm *", "deny"), Rule("*", "*", "allow")]
    assert answered(rules, tool="run", input=given) == "no"
