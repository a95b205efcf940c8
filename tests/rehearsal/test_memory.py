"""The agent's sessions on disk."""

from pathlib import Path

import pytest

from perdure.core.transcript_text import Entry, wrap
from perdure.rehearsal.memory import Memory, Session, default_folder


def reopened(folder: Path, session: Session) -> Session:
    again = Memory(str(folder)).open(session.session_id)
    assert again is not None
    return again


def test_a_session_remembers_messages_and_answers(tmp_path: Path) -> None:
    session = Memory(str(tmp_path)).create("/srv")
    session.hear("one\n\ud800")
    session.answered("two", "end_turn")
    again = reopened(tmp_path, session)
    assert again.history() == [("user", "one\n\ud800"), ("assistant", "two")]
    assert again.workdir == "/srv"


def test_recall_lists_entries_of_transcripts_separately(tmp_path: Path) -> None:
    session = Memory(str(tmp_path)).create("/srv")
    entries = [Entry("user", 1, "", "first"), Entry("assistant", 1, "other", "no"), Entry("user", 2, "", "second")]
    session.hear(wrap(entries, "third"))
    session.answered("answer", "end_turn")
    session.hear(wrap([Entry("user", 4, "", "fourth")], "fifth", kind="catch-up"))
    session.hear(wrap([], "sixth", note="Earlier questions are answered."))
    assert reopened(tmp_path, session).recall() == ["first", "second", "third", "fourth", "fifth", "sixth"]


@pytest.mark.parametrize("torn", [b"{", b'{"type":"user","te', b'{"type":"user"}\n[1]\n\xff\xff'])
def test_a_torn_or_broken_line_is_skipped_and_not_added_to(tmp_path: Path, torn: bytes) -> None:
    session = Memory(str(tmp_path)).create("/srv")
    session.hear("one")
    with next(tmp_path.iterdir()).open("ab") as file:
        file.write(torn.replace(b'{"type":"user"}', b'{"type":7}'))
    again = reopened(tmp_path, session)
    again.hear("two")
    assert reopened(tmp_path, session).recall() == ["one", "two"]


def test_a_rejection_is_used_up_by_one_resume(tmp_path: Path) -> None:
    session = Memory(str(tmp_path)).create("/srv")
    session.reject_next_resume()
    assert [reopened(tmp_path, session).take_rejection() for _ in range(3)] == [True, False, False]


def test_an_id_is_never_a_path(tmp_path: Path) -> None:
    (tmp_path / "x.ndjson").write_text('{"type":"session"}\n')
    memory = Memory(str(tmp_path / "memory"))
    for session_id in ("../x", "x", "", "/etc/passwd", "0" * 36):
        assert memory.open(session_id) is None
    assert memory.newest(None) == []


def test_sessions_are_listed_by_working_directory(tmp_path: Path) -> None:
    memory = Memory(str(tmp_path))
    one, two = memory.create("/one"), memory.create("/two")
    one.hear("hello there\nand more")
    assert [(found.session_id, found.title) for found in memory.newest("/one")] == [(one.session_id, "hello there")]
    assert {found.session_id for found in memory.newest(None)} == {one.session_id, two.session_id}


def test_the_folder_is_the_configured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_REHEARSAL_DIR", "/var/rehearsal")
    assert default_folder() == "/var/rehearsal"
    monkeypatch.delenv("PERDURE_REHEARSAL_DIR")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_folder() == "/home/someone/.local/state/perdure/rehearsal"


def test_a_session_whose_file_was_erased_is_not_written_again(tmp_path: Path) -> None:
    session = Memory(str(tmp_path)).create("/srv")
    session.hear("one")
    (file,) = tmp_path.iterdir()
    file.unlink()
    session.answered("two", "end_turn")
    assert list(tmp_path.iterdir()) == []
    assert session.history() == [("user", "one"), ("assistant", "two")]
