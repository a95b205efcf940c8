"""The four ways to run a scenario about Claude Code, and the stage that hides their differences.

Above: the tests of this folder. Below: a live server, and a scripted model for the real program. The real program does
what the model says, and the rehearsal agent what the message says: `Words` has the few verbs in which the two differ.
Tests ask only the server, except for what only the model's log can prove.
"""

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import RealAgent
from tests.end_to_end.victims import kill
from tests.harness import NO_LIMITS, SOURCE, LiveServer, eventually
from tests.model.server import ModelServer

TURN_WAIT_S = 120.0
MAX_RETRIES = 2
SUBSCRIBER = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "dummy"}
"""Like a user with a subscription, whose usage limits the API reports. Only a scripted model ever sees this token."""


class Column(NamedTuple):
    name: str
    real: bool
    streams: bool

    @property
    def driver(self) -> str:
        return "claude-stream" if self.streams else "claude-resume"


COLUMNS = (
    Column("real-stream", real=True, streams=True),
    Column("real-resume", real=True, streams=False),
    Column("rehearsal-stream", real=False, streams=True),
    Column("rehearsal-resume", real=False, streams=False),
)
REAL = tuple(column for column in COLUMNS if column.real)
DIALECT = tuple(column for column in COLUMNS if not column.real)
STREAMING = tuple(column for column in COLUMNS if column.streams)


class Words(NamedTuple):
    """The message texts that make the same thing happen."""

    asks: str
    """A tool that needs a permission, and then the text "done"."""
    slow: str
    """No output for a long time, not even a first word."""


REAL_WORDS = Words(asks="bash touch made-by-the-tool\nsay done", slow="slow 60")
DIALECT_WORDS = Words(asks="permit Deploy\nsay done", slow="sleep 60")


