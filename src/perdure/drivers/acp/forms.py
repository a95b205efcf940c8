"""Forms of `elicitation/create`: converts a JSON schema to questions, and answers to the form's values.

Above: asking.py. Below: core events. Agents add a free-text companion field to a choice (`X_custom` in claude, `X_note`
in codex). People see one question; what they type instead of choosing goes into the companion.
"""

import math
from typing import Any, Literal

from msgspec import Struct

from perdure.core.events import Choice, Question

_COMPANIONS = ("_custom", "_note")
_YES = ("yes", "true", "y", "1")
_HEADER_CHARS = 40


class Field(Struct, omit_defaults=True):
    """One question, with what is needed to convert its answer to the agent's values."""

    name: str
    kind: Literal["text", "choice", "choices", "boolean", "number"]
    labels: list[str] = []
    values: list[Any] = []
    companion: str | None = None
    required: bool = False
    whole: bool = False


def read_form(schema: Any, message: str) -> tuple[list[Field], list[Question]]:
    """Return the questions of a form, and in parallel the fields to convert the answers."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return [], []
    wanted = schema.get("required")
    required = wanted if isinstance(wanted, list) else []
    names = [name for name in properties if _owner(name, properties) is None]
    fields, questions = [], []
    for name in names:
        property = properties[name] if isinstance(properties[name], dict) else {}
        companion = next((name + end for end in _COMPANIONS if name + end in properties), None)
        field, choices = _field(name, property)
        field.companion, field.required = companion, name in required
        text, header = _wording(name, property, message if len(names) == 1 else "")
        fields.append(field)
        questions.append(
            Question(question_id=name, question=text, header=header, multiple=field.kind == "choices", options=choices)
        )
    return fields, questions


def fill_form(fields: list[Field], answers: dict[str, Any]) -> dict[str, Any]:
    """Return the form's content from {question_id: label, [labels] or text}."""
    content: dict[str, Any] = {}
    for field in fields:
        answer = answers.get(field.name)
        if answer is not None:
            _fill(field, answer, content)
    return content


def _fill(field: Field, answer: Any, content: dict[str, Any]) -> None:
    given = [str(part) for part in answer] if isinstance(answer, list) else [str(answer)]
    if field.kind == "text":
        content[field.name] = ", ".join(given)
    elif field.kind == "boolean":
        content[field.name] = answer if isinstance(answer, bool) else given[:1] != [] and given[0].lower() in _YES
    elif field.kind == "number":
        number = _number(given[0], field.whole) if given else None
        if number is not None:
            content[field.name] = number
    else:
        _choose(field, given, content)


def _choose(field: Field, given: list[str], content: dict[str, Any]) -> None:
    chosen, typed = [], []
    for text in given:
        index = _index(field, text)
        if index is None:
            typed.append(text)
        else:
            chosen.append(field.values[index])
    if typed and field.companion:
        content[field.companion] = ", ".join(typed)
        if not chosen and field.required:
            chosen = [_none_of_these(field)]
    elif typed:
        # There is no other field for it. The agent decides whether it accepts a value that it didn't offer.
        chosen.extend(typed)
    if field.kind == "choices":
        content[field.name] = chosen
    elif chosen:
        content[field.name] = chosen[0]


def _index(field: Field, text: str) -> int | None:
    if text in field.labels:
        return field.labels.index(text)
    return next((index for index, value in enumerate(field.values) if str(value) == text), None)


def _none_of_these(field: Field) -> Any:
    """Return the choice that means "something else", by its name, or the last one."""
    for label, value in zip(field.labels, field.values, strict=True):
        if label.lower().startswith(("none of", "other", "something else")):
            return value
    return field.values[-1] if field.values else ""


def _field(name: str, property: dict[str, Any]) -> tuple[Field, list[Choice]]:
    kind = property.get("type")
    if kind == "boolean":
        choices = [Choice(label="Yes"), Choice(label="No")]
        return Field(name, "boolean"), choices
    if kind in ("number", "integer"):
        return Field(name, "number", whole=kind == "integer"), []
    items = property.get("items")
    several = kind == "array" and isinstance(items, dict)
    values, choices = _choices(items if several and isinstance(items, dict) else property)
    if not values:
        return Field(name, "text"), []
    labels = [choice.label for choice in choices]
    return Field(name, "choices" if several else "choice", labels, values), choices


def _choices(schema: dict[str, Any]) -> tuple[list[Any], list[Choice]]:
    for key in ("oneOf", "anyOf"):
        listed = schema.get(key)
        if isinstance(listed, list):
            found = [entry for entry in listed if isinstance(entry, dict) and "const" in entry]
            return [entry["const"] for entry in found], [
                Choice(label=_text(entry, "title") or str(entry["const"]), description=_text(entry, "description"))
                for entry in found
            ]
    values = schema.get("enum")
    if not isinstance(values, list):
        return [], []
    names = schema.get("enumNames")
    if not isinstance(names, list) or len(names) != len(values):
        names = values
    return values, [Choice(label=str(name)) for name in names]


def _wording(name: str, property: dict[str, Any], message: str) -> tuple[str, str]:
    """Return the question and its short header. Agents put the question in the title, the description or the
    message."""
    title, description = _text(property, "title"), _text(property, "description")
    asking = next((text for text in (description, title, message) if text.rstrip().endswith("?")), "")
    question = asking or message or title or description or name
    header = next((text for text in (title, description) if text and text != question), "")
    return question, header if len(header) <= _HEADER_CHARS else ""


def _owner(name: str, properties: dict[str, Any]) -> str | None:
    for end in _COMPANIONS:
        if name.endswith(end) and name[: -len(end)] in properties:
            return name[: -len(end)]
    return None


def _number(text: str, whole: bool) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if whole else number


def _text(schema: dict[str, Any], key: str) -> str:
    value = schema.get(key)
    return value if isinstance(value, str) else ""
