"""Parsing the verbs of a message."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.rehearsal.script import Scene, Wait, perform
from perdure.rehearsal.verbs import VERBS, greeting, parse, table

SCENE = Scene("/", list, list, "rehearsal-1", "ask")


def obeyed(message: str) -> list[tuple[str, tuple[str, ...] | None]]:
    return [(instruction.verb.name, instruction.arguments) for instruction in parse(message)]


def test_verbs_are_read_in_order_and_other_lines_are_comments() -> None:
    message = "Please do this:\n  say  hello  world \n\n- not a verb\nstream 3 10\nsaying\nSay no"
    assert obeyed(message) == [("say", ("hello  world",)), ("stream", ("3", "10"))]


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("stream 3", ("3", "")),
        ("tool Bash", ("Bash", "")),
        ("tool Bash ls -l", ("Bash", "ls -l")),
        ("ask Which one? | A | B", ("Which one? ", "| A | B")),
        ("ask Why?", ("Why?", "")),
        ("sleep 0.25", ("0.25",)),
        ("crash", ("",)),
        ("crash 3", ("3",)),
        ("recall", ()),
        ("say a\u2028b", ("a\u2028b",)),
        ("write a.txt", ("a.txt", "")),
        ("write a.txt one |   two |", ("a.txt", "one |   two |")),
        ("rename a.txt b.txt", ("a.txt", "b.txt")),
    ],
)
def test_arguments_are_split(line: str, arguments: tuple[str, ...]) -> None:
    assert [found for _, found in obeyed(line)] == [arguments]


@pytest.mark.parametrize(
    "line", ["say", "stream x", "stream", "sleep well", "recall all", "usage 5", "permit a b", "big -1", "crash x"]
)
def test_a_misused_verb_is_answered_with_its_usage(line: str) -> None:
    assert [found for _, found in obeyed(line)] == [None]
    said = "".join(getattr(act, "delta", "") for act in perform(line, SCENE))
    assert f"`{VERBS[line.split(maxsplit=1)[0]].usage}`" in said


@given(st.text())
def test_no_message_breaks_the_parser(message: str) -> None:
    assert all(instruction.verb.name in VERBS for instruction in parse(message))


def test_every_verb_has_an_implementation() -> None:
    from perdure.rehearsal.script import _PARTS

    assert list(_PARTS) == list(VERBS)


def test_the_greeting_shows_only_existing_verbs() -> None:
    answer = greeting("rehearsal-1", "ask")
    block = re.findall(r"```\n(.*?)```", answer, re.DOTALL)[0]
    assert [verb for verb, arguments in obeyed(block) if arguments is not None] == [
        line.split()[0] for line in block.splitlines()
    ]
    inline = re.findall(r"`([^`\n]+)`", answer.split("```")[2])
    assert inline
    assert all(arguments is not None for line in inline for _, arguments in obeyed(line))
    assert len(obeyed("\n".join(inline))) == len(inline)


def test_the_table_of_help_names_every_verb() -> None:
    assert [line.split()[0] for line in table().splitlines()] == list(VERBS)


def test_a_limit_ends_the_performance() -> None:
    acts = list(perform("say a\nlimit 5\nsay b", SCENE))
    assert type(acts[-1]).__name__ == "Limit"


def test_a_paced_stream_waits_between_its_deltas_only() -> None:
    acts = list(perform("stream 3 20", SCENE))
    assert [isinstance(act, Wait) for act in acts] == [False, True, False, True, False]


def test_an_edit_is_not_made_before_its_act_is_taken(tmp_path: Path) -> None:
    performance = perform("edit a.txt", SCENE._replace(workdir=str(tmp_path)))
    next(performance)
    performance.close()
    assert list(tmp_path.iterdir()) == []


def test_write_keeps_indentation_and_empty_lines(tmp_path: Path) -> None:
    scene = SCENE._replace(workdir=str(tmp_path))
    list(perform("write a.txt one |   two | | four\nwrite b.txt\nwrite c.txt gone\nremove c.txt", scene))
    list(perform("rename a.txt d.txt\nremove nothing.txt", scene))
    assert (tmp_path / "d.txt").read_text() == "one\n  two\n\nfour\n"
    assert (tmp_path / "b.txt").read_text() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.txt", "d.txt"]
