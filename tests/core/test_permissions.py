"""Rules that answer permission prompts: the first match decides, and doubt asks."""

from typing import Any

import pytest

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
    ("given", "expected"),
    [
        ("ls", "ls"),
        ({"command": "ls", "path": "/a"}, "ls"),
        ({"file_path": "/a"}, "/a"),
        ({"command": ["ls"]}, '{"command": ["ls"]}'),
        (None, "null"),
    ],
)
def test_a_pattern_is_matched_against_the_command_the_path_or_everything(given: Any, expected: str) -> None:
    assert subject(given) == expected