class Stage:
    """One column with its server. Call `serve` first, and only once."""

    def __init__(
        self,
        column: Column,
        folder: Path,
        borrow: Callable[[], LiveServer],
        make_server: Callable[..., LiveServer],
        agent: RealAgent | None,
        model: ModelServer | None,
    ) -> None:
        self.column = column
        self.home = folder / "home"
        self.workdir = folder / "work"
        self.words = REAL_WORDS if column.real else DIALECT_WORDS
        self.preface = ""
        """Shell commands that run before the program, in its place and with its streams."""
        self._borrow = borrow
        self._make_server = make_server
        self._limits: dict[str, Any] = {}
        self._agent = agent
        self._model = model
        self._server: LiveServer | None = None
        for place in (self.home, self.workdir):
            place.mkdir()

    @property
    def server(self) -> LiveServer:
        assert self._server is not None, "call serve() first"
        return self._server

    @property
    def model(self) -> ModelServer:
        assert self._model is not None, "only the real program has a model"
        return self._model

    # The server --------------------------------------------------------------------------------------------------

    def serve(
        self,
        *,
        server: str = "",
        limits: str = "",
        agent: str = "",
        project: str = "",
        env: dict[str, str] | None = None,
        alone: bool = False,
    ) -> "Stage":
        """Start a server. The strings are lines for the sections of its configuration. Tests share it, unless it must
        be `alone` or needs settings that can't be set over the API."""
        self._limits = tomllib.loads(limits)
        agents = f"[agents.{self.column.name}]\n{self.agent_lines(env or {})}{agent}\n"
        here = f"[projects.here]\npath = {json.dumps(str(self.workdir))}\n{project}\n"
        settings = tomllib.loads(here)["projects"]["here"]
        if alone or server or "options" in settings:
            self._server = self._make_server(f"{NO_LIMITS}{server}\n{here}{agents}")
        else:
            self._server = self._borrow()
            self._server.add_agents(agents)
            self._server.post("/api/projects", {"name": "here", **settings}, expect=201)
        return self

    def agent_lines(self, env: dict[str, str], driver: str | None = None) -> str:
        """How this column's agent is configured."""
        command, base = self.command()
        if self.preface:
            # Not when it only reports its version.
            script = f'case "$*" in *--version | *--help) ;; *) {self.preface} ;; esac; exec "$@"'
            command = ["/bin/sh", "-c", script, "sh", *command]
        shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in {**base, **env}.items())
        return f'driver = "{driver or self.column.driver}"\ncommand = {json.dumps(command)}\nenv = {{ {shown} }}\n'

    def command(self) -> tuple[list[str], dict[str, str]]:
        if self._agent is None:
            folder = str(self.home / "rehearsal")
            env = {"PERDURE_REHEARSAL_DIR": folder, "PYTHONPATH": SOURCE}
            return [sys.executable, "-m", "perdure.rehearsal", "--claude"], env
        env = {
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_MAX_RETRIES": str(MAX_RETRIES),
            **self._agent.env,
        }
        return self._agent.argv, env

    # A conversation ----------------------------------------------------------------------------------------------

    def session(self, **fields: Any) -> str:
        where = {} if "project" in fields else {"workdir": str(self.workdir)}
        return self.server.create(agent=self.column.name, limits=self._limits, **where, **fields)

    def idle(self, session: str) -> Any:
        return self.server.wait_idle(session, TURN_WAIT_S)

    def turn(self, session: str, text: str, **fields: Any) -> Any:
        number = self.server.send(session, text, **fields)["turn"]
        self.idle(session)
        return self.at(session, number)

    def at(self, session: str, number: int) -> Any:
        return next(turn for turn in self.server.transcript(session) if turn["turn"] == number)

    def recalled(self, session: str) -> list[str]:
        """Every message in the agent's context, without the one that asks."""
        turn = self.turn(session, "recall")
        assert turn["stop_reason"] == "end_turn", (turn, self.server.log_tail())
        text = self.server.text(session, turn["turn"])
        found = [json.loads(line[2:]) for line in text.split("\n") if line.startswith("- ")][:-1]
        # The real program joins messages without an answer between them, separated by newlines.
        return [message.rstrip("\n") for message in found]

    def events(self, session: str, *types: str) -> list[Any]:
        return [event for event in self.server.log(session) if event["type"] in types]

    def codes(self, session: str) -> list[str]:
        return [event["code"] for event in self.events(session, "system", "error")]

    def contexts(self, session: str) -> list[str]:
        return [event["context"] for event in self.events(session, "turn_start")]

    def running_tasks(self, session: str) -> int:
        """The number of background tasks that the agent reports."""
        told = [event for event in self.events(session, "config") if event["config_id"] == "background_tasks"]
        return int(told[-1]["value"]) if told else 0

    def native_id(self, session: str) -> str:
        return str(self.server.session(session)["native_session_id"])

    def suspended(self, session: str) -> None:
        self.server.wait(session, lambda found: found["attached"] == "suspended", TURN_WAIT_S)

    def answer(self, session: str, **answer: Any) -> Any:
        """Answer the waiting prompt, and return it."""
        prompt = self.server.prompt(session, TURN_WAIT_S)
        self.server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answer, expect=200)
        return prompt

    def abort(self, session: str) -> None:
        self.server.post(f"/api/sessions/{session}/abort", expect=202)

    # What the server costs ---------------------------------------------------------------------------------------

    def server_rss_mb(self) -> float:
        assert self.server.process is not None
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    # What is kept on disk ----------------------------------------------------------------------------------------

    def native_files(self, session: str) -> list[Path]:
        native = self.native_id(session)
        places = [self.home / ".claude" / "projects", self.home / "rehearsal"]
        return [path for place in places for path in place.glob(f"**/{native}*") if path.is_file()]

    def processes_on(self, native_id: str) -> list[int]:
        """Live processes that were started for this native session. A child has the same command line until it runs
        another program, and is not counted."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                status = (entry / "stat").read_text()
            except OSError:
                continue
            if native_id.encode() in words and (b"--resume" in words or b"--session-id" in words):
                parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
        return [pid for pid, parent in parents.items() if parent not in parents]

    def kill_agent(self, session: str) -> None:
        """The process, if it is alive between turns. Otherwise there is nothing to kill."""
        pid = self.server.session(session)["pid"]
        if pid is None:
            return
        # A process that serves a single turn may exit on its own meanwhile.
        kill(pid)
        self.gone_from(session, pid)

    def gone_from(self, session: str, pid: int) -> None:
        """Wait until the server has noticed that this process has ended."""
        self.server.wait(session, lambda found: found["pid"] != pid, TURN_WAIT_S)

    def until(self, session: str, event_type: str, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """Wait for the first such event."""
        return eventually(
            lambda: next((event for event in self.events(session, event_type) if fits(event)), None),
            lambda: f"{event_type} in session {session}; {self.server.account(session)}",
            TURN_WAIT_S,
        )
