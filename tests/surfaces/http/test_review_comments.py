"""Comments on changed lines over HTTP: what is quoted, sending them again, and what becomes of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch

TEN = " | ".join(f"line {number}" for number in range(1, 11))


@pytest.fixture
def scratch(server: LocalServer, tmp_path: Path) -> Scratch:
    made = Scratch(server, tmp_path / "repository")
    made.turn(f"write b.txt {TEN}")
    return made


def states(scratch: Scratch) -> list[str]:
    return [comment["state"] for comment in scratch.changes()["comments"]]


def review(scratch: Scratch, comment: dict[str, Any], text: str, **more: Any) -> Any:
    """Send a comment, and wait until the turn is over."""
    sent = scratch.post("review", {"comments": [{"text": "Why?", **comment}], "text": text, **more}, expect=202)
    scratch.server.wait_idle(scratch.session)
    return sent


def message(scratch: Scratch) -> str:
    return str(scratch.server.transcript(scratch.session)[-1]["message"]["text"])


def test_a_review_that_is_sent_again_gets_the_first_answer_although_the_lines_have_changed(scratch: Scratch) -> None:
    given = ({"path": "b.txt", "line": 2}, "write b.txt other")
    first = review(scratch, *given, message_id="again")
    assert scratch.read("b.txt") == "other\n"
    assert review(scratch, *given, message_id="again") == first
    assert len(scratch.server.transcript(scratch.session)) == 2 and states(scratch) == ["addressed"]
    other = {"comments": [{"path": "b.txt", "line": 1, "text": "Another."}], "message_id": "again"}
    assert scratch.post("review", other, expect=409)["code"] == "conflict"


@pytest.mark.parametrize("message_id", ["a/b", "../x", "é" * 200, 'q"\n'])
def test_a_message_id_may_contain_anything(scratch: Scratch, message_id: str) -> None:
    review(scratch, {"path": "b.txt", "line": 2}, "write b.txt other", message_id=message_id)
    assert states(scratch) == ["addressed"]


def test_a_comment_follows_the_text_that_it_was_written_about(scratch: Scratch) -> None:
    scratch.turn(f"write b.txt new | new | new | {TEN}")
    review(scratch, {"path": "b.txt", "line": 5, "quote": "line 5"}, "say hello")
    assert "**b.txt**, line 8:\n```\nline 5\n```" in message(scratch)
    assert states(scratch) == ["open"]
    review(scratch, {"path": "b.txt", "line": 5, "quote": "line 5"}, "edit b.txt")
    assert states(scratch)[-1] == "open"
    # Text that is gone is quoted all the same.
    review(scratch, {"path": "b.txt", "line": 5, "quote": "gone"}, "write b.txt other")
    assert "**b.txt**, line 5:\n```\ngone\n```" in message(scratch)


def test_a_comment_on_removed_lines_is_addressed_only_by_a_change_at_their_place(scratch: Scratch) -> None:
    numbers = [f"line {number}" for number in range(1, 11)]
    scratch.turn(f"write b.txt {' | '.join([*numbers[:4], *numbers[5:]])}")
    old = {"path": "b.txt", "line": 5, "side": "old", "turn": 2}
    review(scratch, old, "edit b.txt")
    assert states(scratch) == ["open"]
    review(scratch, old, f"write b.txt {' | '.join([*numbers[:4], 'again', *numbers[5:]])}")
    assert states(scratch) == ["open", "addressed"]


def test_comments_on_unknown_files_lines_and_turns_are_refused(scratch: Scratch) -> None:
    for comment, code, words in (
        ({"path": "none.txt", "line": 1}, "not_found", "none.txt is not among the changes."),
        ({"path": "b.txt", "line": 11}, "invalid", "b.txt has 10 lines, so there is no line 11."),
        (
            {"path": "b.txt", "line": 1, "turn": 9},
            "not_found",
            "There is no turn 9 in this session. It has only turn 1.",
        ),
    ):
        body = {"comments": [{"text": "Why?", **comment}]}
        refused = scratch.post("review", body, expect=404 if code == "not_found" else 400)
        assert (refused["code"], refused["detail"]) == (code, words)
    assert len(scratch.server.transcript(scratch.session)) == 1


def test_without_snapshots_a_comment_quotes_the_reported_edit_and_is_settled_after_the_turn(
    server: LocalServer, tmp_path: Path
) -> None:
    session = server.create(workdir=str(tmp_path))
    server.turn(session, f"write b.txt {TEN}")
    for text, expected in (("say hello", "open"), ("write b.txt other", "addressed")):
        body = {"comments": [{"path": "b.txt", "line": 2, "text": "Why?"}], "text": text}
        server.post(f"/api/sessions/{session}/review", body, expect=202)
        server.wait_idle(session)
        assert "**b.txt**, line 2:\n```\nline 2\n```" in server.transcript(session)[-1]["message"]["text"]
        assert server.get(f"/api/sessions/{session}/changes")["comments"][-1]["state"] == expected
