"""A session whose agent changes files in a repository, for the tests of the commands that review changes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.harness import eventually
from tests.runtime.git.project import Project
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal

NUMBERS = "".join(f"{number}\n" for number in range(1, 31))


class Reviewed:
    """`session` is the session of the last `begin`. Commands run in the repository's folder; `S` stands for it."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.project = Project(folder)
        self.project.git("config", "user.name", "Ada")
        self.project.git("config", "user.email", "ada@example.org")
        self.project.write("numbers.txt", NUMBERS)
        self.project.write("old.txt", "some\nlines\nto\nrecognise\n")
        self.project.commit("the first commit")
        self.session = ""
        self.variables: dict[str, str] = {}
        """Added to the environment of commands in a terminal."""

    def begin(self, *messages: str, options: tuple[str, ...] = ()) -> str:
        """A new session with these messages, each answered."""
        begun = self.server.run("send", "--wait", "--json", "--new", *options, messages[0], cwd=self.project.root)
        assert begun.returncode == 0, begun.stderr
        self.session = str(json.loads(begun.stdout.splitlines()[0])["session_id"])
        self.wait_until_recorded()
        for message in messages[1:]:
            self.message(message)
        return self.session

    def message(self, text: str) -> None:
        assert self.run("send", "S", "--wait", text).returncode == 0
        self.wait_until_recorded()

    def during_a_turn(self, work: Callable[[], None]) -> None:
        """A turn in which files change without an edit tool, as with a shell command."""
        if not self.session:
            self.begin("say hello")
        assert self.run("send", "S", "ask Go on? | yes").returncode == 0
        prompt = self.server.prompt(self.session)
        work()
        answers = {prompt["questions"][0]["question_id"]: "yes"}
        with self.server.client() as client:
            client.answer(self.session, prompt["prompt_id"], {"answers": answers})
        self.server.wait_idle(self.session)
        self.wait_until_recorded()

    def wait_until_recorded(self) -> None:
        """The snapshot after a turn is taken when it has ended. What a test writes before would be part of it."""
        with self.server.client() as client:

            def is_recorded() -> bool:
                recorded = client.file_changes(self.session)["turns"]
                last = client.session(self.session, limit=1)["turns"][-1]["turn"]
                return any(one["turn"] == last and one["state"] != "running" for one in recorded)

            eventually(is_recorded, "the changes of the turn are recorded")

    def run(self, *words: str, stdin: str = "") -> "CompletedProcess[str]":
        return self.server.run(*self._words(words), stdin=stdin, cwd=self.project.root)

    def read(self, *words: str) -> Any:
        """The JSON that a command prints."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def terminal(self, *words: str) -> Iterator[Terminal]:
        command = self.server.command(*self._words(words))
        with Terminal(command, {**self.server.environment, **self.variables}, self.project.root) as terminal:
            yield terminal

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return [self.session if word == "S" else word for word in words]

    def text(self, path: str) -> str:
        return self.project.read(path).decode()

    def has(self, path: str) -> bool:
        return (self.project.root / path).exists()
