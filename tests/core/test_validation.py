"""Validation errors say what to send instead."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from perdure.core.validation import what_is_wrong


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    action: Literal["allow", "ask", "deny"] = "ask"


class Order(msgspec.Struct, rename={"limit": "at_most"}):
    turn: int
    text: str | None = None
    labels: list[str] = []
    fresh: bool = False
    share: float = 1.0
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1
    when: Literal["now", "later"] | None = None
    rules: list[Rule] = []
    named: dict[str, Rule] = {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "turn is missing"),
        ([], "this must be an object, not a list"),
        ({"turn": "3"}, "turn must be a whole number, not text"),
        ({"turn": None}, "turn must be a whole number, not null"),
        ({"turn": 1, "text": 5}, "text must be text or null, not a whole number"),
        ({"turn": 1, "labels": "a"}, "labels must be a list, not text"),
        ({"turn": 1, "labels": ["a", 2]}, "labels[1] must be text, not a whole number"),
        ({"turn": 1, "fresh": 1}, "fresh must be true or false, not a whole number"),
        ({"turn": 1, "share": {}}, "share must be a number, not an object"),
        ({"turn": 1, "at_most": 0}, "at_most must be a whole number >= 1"),
        ({"turn": 1, "when": "soon"}, "when can't be 'soon': use later or now"),
        ({"turn": 1, "rules": [{"tool": "x", "bogus": 1}]}, "unknown field rules[0].bogus"),
        ({"turn": 1, "rules": [{}]}, "rules[0].tool is missing"),
        (
            {"turn": 1, "rules": [{"tool": "x", "action": "no"}]},
            "rules[0].action can't be 'no': use allow, ask or deny",
        ),
        (
            {"turn": 1, "named": {"k": {"tool": "x", "action": "no"}}},
            "named[...].action can't be 'no': use allow, ask or deny",
        ),
    ],
)
def test_validation_errors_are_readable(given: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(given), type=Order)
    assert what_is_wrong(caught.value, Order) == words


def test_an_unknown_error_message_is_passed_through() -> None:
    assert what_is_wrong(msgspec.ValidationError("Odd - at `$.a`"), Order) == "a: Odd"
