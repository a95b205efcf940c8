"""Which files are read for the diff of a permission request: only text files inside the working directory."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from perdure.core.events import PendingPrompt, System
from perdure.runtime.running import proposals
from perdure.runtime.running.proposals import FILE_MAX_BYTES, text_of, with_context
from tests.harness import WAIT_S


def test_only_regular_text_files_inside_the_working_directory_are_read(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True)
    (work / "deep" / "a.txt").write_text("inside\n")
    (tmp_path / "secret.txt").write_text("outside\n")
    (work / "link").symlink_to(tmp_path / "secret.txt")
    (work / "near").symlink_to("deep/a.txt")
    (work / "binary").write_bytes(b"\0\1")
    (work / "latin").write_bytes(b"\xe9")
    (work / "long").write_bytes(b"x" * (FILE_MAX_BYTES + 1))
    os.mkfifo(work / "pipe")
    read = [str(work / "deep" / "a.txt"), "deep/a.txt", "near"]
    assert [text_of(path, str(work)) for path in read] == ["inside\n"] * 3
    outside = [str(tmp_path / "secret.txt"), "../secret.txt", "link", "/etc/hostname"]
    strange = ["binary", "latin", "long", "pipe", "deep", "absent", "a\0b", ""]
    assert [text_of(path, str(work)) for path in outside + strange] == [None] * 12
    assert text_of("deep/a.txt", str(tmp_path / "absent")) is None


def test_a_request_is_shown_unchanged_if_its_file_can_not_be_read_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example on a network file system whose server is down."""
    answers = threading.Event()
    monkeypatch.setattr(proposals, "text_of", lambda path, workdir: "two\n" if answers.wait(WAIT_S) else None)
    monkeypatch.setattr(proposals, "PLACE_TIMEOUT_S", 0.01)
    edit = {"path": "a.py", "old_text": "two", "new_text": "2"}
    observations = [PendingPrompt(turn=1, prompt_id="p", kind="permission", title="Edit", diff=[edit])]

    async def shown() -> object:
        try:
            return await with_context(observations, str(tmp_path))
        finally:
            answers.set()

    assert asyncio.run(shown()) is observations


def test_a_permission_request_gets_the_line_numbers_of_its_file_and_nothing_else_changes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    edit = {"path": str(tmp_path / "a.py"), "old_text": "two", "new_text": "2"}
    prompt = PendingPrompt(turn=1, prompt_id="p", kind="permission", title="Edit", diff=[edit])
    note = System(code="x", message="y")
    kept, placed = asyncio.run(with_context([note, prompt], str(tmp_path)))
    assert kept is note and prompt.diff == [edit]
    assert placed.diff == [{**edit, "old_text": "one\ntwo\nthree\n", "new_text": "one\n2\nthree\n", "line": 1}]
    alone = [note]
    assert asyncio.run(with_context(alone, str(tmp_path))) is alone


def test_an_existing_file_that_was_not_read_does_not_look_like_a_new_one(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "long").write_bytes(b"x" * (FILE_MAX_BYTES + 1))
    (work / "short").write_text("one\n")
    (tmp_path / "outside").write_text("one\n")

    def shown(path: str, old: str | None = None) -> dict[str, object]:
        diff = [{"path": path, "old_text": old, "new_text": "two\n"}]
        prompt = PendingPrompt(turn=1, prompt_id="p", kind="permission", title="Write", diff=diff)
        [placed] = asyncio.run(with_context([prompt], str(work)))
        [entry] = placed.diff
        return dict(entry)

    assert all(shown(path)["overwrites"] is True for path in ("long", str(work / "long"), str(tmp_path / "outside")))
    assert all("overwrites" not in shown(path) for path in ("new", "short", "a\0b"))
    assert "overwrites" not in shown("long", "one\n")
