"""`perdure review`: comments on changed lines, sent as one message."""

from pathlib import Path

import pytest

from tests.surfaces.conftest import ServerProcess
from tests.surfaces.reviewing import Reviewed

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def reviewed(server: ServerProcess, tmp_path: Path) -> Reviewed:
    reviewed = Reviewed(server, tmp_path / "site")
    reviewed.begin("write numbers.txt one | two | three\nedit notes.txt")
    return reviewed


def last_message(reviewed: Reviewed) -> str:
    with reviewed.server.client() as client:
        return str(client.transcript(reviewed.session)["turns"][-1]["message"]["text"])


def test_comments_are_one_message_with_the_commented_lines(reviewed: Reviewed) -> None:
    sent = reviewed.run(
        "review", "S", "--wait", "--text", "say seen",
        "-c", "numbers.txt:2-3", "Why words?", "-c", "./notes.txt:1", "Explain this.",
        "--old", "numbers.txt:4", "Keep it.",
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout == "seen\n"
    message = last_message(reviewed)
    assert message.startswith("say seen\n")
    for part in (
        "numbers.txt",
        "two\nthree\n",
        "Why words?",
        "notes.txt",
        "rehearsed 1\n",
        "Explain this.",
        "Keep it.",
    ):
        assert part in message, part
    lines = reviewed.run("review", "S").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["numbers.txt:2-3", "notes.txt:1", "numbers.txt:4"]
    assert len(reviewed.read("review", "S")["comments"]) == 3
    reviewed.run("review", "S", "--wait", "--turn", "1", "-c", "notes.txt:1", "say more")
    listed = reviewed.run("review", "S").stdout
    assert listed.startswith("PLACE ") and "  SENT IN TURN  STATE " in listed
    assert "\nnotes.txt:1 of turn 1    3 " in listed


@pytest.mark.full
def test_without_waiting_the_session_is_printed_and_a_comment_may_queue(reviewed: Reviewed) -> None:
    assert reviewed.run("review", "S", "-c", "notes.txt:1", "hang", "--turn", "1").stdout == f"{reviewed.session}\n"
    busy = reviewed.run("review", "S", "-c", "notes.txt:1", "More.")
    assert busy.returncode == 1 and "A turn is running." in busy.stderr
    queued = reviewed.run("review", "S", "-c", "notes.txt:1", "More.", "--queue")
    assert (queued.returncode, queued.stderr) == (0, "Queued: a turn is running.\n")
    reviewed.run("queue", "withdraw", "S", "--all")
    reviewed.run("abort", "S")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-c", "numbers.txt", "Why?"), 2, "'numbers.txt' has no line. Give the place as PATH:LINE or PATH:FIRST-LAST"),
        (("-c", "numbers.txt:3-2", "Why?"), 2, "'numbers.txt:3-2' ends before it begins."),
        (("-c", "numbers.txt:1", " "), 2, "The comment on numbers.txt:1 is empty."),
        (("-c", "old.txt:1", "Why?"), 1, "'old.txt' is not among the changes. They are: notes.txt, numbers.txt."),
        (("-c", "numbers.txt:99", "Why?"), 1, "there is no line 99"),
        (("--text", "Why?"), 2, "Give a comment with -c."),
        (("--turn", "1"), 2, "--turn needs a comment: -c or --old."),
        (("--turn", "9", "-c", "numbers.txt:1", "Why?"), 1, "There is no turn 9 in this session. It has only turn 1."),
    ],
)
def test_a_wrong_place_is_reported(reviewed: Reviewed, words: tuple[str, ...], code: int, said: str) -> None:
    refused = reviewed.run("review", "S", *words)
    assert refused.returncode == code and said in " ".join(refused.stderr.split())


def test_a_session_without_comments_says_so(reviewed: Reviewed) -> None:
    assert "There are no comments yet." in reviewed.run("review", "S").stderr
