"""Git repositories for the page's tests.

Above: tests of folders, files and worktrees. Below: the installed git, as a person uses it.
"""

import subprocess
from pathlib import Path

from tests.harness import LiveServer, eventually

GIT_S = 30.0
AUTHOR = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgSign=false")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *AUTHOR, *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=GIT_S
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """A repository on the branch `trunk`, with one commit. Agents can commit in it too."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "trunk")
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    for name, text in (files or {"a.txt": "one\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "First")
    return folder


def recorded(server: LiveServer, session: str) -> None:
    """Wait until what the last turn changed is recorded. Later changes are somebody else's."""
    server.wait_idle(session)
    last = server.transcript(session)[-1]["turn"]
    path = f"/api/sessions/{session}/changes?turn={last}"
    eventually(lambda: server.get(path)["state"] == "ready", "the last turn's changes are recorded")
