"""The notes on a node's disk about open turns."""

from pathlib import Path

from perdure.runtime.review.open_turns import OpenTurns


def test_a_note_that_a_killed_server_has_not_completed_does_not_count(tmp_path: Path) -> None:
    notes = OpenTurns(tmp_path / "open")
    assert notes.all() == {}
    notes.put("s_1", 3)
    notes.put("s_2", 1)
    (tmp_path / "open/s_2").rename(tmp_path / "open/.s_2")
    assert notes.all() == {"s_1": 3}
    notes.drop("s_1")
    assert notes.all() == {}
