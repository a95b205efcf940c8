"""The stage of one cell: a real agent, its scripted model and an empty server, and the actions of a scenario.

Above: the scenarios and the tests. Below: a live server as a child process, the agent's settings. Every wait is
bounded, generously: agents take tens of seconds to start on a busy machine. When a stage ends, none of its processes
runs.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import RealAgent
from tests.continuity.agents import Agent, Place, environment
from tests.harness import NO_LIMITS, LiveServer, SharedServers, eventually
from tests.model.server import ModelServer, running

WAIT_S = 180.0
GONE_S = 30.0
CONFIG = f"{NO_LIMITS}start_timeout_s = 170\n"


class Stage:
    def __init__(
        self, agent: Agent, installed: RealAgent, model: ModelServer, server: LiveServer, folder: Path
    ) -> None:
        self.agent = agent
        self.model = model
        self.folder = folder
        self.workdir = folder / "work"
        home = folder / "home"
        for place in (home, self.workdir):
            place.mkdir(parents=True)
        env = {**environment(agent, Place(model.url, home, self.workdir)), **installed.env}
        shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
        lines = f'driver = "acp"\ncommand = {json.dumps(installed.argv)}\nenv = {{ {shown} }}\n'
        self.server = server
        server.add_agents(f"[agents.{agent.name}]\n{lines}[agents.{agent.name}-shared]\n{lines}shared = true\n")

    # A conversation ----------------------------------------------------------------------------------------------

    def session(self, *, shared: bool = False, **fields: Any) -> str:
        """`shared`: in one process with the other shared sessions."""
        name = f"{self.agent.name}-shared" if shared else self.agent.name
        return self.server.create(agent=name, workdir=str(self.workdir), **fields)

    def asking_session(self) -> str:
        """A session whose agent asks before it acts."""
        return self.session(mode=self.agent.asking_mode) if self.agent.asking_mode else self.session()

    def send(self, session: str, text: str) -> int:
        return int(self.server.send(session, text)["turn"])

    def turn(self, session: str, text: str) -> Any:
        """The turn when it is over. It must have ended normally."""
        return self.ended(session, self.send(session, text))

    def ended(self, session: str, number: int, *stop_reasons: str) -> Any:
        """The turn when it is over. It must have ended for one of these reasons, or normally if none is given."""
        self.server.wait_idle(session, WAIT_S)
        turn = self.at(session, number)
        assert turn["stop_reason"] in (stop_reasons or ("end_turn",)), (
            turn,
            self.codes(session),
            self.server.log_tail(),
        )
        return turn

    def at(self, session: str, number: int) -> Any:
        return next(turn for turn in self.server.transcript(session) if turn["turn"] == number)

    def text(self, session: str, number: int) -> str:
        return self.server.text(session, number)

    def until_said(self, session: str, number: int, text: str) -> None:
        def said() -> bool:
            there = number in [turn["turn"] for turn in self.server.transcript(session)]
            return there and text in self.text(session, number)

        eventually(said, lambda: f"turn {number} says {text!r}; {self.server.account(session)}", WAIT_S)

    def recalled(self, session: str) -> list[str]:
        """Every message that the model received with a new one, oldest first, without the new one. Read line by line,
        so only for messages of one line: some agents join messages without an answer between them."""
        number = self.turn(session, "recall")["turn"]
        found = [json.loads(line[2:]) for line in self.text(session, number).split("\n") if line.startswith("- ")]
        lines = [line.strip() for text in found for line in text.split("\n") if line.strip()]
        assert lines[-1:] == ["recall"], lines
        return lines[:-1]

    def configure(self, session: str, config_id: str, value: str) -> None:
        """Wait until the agent has confirmed it."""
        self.server.post(f"/api/sessions/{session}/config", {"config_id": config_id, "value": value}, expect=200)

        def confirmed() -> bool:
            told = [event for event in self.events(session, "config") if event["config_id"] == config_id]
            return bool(told) and told[-1]["value"] == value

        eventually(confirmed, lambda: f"{config_id} is {value}; {self.server.account(session)}", WAIT_S)

    def abort(self, session: str) -> None:
        self.server.post(f"/api/sessions/{session}/abort", expect=202)

    def suspended(self, session: str) -> None:
        self.server.wait(session, lambda found: found["attached"] == "suspended", WAIT_S)

    # Prompts -----------------------------------------------------------------------------------------------------

    def prompt(self, session: str) -> Any:
        return self.server.prompt(session, WAIT_S)

    def answer(self, session: str, prompt: Any, **answer: Any) -> None:
        self.server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answer, expect=200)

    def choose(self, session: str, prompt: Any, kind: str) -> None:
        """Answer with the option of this kind."""
        option = next(option["option_id"] for option in prompt["options"] if option["kind"] == kind)
        self.answer(session, prompt, option_id=option)

    # What happened -----------------------------------------------------------------------------------------------

    def events(self, session: str, *types: str) -> list[Any]:
        return [event for event in self.server.log(session) if event["type"] in types]

    def codes(self, session: str) -> list[str]:
        return [f"{event['code']}: {event['message']}" for event in self.events(session, "system", "error")]

    def plan(self, session: str) -> tuple[str, str]:
        """How the newest turn got its context, and why."""
        start = self.events(session, "turn_start")[-1]
        fallen = [event for event in self.events(session, "context_fallback") if event["turn"] == start["turn"]]
        if fallen:
            return f"{start['context']}, then fresh", fallen[-1]["reason"]
        return start["context"], start["context_reason"]

    # Processes ---------------------------------------------------------------------------------------------------

    def pid(self, session: str) -> int:
        return int(self.server.wait(session, lambda found: found["pid"] is not None, WAIT_S)["pid"])

    def kill_agent(self, session: str) -> None:
        """Kill the process that the server started, and wait until all are gone. The server must find its children."""
        pid = self.pid(session)
        before = self.processes()
        os.kill(pid, signal.SIGKILL)
        self.server.wait(session, lambda found: found["pid"] != pid, WAIT_S)
        self.none_of(before)

    def none_of(self, pids: "dict[int, str]") -> None:
        eventually(lambda: not (pids.keys() & self.processes().keys()), f"none of {pids} is left", GONE_S)

    def processes(self) -> dict[int, str]:
        """All processes of this stage's agent, found by their environment or directory."""
        home = f"HOME={self.folder / 'home'}".encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                cwd = os.readlink(entry / "cwd")
            except OSError:
                continue
            if home in environ or Path(cwd).is_relative_to(self.folder):
                found[int(entry.name)] = command
        return found


@contextlib.contextmanager
def stage(agent: Agent, installed: RealAgent, servers: SharedServers, folder: Path) -> Iterator[Stage]:
    """Fails if a process of the agent is left after the server has erased its sessions."""
    with running() as model:
        server = servers.borrow(LiveServer, CONFIG)
        made = Stage(agent, installed, model, server, folder)
        try:
            yield made
        finally:
            servers.give_back(server)
            eventually(lambda: not made.processes(), lambda: f"no process is left: {made.processes()}", GONE_S)
