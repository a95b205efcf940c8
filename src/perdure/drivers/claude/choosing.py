"""Model and mode: requesting them, and handling confirmations, refusals and changes by the agent.

Above: the conversation and the handshake. Below: launching.py (the list of modes) and the outbox. The agent accepts any
model and mode, even ones that don't exist, so values are checked here.
"""

from typing import Any

from perdure.core.events import Config
from perdure.drivers.claude import launching, wire
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.state import Sent, State

REQUESTS = ("set_model", "set_permission_mode")


class Choosing:
    def __init__(self, state: State, out: Outbox) -> None:
        self._state = state
        self._out = out

    def set(self, config_id: str, value: Any) -> None:
        """Request a value. Before the session is open, keep the request for later."""
        state = self._state
        if state.phase != "open":
            state.wanted.append((config_id, value))
        elif config_id == "model" and self._is_model(value):
            self._out.request("set_model", config_id, value, model=value)
        elif config_id == "mode" and isinstance(value, str) and value in launching.modes(state.order):
            self._out.request("set_permission_mode", config_id, value, mode=value)
        elif config_id == "mode" and value == launching.SKIPS:
            self._refuse(config_id, value, "skipping permissions must be enabled in the project's settings")
        elif config_id in ("model", "mode"):
            self._refuse(config_id, value, "the agent doesn't know this value")
        else:
            self._refuse(config_id, value, "the agent has no such setting")

    def set_wanted(self) -> None:
        """Request the stored settings. The session is open now."""
        state = self._state
        wanted, state.wanted = state.wanted, []
        order = state.order
        if order is not None and order.mode is not None and order.mode not in launching.modes(order):
            self._refuse("mode", order.mode, "the agent doesn't know this value")
        if order is not None and order.model is not None and not launching.is_value(order.model):
            self._refuse("model", order.model, "the agent doesn't know this value")
        for config_id, value in wanted:
            self.set(config_id, value)

    def replied(self, sent: Sent, response: dict[str, Any], error: str | None) -> None:
        if error is not None:
            self._refuse(sent.config_id, sent.value, error)
            return
        if sent.subtype == "set_model":
            self._state.model_set = True
            self._tell("model", sent.value)
        else:
            # Report it even if the mode is unchanged, because a client waits for the answer.
            self._state.mode = wire.string(response, "mode") or sent.value
            self._tell("mode", self._state.mode)

    def mode_is(self, mode: Any) -> None:
        """Handle a mode that the agent reports, which it does often."""
        if isinstance(mode, str) and mode and mode != self._state.mode:
            self._state.mode = mode
            self._tell("mode", mode)

    def began(self, init: dict[str, Any]) -> None:
        """Handle the first line of a turn, which has the model and mode."""
        state, order = self._state, self._state.order
        self.mode_is(wire.string(init, "permissionMode"))
        model, before, was_set = wire.string(init, "model"), state.model, state.model_set
        if not model or model == before:
            return
        state.model, state.model_set = model, False
        # Report the model even if no one chose it: a session resumed without a model falls back to a smaller one.
        chosen = before is None and order is not None and order.model is not None
        if not chosen and not was_set:
            self._tell("model", model)

    def _is_model(self, value: Any) -> bool:
        known = self._state.models
        return launching.is_value(value) and (not known or value in known or launching.MODEL_PREFIX in value)

    def _tell(self, config_id: str, value: Any, refused: bool = False) -> None:
        running = self._state.running
        turn = running.turn if running is not None else None
        self._out.emit(Config(turn=turn, config_id=config_id, value=value, refused=refused))

    def _refuse(self, config_id: str, value: Any, reason: str) -> None:
        state = self._state
        self._out.tell("config_refused", f"{config_id} was not set to {value!r}: {reason}")
        self._tell(config_id, {"model": state.model, "mode": state.mode}.get(config_id), refused=True)
