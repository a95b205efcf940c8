"""A real repository for a test, and the programs that its configuration must never start.

Above: the tests of this folder. Below: git, as a user runs it.
"""

import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from perdure.runtime.git.repository import Repository, find

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
COMMAND_TIMEOUT_S = 60.0

Files = dict[bytes, tuple[int, bytes]]
"""By path: the mode, and the content or the link's target."""

HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-rewrite", "pre-applypatch", "pre-auto-gc", "pre-commit",
    "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "reference-transaction", "update",
)  # fmt: skip


class Project:
    """A work tree and what a user does in it. Paths are relative; bytes, if they are no text."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main", *options)

    @property
    def repository(self) -> Repository:
        found = find(str(self.root))
        assert found is not None
        return found

    def git(self, *args: str, input: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
        """Run git as the user does, with hooks and filters."""
        done = subprocess.run(
            ["git", *IDENTITY, *args],
            cwd=self.root,
            input=input or b"",
            env={**os.environ, **(env or {})},
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def read_id(self, *args: str) -> str:
        return self.git(*args).decode().strip()

    def commit(self, message: str = "a change") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.read_id("rev-parse", "HEAD")

    def place(self, path: str | bytes) -> bytes:
        return os.path.join(os.fsencode(self.root), os.fsencode(path))

    def write(self, path: str | bytes, content: str | bytes = b"", mode: int = 0o644) -> None:
        """Write a file as an editor does: in place, so that its times can be the only thing that changes."""
        place = self.place(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(place, mode)

    def read(self, path: str | bytes) -> bytes:
        with open(self.place(path), "rb") as file:
            return file.read()

    def link(self, path: str | bytes, target: str | bytes) -> None:
        place = self.place(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(os.fsencode(target), place)

    def delete(self, path: str | bytes) -> None:
        os.unlink(self.place(path))

    def files(self) -> Files:
        """Everything in the work tree except folders and `.git`."""
        found = {}
        for folder, folders, names in os.walk(os.fsencode(self.root)):
            folders[:] = [name for name in folders if name != b".git"]
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in [*names, *links]:
                place = os.path.join(folder, name)
                if name == b".git":
                    continue
                path = os.path.relpath(place, os.fsencode(self.root))
                mode = os.lstat(place).st_mode
                if stat.S_ISLNK(mode):
                    found[path] = (stat.S_IFLNK, os.readlink(place))
                elif stat.S_ISREG(mode):
                    found[path] = (mode, self.read(path))
                else:
                    found[path] = (stat.S_IFMT(mode), b"")
        return found

    def recorded(self, tree: str) -> Files:
        """The files of a tree, with modes as in a work tree."""
        found = {}
        for record in self.git("ls-tree", "-r", "-z", tree).split(b"\0")[:-1]:
            facts, _, path = record.partition(b"\t")
            mode, _, oid = facts.decode().split(" ")
            if mode != "160000":
                number = stat.S_IFLNK if mode == "120000" else int(mode, 8)
                found[path] = (number, self.git("cat-file", "blob", oid))
        return found

    def private_parts(self) -> dict[str, tuple[int, bytes]]:
        """Everything in `.git` that belongs to the user: all of it, except objects and the refs of snapshots."""
        git_dir = self.root / ".git"
        return {
            str(place.relative_to(git_dir)): (place.lstat().st_mode, place.read_bytes() if place.is_file() else b"")
            for place in sorted(git_dir.rglob("*"))
            if place.relative_to(git_dir).parts[0] != "objects"
            and place.relative_to(git_dir).parts[:2] != ("refs", "perdure")
        }


def git_modes(files: Files) -> Files:
    """The files with only those permissions that git records."""
    return {
        path: (stat.S_IFREG | (0o755 if mode & stat.S_IXUSR else 0o644) if stat.S_ISREG(mode) else mode, content)
        for path, (mode, content) in files.items()
    }


def make_hostile(project: Project, folder: Path) -> Path:
    """Configure every program that git could start. Each creates a file in the folder that is returned."""
    marks = folder / "marks"
    marks.mkdir(parents=True)
    hooks = folder / "hooks"
    hooks.mkdir()

    def program(name: str) -> str:
        place = folder / name
        place.write_text(f"#!/bin/sh\ntouch {marks}/{place.name}\ncat\n")
        place.chmod(0o755)
        return str(place)

    for name in HOOKS:
        program(f"hooks/{name}")
        own = project.root / ".git" / "hooks" / name
        own.parent.mkdir(exist_ok=True)
        own.write_text(f"#!/bin/sh\ntouch {marks}/own-{name}\n")
        own.chmod(0o755)
    attributes = project.root / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("* filter=evil diff=evil merge=evil\n*.long filter=process.evil\n")
    settings = {
        "core.hooksPath": str(hooks),
        "core.fsmonitor": program("fsmonitor"),
        "core.editor": program("editor"),
        "core.pager": program("pager"),
        "core.sshCommand": program("ssh"),
        "core.askPass": program("askpass"),
        "core.untrackedCache": "true",
        "core.alternateRefsCommand": program("alternate"),
        "sequence.editor": program("sequence"),
        "credential.helper": program("credential"),
        "diff.external": program("external"),
        "diff.evil.command": program("diff"),
        "diff.evil.textconv": program("textconv"),
        "merge.evil.driver": program("merge"),
        "filter.evil.clean": program("clean"),
        "filter.evil.smudge": program("smudge"),
        "filter.evil.required": "true",
        "filter.process.evil.process": program("process"),
        "filter.process.evil.required": "true",
        "gpg.program": program("gpg"),
        "commit.gpgSign": "true",
        "tag.gpgSign": "true",
        "log.showSignature": "true",
        "gc.auto": "1",
        "maintenance.auto": "true",
    }
    for key, value in settings.items():
        project.git("config", key, value, env={"GIT_CONFIG_COUNT": "0"})
    for mark in marks.iterdir():
        mark.unlink()
    return marks


def marked(marks: Path) -> list[str]:
    """The programs that were started."""
    return sorted(mark.name for mark in marks.iterdir())
