"""Which of the files that snapshots leave alone a turn has changed."""

from perdure.runtime.git.snapshot import LeftAlone
from perdure.runtime.review.comparison import left_alone_of
from perdure.runtime.review.records import Change

LARGE, OTHER = (LeftAlone(path, "large", "It has 40 MB.") for path in ("large.bin", "other.bin"))


def changed(before: list[LeftAlone], marks: dict[str, str], after: dict[str, str]) -> list[str]:
    change = Change(turn=1, state="running", directory="/work", began_ms=1, left_alone=before, marks=marks)
    found: list[str] = left_alone_of(change, [LARGE, OTHER], after)["changed_alone"]
    return found


def test_a_file_has_changed_if_its_mark_has_or_if_it_is_new() -> None:
    assert changed([LARGE, OTHER], {"large.bin": "1", "other.bin": "1"}, {"large.bin": "2", "other.bin": "1"}) == [
        "large.bin"
    ]
    assert changed([LARGE], {"large.bin": "1"}, {"large.bin": "1", "other.bin": "1"}) == ["other.bin"]
    assert changed([], {}, {"large.bin": "1"}) == ["large.bin"]


def test_a_file_counts_as_unchanged_if_its_mark_before_the_turn_is_unknown() -> None:
    """The comparison before a turn has a time limit."""
    assert changed([LARGE], {}, {"large.bin": "1"}) == []
