"""Tools and their results as text in a transcript."""

import random
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.line_comparison import compare
from perdure.core.tool_text import diff_text, tool_line, tool_result

lines = st.lists(st.sampled_from(["a", "b", "c", "", "same"]), max_size=30)


def part(**given: Any) -> dict[str, Any]:
    return {"name": "Bash", "title": "ls", "status": "completed", "parent_tool_id": None, **given}


@given(lines, lines)
def test_a_diff_has_every_removed_and_every_added_line(old: list[str], new: list[str]) -> None:
    text = diff_text({"path": "a.py", "old_text": "\n".join(old), "new_text": "\n".join(new)})
    if not text:
        assert "\n".join(old).splitlines() == "\n".join(new).splitlines()
        return
    head, *rest = text.split("\n@@\n")
    assert head == "--- a.py\n+++ a.py"
    shown = [line for hunk in rest for line in hunk.split("\n")]
    # Outside the shown lines, both texts have the same number of lines.
    before = [line[1:] for line in shown if line[0] in " -"]
    after = [line[1:] for line in shown if line[0] in " +"]
    assert len("\n".join(old).splitlines()) - len(before) == len("\n".join(new).splitlines()) - len(after)
    assert sum(line.startswith("-") for line in shown) <= len(old)


@given(st.lists(st.sampled_from("abcdefghij"), max_size=40), st.lists(st.sampled_from("abcdefghij"), max_size=40))
def test_both_texts_can_be_read_back_from_the_comparison(old: list[str], new: list[str]) -> None:
    marked = list(compare(old, new))
    assert [line[1:] for line in marked if line[0] in " -"] == old
    assert [line[1:] for line in marked if line[0] in " +"] == new


def test_two_changes_far_apart_in_a_large_file_are_two_small_groups() -> None:
    old = [f"line {number}" if number % 3 else "" for number in range(30_000)]
    new = [*old[:2], "import x", *old[3:29_000], *old[29_001:]]
    began = time.process_time()
    text = diff_text({"path": "a.py", "old_text": "\n".join(old), "new_text": "\n".join(new)})
    assert time.process_time() - began < 2
    first = "@@\n \n line 1\n-line 2\n+import x\n \n line 4\n line 5"
    assert text.startswith(f"--- a.py\n+++ a.py\n{first}\n@@\n")
    assert text.count("\n@@\n") == 2 and text.count("\n-") == 2 and text.count("\n+") == 2, text


def test_many_passages_of_repeated_lines_do_not_take_seconds() -> None:
    """Each passage is short enough to be compared, but all of them together would take several seconds."""

    def text(seed: int) -> list[str]:
        chance = random.Random(seed)
        passages = ([*chance.choices("ab", k=199), f"anchor {number}"] for number in range(600))
        return [line for passage in passages for line in passage]

    old, new = text(1), text(2)
    began = time.process_time()
    marked = list(compare(old, new))
    assert time.process_time() - began < 1
    assert [line[1:] for line in marked if line[0] in " -"] == old
    assert [line[1:] for line in marked if line[0] in " +"] == new
    assert sum(line.startswith(" anchor") for line in marked) == 600


def test_a_new_file_and_a_small_change_of_a_large_one_are_shown_as_unified_diffs() -> None:
    created = {"path": "a.py", "old_text": None, "new_text": "one\ntwo\n"}
    assert diff_text(created) == "--- /dev/null\n+++ a.py\n@@\n+one\n+two"
    old = [f"line {number}" for number in range(1000)]
    changed = [*old[:500], "new", *old[501:]]
    text = diff_text({"path": "a.py", "old_text": "\n".join(old), "new_text": "\n".join(changed)})
    context_before, context_after = (" line 497\n line 498\n line 499", " line 501\n line 502\n line 503")
    assert text == f"--- a.py\n+++ a.py\n@@\n{context_before}\n-line 500\n+new\n{context_after}"


def test_a_file_that_was_rewritten_as_a_whole_costs_no_more_than_reading_it() -> None:
    old = "\n".join(f"{number % 7}" for number in range(20_000))
    new = "\n".join(f"{number % 11} x" for number in range(20_000))
    began = time.process_time()
    text = diff_text({"path": "a.py", "old_text": old, "new_text": new})
    assert time.process_time() - began < 2
    assert text.count("\n-") == text.count("\n+") - 1 == 20_000


def test_the_result_of_an_edit_is_its_diff_and_of_other_tools_their_output() -> None:
    diff = [{"path": "a.py", "old_text": "one", "new_text": "two"}]
    assert tool_result(part(content="updated", diff=diff)) == "--- a.py\n+++ a.py\n@@\n-one\n+two"
    assert tool_result(part(content="no such file\n", diff=diff, status="failed")) == "no such file"
    assert tool_result(part(content="not allowed", diff=diff, outcome="denied")) == "not allowed"
    assert tool_result(part(content="a\nb")) == "a\nb"
    assert tool_result(part()) == ""
    assert tool_result(part(content="inner", parent_tool_id="outer")) == ""


def test_the_line_of_a_tool_has_its_outcome() -> None:
    assert tool_line(part()) == "[tool Bash: ls (completed)]"
    assert tool_line(part(status="failed")) == "[tool Bash: ls (failed)]"
    assert tool_line(part(status="failed", outcome="denied")) == "[tool Bash: ls (denied, not done)]"
    assert tool_line(part(status="failed", outcome="interrupted")) == "[tool Bash: ls (interrupted, perhaps not done)]"
