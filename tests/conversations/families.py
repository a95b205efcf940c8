"""The families of agents for the cases, each behind a recorder: which session the agent was asked to open, what it was
sent, and what its model really received.

Above: test_cases.py. Below: a live server, and a scripted model for the real programs. Each family has two agents,
`first` and `second`: the same program under two names.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from perdure.core.transcript_text import Entry, unwrap
from tests.conftest import RealAgent
from tests.conversations import recorder
from tests.end_to_end.victims import kill
from tests.harness import NO_LIMITS, SOURCE, LiveServer, eventually
from tests.model.server import ModelServer

WAIT_S = 120.0
CONFIG = f"{NO_LIMITS}start_timeout_s = 110\n"


class Family(NamedTuple):
    name: str
    driver: str
    program: str | None = None
    """The name of the real agent; None: the rehearsal agent."""

    @property
    def real(self) -> bool:
        return self.program is not None

    @property
    def stays(self) -> bool:
        """Whether its process stays alive between turns."""
        return self.driver != "claude-resume"


FAMILIES = (
    Family("rehearsal", "acp"),
    Family("rehearsal-stream", "claude-stream"),
    Family("rehearsal-resume", "claude-resume"),
    Family("claude-stream", "claude-stream", "claude"),
    Family("claude-resume", "claude-resume", "claude"),
    Family("claude-acp", "acp", "claude-acp"),
)


class OpenedSession(NamedTuple):
    """How a turn's agent was opened. `resumed`: the requested native session id, or None."""

    resumed: str | None
    inputs: list[str]


