"""Files that change while a snapshot reads them are read again, or left alone and named."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.runtime.git.snapshot import Snapshot
from tests.runtime.git.project import Project


def test_files_that_change_all_the_time_do_not_prevent_a_snapshot(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    code = (
        "import os, sys\n"
        "os.chdir(sys.argv[1])\n"
        "print(flush=True)\n"
        "while True:\n"
        "    for number in range(20):\n"
        "        with open(f'busy{number}', 'wb') as file: file.write(b'x' * 100_000)\n"
        "        if number % 2: os.unlink(f'busy{number}')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(project.root)], stdout=subprocess.PIPE) as busy:
        assert busy.stdout
        busy.stdout.readline()
        try:
            for _ in range(10):
                recorded = project.recorded(take().tree)
                assert recorded[b"a.txt"][1] == b"one\ntwo\nthree\n"
        finally:
            busy.kill()


@pytest.mark.parametrize("command", ["update-index", "write-tree"])
def test_a_file_that_becomes_shorter_while_git_reads_it_is_read_again(
    project: Project,
    take: Callable[[], Snapshot],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    """git maps files into memory, so the system ends it with SIGBUS then."""
    git, ended = tmp_path / "bin/git", tmp_path / "ended"
    git.parent.mkdir()
    git.write_text(
        f'#!/bin/sh\n[ "$1" != {command} ] || [ -e {ended} ] || {{ : > {ended}; kill -BUS $$; }}\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    git.chmod(0o755)
    project.write("a.txt", "changed\n")
    monkeypatch.setenv("PATH", str(git.parent), prepend=":")
    tree = take().tree
    assert ended.exists()
    assert project.recorded(tree)[b"a.txt"][1] == b"changed\n"


def test_a_file_that_never_stops_changing_is_left_alone_and_named(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This git changes the file and is ended by SIGBUS whenever it would read it."""
    git, listed = tmp_path / "bin/git", tmp_path / "listed"
    git.parent.mkdir()
    git.write_text(
        f'#!/bin/sh\n[ "$1" != update-index ] || {{\ncat > {listed}\n'
        f"if grep -q busy.txt {listed}; then touch {project.root}/busy.txt; kill -BUS $$; fi\n"
        f'exec {shutil.which("git")} "$@" < {listed}\n}}\nexec {shutil.which("git")} "$@"\n'
    )
    git.chmod(0o755)
    project.write("busy.txt", "busy\n")
    monkeypatch.setenv("PATH", str(git.parent), prepend=":")
    taken = take()
    assert [(one.path, one.reason) for one in taken.left_alone] == [
        ("busy.txt", "It changed all the time while it was read.")
    ]
    recorded = project.recorded(taken.tree)
    assert b"busy.txt" not in recorded and recorded[b"a.txt"][1] == b"one\ntwo\nthree\n"
