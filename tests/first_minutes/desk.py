"""A person's machine on the first day: an empty home, a repository, coding agents on PATH, no server.

Above: the tests. Below: tmux.py, the scripted model, and how each agent gets its address. What a user would have after
signing in (a key, an address) is in perdure.toml, only as `env`: the server finds the agents on its own.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.runtime.agents.catalogue import CATALOGUE
from perdure.surfaces.cli.reach import is_held
from tests.conftest import ROOT, RealAgent
from tests.continuity.agents import AGENTS, Place, environment
from tests.first_minutes.tmux import Tmux
from tests.harness import SOURCE, none_left, remove_groups

COMMAND_LIMIT_S = 60.0
GREETING = 'def greet(name):\n    if name:\n        print("hello", name)\n    return name\n'


class Desk:
    def __init__(self, folder: Path, model_url: str, agents: dict[str, RealAgent], recording: str) -> None:
        self.home, programs = folder / "home", folder / "bin"
        self.data = self.home / ".local" / "share" / "perdure"
        self.repository = self.home / "shop"
        for made in (self.repository, programs, self.data):
            made.mkdir(parents=True, mode=0o700)
        self.file = self.repository / "greeting.py"
        self.file.write_text(GREETING)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "XDG_", "TMUX"))}
        self._env = {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": SOURCE,
            "PERDURE_PORT": "0",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            # Otherwise the shell writes its history while the folder is being removed.
            "HISTFILE": "",
        }
        write_program(programs / "perdure", [sys.executable, "-m", "perdure"])
        sections = []
        for name, agent in agents.items():
            write_program(programs / CATALOGUE[name].installed[0], without_arguments(agent.argv))
            sections.append(self._settings(name, model_url, agent))
        (self.data / "perdure.toml").write_text("".join(sections))
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Greet"]):
            self._git(*arguments)
        self.tmux = Tmux(folder / "tmux", self._env, self.repository, ROOT / ".artefacts" / "first-minutes" / recording)

    def _settings(self, name: str, model_url: str, agent: RealAgent) -> str:
        """The agent's section: only the address of its model."""
        known = AGENTS["claude-acp" if name == "claude" else name]
        env = {**environment(known, Place(model_url, self.home, self.repository)), **agent.env}
        shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items() if key != "HOME")
        return f"[agents.{name}]\nenv = {{ {shown} }}\n"

    def _git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=A Person", "-c", "user.email=person@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.repository, env=self._env, check=True, timeout=30)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["perdure", *arguments],
            env=self._env, cwd=self.repository, capture_output=True, text=True, timeout=COMMAND_LIMIT_S,
        )  # fmt: skip

    @property
    def _server(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "server.json").read_text())
        return found

    @property
    def server_pid(self) -> int:
        return int(self._server["pid"])

    @property
    def server_port(self) -> int:
        return urlsplit(self._server["url"]).port or 0

    def kill_server(self) -> None:
        os.kill(self.server_pid, signal.SIGKILL)

    def close(self) -> None:
        """End everything that was started here."""
        try:
            if is_held(self.data / "lock"):
                self.run("stop", "--all")
                stopped = self.run("serve", "--stop")
                assert stopped.returncode == 0, stopped.stderr
            none_left(self.data)
            remove_groups(self.data)
        finally:
            self.tmux.close()


def write_program(path: Path, argv: list[str]) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
    path.chmod(0o755)


def without_arguments(argv: list[str]) -> list[str]:
    """Only the program: the server adds the arguments."""
    return [part for part in argv if os.path.isabs(part)]
