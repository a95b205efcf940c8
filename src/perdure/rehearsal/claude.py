"""The rehearsal agent as the `claude` command: its flags, its stream-json output and its control protocol.

Above: any program that drives `claude -p`. Below: claude_turn.py runs a turn, claude_control.py answers control
requests, claude_sessions.py finds the session, wire.py reads and writes bytes.
It behaves like version 2.1.197, even where that is inconvenient: a malformed line ends the process, messages that
arrive during a turn are joined into one, a turn continues after the end of the input, and nothing is written before
the first message. It differs in three ways: notes about interrupts are not part of what it recalls, a `hang` ends when
it can no longer be interrupted, and there is no interactive mode.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

from perdure.rehearsal import claude_lines as lines
from perdure.rehearsal.claude_control import Control
from perdure.rehearsal.claude_flags import BYPASS, PERMISSION_MODES, BadFlags, Flags, check, parse
from perdure.rehearsal.claude_ledger import Ending, Ledger, Tokens, refusal
from perdure.rehearsal.claude_lines import DEFAULT_MODEL, VERSION, Line
from perdure.rehearsal.claude_sessions import NoConversation, SessionToOpen, find, folder_of, is_uuid
from perdure.rehearsal.claude_turn import Choices, Turn, TurnInput
from perdure.rehearsal.memory import Memory, Session, default_folder
from perdure.rehearsal.script import Performance, Scene
from perdure.rehearsal.slash_commands import perform_input
from perdure.rehearsal.wire import Wire

STDIN_WAIT_S = 3.0
"""How long it waits for stdin if the prompt is given as an argument."""
TERMINATED = 128 + signal.SIGTERM


class BadInput(Exception):
    """A line that ends the process. The message is written to stderr."""


class _Woken(Exception):
    """A signal arrived while the process was waiting."""


class Queued(NamedTuple):
    text: str
    content: Any
    uuid: str
    at: float
    wants_answer: bool = True


class ClaudeAgent:
    """One process: one session, one turn at a time."""

    def __init__(self, wire: Wire, flags: Flags, memory: Memory, to_open: SessionToOpen, workdir: str) -> None:
        self.flags = flags
        self.partial = flags.partial
        self.forwards_subagents = False
        self.ledger = Ledger()
        mode = BYPASS if flags.skip_permissions else flags.permission_mode
        rules = dict.fromkeys(flags.allowed_tools, True) | dict.fromkeys(flags.disallowed_tools, False)
        self.choices = Choices(flags.model or DEFAULT_MODEL, mode, rules, flags.max_turns)
        self.session_id = to_open.session_id
        self.turn: Turn | None = None
        self.queue: list[Queued] = []
        self._wire = wire
        self._memory = memory
        self._to_open = to_open
        self._workdir = workdir
        self._session: Session | None = None
        self._todos: list[Line] = []
        self._control = Control(self)
        self._last_result: Line = {}
        self._state = "idle"
        self._tells_state = os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1"
        self._waiting = False
        self._interrupted = False

    # Running --------------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Run until the input has ended and all of it is processed. Returns the exit code."""
        signal.signal(signal.SIGTERM, _terminate)
        signal.signal(signal.SIGINT, self._on_interrupt)
        if not self.flags.streams:
            self._receive_single_input()
        while True:
            # A signal may lose input that was being received. That doesn't matter, because the process ends.
            with contextlib.suppress(_Woken):
                for line in self._wait():
                    self._receive(line)
            if self._interrupted:
                self.interrupt()
                break
            self._advance()
            self.flush()
            if self.turn is None and not self.queue and self._wire.ended:
                break
        return self._close()

    def _advance(self) -> None:
        if self.turn is not None:
            if self._wire.ended:
                self.turn.abandon()
            self.turn.step(time.monotonic())
            if self.turn.ended:
                self.turn = None
        if self.turn is None and self.queue:
            taken, self.queue = self.queue, []
            self._begin(taken)
        elif self.turn is None:
            self._tell("idle")

    def _wait(self) -> list[bytes]:
        timeout_s: float | None = None
        if self.turn is not None and self.turn.due is not None:
            timeout_s = max(0.0, self.turn.due - time.monotonic())
        elif self.queue or (self.turn is not None and self.turn.ended):
            timeout_s = 0.0
        try:
            self._waiting = True
            if self._interrupted:
                return []
            if self._wire.ended:
                time.sleep(timeout_s or 0.0)
                return []
            return self._wire.receive(timeout_s)
        finally:
            self._waiting = False

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupted = True
        if self._waiting:
            raise _Woken

    def interrupt(self) -> None:
        if self.turn is not None:
            self.turn.withdraw()
            self.turn.interrupt()

    def _close(self) -> int:
        result = self._last_result
        if self.flags.output_format == "json" and result:
            self._wire.write(lines.encode(result))
        elif self.flags.output_format == "text" and result:
            text = result.get("result", "Execution error")
            self._wire.write(text.encode("utf-8", "backslashreplace") + b"\n")
        self.flush()
        # A signal that stopped a turn is a clean exit. Otherwise the last result determines the exit code.
        return 1 if result.get("is_error") and not self._interrupted else 0

    # The host, for turns --------------------------------------------------------------------------------------

    @property
    def can_ask(self) -> bool:
        return self.flags.prompt_tool == "stdio"

    @property
    def listens(self) -> bool:
        return not self._wire.ended

    def send(self, line: Line) -> None:
        if line["type"] == "result":
            self._last_result = line
        if self.flags.output_format == "stream-json":
            self._wire.write(lines.encode(line))

    def write(self, data: bytes) -> None:
        if self.flags.output_format == "stream-json":
            self._wire.write(data)

    def flush(self) -> None:
        # A host that closes only stdout doesn't stop the turn. If it is gone, stdin ends too.
        with contextlib.suppress(BrokenPipeError):
            self._wire.flush()

    def request(self, request: Line) -> str:
        self._tell("requires_action")
        request_id = lines.new_id()
        self.send({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    def withdraw(self, request_id: str) -> None:
        self.send({"type": "control_cancel_request", "request_id": request_id})

    def answered(self) -> None:
        self._tell("running")

    def take_queued(self) -> list[TurnInput]:
        taken, self.queue = self.queue, []
        return [TurnInput(one.text, self._echo(one.content, one.uuid, one.at)) for one in taken]

    def set_mode(self, mode: str) -> None:
        self.choices.mode = mode
        if mode in PERMISSION_MODES:
            self.send(lines.system("status", self.session_id, status=None, permissionMode=mode))

    def perform(self, text: str) -> Performance:
        recall = self._session.recall if self._session is not None else list
        recite = self._session.recite if self._session is not None else list
        scene = Scene(self._workdir, recall, recite, self.choices.model, self.choices.mode)
        return perform_input(text, scene)

    def _echo(self, content: Any, message_uuid: str, at: float | None) -> Line | None:
        return lines.replay(self.session_id, content, message_uuid, at) if self.flags.replay else None

    def _tell(self, state: str) -> None:
        if state != self._state:
            self._state = state
            if self._tells_state:
                self.send(lines.system("session_state_changed", self.session_id, state=state))

    # Received messages ----------------------------------------------------------------------------------------

    def _receive_single_input(self) -> None:
        """The single input of a process: the prompt argument, and all of stdin."""
        parts = [self.flags.prompt] if self.flags.prompt else []
        received = self._wire.receive(STDIN_WAIT_S if parts else None)
        if not received and not self._wire.ended:
            sys.stderr.write(
                f"Warning: no stdin data received in {STDIN_WAIT_S:.0f}s, proceeding without it. If piping from a "
                "slow command, redirect stdin explicitly: < /dev/null to skip, or wait longer.\n"
            )
            self._wire.ended = True
        while not self._wire.ended:
            received += self._wire.receive(None)
        typed = b"".join(received).decode("utf-8", "replace").strip()
        text = "\n".join([*parts, typed] if typed else parts)
        if not text:
            raise BadInput(
                "Error: Input must be provided either through stdin or as a prompt argument when using --print"
            )
        self._begin([Queued(text, text, lines.new_id(), time.time())])

    def _receive(self, line: bytes) -> None:
        if line == b"\n":
            return
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"Error parsing streaming input line: {text}: SyntaxError: JSON Parse error: {error}"
            ) from error
        if not isinstance(message, dict):
            return
        kind = message.get("type")
        if kind == "user":
            self._receive_user(message, text)
        elif kind == "control_request":
            self._control.receive(message)
        elif kind == "control_response":
            response = message.get("response")
            # Ignore a late answer to a request that is no longer open.
            if isinstance(response, dict) and self.turn is not None and self.turn.request_id is not None:
                if response.get("request_id") == self.turn.request_id:
                    self.turn.answer(response)

    def _receive_user(self, message: Line, line: str) -> None:
        inner = message.get("message")
        start = f"Error parsing streaming input line: {line}: "
        if not isinstance(inner, dict):
            raise BadInput(f"{start}TypeError: undefined is not an object (evaluating 't.message.role')")
        if inner.get("role") != "user":
            raise BadInput(f"{start}Error: Expected message role 'user', got '{inner.get('role')}'")
        content = inner.get("content")
        given = message.get("uuid")
        message_uuid = given if isinstance(given, str) else lines.new_id()
        wants_answer = message.get("shouldQuery") is not False
        queued = Queued(_text(content), content, message_uuid, time.time(), wants_answer)
        if message.get("priority") == "now" and self.turn is not None:
            self.turn.preempt()
        if self.turn is not None and self.turn.ended:
            self.turn = None
        if self.turn is None and (not self.queue or message.get("priority") == "now"):
            self._begin([queued])
        else:
            self.queue.append(queued)

    def _begin(self, taken: list[Queued]) -> None:
        """Start one turn for all of these: messages that waited together are joined."""
        for earlier in taken[:-1]:
            echo = self._echo(earlier.content, earlier.uuid, None)
            if echo is not None:
                self.send(echo)
        last = taken[-1]
        text = "\n".join(one.text for one in taken)
        began = time.monotonic()
        if self._session is None:
            self._session = self._to_open.begin(self._memory, self._workdir)
        self._tell("running")
        choices = self.choices
        self.send(lines.init(self.session_id, self._workdir, choices.model, choices.mode, self.can_ask))
        if not any(one.wants_answer for one in taken):
            self._session.hear(text)
            ending = Ending("success", False, 0, None, "")
            self.send(self.ledger.result(self.session_id, ending, began, choices.model, Tokens(), []))
            return
        echo = self._echo(last.content if len(taken) == 1 else text, last.uuid, last.at)
        self.turn = Turn(self, self._session, TurnInput(text, echo), self._todos)


def main(argv: Sequence[str]) -> int:
    """Run as `claude` would with these arguments. Returns the exit code."""
    flags = Flags()
    try:
        flags = parse(argv)
        if flags.version:
            sys.stdout.write(f"{VERSION} (Claude Code rehearsal)\n")
            return 0
        if flags.session_id:
            flags = flags._replace(session_id=flags.session_id.lower())
        check(flags, is_uuid(flags.session_id), os.geteuid() == 0, os.environ)
        workdir = os.path.realpath(os.getcwd())
        memory = Memory(folder_of(default_folder(), workdir))
        to_open = find(flags, memory)
        return ClaudeAgent(Wire(0, 1), flags, memory, to_open, workdir).serve()
    except NoConversation as error:
        sys.stderr.write(f"{error}\n")
        if flags.output_format == "stream-json":
            sys.stdout.buffer.write(lines.encode(refusal(error.session_id, str(error))))
    except (BadFlags, BadInput) as error:
        sys.stderr.write(f"{error}\n")
    return 1


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def _text(content: Any) -> str:
    """The text of a message. Blocks of other types are accepted and ignored, because they contain no verbs."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(one.get("text", "")) for one in blocks if isinstance(one, dict) and one.get("type") == "text")
