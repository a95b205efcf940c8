"""ACP requests, in addition to what every driver's outbox does.

Above: the parts of the conversation. Below: jsonrpc. Request ids are part of the stored state.
"""

from typing import Any

from perdure.drivers import jsonrpc, outbox
from perdure.drivers.acp.state import Sent, State


class Outbox(outbox.Outbox):
    def __init__(self, state: State) -> None:
        super().__init__(state.strange)
        self._state = state

    def request(self, method: str, params: dict[str, Any], config_id: str = "", value: Any = None) -> bytes:
        """Send a request to the agent. Returns the line, so that callers can count its bytes."""
        state = self._state
        line = jsonrpc.request(state.next_id, method, params)
        state.sent[state.next_id] = Sent(method, config_id, value)
        state.next_id += 1
        self.write(line)
        return line
