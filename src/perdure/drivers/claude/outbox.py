"""Requests and answers of the control protocol, in addition to what every driver's outbox does.

Above: the parts of the conversation. Below: wire.py. Request ids are part of the stored state.
"""

from typing import Any

from perdure.core.events import System
from perdure.drivers import outbox
from perdure.drivers.claude import wire
from perdure.drivers.claude.state import Sent, State


class Outbox(outbox.Outbox):
    def __init__(self, state: State) -> None:
        super().__init__(state.strange)
        self._state = state

    def tell(self, code: str, message: str) -> None:
        """Show people something that is not part of the answer."""
        running = self._state.running
        self.emit(System(turn=running.turn if running is not None else None, code=code, message=message))

    def request(self, subtype: str, config_id: str = "", value: Any = None, **fields: Any) -> None:
        """Send a control request to the agent."""
        state = self._state
        request_id = f"{state.launch_id}-r{state.next_id}"
        state.next_id += 1
        state.sent[request_id] = Sent(subtype, config_id, value)
        request = {"subtype": subtype, **fields}
        self.write(wire.line({"type": "control_request", "request_id": request_id, "request": request}))

    def respond(self, request_id: str, response: dict[str, Any]) -> None:
        body = {"subtype": "success", "request_id": request_id, "response": response}
        self.write(wire.line({"type": "control_response", "response": body}))

    def refuse(self, request_id: str, error: str) -> None:
        body = {"subtype": "error", "request_id": request_id, "error": error}
        self.write(wire.line({"type": "control_response", "response": body}))
