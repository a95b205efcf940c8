"""Generated edits of a work tree: what agents and people do to files, chosen by a seed.

Above: test_generated_edits.py, test_apply_kills.py. Below: project.py. Ignored files are in their own folder and are
never touched, so that they must be unchanged after a restore.
"""

import os
import random
import shutil
from collections.abc import Callable

from tests.runtime.git.project import Project

NAMES = [
    "a.txt",
    "b.py",
    "with space",
    "-dash",
    ":colon",
    "ä-ö.md",
    "日本.txt",
    "new\nline",
    'quo"te',
    "x.bin",
    "Makefile",
]
RAW_NAMES = [name.encode() for name in NAMES] + [b"\xff\xfe", b"\xe4.txt"]
FOLDERS = [b"", b"src/", b"src/deep/er/", b"docs/", "ünï/".encode(), b"-x/", b"a b/"]
LINES = [
    b"def f():\n",
    b"    return 1\n",
    b"\n",
    b"text\n",
    b"\ttab\n",
    b"trailing  \n",
    b"}\n",
    "größe\n".encode(),
    b"--- a\n",
]
LINES += [
    b"+++ b\n",
    b"@@ -1 +1 @@\n",
    b"diff --git a/x b/x\n",
    b"\\ No newline at end of file\n",
    b"crlf\r\n",
    b"lone\rcr\n",
]


