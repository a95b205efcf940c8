"""A patch in a terminal: exactly the change, for any files."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.surfaces.cli.patches import FilePatch, parsed, rows
from perdure.surfaces.cli.rows import lay_out
from perdure.surfaces.short_text import safe
from tests.runtime.git.project import Project

pytestmark = pytest.mark.needs("git")

texts = st.lists(
    st.sampled_from(["a", "-- b", "++ c", "@@ -1 +1 @@", "\\ x", "", "\x1b[2J", "é\r", "diff --git"]), max_size=12
)


def shown(patch: bytes) -> list[str]:
    return [line for file in parsed(patch) for line in lay_out(rows(file), 80, colour=False)]


def sides(file: FilePatch) -> tuple[list[str], list[str]]:
    lines = [line for hunk in file.hunks for line in hunk.lines if line.mark != "\\"]
    return [line.text for line in lines if line.mark != "+"], [line.text for line in lines if line.mark != "-"]


def compared(folder: Path, old: str, new: str) -> bytes:
    (folder / "old").write_text(old)
    (folder / "new").write_text(new)
    command = ["git", "diff", "--no-index", "--unified=100", "old", "new"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60).stdout


@settings(max_examples=60, deadline=None)
@given(texts, texts, st.booleans())
def test_both_sides_can_be_read_back_whatever_the_lines_look_like(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str], ends: bool
) -> None:
    before, after = ("\n".join(lines) + "\n" * (ends and bool(lines)) for lines in (old, new))
    files = parsed(compared(tmp_path_factory.mktemp("diff"), before, after))
    assert bool(files) == (before != after)
    for file in files:
        assert sides(file) == tuple(text.removesuffix("\n").split("\n") if text else [] for text in (before, after))
        assert all(safe(line) == line for line in lay_out(rows(file), 80, colour=False))


def test_everything_that_git_reports_about_a_file_is_shown(tmp_path: Path) -> None:
    project = Project(tmp_path / "repository")
    for path, text in (("gone", "x\n"), ("from here", "one\ntwo\nthree\n"), ("tool", "x\n"), ("image", b"\0\1")):
        project.write(path, text)
    project.write(b"t\tab", "1\n")
    project.commit()
    project.delete("gone")
    (tmp_path / "repository" / "from here").rename(tmp_path / "repository" / "to there")
    project.write("tool", "x\n", 0o755)
    project.write("image", b"\0\2")
    project.write(b"t\tab", "2")
    project.write("new", b"\xff\n")
    project.link("link", "tool")
    project.git("add", "--all")
    patch = project.git("-c", "core.quotePath=false", "diff", "--find-renames", "HEAD")
    assert shown(patch) == [
        "gone  +0 -1  deleted",
        "  1 -x",
        "image  binary",
        "link  +1 -0  new symbolic link",
        "  1 +tool",
        "   \\ No newline at the end",
        "new  +1 -0  new file",
        "  1 +\\u{dcff}",
        '"t\\tab"  +1 -1',
        "  1 -1",
        "  1 +2",
        "   \\ No newline at the end",
        "to there  renamed from from here",
        "tool  now executable",
    ]


def test_several_hunks_have_their_numbers_and_the_name_of_the_function(tmp_path: Path) -> None:
    project = Project(tmp_path / "repository")
    lines = [f"def f{number}():" if number % 20 == 0 else f"    {number}" for number in range(60)]
    project.write("a.py", "\n".join(lines) + "\n")
    project.commit()
    project.write("a.py", "\n".join(lines).replace("    3\n", "    three\n").replace("    57\n", "") + "\n")
    said = shown(project.git("diff"))
    assert said[0] == "a.py  +1 -2"
    assert [line for line in said if "hunk" in line] == ["  hunk 1", "  hunk 2  def f40():"]
    assert "  58 -    57" in said and "   4 +    three" in said
    [file] = parsed(project.git("diff"))
    unnumbered = [row.text for row in rows(file, numbered=False)]
    assert "hunk" not in " ".join(unnumbered) and "...  def f40():" in unnumbered


def test_some_hunks_or_the_first_rows_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    project = Project(tmp_path / "repository")
    project.write("a.txt", "".join(f"{number}\n" for number in range(60)))
    project.commit()
    project.write("a.txt", "".join(f"{'x' if number in (3, 57) else number}\n" for number in range(60)))
    [file] = parsed(project.git("diff"))
    assert len(rows(file)) == file.row_count()
    second = rows(file, chosen=[2])
    assert [row.text for row in second[:2]] == ["a.txt", "hunk 2"] and len(second) == file.row_count([2])
    assert [row.text for row in second if row.text in ("3", "57")] == ["57"]
    assert rows(file, most=5) == rows(file)[:5]


def test_names_are_shown_as_in_the_list_of_files_and_on_one_line(tmp_path: Path) -> None:
    project = Project(tmp_path / "repository")
    project.write("é.txt", "one\ntwo\nthree\n")
    project.commit()
    (tmp_path / "repository" / "é.txt").rename(tmp_path / "repository" / "日本.txt")
    project.write("a\nM  b.txt", "")
    project.write(b"caf\xe9.txt", "")
    project.git("add", "--all")
    assert shown(project.git("diff", "--find-renames", "HEAD")) == [
        '"a\\nM  b.txt"  new file',
        '"caf\\351.txt"  new file',
        "日本.txt  renamed from é.txt",
    ]
