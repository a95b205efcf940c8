"""The answers that a script produces, without any API: the position in it is read from the conversation."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.transcript_text import Entry, wrap
from tests.model.conversation import Called, Item, Returned, Said, conversation
from tests.model.script import Act, Cut, Fail, Pause, Text, Thought, Usage, perform
from tests.model.tools import Call
from tests.model.verbs import VERBS


def answer(*items: Item, tools: dict[str, Any] | None = None, met: Counter[int] | None = None) -> list[Act]:
    counts = met if met is not None else Counter[int]()

    def count(step: int) -> int:
        counts[step] += 1
        return counts[step]

    return list(perform(conversation(items, tools or {}), count))


def text(acts: list[Act]) -> str:
    return "".join(act.delta for act in acts if isinstance(act, Text))


def test_verbs_run_in_order_in_one_answer() -> None:
    acts = answer(Said("think hm\na remark\nsay one two\nusage 3 4\nsay three"))
    assert acts[0] == Usage(3, 4)
    assert "".join(act.delta for act in acts if isinstance(act, Thought)) == "hm"
    assert text(acts) == "one two\nthree"


def test_a_script_continues_after_each_call_that_has_a_result() -> None:
    script = Said("say a\nbash first\nsay b\nread second\nsay c")
    acts = answer(script)
    assert text(acts) == "a"
    assert acts[-1] == Call("Bash", {"command": "first"})
    acts = answer(script, Called("Bash"), Returned("ok"))
    assert text(acts) == "b"
    assert acts[-1] == Call("Read", {"file_path": "second"})
    assert text(answer(script, Called("Bash"), Returned("ok"), Called("Read"), Returned("ok"))) == "c"


def test_calls_made_together_are_one_answer_and_all_count_as_done() -> None:
    script = Said('together ["bash a", "read b"]\nsay done')
    assert answer(script) == [Call("Bash", {"command": "a"}), Call("Read", {"file_path": "b"})]
    both = (Called("Bash"), Called("Read"), Returned("ok"), Returned("ok"))
    assert text(answer(script, *both)) == "done"
    assert "was not understood" in text(answer(Said('together ["say a", "bash b"]')))


def test_a_script_that_ends_with_a_call_repeats_the_tools_result() -> None:
    assert text(answer(Said("bash x"), Called("Bash"), Returned("out"))) == "The tool said: out"


def test_a_newer_text_is_a_new_script() -> None:
    assert text(answer(Said("bash x"), Called("Bash"), Returned("out"), Said("say new"))) == "new"


def test_text_added_by_an_agent_is_not_the_users() -> None:
    added = [
        Said("<system-reminder>\nsay wrong\n</system-reminder>\n"),
        Said("[Request interrupted by user]"),
        Said("<environment_context>say wrong</environment_context>"),
    ]
    acts = answer(added[0], Said("say first"), *added[1:], Said("recall"), added[0])
    assert text(acts) == '- "say first"\n- "recall"'


def test_a_reminder_after_a_tool_result_does_not_restart_the_script() -> None:
    reminder = Said("<system-reminder>be good</system-reminder>")
    assert text(answer(Said("bash x\nsay b"), Called("Bash"), Returned("out"), reminder)) == "b"


def test_a_transcript_is_recalled_entry_by_entry_and_its_last_message_is_obeyed() -> None:
    entries = [Entry("user", 1, "", "say\none"), Entry("assistant", 1, "other", "one"), Entry("user", 2, "", "two")]
    assert text(answer(Said(wrap(entries, "recall")))) == '- "say\\none"\n- "two"\n- "recall"'


@given(st.lists(st.text(min_size=1).filter(lambda said: said.strip() and "<" not in said and "[" not in said)))
def test_any_texts_are_recalled_unchanged(texts: list[str]) -> None:
    said = [Said(one) for one in texts]
    assert conversation([*said, Said("recall")], {}).user_texts == [*texts, "recall"]


def test_a_failure_happens_as_often_as_it_says() -> None:
    met = Counter[int]()
    script = Said("fail 529 2\nsay ok")
    assert [answer(script, met=met) for _ in range(2)] == [[Fail(529)], [Fail(529)]]
    assert text(answer(script, met=met)) == "ok"
    assert answer(Said("fail 400")) == [Fail(400)]
    assert answer(Said("limit 2.5")) == [Fail(429, resets_in_s=2.5)]
    cut = answer(Said("say half\ncut\nsay whole"), met=(again := Counter[int]()))
    assert text(cut) == "half" and cut[-1] == Cut()
    assert text(answer(Said("say half\ncut\nsay whole"), met=again)) == "half\nwhole"


def test_a_pause_is_before_the_answer_or_inside_it() -> None:
    assert answer(Said("slow 0.5\nhang\nstall 2\nstall")) == [
        Pause(0.5, opened=False),
        Pause(None, opened=False),
        Pause(2, opened=True),
        Pause(None, opened=True),
    ]
    assert answer(Said("stream 2 10")) == [Text("w0 "), Pause(0.01, opened=True), Text("w1 ")]


def test_a_big_answer_has_exactly_the_requested_size() -> None:
    assert len(text(answer(Said("big 200000")))) == 200_000


def test_pieces_may_contain_json_escapes_even_halves_of_an_emoji() -> None:
    pieces = ["one\r\n", "\x00", "\ud83d", "\ude00"]
    assert answer(Said(f"spell {json.dumps(pieces)}")) == [Text(piece) for piece in pieces]


MISUSED = [
    "say",
    "spell [7]",
    "spell [broken]",
    "limit soon",
    "think",
    "bash",
    "read",
    "write path",
    "ask ?",
    "tool Any {broken}",
    "stream x",
    "fail 200",
    "slow",
    "big",
]


@pytest.mark.parametrize("line", MISUSED)
def test_a_misused_verb_prints_its_usage(line: str) -> None:
    usage, _ = VERBS[line.split(maxsplit=1)[0]]
    assert text(answer(Said(line))).endswith(f"It is used like this: `{usage}`.")


def test_calls_match_the_offered_tools() -> None:
    terminal = {"properties": {"cmd": {"type": "string"}, "wait": {"type": "boolean"}}, "required": ["cmd", "wait"]}
    listing = {"properties": {"command": {"type": "array"}}}
    clarify = {"properties": {"question": {"type": "string"}, "choices": {"type": "array"}}}
    write: dict[str, Any] = {"properties": {"path": {}, "content": {}}}
    assert answer(Said("bash ls"), tools={"terminal": terminal}) == [Call("terminal", {"cmd": "ls", "wait": False})]
    assert answer(Said("bash ls"), tools={"shell": listing}) == [Call("shell", {"command": ["bash", "-lc", "ls"]})]
    assert answer(Said("ask Which? | A | B"), tools={"clarify": clarify}) == [
        Call("clarify", {"question": "Which?", "choices": ["A", "B"]})
    ]
    assert answer(Said("write a/b c d"), tools={"write_file": write}) == [
        Call("write_file", {"path": "a/b", "content": "c d"})
    ]
    assert answer(Said('tool Any {"x": [1]}')) == [Call("Any", {"x": [1]})]


def test_an_answer_with_a_required_form_matches_it_and_obeys_no_verb() -> None:
    form = {"type": "object", "properties": {"title": {"type": "string"}, "score": {"type": "integer", "minimum": 1}}}
    acts = list(perform(conversation([Said("hang")], {}, form), lambda _: 1))
    assert json.loads(text(acts)) == {"title": "scripted", "score": 1}


def test_a_question_has_claudes_format() -> None:
    (call,) = answer(Said("ask Which? | A | B"))
    assert isinstance(call, Call) and call.name == "AskUserQuestion"
    (asked,) = call.arguments["questions"]
    assert asked["question"] == "Which?" and [option["label"] for option in asked["options"]] == ["A", "B"]
