"""Every operation in the OpenAPI document has a command, except for a short list."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.commands import WITHOUT_COMMAND, leaves
from perdure.surfaces.http.openapi import document
from tests.harness import eventually
from tests.runtime.git.project import Project
from tests.signing import signed_in
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.recording import Recorder, recorded

ALONE = {"serve", "rehearse", "completion", "mcp", "migrate"}
"""Commands that start a program, or that don't use the API directly."""


class Terminal:
    """Runs commands against a server through the recorder, and records the names of the commands."""

    def __init__(self, server: ServerProcess, recorder: Recorder) -> None:
        self.server = server
        self.recorder = recorder
        self.where = ["--url", recorder.url, "--token", server.token]
        self.names = {name for name, _ in leaves()}
        self.ran: set[str] = set()

    def name_of(self, *words: str) -> str:
        first = " ".join(words[:2])
        return first if first in self.names else words[0]

    def run(self, *words: str, stdin: str = "") -> str:
        self.ran.add(self.name_of(*words))
        done = self.server.run(*self.where, *words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def refused(self, *words: str) -> None:
        """Run a command that the server refuses."""
        self.ran.add(self.name_of(*words))
        assert self.server.run(*self.where, *words).returncode == 1, words

    def watch_changes(self) -> None:
        """Run `events` until it has printed one event."""
        self.ran.add("events")
        command = self.server.command(*self.where, "events", "--count", "1", "--json")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.server.environment)
        with self.server.client() as client:
            session = client.create_session()["id"]
            titles: Iterator[str] = (f"title {number}" for number in range(10**6))
            eventually(
                lambda: client.change_session(session, title=next(titles)) and process.poll() is not None,
                "a change is seen",
            )
        assert json.loads(process.communicate()[0])["session_id"] == session


@pytest.fixture
def terminal(server: ServerProcess) -> Iterator[Terminal]:
    with recorded(server.port) as recorder:
        yield Terminal(server, recorder)


def talk(run: Terminal) -> None:
    run.run("run", "say one")
    run.run("run", "--json", "say one")
    run.run("chat", stdin="say hello\n")
    run.run("send", "--new", "--wait", "say first")
    run.run("send", "last", "--wait", "say second")
    for words in ("config last", "model last", "mode last", "model last rehearsal-2", "plan last", "usage"):
        run.run(*words.split())
    run.run("edit", "last", "1", "say better")
    run.run("retry", "last", "2")
    run.run("fork", "last", "1")
    run.run("rewind", "last", "1")


def wait_in_line(run: Terminal, folder: Path) -> None:
    (folder / "notes.txt").write_text("noted")
    session = run.run("send", "--new", "hang").strip()
    run.run("send", session, "--queue", "--attach", "notes.txt", "say later")
    for words in ("queue", "queue list"):
        run.run(*words.split(), session)
    run.run("queue", "edit", session, "1", "say better")
    run.run("attachments", session)
    run.run("attachments", "list", session)
    run.run("attachments", "download", session, "-o", "copy.txt")
    assert (folder / "copy.txt").read_text() == "noted"
    run.run("queue", "withdraw", session, "1")
    run.run("abort", session)
    asking = run.run("send", "--new", "permit Deploy").strip()
    run.server.prompt(asking)
    run.run("answer", asking, "--allow")


def review(run: Terminal, folder: Path) -> None:
    """Everything about changes to files, in a session that works in its own worktree."""
    project = Project(folder / "site")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@example.org")
    project.commit("the first commit")
    where = ("--workdir", str(project.root), "--workspace", "worktree")
    session = run.run("send", "--new", *where, "write a.txt one | two").strip()
    run.server.wait_idle(session)
    run.run("changes", session)
    run.run("changes", session, "--file", "a.txt", "--content", "after")
    run.run("review", session, "--wait", "-c", "a.txt:1", "Why one?")
    run.run("discard", session, "a.txt", "--yes")
    run.run("undo", session)
    run.run("restore", session, "1", "--after")
    run.run("commit", session, "-m", "Add a file")
    run.run("merge", session)


def keep(run: Terminal) -> None:
    session = run.run("send", "--new", "say kept").strip()
    run.server.wait_idle(session)
    run.run("rename", session, "Kept")
    run.run("label", session, "--add", "release")
    for words in ("archive", "unarchive", "files", "show", "explain", "stop", "watch"):
        run.run(words, session)
    run.run("show", "--markdown", session)
    run.run("export", session)
    run.run("export", "--folder", "exported", session)
    run.run("erase", "--yes", session)
    run.run("import", "exported")
    run.run("sessions")


def look_after(run: Terminal) -> None:
    for words in ("directories", "agents", "agents --all", "agents rehearsal", "agents show rehearsal"):
        run.run(*words.split())
    run.run("agents", "sessions", "rehearsal")
    run.run("agents", "test", "rehearsal")
    run.run("agents", "test", "rehearsal-resume", "--turn", "say hello")
    run.run("reload")
    run.run("doctor")
    project = run.run("projects", "add", ".", "--name", "Site").strip()
    for words in ("projects", "projects list", f"projects show {project}", f"projects edit {project} --name Other"):
        run.run(*words.split())
    run.run("projects", "remove", project)
    run.run("login")
    with signed_in(run.server) as browser, signed_in(run.server):
        run.run("logins")
        run.run("logins", "revoke", browser.login_id())
        run.run("logout", "--all")


def schedule(run: Terminal) -> None:
    run.run("jobs", "preview", "--every", "1h")
    job = run.run("jobs", "add", "Report", "--every", "1h", "--message", "say hello").strip()
    for words in ("jobs", "jobs list", f"jobs show {job}", f"jobs edit {job} --every 2h", f"jobs run {job}"):
        run.run(*words.split())
    for word in ("history", "pause", "resume", "remove"):
        run.run("jobs", word, job)


def spread(run: Terminal) -> None:
    run.run("nodes")
    run.run("nodes", "list")
    # A server on SQLite is the only node.
    for words in ("drain here", "resume here", "remove here --yes", "move --from here --to there"):
        run.refused("nodes", *words.split())


@pytest.mark.full
@pytest.mark.needs("git")
def test_every_operation_is_used_by_a_command_or_is_a_known_exception(terminal: Terminal, tmp_path: Path) -> None:
    talk(terminal)
    wait_in_line(terminal, tmp_path)
    review(terminal, tmp_path)
    keep(terminal)
    look_after(terminal)
    schedule(terminal)
    spread(terminal)
    terminal.watch_changes()
    described = {each["operationId"] for item in document()["paths"].values() for each in item.values()}
    requested = terminal.recorder.requested
    assert requested <= described
    assert described - requested == set(WITHOUT_COMMAND)
    not_run = terminal.names - terminal.ran - ALONE - {"agents add"}
    assert not not_run, "commands that were not run"