class Stage:
    def __init__(
        self,
        family: Family,
        folder: Path,
        server: LiveServer,
        installed: RealAgent | None,
        model: ModelServer | None,
    ) -> None:
        self.family = family
        self.folder = folder
        self.model = model
        self.home, self.workdir, self.records = folder / "home", folder / "work", folder / "records"
        for place in (self.home, self.workdir, self.records):
            place.mkdir()
        self._installed = installed
        self._recorder = Path(recorder.__file__)
        self._hides = False
        self.server = server
        self._set_agents()
        server.post("/api/projects", {"name": "here", "path": str(self.workdir)}, expect=201)

    # Setting up ----------------------------------------------------------------------------------------------------

    def _set_agents(self) -> None:
        argv, env = self._command()
        # Another command line is another program, so it does not inherit the abilities of the one that can resume.
        hides = [recorder.HIDES] if self._hides else []
        command = [sys.executable, str(self._recorder), str(self.records), *hides, *argv]
        shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
        lines = f'driver = "{self.family.driver}"\ncommand = {json.dumps(command)}\nenv = {{ {shown} }}\n'
        self.server.add_agents(f"[agents.first]\n{lines}[agents.second]\n{lines}")

    def _command(self) -> tuple[list[str], dict[str, str]]:
        if self._installed is None or self.model is None:
            kind = "--acp" if self.family.driver == "acp" else "--claude"
            env = {"PERDURE_REHEARSAL_DIR": str(self.home / "rehearsal"), "PYTHONPATH": SOURCE}
            return [sys.executable, "-m", "perdure.rehearsal", kind], env
        env = {
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "NO_PROXY": "127.0.0.1",
            **self._installed.env,
        }
        return self._installed.argv, env

    def hide_resume(self) -> None:
        """Make the program look as if it can't resume a session."""
        self._hides = True
        self._set_agents()

    def set_project(self, project: str) -> None:
        """Change settings of the project that can only be in the server's file."""
        self.server.http.delete("/api/projects/here").raise_for_status()
        self.server.configure(f"[projects.here]\npath = {json.dumps(str(self.workdir))}\n{project}\n")

    def move_the_program(self) -> None:
        """Make the agent's command point to another file from now on."""
        copy = self.folder / "another_recorder.py"
        shutil.copy(self._recorder, copy)
        self._recorder = copy
        self._set_agents()
        self.server.stop()
        self.server.restart()

    # A conversation --------------------------------------------------------------------------------------------------

    def session(self, **fields: Any) -> str:
        return self.server.create(project="here", agent="first", **fields)

    def say(self, session: str, text: str, **fields: Any) -> Any:
        return self.over(session, self.server.send(session, text, **fields)["turn"])

    def over(self, session: str, number: int) -> Any:
        self.server.wait_idle(session, WAIT_S)
        turn = next(turn for turn in self.server.session(session)["turns"] if turn["turn"] == number)
        assert turn["stop_reason"] == "end_turn", (turn, self.server.log_tail())
        return turn

    def retry(self, session: str, turn: int, **fields: Any) -> Any:
        taken = self.server.post(f"/api/sessions/{session}/retry", {"turn": turn, **fields}, expect=202)
        return self.over(session, taken["turn"])

    def edit(self, session: str, turn: int, text: str) -> Any:
        """The change as recorded in the log."""
        message_id = next(t for t in self.server.session(session)["turns"] if t["turn"] == turn)["message_id"]
        answer = self.server.http.patch(f"/api/sessions/{session}/messages/{message_id}", json={"text": text})
        assert answer.status_code == 200, answer.text
        return self.change(session)

    def rewind(self, session: str, turn: int) -> Any:
        self.server.post(f"/api/sessions/{session}/rewind", {"turn": turn}, expect=200)
        return self.change(session)

    def change(self, session: str) -> Any:
        return [event for event in self.server.log(session) if event["type"] == "history_changed"][-1]

    def end_process(self, session: str) -> None:
        """End the process, so that the next turn has to resume the native session."""
        pid = self.server.session(session)["pid"]
        if pid is not None and self.family.stays:
            kill(pid)
            self.server.wait(session, lambda found: found["pid"] != pid, WAIT_S)

    def native_id(self, session: str) -> str:
        return str(self.server.session(session)["native_session_id"])

    def forget_native_session(self, session: str) -> None:
        """Delete the agent's files of the native session."""
        native = self.native_id(session)
        found = [path for path in self.home.glob(f"**/*{native}*") if path.is_file()]
        assert found
        for path in found:
            path.unlink()

    # What really happened ----------------------------------------------------------------------------------------

    def opened_sessions(self) -> list[OpenedSession]:
        """Every native session that was opened, in order, with its inputs."""
        found: list[OpenedSession] = []
        for path in sorted(self.records.iterdir(), key=lambda path: path.stat().st_ctime_ns):
            # A process that is starting may not have a complete line yet.
            lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
            if not lines:
                continue
            found += self._acp(lines) if self.family.driver == "acp" else self._claude(lines)
        return [opened for opened in found if opened.inputs]

    @staticmethod
    def _claude(lines: list[Any]) -> list[OpenedSession]:
        argv = lines[0]["argv"]
        resumed = argv[argv.index("--resume") + 1] if "--resume" in argv else None
        inputs = [_text(line["message"]["content"]) for line in lines[1:] if line.get("type") == "user"]
        return [OpenedSession(resumed, inputs)]

    @staticmethod
    def _acp(lines: list[Any]) -> list[OpenedSession]:
        found: list[OpenedSession] = []
        for line in lines[1:]:
            method, params = line.get("method"), line.get("params")
            if method in ("session/load", "session/resume"):
                found.append(OpenedSession(params["sessionId"], []))
            elif method == "session/new":
                found.append(OpenedSession(None, []))
            elif method == "session/prompt":
                found[-1].inputs.append(_text(params["prompt"]))
        return found

    def newest(self) -> tuple[str | None, list[Entry], str]:
        """Of the last input: the requested native session id, the earlier turns that it contains, its message."""
        every = [(opened.resumed, text) for opened in self.opened_sessions() for text in opened.inputs]
        resumed, text = every[-1]
        return resumed, *unwrap(text)

    def held(self, session: str) -> list[str]:
        """The messages that the model received, up to the newest: from its request, or from the agent's memory."""
        if self.model is not None:
            asked = eventually(lambda: self.model and self.model.log.asked, "a request", WAIT_S)[-1]
            return [text.rstrip("\n") for text in asked.conversation.user_texts]
        files = list(self.home.glob(f"rehearsal/**/{self.native_id(session)}.ndjson"))
        assert len(files) == 1
        messages: list[str] = []
        for line in files[0].read_text().splitlines():
            record = json.loads(line)
            if record["type"] == "user":
                entries, message = unwrap(record["text"])
                messages += [*(entry.text for entry in entries if entry.role == "user"), message]
        return messages


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if block.get("type") == "text")
