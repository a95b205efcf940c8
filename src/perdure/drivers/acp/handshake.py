"""From a new process to an open session: initialize, then open a new session or resume one.

Above: the conversation. Below: settings.py, turns.py, the outbox. It checks what the reply says, and assumes neither
the protocol version nor that the opened session is the requested one.
"""

from collections.abc import Collection
from typing import Any

from perdure import __version__
from perdure.core.events import System
from perdure.drivers import jsonrpc
from perdure.drivers.acp import settings
from perdure.drivers.acp.outbox import Outbox
from perdure.drivers.acp.state import State
from perdure.drivers.acp.turns import Turns
from perdure.drivers.base import ResumeRefused, SessionOpened, StartFailed, StartSession

PROTOCOL_VERSION = 1
SETTLE_METHOD = "_perdure/settled"

_CLIENT = {
    "protocolVersion": PROTOCOL_VERSION,
    "clientCapabilities": {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "elicitation": {"form": {}},
        # Makes claude-agent-acp also send the output of sub-agents.
        "_meta": {"subagent-transcript": True},
    },
    "clientInfo": {"name": "perdure", "title": "Perdure", "version": __version__},
}

_TAKEN = (
    "The agent gave this session the id {}, which another session in the same process already has, so their output"
    " could not be told apart. Set shared = false for this agent in perdure.toml"
)


