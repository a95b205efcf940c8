"""`perdure queue` and `perdure attachments`: list, edit and withdraw messages; upload and download files."""

import json
from pathlib import Path

import pytest

from tests.surfaces.conftest import ServerProcess

PICTURE = bytes(range(256)) * 8


@pytest.fixture
def busy(server: ServerProcess) -> str:
    session = server.create()
    server.send(session, "hang")
    for number in (1, 2, 3):
        server.send(session, f"say {number}", when_busy="queue", message_id=f"m_{number}")
    return session


def waiting(server: ServerProcess, session: str) -> list[tuple[str, str]]:
    listed = json.loads(server.run("queue", session, "--json").stdout)["queue"]
    return [(entry["message_id"], entry["text"]) for entry in listed]


def test_queued_messages_are_listed_by_position(server: ServerProcess, busy: str) -> None:
    shown = server.run("queue", busy[:9])
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [["1", "m_1"], ["2", "m_2"], ["3", "m_3"]]
    assert server.run("queue", "list", "last").stdout.splitlines()[-1].endswith("say 3")
    assert waiting(server, "last") == [("m_1", "say 1"), ("m_2", "say 2"), ("m_3", "say 3")]


def test_a_message_is_edited_in_its_place_by_number_or_id(server: ServerProcess, busy: str) -> None:
    assert server.run("queue", "edit", busy, "2", "say", "better").returncode == 0
    assert server.run("queue", "edit", busy, "m_3", "-", stdin="say more\nsay even more\n").returncode == 0
    assert waiting(server, busy) == [("m_1", "say 1"), ("m_2", "say better"), ("m_3", "say more\nsay even more\n")]
    server.post(f"/api/sessions/{busy}/abort")
    server.wait_idle(busy)
    assert [server.text(busy, turn) for turn in (2, 3)] == ["1", "better"]


def test_messages_are_withdrawn_one_by_one_or_all_together(server: ServerProcess, busy: str) -> None:
    one = server.run("queue", "withdraw", busy, "1", "m_3")
    assert (one.returncode, one.stdout) == (0, "Withdrew: say 1\nWithdrew: say 3\n")
    assert waiting(server, busy) == [("m_2", "say 2")]
    every = json.loads(server.run("queue", "rm", busy, "--all", "--json").stdout)
    assert [entry["text"] for entry in every["withdrawn"]] == ["say 2"]
    assert "The queue is empty" in server.run("queue", busy).stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["edit", "7", "say no"], 1, "Give its position (1 to 3) or its id. (not_found)"),
        (["edit", "m_", "say no"], 2, "3 message ids start with 'm_'"),
        (["edit", "1"], 2, "`-` to read stdin"),
        (["edit", "1", " "], 2, "Give a TEXT."),
        (["withdraw"], 2, "Give a MESSAGE or --all."),
        (["withdraw", "1", "--all"], 2, "Give a MESSAGE or --all."),
    ],
)
def test_a_message_that_is_not_queued_is_reported(
    server: ServerProcess, busy: str, words: list[str], code: int, sentence: str
) -> None:
    done = server.run("queue", words[0], busy, *words[1:])
    assert (done.returncode, done.stdout) == (code, "") and sentence in done.stderr
    assert len(waiting(server, busy)) == 3


def test_files_are_sent_listed_and_downloaded_unchanged(server: ServerProcess) -> None:
    for folder in ("one", "two"):
        (server.folder / folder).mkdir()
    (server.folder / "one" / "shot.png").write_bytes(PICTURE)
    (server.folder / "two" / "shot.png").write_bytes(PICTURE[::-1])
    sent = server.run(
        "send", "--new", "--wait", "say seen", "--attach", "one/shot.png", "--attach", "two/shot.png", "--json"
    )
    assert sent.returncode == 0, sent.stderr
    listed = json.loads(server.run("attachments", "last", "--json").stdout)["attachments"]
    assert [(one["name"], one["turn"], one["size"]) for one in listed] == [("shot.png", 1, 2048)] * 2
    table = server.run("attachments", "last").stdout
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        ["1", "shot.png", "image/png"],
        ["2", "shot.png", "image/png"],
    ]
    assert "Give the number" in server.run("attachments", "download", "last", "shot.png").stderr
    done = server.run("attachments", "download", "last", "--dir", "got")
    assert done.stdout == "Wrote got/shot.png.\nWrote got/shot-2.png.\n"
    got = server.folder / "got"
    assert ((got / "shot.png").read_bytes(), (got / "shot-2.png").read_bytes()) == (PICTURE, PICTURE[::-1])
    again = server.run("attachments", "download", "last", "2", "-o", "got/shot.png")
    assert again.returncode == 1 and "--force" in again.stderr
    assert server.run("attachments", "download", "last", "2", "-o", "got/shot.png", "--force").returncode == 0
    assert (got / "shot.png").read_bytes() == PICTURE[::-1]


def test_an_attachments_name_cannot_escape_the_folder(server: ServerProcess) -> None:
    session = server.create()
    attachment = {"name": "../../escaped\x1b[2J.txt", "data": "aGk="}
    server.turn(session, "say seen", attachments=[attachment, {"name": "..", "data": "aGk="}, {"path": "/etc/hosts"}])
    done = server.run("attachments", "download", session, "--dir", "inside")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (server.folder / "inside").iterdir()) == ["attachment", "escaped[2J.txt"]
    assert not (server.folder.parent / "escaped.txt").exists()
    named = server.run("attachments", "download", session, "3")
    assert named.returncode == 1 and "was not uploaded with the message" in named.stderr


def test_a_missing_file_is_not_sent(server: ServerProcess, tmp_path: Path) -> None:
    for given in ("nothing.txt", str(tmp_path)):
        done = server.run("send", "--new", "say hi", "--attach", given)
        assert done.returncode == 2 and "--attach" in done.stderr
    assert server.get("/api/sessions")["sessions"] == []
