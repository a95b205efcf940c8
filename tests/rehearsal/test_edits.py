"""The small changes to files."""

from pathlib import Path

import pytest

from perdure.rehearsal.edits import FILE_LIMIT_BYTES, Edit, EditRefused, make, plan_line, plan_text, remove, rename


def add_line(workdir: str, path: str) -> Edit:
    edit = plan_line(workdir, path)
    make(edit, path)
    return edit


def test_an_edit_creates_the_file_and_then_appends_to_it(tmp_path: Path) -> None:
    first, second = add_line(str(tmp_path), "notes/a.txt"), add_line(str(tmp_path), "notes/a.txt")
    assert (first.old, first.new) == (None, "rehearsed 1\n")
    assert (second.old, second.new) == ("rehearsed 1\n", "rehearsed 1\nrehearsed 2\n")
    assert Path(second.path).read_text() == second.new


def test_existing_content_of_the_file_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    add_line(str(tmp_path), "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == b"one\r\ntwo\nrehearsed 1\n"


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/hosts", ".", "sub/../../outside.txt", "link/x.txt", "a\0b"])
def test_an_edit_never_leaves_the_working_directory(tmp_path: Path, path: str) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    (workdir / "link").symlink_to(tmp_path)
    (workdir / "kept.txt").write_text("kept")
    for change in (
        lambda: add_line(str(workdir), path),
        lambda: plan_text(str(workdir), path, "text"),
        lambda: remove(str(workdir), path),
        lambda: rename(str(workdir), "kept.txt", path),
    ):
        with pytest.raises(EditRefused):
            change()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["work"]
    assert (workdir / "kept.txt").read_text() == "kept"


def test_a_file_that_is_not_a_small_text_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * (FILE_LIMIT_BYTES + 1))
    (tmp_path / "folder").mkdir()
    for name in ("binary", "large", "folder"):
        with pytest.raises(EditRefused):
            add_line(str(tmp_path), name)
    assert (tmp_path / "binary").read_bytes() == b"\xff\xfe"


def test_a_file_is_written_renamed_and_removed(tmp_path: Path) -> None:
    edit = plan_text(str(tmp_path), "a.txt", "one\n")
    make(edit, "a.txt")
    assert (edit.old, (tmp_path / "a.txt").read_text()) == (None, "one\n")
    assert plan_text(str(tmp_path), "a.txt", "").old == "one\n"
    rename(str(tmp_path), "a.txt", "b/c.txt")
    assert [path.name for path in tmp_path.rglob("*")] == ["b", "c.txt"]
    remove(str(tmp_path), "b/c.txt")
    assert not (tmp_path / "b" / "c.txt").exists()
    with pytest.raises(EditRefused):
        remove(str(tmp_path), "b/c.txt")