class Handshake:
    def __init__(self, state: State, out: Outbox, turns: Turns) -> None:
        self._state = state
        self._out = out
        self._turns = turns
        self.taken: Collection[str] = ()
        """The native sessions of the other conversations in the process. Not stored: the runner sets them."""

    def start(self, order: StartSession) -> None:
        state = self._state
        self._turns.finish("failed", "session_replaced", "another session was opened while this turn ran")
        state.order, state.session_id = order, None
        if state.phase == "ready":
            # Held input was meant for a session that was refused. It is ordered again for this one.
            state.held.clear()
        state.shared = state.shared or order.options.get("shared") is True
        state.sent = {id: sent for id, sent in state.sent.items() if sent.method == "initialize"}
        state.wanted = [(key, value) for key, value in (("mode", order.mode), ("model", order.model)) if value]
        state.wanted += list(order.config.items())
        if state.phase == "unborn":
            state.phase = "initializing"
            self._out.request("initialize", _CLIENT)
        elif state.phase != "initializing":
            self._open(order)

    def initialized(self, result: dict[str, Any], failure: jsonrpc.Failure | None) -> None:
        state, version = self._state, result.get("protocolVersion")
        methods = result.get("authMethods")
        state.auth_methods = [
            str(method.get("name") or method.get("id"))
            for method in (methods if isinstance(methods, list) else [])
            if isinstance(method, dict)
        ]
        if failure is not None:
            # Two first starts of codex at the same time both create its database, and one of them fails.
            self._fail(failure, "initialize_refused", passing=True)
        elif version is True or version != PROTOCOL_VERSION:
            self._fail_with("protocol", f"the agent speaks ACP version {version!r}; this server supports version 1")
        else:
            capabilities = result.get("agentCapabilities")
            state.capabilities = {**(capabilities if isinstance(capabilities, dict) else {}), **_version(result)}
            state.agent_name = _info(result, "name")
            state.capabilities["can_resume"] = (
                self._advertises("resume") or state.capabilities.get("loadSession") is True
            )
            state.phase = "ready"
            if state.order is not None:
                self._open(state.order)

    def opened_new(self, result: dict[str, Any], failure: jsonrpc.Failure | None) -> None:
        session_id = result.get("sessionId")
        if failure is not None:
            self._fail(failure, "session_refused")
        elif not isinstance(session_id, str) or not session_id:
            self._fail_with("protocol", "the agent opened a session without an id")
        elif session_id in self.taken:
            # Report it as opened, so that neither session is ever resumed: its content is unreliable now.
            self._out.emit(SessionOpened(session_id, resumed=False, capabilities=self._state.capabilities))
            self._fail_with("native_session_shared", _TAKEN.format(session_id))
        else:
            self._opened(session_id, result, resumed=False)

    def opened_again(self, method: str, result: dict[str, Any], failure: jsonrpc.Failure | None) -> None:
        state = self._state
        native = state.order.native_session_id if state.order is not None else None
        if failure is not None and failure.code == jsonrpc.NEEDS_LOGIN:
            self._fail(failure, "needs_login")
        elif failure is not None:
            self._refuse(failure.sentence)
        elif native in self.taken:
            self._refuse("another session has it open in the same process")
        elif native is None or _session_in(result, native) != native:
            # hermes opens a new session if it has lost the one to resume.
            self._refuse("the agent opened a different session")
        elif method == "session/load":
            # After a load, gemini continues its replay beyond the reply, and reads its next request only when that is
            # done. So send a request without meaning: its answer marks the end of the replay, which must not become
            # part of the new turn. Until then the session is not open, so the timeout for opening also covers this
            # wait.
            state.loaded, state.session_id = result, native
            self._out.request(SETTLE_METHOD, {})
        else:
            self._opened(native, result, resumed=True)

    def settled(self) -> None:
        """Handle the end of the replay after a load. An agent that accepts any id has replayed nothing."""
        state = self._state
        if state.phase != "opening":
            return
        loaded, state.loaded = state.loaded, {}
        if state.replayed and state.order is not None and state.order.native_session_id is not None:
            self._opened(state.order.native_session_id, loaded, resumed=True)
        else:
            self._refuse("the agent opened the session but has no history of it")

    def close(self) -> None:
        session_id = self._state.session_id
        if session_id is not None and self._advertises("close"):
            self._out.request("session/close", {"sessionId": session_id})

    def _open(self, order: StartSession) -> None:
        state = self._state
        state.early, state.early_bytes, state.loaded, state.replayed = [], 0, {}, False
        params: dict[str, Any] = {"cwd": order.workdir, "mcpServers": self._mcp_servers(order)}
        if order.native_session_id is None:
            method = "session/new"
        else:
            params["sessionId"] = order.native_session_id
            if self._advertises("resume"):
                method = "session/resume"
            elif state.capabilities.get("loadSession") is True:
                method = "session/load"
            else:
                self._refuse("the agent can't reopen its sessions")
                return
        state.phase = "opening"
        self._out.request(method, params)

    def _mcp_servers(self, order: StartSession) -> list[dict[str, Any]]:
        """Return the MCP servers that the agent can use: programs always, URLs if it supports the transport."""
        speaks = self._state.capabilities.get("mcpCapabilities")
        found: list[dict[str, Any]] = []
        for name, server in order.options.get("mcp_servers", {}).items():
            if "url" not in server:
                program, *arguments = server["command"]
                env = _pairs(server.get("env", {}))
                found.append({"name": name, "command": program, "args": arguments, "env": env})
                continue
            transport = server.get("transport", "http")
            if isinstance(speaks, dict) and speaks.get(transport) is True:
                headers = _pairs(server.get("headers", {}))
                found.append({"type": transport, "name": name, "url": server["url"], "headers": headers})
            else:
                message = f"The MCP server {name} was left out: this agent does not support {transport}."
                self._out.emit(System(code="mcp_server_left_out", message=message))
        return found

    def _opened(self, session_id: str, result: dict[str, Any], resumed: bool) -> None:
        state = self._state
        state.phase, state.session_id = "open", session_id
        state.cost_usd = None if resumed else 0.0
        state.settings = settings.read_settings(result)
        self._out.emit(
            SessionOpened(
                native_session_id=session_id,
                resumed=resumed,
                models=settings.models_in(result),
                modes=settings.modes_in(result),
                config_options=settings.options_in(result) or None,
                capabilities=state.capabilities,
            )
        )

    def _refuse(self, reason: str) -> None:
        self._state.phase, self._state.session_id = "ready", None
        self._state.held.clear()
        self._out.emit(ResumeRefused(reason))

    def _fail(self, failure: jsonrpc.Failure, code: str, passing: bool = False) -> None:
        message = failure.sentence
        if failure.code == jsonrpc.NEEDS_LOGIN:
            code, passing = "needs_login", False
            ways = ", ".join(self._state.auth_methods)
            message = (
                f"{message}. Log in with the agent's own program first{f' (login methods: {ways})' if ways else ''}"
            )
        self._fail_with(code, message, passing, failure.raw or None)

    def _fail_with(self, code: str, message: str, passing: bool = False, detail: str | None = None) -> None:
        # An initialized process can open another session; otherwise start again with initialize.
        self._state.phase = "ready" if self._state.phase == "opening" else "unborn"
        self._state.held.clear()
        self._out.emit(StartFailed(code, message, passing, detail))

    def _advertises(self, capability: str) -> bool:
        session = self._state.capabilities.get("sessionCapabilities")
        return isinstance(session, dict) and session.get(capability) not in (None, False)


def _pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _version(result: dict[str, Any]) -> dict[str, str]:
    version = _info(result, "version")
    return {"version": version} if version else {}


def _info(result: dict[str, Any], key: str) -> str:
    """Return a field of the agent's self-description, or ""."""
    info = result.get("agentInfo")
    value = info.get(key) if isinstance(info, dict) else None
    return value if isinstance(value, str) else ""


def _session_in(result: dict[str, Any], asked: str) -> str:
    """Return the session that a load or resume reports to have opened. Most agents don't report it."""
    named = result.get("sessionId")
    if isinstance(named, str):
        return named
    meta = result.get("_meta")
    for part in meta.values() if isinstance(meta, dict) else ():
        origin = part.get("sessionProvenance") if isinstance(part, dict) else None
        if isinstance(origin, dict) and isinstance(origin.get("acpSessionId"), str):
            return str(origin["acpSessionId"])
    return asked
