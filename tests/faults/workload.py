"""The users of the nodes during a run: clients that send and retry, one that answers prompts, viewers that follow.

Above: run.py. Below: HTTP to the nodes. Everything they do and see is recorded in the history. A client retries a
request without a definite response, with the same message_id and on another node, until it gets one, even after the
faults have ended.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import httpx2

from tests.faults.history import History
from tests.faults.nodes import REQUEST_TIMEOUT_S, STREAM_HEARTBEAT_S, FaultNode
from tests.faults.plan import Action
from tests.harness import Stream

RETRY_S = 0.3
LOOK_S = 0.2
STREAM_SILENCE_S = 2.5 * STREAM_HEARTBEAT_S
STREAM_FRAMES_MAX = 400
"""A viewer switches to another node after at most this many frames."""


class Worker:
    """A thread with its own Random. An unexpected error ends it, and `join` raises it."""

    def __init__(self, nodes: Sequence[FaultNode], history: History, random: Random, over: threading.Event) -> None:
        self.nodes = nodes
        self.history = history
        self.random = random
        self.over = over
        self.http = httpx2.Client(timeout=REQUEST_TIMEOUT_S, trust_env=False, verify=False)
        self.error: Exception | None = None
        self.is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001  raised by join
            self.error = error
        finally:
            self.is_done.set()
            self.http.close()

    def work(self) -> None:
        raise NotImplementedError

    def any(self) -> FaultNode:
        return self.random.choice(self.nodes)


class Client(Worker):
    """Carries out its part of the plan."""

    def __init__(self, name: str, actions: list[Action], sessions: list[str], *shared: Any) -> None:
        super().__init__(*shared)
        self._name = name
        self._actions = actions
        self._sessions = sessions

    def work(self) -> None:
        began_s = time.monotonic()
        for number, action in enumerate(self._actions):
            if self.over.wait(max(0.0, began_s + action.at_s - time.monotonic())):
                return
            session = self._sessions[action.session]
            if action.what == "abort":
                self._do(f"{self._name}-{number}", "abort", session, action.node, "abort", {})
                continue
            message_id = f"{self._name}-{number}"
            body = {"text": action.text, "message_id": message_id, "when_busy": action.when_busy}
            self._do(message_id, "send", session, action.node, "messages", body)

    def _do(self, op: str, what: str, session: str, first: int, path: str, body: dict[str, Any]) -> None:
        node = self.nodes[first]
        about = {"op": op, "what": what, "session": session}
        said = {name: body[name] for name in ("text", "message_id", "when_busy") if name in body}
        while not self.over.is_set():
            self.history.note("op", phase="invoke", node=node.name, **about, **said)
            answer: httpx2.Response | None = None
            try:
                answer = node.call(self.http, "POST", f"/api/sessions/{session}/{path}", body)
                status = answer.status_code
            except httpx2.HTTPError as error:
                self.history.note("op", phase="unknown", node=node.name, why=type(error).__name__, **about)
                status = 0
            if answer is not None and status < 400:
                self.history.note("op", phase="ok", node=node.name, answer=answer.json(), **about)
                return
            if answer is not None and status < 500:
                self.history.note("op", phase="fail", node=node.name, why=answer.text[:300], status=status, **about)
                return
            if answer is not None:
                self.history.note("op", phase="unknown", node=node.name, why=answer.text[:300], status=status, **about)
            node = self.any()
            self.over.wait(RETRY_S)


class Answerer(Worker):
    """Answers every prompt that it sees, on any node."""

    def __init__(self, sessions: list[str], *shared: Any) -> None:
        super().__init__(*shared)
        self._sessions = sessions

    def work(self) -> None:
        while not self.over.wait(LOOK_S):
            session = self.random.choice(self._sessions)
            found = self.any().ask(self.http, f"/api/sessions/{session}/prompts")
            for prompt in (found or {}).get("prompts", ()):
                self._answer(session, prompt)

    def _answer(self, session: str, prompt: dict[str, Any]) -> None:
        node = self.any()
        option = self.random.choice(prompt["options"])["option_id"]
        about = {"op": prompt["prompt_id"], "what": "answer", "session": session, "node": node.name}
        self.history.note("op", phase="invoke", **about)
        path = f"/api/sessions/{session}/prompts/{prompt['prompt_id']}"
        try:
            answer = node.call(self.http, "POST", path, {"option_id": option})
        except httpx2.HTTPError as error:
            self.history.note("op", phase="unknown", why=type(error).__name__, **about)
            return
        phase = "ok" if answer.status_code < 400 else "fail" if answer.status_code < 500 else "unknown"
        self.history.note("op", phase=phase, status=answer.status_code, **about)


class OpenStream(Stream):
    """A stream that leaks no socket if its server is down, frozen, or disappears before it responds."""

    def __init__(self, node: FaultNode, path: str, position: str | None) -> None:
        try:
            super().__init__(node, path, position, STREAM_SILENCE_S)
        except BaseException:
            if hasattr(self, "_socket"):
                self.close()
            raise


class WorkloadViewer(Worker):
    """Follows one session over SSE and moves from node to node with its Last-Event-ID."""

    def __init__(self, name: str, session: str, *shared: Any) -> None:
        super().__init__(*shared)
        self._name = name
        self.session = session
        self.position: str | None = None
        self.seq = 0
        self.stays = False
        """Whether it stays on its node for as long as that responds."""
        self._stream: Stream | None = None

    def leave(self) -> None:
        """Stop waiting for more, from another thread."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream._socket.shutdown(socket.SHUT_RDWR)

    def work(self) -> None:
        while not self.over.wait(0 if self.position is None else LOOK_S / 4):
            node = self.any()
            try:
                with OpenStream(node, f"/api/sessions/{self.session}/events", self.position) as stream:
                    self._stream = stream
                    if stream.status == 200:
                        self._follow(stream, node)
                    else:
                        self.over.wait(RETRY_S)
            except (OSError, AssertionError):
                self.over.wait(RETRY_S)

    def _follow(self, stream: Stream, node: FaultNode) -> None:
        self.history.note("open", viewer=self._name, session=self.session, node=node.name, position=self.position)
        left = self.random.randint(1, STREAM_FRAMES_MAX)
        for position, kind, data in stream.frames():
            seq = data["seq"]
            seen = {"id": position, "type": kind, "seq": seq, "first_seq": data.get("first_seq", seq)}
            self.history.note("frame", viewer=self._name, session=self.session, **seen)
            self.position, self.seq = position, seq
            left -= 1
            if self.over.is_set() or (left <= 0 and not self.stays):
                return