class Editor:
    """Makes one random edit after the other."""

    def __init__(self, project: Project, seed: int) -> None:
        self.project = project
        self.random = random.Random(seed)
        self._edits: list[tuple[Callable[[], None], int]] = [
            (self.create, 6), (self.edit, 10), (self.rename, 4), (self.delete, 3), (self.change_mode, 2),
            (self.link, 2), (self.change_type, 3), (self.delete_folder, 1), (self.rename_folder, 1),
            (self.convert_line_ends, 2),
            (self.toggle_last_newline, 2), (self.grow, 1), (self.copy, 2), (self.commit, 2), (self.ignore, 1),
        ]  # fmt: skip

    def setup(self) -> None:
        """A repository with settings and attributes that affect what git itself stores."""
        project, chance = self.project, self.random.random
        project.write(".gitignore", "/ignored/\n*.ignored\n")
        project.write("ignored/data", self.random.randbytes(100))
        project.write("ignored/deep/er/data", "kept\n", mode=0o600)
        if chance() < 0.3:
            project.git("config", "core.autocrlf", self.random.choice(["true", "input"]))
        if chance() < 0.5:
            attributes = ["*.txt text", "*.txt eol=crlf", "*.py text=auto", "*.md -diff", "*.py diff=python", "* ident"]
            project.write(".gitattributes", "\n".join(self.random.sample(attributes, 3)) + "\n")
        for _ in range(self.random.randrange(12)):
            self.create()
        if chance() < 0.9:
            project.commit("first")
        for _ in range(self.random.randrange(4)):
            self.step()

    def step(self) -> None:
        edits, weights = zip(*self._edits, strict=True)
        self.random.choices(edits, weights)[0]()

    def create(self) -> None:
        path = self.random.choice(FOLDERS) + self.random.choice(RAW_NAMES)
        if self._is_free(path):
            self.project.write(path, self.content(), mode=self.random.choice([0o644, 0o644, 0o755]))

    def edit(self) -> None:
        if path := self._file():
            lines = self.project.read(path).splitlines(keepends=True)
            for _ in range(self.random.randint(1, 4)):
                place = self.random.randint(0, len(lines))
                match self.random.randrange(3):
                    case 0:
                        lines[place:place] = self.random.choices(LINES, k=self.random.randint(1, 3))
                    case 1:
                        del lines[place : place + self.random.randint(1, 3)]
                    case _:
                        lines[place : place + 1] = [self.random.choice(LINES)]
            self.project.write(path, b"".join(lines), mode=self._mode(path))

    def rename(self) -> None:
        target = self.random.choice(FOLDERS) + self.random.choice(RAW_NAMES)
        if (path := self._path()) and self._is_free(target):
            os.makedirs(os.path.dirname(self.project.place(target)), exist_ok=True)
            os.rename(self.project.place(path), self.project.place(target))

    def copy(self) -> None:
        target = self.random.choice(FOLDERS) + self.random.choice(RAW_NAMES)
        if (path := self._file()) and self._is_free(target):
            self.project.write(target, self.project.read(path), mode=self._mode(path))

    def delete(self) -> None:
        if path := self._path():
            self.project.delete(path)

    def change_mode(self) -> None:
        if path := self._file():
            os.chmod(self.project.place(path), self._mode(path) ^ 0o111)

    def link(self) -> None:
        path = self.random.choice(FOLDERS) + b"link"
        if self._is_free(path):
            self.project.link(path, self.random.choice([b"a.txt", b"src", b"..", b"/nowhere", b"\xff\n", b"ignored"]))

    def change_type(self) -> None:
        """A file becomes a link or a folder, a link becomes a file or a folder."""
        if path := self._path():
            self.project.delete(path)
            match self.random.randrange(3):
                case 0:
                    self.project.link(path, b"src/deep")
                case 1:
                    self.project.write(path + b"/inner", self.content())
                case _:
                    self.project.write(path, self.content())

    def delete_folder(self) -> None:
        """Sometimes a file or a link takes its place."""
        if place := self._folder():
            shutil.rmtree(self.project.place(place))
            match self.random.randrange(3):
                case 0:
                    self.project.write(place, self.content())
                case 1:
                    self.project.link(place, b"docs")

    def rename_folder(self) -> None:
        target = b"moved-%d" % self.random.randrange(3)
        if (place := self._folder()) and self._is_free(target):
            os.rename(self.project.place(place), self.project.place(target))

    def convert_line_ends(self) -> None:
        if path := self._file():
            text = self.project.read(path)
            text = text.replace(b"\r\n", b"\n") if b"\r\n" in text else text.replace(b"\n", b"\r\n")
            self.project.write(path, text, mode=self._mode(path))

    def toggle_last_newline(self) -> None:
        if path := self._file():
            text = self.project.read(path)
            self.project.write(path, text[:-1] if text.endswith(b"\n") else text + b"\n", mode=self._mode(path))

    def grow(self) -> None:
        if path := self._file():
            text = self.project.read(path) + self.random.choice([b"line\n", b"x"]) * self.random.randint(1, 60_000)
            self.project.write(path, text, mode=self._mode(path))

    def commit(self) -> None:
        """What an agent may do in between: commit, stage a part, remove from the index."""
        match self.random.randrange(4):
            case 0:
                self.project.git("add", "--all")
            case 1:
                if path := self._path():
                    self.project.git("add", "--force", "--", ":(literal)" + os.fsdecode(path))
            case 2:
                self.project.git("rm", "-r", "--force", "--quiet", "--cached", "--ignore-unmatch", "src")
            case _:
                self.project.commit("of an agent")

    def ignore(self) -> None:
        """A file that is in no snapshot, unless it is tracked."""
        self.project.write(b"%d.ignored" % self.random.randrange(2), "first and only content\n")

    def content(self) -> bytes:
        match self.random.randrange(8):
            case 0:
                return b""
            case 1:
                return self.random.randbytes(self.random.randint(1, 300))
            case 2:
                return b"no newline at the end"
        text = b"".join(self.random.choices(LINES, k=self.random.randint(1, 60)))
        return text.replace(b"\n", b"\r\n") if self.random.random() < 0.2 else text

    def _is_free(self, path: bytes) -> bool:
        """Whether a file can be created: neither it nor a file or a link in a parent's place exists."""
        place = self.project.place(path)
        parents = [place[:end] for end in range(len(place)) if place[end : end + 1] == b"/" and end]
        return not os.path.lexists(place) and not any(
            os.path.islink(parent) or os.path.isfile(parent) for parent in parents
        )

    def _paths(self) -> list[bytes]:
        return sorted(path for path in self.project.files() if b"ignored" not in path and not path.startswith(b".git"))

    def _path(self) -> bytes | None:
        paths = self._paths()
        return self.random.choice(paths) if paths else None

    def _file(self) -> bytes | None:
        paths = [path for path in self._paths() if not os.path.islink(self.project.place(path))]
        return self.random.choice(paths) if paths else None

    def _folder(self) -> bytes | None:
        folders = sorted({os.path.dirname(path) for path in self._paths()} - {b""})
        return self.random.choice(folders) if folders else None

    def _mode(self, path: bytes) -> int:
        return os.lstat(self.project.place(path)).st_mode & 0o777
