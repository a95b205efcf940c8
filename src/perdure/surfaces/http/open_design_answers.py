"""Converts the result of a tool, as Open Design sends it, to answers to the questions of a prompt. Pure.

Above: open_design.py. Below: questions as the API shows them. A result is a text, but a prompt can have several
questions. Ambiguous results are refused, so that no question gets the answer of another.
"""

from typing import Any

import msgspec

from perdure.core.errors import Refused

Answers = dict[str, str | list[str]]
Question = dict[str, Any]


def answers_in(content: Any, questions: list[Question]) -> Answers:
    """The answers by question id. Questions without an answer are omitted."""
    content = _plain(content)
    named = _named(content, questions)
    if named is not None:
        return named
    if len(questions) == 1:
        return {questions[0]["question_id"]: _answer(content)}
    parts = content if isinstance(content, list) else [line for line in str(content).splitlines() if line.strip()]
    if isinstance(content, dict) or len(parts) != len(questions):
        raise _unclear(questions)
    return {question["question_id"]: _answer(part) for question, part in zip(questions, parts, strict=True)}


def _plain(content: Any) -> Any:
    """Join the text blocks of a tool result."""
    if isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type", "text") == "text"]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content


def _named(content: Any, questions: list[Question]) -> Answers | None:
    """Answers in an object, or in its JSON text, by question id, question or header; None if it is not an object."""
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            content = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            return None
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("answers"), dict) and set(content) <= {"answers", "questions"}:
        content = content["answers"]
    found: Answers = {}
    for key, value in content.items():
        fitting = [q for q in questions if key in (q["question_id"], q["question"], q["header"])]
        if len(fitting) != 1:
            raise _unclear(questions)
        found[fitting[0]["question_id"]] = _answer(value)
    if not found:
        raise _unclear(questions)
    return found


def _answer(value: Any) -> str | list[str]:
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return list(value)
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str) and value.strip():
        return value
    raise Refused("invalid", "content must be a text, a list of texts, or an object with a text for each question.")


def _unclear(questions: list[Question]) -> Refused:
    names = ", ".join(f"{question['question_id']!r} ({question['question']})" for question in questions)
    return Refused("invalid", f"content must be an object with an answer for each question: {names}.")
