"""What a proposed edit would change in the current file: exactly the difference, with correct line numbers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.proposed_edits import hunks, lines_of, place

texts = st.lists(st.sampled_from(["a", "b", "\tc", "  d", "", "e\r"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "".join(f"{line}\n" for line in lines)])
)


def applied(old: str, entries: list[dict[str, Any]]) -> str:
    """The old text with each hunk applied at its line number."""
    lines, shift = lines_of(old), 0
    for entry in entries:
        before, after = lines_of(entry["old_text"]), lines_of(entry["new_text"])
        if not before and not after:
            continue
        at = entry["line"] - 1
        assert lines[at : at + len(before)] == before, (at, entry, lines)
        lines[at : at + len(before)] = after
        shift += len(after) - len(before)
    return "".join(lines)


@given(texts, texts)
def test_applying_the_hunks_to_the_old_text_gives_the_new_one(old: str, new: str) -> None:
    assert applied(old, hunks("a.py", old, new)) == new


@given(texts, st.data())
def test_a_passage_is_placed_where_it_is_in_the_file(text: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(text)))
    passage = text[first : data.draw(st.integers(first, len(text)))]
    new = data.draw(texts)
    placed = place([{"path": "a.py", "old_text": passage, "new_text": new}], lambda path: text)
    # `count` ignores overlapping occurrences, of which an edit replaces the first.
    if passage and text.count(passage) == 1 and text.find(passage) == first and "\r\n" not in text:
        assert applied(text, placed) == text[:first] + new + text[first + len(passage) :]
        assert all("line" in entry for entry in placed) or text == text[:first] + new + text[first + len(passage) :]


def test_a_written_file_is_compared_with_the_old_one() -> None:
    old = "".join(f"line {number}\n" for number in range(100))
    new = old.replace("line 50\n", "line fifty\n")
    [entry] = place([{"path": "a.py", "old_text": None, "new_text": new}], lambda path: old)
    assert entry["line"] == 48 and entry["old_text"].startswith("line 47\n") and "line fifty" in entry["new_text"]


def test_several_edits_of_one_file_are_one_change_of_it() -> None:
    edits: list[dict[str, Any]] = [
        {"path": "a.py", "old_text": "one", "new_text": "1"},
        {"path": "a.py", "old_text": "1\ntwo", "new_text": "1\n2"},
        {"path": "b.py", "old_text": "x", "new_text": "y", "replace_all": True},
    ]
    files = {"a.py": "one\ntwo\n", "b.py": "x\nx\n"}
    assert place(edits, files.get) == [
        {"path": "a.py", "old_text": "one\ntwo\n", "new_text": "1\n2\n", "line": 1},
        {"path": "b.py", "old_text": "x\nx\n", "new_text": "y\ny\n", "line": 1},
    ]


def test_an_edit_that_does_not_apply_stays_unchanged() -> None:
    for text in (None, "other", "x x"):
        edit = [{"path": "a.py", "old_text": "x", "new_text": "y"}]
        assert place(edit, lambda path, text=text: text) == edit  # type: ignore[misc]
    known = [{"path": "a.py", "old_text": "x", "new_text": "y", "line": 7}]
    assert place(known, lambda path: "x") == known


def test_a_file_with_windows_line_ends_is_found_by_a_passage_without_them() -> None:
    [entry] = place([{"path": "a", "old_text": "1\n2", "new_text": "1\n3"}], lambda path: "0\r\n1\r\n2\r\n")
    assert (entry["old_text"], entry["new_text"], entry["line"]) == ("0\n1\n2\n", "0\n1\n3\n", 1)
