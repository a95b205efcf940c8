"""One launch of an ACP agent: dispatches orders and lines to the parts of the protocol.

Above: the runner. Below: handshake, turns, asking, choosing. It never raises, whatever the agent sends: unreadable
messages are counted, and reported once.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.core.events import AssistantText, AssistantThinking, Title
from perdure.drivers import jsonrpc
from perdure.drivers.acp import state as memory
from perdure.drivers.acp.asking import Asking
from perdure.drivers.acp.choosing import METHODS, Choosing
from perdure.drivers.acp.handshake import SETTLE_METHOD, Handshake
from perdure.drivers.acp.outbox import Outbox
from perdure.drivers.acp.state import State
from perdure.drivers.acp.turns import THOUGHT, Chunk, Turns
from perdure.drivers.base import (
    CancelTurn,
    CloseSession,
    Order,
    SendAnswer,
    SendConfig,
    SendInput,
    StartSession,
    Step,
)
from perdure.drivers.outbox import RAW_MAX_CHARS, TOO_MUCH

EARLY_UPDATES_MAX_BYTES = 1024 * 1024

_CHUNKS = ("agent_message_chunk", THOUGHT)
_CONTENT = (*_CHUNKS, "user_message_chunk", "tool_call", "tool_call_update", "plan")
"""Updates that belong to a turn. Without an input in flight they are a replay, or late output of an earlier turn."""


class _Update(Struct, rename="camel"):
    session_id: str
    update: Chunk


class _Text(Struct):
    text: str


class _Said(Struct, rename={"kind": "sessionUpdate", "message_id": "messageId", "meta": "_meta"}):
    kind: Literal["agent_message_chunk", "agent_thought_chunk"]
    content: _Text
    message_id: str | int | None = None
    meta: Raw | UnsetType = UNSET


class _SaidTo(Struct, rename="camel"):
    session_id: str
    update: _Said


class _Plain(Struct):
    """The most common line: a piece of text, decoded in one pass."""

    method: Literal["session/update"]
    params: _SaidTo
    id: Raw | UnsetType = UNSET


PLAIN_MAX_BYTES = 4096

_update: msgspec.json.Decoder[_Update] = msgspec.json.Decoder(_Update)
_plain: msgspec.json.Decoder[_Plain] = msgspec.json.Decoder(_Plain)


class AcpConversation:
    def __init__(self, state: State) -> None:
        self._state = state
        self._dumped: bytes | None = None
        """Cached dump, cleared by anything that may change it. Most lines continue a text and change nothing."""
        self._out = Outbox(state)
        self._asking = Asking(state, self._out)
        self._choosing = Choosing(state, self._out)
        self._turns = Turns(state, self._out, self._asking)
        self._handshake = Handshake(state, self._out, self._turns)

    def dump(self) -> bytes:
        if self._dumped is None:
            self._dumped = memory.dump(self._state)
        return self._dumped

    @property
    def joinable(self) -> bool:
        return self._state.shared and self._state.phase not in ("unborn", "initializing")

    @property
    def member(self) -> int:
        return self._state.member

    @property
    def native_session_id(self) -> str | None:
        return self._state.session_id

    @property
    def taken(self) -> Collection[str]:
        return self._handshake.taken

    @taken.setter
    def taken(self, value: Collection[str]) -> None:
        self._handshake.taken = value

    @property
    def speaks(self) -> bool:
        return self._state.speaks

    @speaks.setter
    def speaks(self, value: bool) -> None:
        self._state.speaks, self._dumped = value, None

    @property
    def input_bytes(self) -> int | None:
        running = self._state.running
        return running.input_bytes if running is not None else None

    @property
    def unanswered(self) -> int | None:
        return None  # ACP agents need not send anything before the model's first output

    def perform(self, order: Order) -> Step:
        self._dumped = None
        match order:
            case StartSession():
                self._handshake.start(order)
            case SendInput():
                self._state.held.append(order)
                self._turns.send_next()
            case CancelTurn():
                self._turns.cancel(order.turn)
            case SendAnswer():
                if self._asking.answer(order) and order.answer.get("interrupt") is True:
                    self._turns.interrupt()
            case SendConfig():
                self._choosing.set(order.config_id, order.value)
            case CloseSession():
                self._turns.interrupt()
                self._handshake.close()
        return self._out.step()

    def receive(self, lines: Sequence[bytes]) -> Step:
        for line in lines:
            if (piece := self._plain_piece(line)) is not None:
                running, thinking, text = self._state.running, piece.kind == THOUGHT, piece.content.text
                assert running is not None
                if self._turns.go_on(running, piece.kind, piece.message_id, text):
                    self._dumped = None
                if len(lines) == 1:
                    # The common case: there is nothing to join.
                    kind = AssistantThinking if thinking else AssistantText
                    return Step([kind(turn=running.turn, block=running.block, delta=text)], [])
                self._out.say(thinking, running.turn, running.block, text)
                continue
            self._dumped = None
            frame = jsonrpc.decode(line)
            if frame is None:
                if line.strip() and self._state.speaks:
                    self._out.strange("line", _raw(line), "not a JSON-RPC message")
            elif frame.method is None:
                self._replied(frame)
            elif frame.id is not UNSET:
                self._requested(frame.id, frame.method, frame.params, line)
            elif frame.method == "session/update":
                self._updated(frame.params)
            elif frame.method == "$/cancel_request":
                self._asking.withdrawn(jsonrpc.value(frame.params))
            elif self._state.speaks:
                self._out.strange(f"notification {frame.method}", _raw(line), "an unknown notification", quiet=True)
        return self._out.step()

    def _plain_piece(self, line: bytes) -> _Said | None:
        """Fast path: decode a line that is only a piece of text for the running turn. Returns None for all others."""
        state = self._state
        if state.running is None or state.phase != "open" or len(line) > PLAIN_MAX_BYTES:
            return None
        try:
            plain = _plain.decode(line)
        except (ValueError, RecursionError):
            return None
        update = plain.params.update
        if plain.params.session_id != state.session_id or plain.id is not UNSET or update.meta is not UNSET:
            return None
        return update if update.content.text else None

    def _replied(self, frame: jsonrpc.Frame) -> None:
        sent = self._state.sent.pop(frame.id, None) if isinstance(frame.id, int) else None
        if sent is None:
            self._out.count("late reply")
            return
        failure = jsonrpc.failure(frame)
        found = jsonrpc.value(frame.result) if failure is None else None
        result: dict[str, Any] = found if isinstance(found, dict) else {}
        if sent.method == "session/prompt":
            self._turns.replied(result, failure)
        elif sent.method in METHODS:
            self._choosing.replied(sent, result, failure)
        elif sent.method == "initialize":
            self._handshake.initialized(result, failure)
        elif sent.method == SETTLE_METHOD:
            self._handshake.settled()
            self._begin()
        elif sent.method in ("session/new", "session/load", "session/resume"):
            if sent.method == "session/new":
                self._handshake.opened_new(result, failure)
            else:
                self._handshake.opened_again(sent.method, result, failure)
            self._begin()

    def _begin(self) -> None:
        """Once the session is open, process early updates, then request settings, then send the input."""
        state = self._state
        if state.phase != "open":
            return
        early, state.early, state.early_bytes = state.early, [], 0
        for params in early:
            self._updated(params)
        self._choosing.set_wanted()
        self._turns.send_next()

    def _requested(self, id: jsonrpc.Id, method: str, params: Raw, line: bytes) -> None:
        found = jsonrpc.value(params)
        given: dict[str, Any] = found if isinstance(found, dict) else {}
        whose = given.get("sessionId")
        if self._state.shared and (whose != self._state.session_id if whose is not None else not self._state.speaks):
            return
        if found is None and memoryview(params).nbytes > len(b"null"):
            self._out.strange("size", _raw(line), TOO_MUCH)
            self._out.write(jsonrpc.error(id, jsonrpc.INVALID_PARAMS, f"The params have {TOO_MUCH}."))
        elif method == "session/request_permission":
            self._asking.permission(id, given)
        elif method == "elicitation/create":
            self._asking.question(id, given)
        else:
            self._out.strange(f"request {method}", _raw(line), "an unknown request", quiet=True)
            self._out.write(jsonrpc.error(id, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}"))

    def _updated(self, params: bytes | Raw) -> None:
        state = self._state
        head = jsonrpc.read(params, _update)
        if head is None:
            if not state.speaks:
                return
            self._out.strange("update", _raw(params), "an incomplete update")
            return
        kind = head.update.kind
        if state.phase == "opening":
            if kind in _CONTENT and state.order is not None:
                state.replayed = state.replayed or head.session_id == state.order.native_session_id
            self._came_early(kind, bytes(params))
        elif head.session_id != state.session_id and state.shared:
            pass
        elif head.session_id != state.session_id:
            self._out.strange("session", _raw(params), "an update for a session that is not open")
        elif kind in _CHUNKS:
            self._turns.said(head.update)
        else:
            found = jsonrpc.value(params)
            update = found.get("update") if isinstance(found, dict) else None
            if isinstance(update, dict):
                self._noted(kind, update, params)
            else:
                self._out.strange("size", _raw(params), TOO_MUCH)

    def _came_early(self, kind: str, params: bytes) -> None:
        """Store an update that came before the reply with the session id. There is no turn yet, so content can only be
        a replay, and is ignored."""
        state = self._state
        if kind not in _CONTENT and state.early_bytes < EARLY_UPDATES_MAX_BYTES:
            state.early.append(params)
            state.early_bytes += len(params)

    def _noted(self, kind: str, update: dict[str, Any], params: bytes | Raw) -> None:
        match kind:
            case "tool_call" | "tool_call_update":
                self._turns.tool(kind, update)
            case "plan":
                self._turns.planned(update)
            case "usage_update":
                self._turns.used(update)
            case "user_message_chunk":
                # vibe echoes the input.
                pass
            case "session_info_update":
                title, running = update.get("title"), self._state.running
                if isinstance(title, str) and title:
                    self._out.emit(Title(turn=running.turn if running is not None else None, title=title, by="agent"))
            case "config_option_update":
                self._choosing.options_updated(update)
            case "current_mode_update":
                self._choosing.mode_updated(update)
            case "available_commands_update":
                self._choosing.commands_updated(update)
            case _:
                self._out.strange(f"update {kind}", _raw(params), "an unknown update")


def _raw(line: bytes | Raw) -> str:
    return bytes(memoryview(line)[:RAW_MAX_CHARS]).decode("utf-8", "replace")
