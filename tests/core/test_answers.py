"""What people send: answers to prompts, values of options, titles."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.answers import TITLE_LENGTH, check_choice, read_answer, title_of
from perdure.core.errors import Refused
from perdure.core.state import Session
from tests.core.stage import prompt

QUESTION = prompt(1, kind="question", options=[], questions=[ev.Question("q1", "Which?"), ev.Question("q2", "Why?")])
CASES: list[tuple[ev.PendingPrompt, dict[str, Any], str, dict[str, Any]]] = [
    (prompt(1), {"option_id": "yes"}, "allowed", {"option_id": "yes", "kind": "allow_once"}),
    (
        prompt(1),
        {"option_id": "no", "reason": "later", "interrupt": True},
        "denied",
        {"option_id": "no", "kind": "reject_once", "reason": "later", "interrupt": True},
    ),
    (
        prompt(1),
        {"option_id": "yes", "input": {"a": 1}},
        "allowed",
        {"option_id": "yes", "kind": "allow_once", "input": {"a": 1}},
    ),
    (prompt(1), {"cancel": True}, "cancelled", {"cancel": True}),
    (QUESTION, {"cancel": True}, "cancelled", {"cancel": True}),
    (QUESTION, {"answers": {"q1": "A", "q2": ["x", "y"]}}, "answered", {"answers": {"q1": "A", "q2": ["x", "y"]}}),
    (QUESTION, {"answers": {"q2": "B"}}, "answered", {"answers": {"q2": "B"}}),
]


@pytest.mark.parametrize(("asked", "words", "outcome", "answer"), CASES)
def test_answers_are_interpreted(
    asked: ev.PendingPrompt, words: dict[str, Any], outcome: str, answer: dict[str, Any]
) -> None:
    assert read_answer(asked, cmd.AnswerPrompt(prompt_id="p1", **words)) == (outcome, answer)


@pytest.mark.parametrize(
    ("asked", "words", "hint"),
    [
        (prompt(1), {}, "yes, no"),
        (prompt(1), {"option_id": "Allow"}, "yes, no"),
        (prompt(1), {"answers": {"q1": "A"}}, "yes, no"),
        (QUESTION, {"option_id": "yes"}, "q1, q2"),
        (QUESTION, {"answers": {}}, "q1, q2"),
        (QUESTION, {"answers": {"q3": "A"}}, "q1, q2"),
    ],
)
def test_an_invalid_answer_is_refused_with_the_valid_ones(
    asked: ev.PendingPrompt, words: dict[str, Any], hint: str
) -> None:
    with pytest.raises(Refused, match=hint) as caught:
        read_answer(asked, cmd.AnswerPrompt(prompt_id="p1", **words))
    assert caught.value.code == "invalid"


GROUPED = {"id": "size", "options": [{"name": "g", "options": [{"value": "a"}, {"value": "b"}]}, {"value": "c"}]}
FREE = {"id": "free"}
MODELS = {"availableModels": [{"modelId": "opus"}], "otherPrefix": "claude-"}
MODES = {"availableModes": [{"id": "plan"}]}


def session(**known: Any) -> Session:
    return Session(id="s", project=None, agent="a", workdir="/", created_at="", **known)


@pytest.mark.parametrize(
    ("known", "config_id", "value"),
    [
        ({"config_options": [GROUPED, FREE]}, "size", "b"),
        ({"config_options": [GROUPED, FREE]}, "size", "c"),
        ({"config_options": [GROUPED, FREE]}, "free", 7),
        ({"models": MODELS, "modes": MODES}, "model", "opus"),
        ({"models": MODELS, "modes": MODES}, "model", "claude-next"),
        ({"models": MODELS, "modes": MODES}, "mode", "plan"),
        ({}, "anything", "an agent that never ran decides itself"),
    ],
)
def test_a_choice_that_the_agent_may_know_is_accepted(known: dict[str, Any], config_id: str, value: Any) -> None:
    check_choice(session(**known), config_id, value)


@pytest.mark.parametrize(
    ("known", "config_id", "value", "hint"),
    [
        ({"config_options": [GROUPED, FREE]}, "size", "d", "one of: a, b, c"),
        ({"config_options": [GROUPED, FREE]}, "model", "opus", "one of: size, free"),
        ({"models": MODELS, "modes": MODES}, "model", "nonsense", "one of: opus"),
        ({"models": MODELS, "modes": MODES}, "mode", "bypassPermissions", "one of: plan"),
        ({"models": MODELS, "modes": MODES}, "size", "a", "one of: model, mode"),
        ({}, "background_tasks", 5, "one of: model, mode"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_valid_ones(
    known: dict[str, Any], config_id: str, value: Any, hint: str
) -> None:
    with pytest.raises(Refused, match=hint):
        check_choice(session(**known), config_id, value)


@given(st.text(max_size=200))
def test_a_title_is_one_short_line_of_the_message(text: str) -> None:
    title = title_of(text)
    assert len(title) <= TITLE_LENGTH
    assert len(title.splitlines()) <= 1
    assert title.removesuffix("…").strip() in text
    assert bool(title) is bool(text.strip())


def test_a_long_title_is_cut_at_a_word() -> None:
    assert title_of("word " * 30) == ("word " * 15).rstrip() + "…"
    assert title_of("x" * 100) == "x" * (TITLE_LENGTH - 1) + "…"
