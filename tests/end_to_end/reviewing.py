"""What the tests of changes to files share: a person's repository, and sessions whose turns change it.

Above: test_reviewing_*.py, test_worktree_sessions.py. Below: a live server, and git as a person uses it.
"""

from pathlib import Path
from typing import Any

from tests.harness import LiveServer, eventually
from tests.runtime.git.project import Project

NUMBERS = "".join(f"number {number}\n" for number in range(1, 31))


class WorkTree(Project):
    """A working tree that exists already."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)


def make_project(root: Path) -> Project:
    """A repository with a first commit, in which a person has staged, stashed and ignored something. The hook leaves a
    mark beside it, and refuses every commit."""
    made = Project(root)
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", "ada@example.org")
    made.write(".gitignore", "*.log\n")
    made.write("numbers.txt", NUMBERS)
    made.write("old.txt", "some\nlines\nto\nrecognise\n")
    made.write("tool.sh", "#!/bin/sh\necho one\n", 0o755)
    made.write("deep/er/gone.txt", "soon gone\n")
    made.write("bytes.bin", bytes(range(256)))
    made.link("link", "numbers.txt")
    made.commit("the first commit")
    made.write("numbers.txt", NUMBERS + "stashed\n")
    made.git("stash")
    made.write("staged.txt", "staged\n")
    made.git("add", "staged.txt")
    made.write("build.log", "ignored\n")
    made.write(".git/hooks/pre-commit", f"#!/bin/sh\ntouch {mark_of_hook(made)}\nexit 1\n", 0o755)
    return made


def mark_of_hook(project: Project) -> Path:
    return project.root.parent / "hook-ran"


def recorded(server: LiveServer, session: str, turn: int) -> Any:
    """The changes of a turn, once its second snapshot is taken."""
    path = f"/api/sessions/{session}/changes?turn={turn}"
    eventually(lambda: server.get(path)["state"] == "ready", lambda: f"turn {turn} is recorded: {server.get(path)}")
    return server.get(path)


def paths(changes: Any) -> dict[str, str]:
    return {file["path"]: file["status"] for file in changes["files"]}


def patch(server: LiveServer, session: str, query: str = "") -> bytes:
    answer = server.http.get(f"/api/sessions/{session}/changes/patch{query}")
    assert answer.status_code == 200, answer.text
    return answer.content


def answer(server: LiveServer, session: str, prompt: Any, kind: str = "allow_once") -> None:
    option = next(one["option_id"] for one in prompt["options"] if one["kind"] == kind)
    server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", {"option_id": option}, expect=200)
