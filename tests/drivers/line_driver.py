"""A driver in one module, as someone would add it: a protocol of plain lines, and the agent that speaks it.

Above: test_new_driver.py, which registers it with one line and uses it through the registry. Below: drivers/base.py.
Started as a program, this file is the agent.

    open ID      opened ID       open a native session; `new` for a new one
    do TEXT      text TEXT       run a turn; TEXT is a JSON string
                 done
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from perdure.core.events import AssistantText
from perdure.drivers.base import (
    CancelTurn,
    Driver,
    LaunchCommand,
    Noise,
    Observation,
    Order,
    Probe,
    ProbeVerdict,
    SendInput,
    SessionOpened,
    StartSession,
    Step,
    TurnFinished,
)

VERSION = "3.1.4"


class State(msgspec.Struct):
    leaves: bool = False
    resumes: bool = False
    is_open: bool = False
    running: int | None = None
    input_bytes: int = 0
    held: list[SendInput] = []


class LineConversation:
    def __init__(self, state: State) -> None:
        self._state = state
        self._step = Step([], [])

    def perform(self, order: Order) -> Step:
        state = self._state
        if isinstance(order, StartSession):
            state.resumes = order.native_session_id is not None
            self._write(f"open {order.native_session_id or 'new'}".splitlines()[0])
        elif isinstance(order, SendInput):
            state.held.append(order)
            self._send_next()
        elif isinstance(order, CancelTurn) and order.turn == state.running:
            self._finish("cancelled")
        return self._taken()

    def receive(self, lines: Sequence[bytes]) -> Step:
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            turn = self._state.running
            if word == "opened":
                self._state.is_open = True
                self._emit(SessionOpened(rest, resumed=self._state.resumes))
                self._send_next()
            elif word == "text" and turn is not None:
                self._say(turn, rest)
            elif word == "done" and turn is not None:
                self._finish("end_turn")
            else:
                self._emit(Noise(word[:20], "unknown line"))
        return self._taken()

    def dump(self) -> bytes:
        return msgspec.json.encode(self._state)

    @property
    def input_bytes(self) -> int | None:
        return self._state.input_bytes if self._state.running is not None else None

    @property
    def unanswered(self) -> int | None:
        return None

    def _send_next(self) -> None:
        state = self._state
        if state.is_open and state.running is None and state.held:
            order = state.held.pop(0)
            line = f"do {json.dumps(order.text)}"
            state.running, state.input_bytes = order.turn, len(line)
            self._write(line)

    def _finish(self, how: str) -> None:
        turn, self._state.running = self._state.running, None
        if turn is not None:
            self._emit(msgspec.convert({"turn": turn, "stop_reason": how, "leaves": self._state.leaves}, TurnFinished))
            self._send_next()

    def _say(self, turn: int, text: str) -> None:
        last = self._step.observations[-1] if self._step.observations else None
        if isinstance(last, AssistantText) and last.turn == turn:
            last.delta += text
        else:
            self._emit(AssistantText(turn=turn, block=0, delta=text))

    def _emit(self, observation: Observation) -> None:
        self._step.observations.append(observation)

    def _write(self, line: str) -> None:
        self._step.lines.append(line.encode(errors="replace") + b"\n")

    def _taken(self) -> Step:
        step, self._step = self._step, Step([], [])
        return step


class LineProbe(Probe):
    """The agent prints its name before its version, and nothing else is accepted."""

    is_required = True
    oldest = (3, 0, 0)
    rules_version = 1

    def judge(self, code: int, output: str, help_text: str | None = None) -> ProbeVerdict:
        if code == 0 and not output.startswith("line-agent "):
            return ProbeVerdict("broken", reason="It is not a line agent.")
        return super().judge(code, output)


class LineDriver(Driver):
    """One process for many turns. If it doesn't open its session, the session continues with a process per turn."""

    name = "line-stay"
    family = "line"
    prewarms = True
    fallback: ClassVar[str | None] = "line-once"
    login_hint = "no login is needed"
    probe = LineProbe()

    def command(self, argv: list[str], order: StartSession, launch_id: str) -> LaunchCommand:
        return LaunchCommand([*argv, "--once" if self.process_per_turn else "--stay"], {})

    def begin(self, launch_id: str) -> LineConversation:
        return LineConversation(State(leaves=self.process_per_turn))

    def restore(self, dump: bytes) -> LineConversation:
        return LineConversation(msgspec.json.decode(dump, type=State))


class LineOnceDriver(LineDriver):
    """One process per turn."""

    name = "line-once"
    process_per_turn = True
    prewarms = False
    fallback = None


def agent(arguments: list[str]) -> None:
    """The agent. Like many, it ends when its stdin is closed. LINE_AGENT_HANGS: ignore everything as `--stay`."""
    if "--version" in arguments:
        print("line-agent", os.environ.get("LINE_AGENT_VERSION", VERSION))
        return
    is_hanging = "--stay" in arguments and "LINE_AGENT_HANGS" in os.environ
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if is_hanging:
            continue
        if word == "open":
            print("opened", f"native-{os.getpid()}" if rest == "new" else rest, flush=True)
        elif word == "do":
            print("text", json.loads(rest).splitlines()[-1].upper())
            print("done", flush=True)


if __name__ == "__main__":
    agent(sys.argv[1:])
