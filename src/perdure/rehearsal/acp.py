"""The rehearsal agent as an ACP agent (protocol version 1): JSON-RPC lines on stdin and stdout.

Above: any ACP client. Below: acp_turn.py runs a turn, memory.py stores the sessions, wire.py reads and writes bytes.
One loop in one thread serves all sessions of the process: it handles the received lines, then advances every turn a
little. It behaves like the better real agents: a load replays the history before its reply, a cancel ends the turn
without waiting for the answer to an open question (which is withdrawn), and modes are lost with the process.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

from perdure import __version__
from perdure.rehearsal.acp_turn import INTERNAL_ERROR, Turn
from perdure.rehearsal.memory import Memory, Session
from perdure.rehearsal.script import Scene
from perdure.rehearsal.slash_commands import COMMANDS, perform_input
from perdure.rehearsal.wire import Wire

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
NOT_FOUND = -32002

UNAVAILABLE = "unavailable"
"""A value that is listed but refused, as some agents do."""
_CHOICES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "mode": (("ask", "Ask", "Asks before a tool runs"), ("auto", "Auto", "Allows every tool without asking")),
    "model": (
        ("rehearsal-1", "Rehearsal 1", "Follows your script"),
        ("rehearsal-2", "Rehearsal 2", "The same, under another name"),
    ),
    "effort": (
        ("normal", "Normal", "Follows your script"),
        ("high", "High", "The same"),
        (UNAVAILABLE, "Unavailable", "Listed, but refused when you choose it"),
    ),
}
_CATEGORIES = {"effort": "thought_level"}


class Failure(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Live:
    """A native session that is open in this process."""

    def __init__(self, session: Session, workdir: str) -> None:
        self.session = session
        self.workdir = workdir
        self.config = {config_id: choices[0][0] for config_id, choices in _CHOICES.items()}
        self.rules: dict[str, bool] = {}
        self.turn: Turn | None = None

    @property
    def busy(self) -> bool:
        return self.turn is not None and not self.turn.ended

    def config_options(self) -> list[dict[str, Any]]:
        return [
            {
                "id": config_id,
                "name": config_id.capitalize(),
                "category": _CATEGORIES.get(config_id, config_id),
                "type": "select",
                "currentValue": self.config[config_id],
                "options": [{"value": value, "name": name, "description": text} for value, name, text in choices],
            }
            for config_id, choices in _CHOICES.items()
        ]

    def describe(self) -> dict[str, Any]:
        modes = [{"id": value, "name": name, "description": text} for value, name, text in _CHOICES["mode"]]
        return {
            "modes": {"currentModeId": self.config["mode"], "availableModes": modes},
            "configOptions": self.config_options(),
        }


class AcpAgent:
    """The agent's end of one connection."""

    def __init__(self, wire: Wire, memory: Memory) -> None:
        self.can_ask = False
        """Whether the client can show a form."""
        self._wire = wire
        self._memory = memory
        self._initialized = False
        self._live: dict[str, Live] = {}
        self._questions: dict[int, Turn] = {}
        self._next_number = 0
        self._methods: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "initialize": self._initialize,
            "authenticate": lambda _: {},
            "session/new": self._new,
            "session/load": self._load,
            "session/list": self._list,
            "session/close": self._close,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }

    def serve(self) -> None:
        """Run until the client closes stdin. Running turns are then cancelled, and their partial answers saved."""
        while not self._wire.ended:
            for line in self._wire.receive(self._timeout()):
                self._receive(line)
            now = time.monotonic()
            for live in self._live.values():
                if live.turn is not None:
                    live.turn.step(now)
            self._wire.flush()
        for live in self._live.values():
            if live.turn is not None:
                live.turn.cancel()
        self._wire.flush()

    def _timeout(self) -> float | None:
        dues = [live.turn.due for live in self._live.values() if live.turn is not None and live.turn.due is not None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    # The client, for turns ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._wire.write(data)

    def flush(self) -> None:
        self._wire.flush()

    def update(self, session_id: str, update: dict[str, Any]) -> None:
        self._notify("session/update", {"sessionId": session_id, "update": update})

    def request(self, method: str, params: dict[str, Any], turn: Turn) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        self._questions[number] = turn
        self._send({"id": number, "method": method, "params": params})
        return number

    def withdraw(self, number: int) -> None:
        if self._questions.pop(number, None) is not None:
            self._notify("$/cancel_request", {"requestId": number})

    def reply(self, request_id: Any, result: dict[str, Any]) -> None:
        self._send({"id": request_id, "result": result})

    def fail(self, request_id: Any, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self._send({"id": request_id, "error": error})

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        self._wire.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    # Received messages ----------------------------------------------------------------------------------------

    def _receive(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            self.fail(None, PARSE_ERROR, f"Parse error: {error}")
            return
        if not isinstance(message, dict):
            self.fail(None, INVALID_REQUEST, "Invalid request: a message is a JSON object")
            return
        method, params = message.get("method"), message.get("params") or {}
        if not isinstance(method, str):
            self._receive_reply(message)
        elif "id" not in message:
            self._receive_notification(method, params if isinstance(params, dict) else {})
        else:
            self._receive_request(message["id"], method, params)

    def _receive_reply(self, message: dict[str, Any]) -> None:
        number, result = message.get("id"), message.get("result")
        # A reply to an unknown request is a late answer to a withdrawn question. Ignore it.
        turn = self._questions.pop(number, None) if isinstance(number, int) else None
        if turn is not None:
            turn.answer(result if isinstance(result, dict) else None)

    def _receive_notification(self, method: str, params: dict[str, Any]) -> None:
        for live in self._live.values():
            if live.turn is None:
                continue
            cancelled = method == "session/cancel" and params.get("sessionId") == live.session.session_id
            request_cancelled = method == "$/cancel_request" and params.get("requestId") == live.turn.request_id
            if cancelled or request_cancelled:
                live.turn.cancel()

    def _receive_request(self, request_id: Any, method: str, params: Any) -> None:
        try:
            if not isinstance(params, dict):
                raise Failure(INVALID_PARAMS, "Invalid params: not an object")
            if method != "session/prompt" and method not in self._methods:
                raise Failure(METHOD_NOT_FOUND, f'"Method not found": {method}', {"method": method})
            if not self._initialized and method != "initialize":
                raise Failure(INVALID_REQUEST, "Not initialized: send initialize first")
            if method == "session/prompt":
                self._prompt(request_id, params)
            else:
                result = self._methods[method](params)
                self.reply(request_id, result)
                if method in ("session/new", "session/load"):
                    self._offer_commands(str(result.get("sessionId") or params.get("sessionId")))
        except Failure as failure:
            self.fail(request_id, failure.code, failure.message, failure.data)
        except OSError as error:
            self.fail(request_id, INTERNAL_ERROR, f"Internal error: {error}")

    def _offer_commands(self, session_id: str) -> None:
        offered = [{"name": name, "description": text, "input": {"hint": hint}} for name, text, hint in COMMANDS]
        self.update(session_id, {"sessionUpdate": "available_commands_update", "availableCommands": offered})

    # Methods --------------------------------------------------------------------------------------------------

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        capabilities = params.get("clientCapabilities")
        elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
        self.can_ask = isinstance(elicitation, dict) and isinstance(elicitation.get("form"), dict)
        self._initialized = True
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"close": {}, "list": {}},
            },
            "agentInfo": {"name": "perdure-rehearsal", "title": "Rehearsal agent", "version": __version__},
            "authMethods": [],
        }

    def _new(self, params: dict[str, Any]) -> dict[str, Any]:
        workdir = _workdir(params)
        live = Live(self._memory.create(workdir), workdir)
        self._live[live.session.session_id] = live
        return {"sessionId": live.session.session_id, **live.describe()}

    def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id, workdir = str(params.get("sessionId")), _workdir(params)
        if session_id in self._live and self._live[session_id].busy:
            raise Failure(INVALID_REQUEST, "A turn is running in this session")
        session = self._memory.open(session_id)
        if session is None:
            raise Failure(NOT_FOUND, f"Resource not found: session {session_id}", {"sessionId": session_id})
        if session.take_rejection():
            raise Failure(INTERNAL_ERROR, f"Session {session_id} can't be loaded: reject-resume was requested")
        live = Live(session, workdir)
        self._live[session_id] = live
        for role, text in session.history():
            kind = "user_message_chunk" if role == "user" else "agent_message_chunk"
            self.update(session_id, {"sessionUpdate": kind, "content": {"type": "text", "text": text}})
        return live.describe()

    def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        workdir = params.get("cwd")
        found = self._memory.newest(workdir if isinstance(workdir, str) else None)
        return {
            "sessions": [
                {"sessionId": one.session_id, "cwd": one.workdir, "title": one.title, "updatedAt": one.updated_at}
                for one in found
            ]
        }

    def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        live = self._named(params)
        if live.turn is not None:
            live.turn.cancel()
        del self._live[live.session.session_id]
        return {}

    def _set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        live = self._named(params)
        self._choose(live, "mode", params.get("modeId"))
        options = live.config_options()
        self.update(live.session.session_id, {"sessionUpdate": "config_option_update", "configOptions": options})
        return {}

    def _set_config_option(self, params: dict[str, Any]) -> dict[str, Any]:
        live = self._named(params)
        config_id = params.get("configId")
        self._choose(live, config_id, params.get("value"))
        if config_id == "mode":
            mode = {"sessionUpdate": "current_mode_update", "currentModeId": live.config["mode"]}
            self.update(live.session.session_id, mode)
        return {"configOptions": live.config_options()}

    def _prompt(self, request_id: Any, params: dict[str, Any]) -> None:
        live = self._named(params)
        text = _input_text(params.get("prompt"))
        if live.busy:
            raise Failure(INVALID_REQUEST, "A turn is already running in this session")
        if live.session.too_long(text):
            raise Failure(INTERNAL_ERROR, "prompt is too long: context window exceeded", {"code": "context_overflow"})
        live.session.hear(text)
        scene = Scene(live.workdir, live.session.recall, live.session.recite, live.config["model"], live.config["mode"])
        performance = perform_input(text, scene)
        live.turn = Turn(self, request_id, live.session, performance, live.config, live.rules)

    def _named(self, params: dict[str, Any]) -> Live:
        session_id = str(params.get("sessionId"))
        if session_id not in self._live:
            raise Failure(NOT_FOUND, f"Resource not found: session {session_id} is not open", {"sessionId": session_id})
        return self._live[session_id]

    @staticmethod
    def _choose(live: Live, config_id: Any, value: Any) -> None:
        choices = _CHOICES.get(config_id, ()) if isinstance(config_id, str) else ()
        if value == UNAVAILABLE or value not in [choice[0] for choice in choices]:
            raise Failure(INVALID_PARAMS, f"Invalid params: {config_id} has no value {value}")
        live.config[config_id] = value


def _workdir(params: dict[str, Any]) -> str:
    workdir = params.get("cwd")
    if not isinstance(workdir, str) or not os.path.isabs(workdir) or not os.path.isdir(workdir):
        raise Failure(INVALID_PARAMS, "Invalid params: cwd must be the absolute path of a directory that exists")
    return workdir


def _input_text(blocks: Any) -> str:
    """The text of an input. Blocks of other types are accepted and ignored, because they contain no verbs."""
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise Failure(INVALID_PARAMS, "Invalid params: prompt must be a list of one or more content blocks")
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
