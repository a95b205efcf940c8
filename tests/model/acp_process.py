"""A real ACP agent as a child of a test, which allows or denies its requests.

Above: test_acp_agents.py. Below: line_process.py.
"""

from pathlib import Path

from tests.conftest import RealAgent
from tests.model.line_process import Event, LineProcess

START_S = 90.0


class AcpProcess(LineProcess):
    def __init__(self, agent: RealAgent, env: dict[str, str], workdir: Path) -> None:
        super().__init__(agent.argv, {**env, **agent.env}, workdir)
        self._workdir = workdir
        self._last_id = 0
        self.allows = True
        self.asked: list[Event] = []
        self.session = ""

    def open(self) -> None:
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        self.session = self.call("session/new", {"cwd": str(self._workdir), "mcpServers": []})["sessionId"]

    def call(self, method: str, params: Event) -> Event:
        """The result. Answers permission requests meanwhile."""
        self._last_id += 1
        self.write({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        while True:
            message = self.until(self._for_us, START_S)
            if "method" not in message:
                assert "result" in message, message
                result: Event = message["result"]
                return result
            self._decide(message)

    def say(self, text: str) -> str:
        """The whole answer to a prompt."""
        begin = len(self.events)
        prompt = [{"type": "text", "text": text}]
        ended = self.call("session/prompt", {"sessionId": self.session, "prompt": prompt})
        assert ended["stopReason"] == "end_turn", ended
        updates = [
            event["params"]["update"] for event in self.events[begin:] if event.get("method") == "session/update"
        ]
        return "".join(
            update["content"]["text"] for update in updates if update["sessionUpdate"] == "agent_message_chunk"
        )

    def _for_us(self, message: Event) -> bool:
        asked = "method" in message and "id" in message
        return asked or ("method" not in message and message.get("id") == self._last_id)

    def _decide(self, request: Event) -> None:
        self.asked.append(request)
        if request["method"] != "session/request_permission":
            error = {"code": -32601, "message": "not supported"}
            self.write({"jsonrpc": "2.0", "id": request["id"], "error": error})
            return
        wanted = "allow_once" if self.allows else "reject_once"
        option = next(one["optionId"] for one in request["params"]["options"] if one["kind"] == wanted)
        outcome = {"outcome": "selected", "optionId": option}
        self.write({"jsonrpc": "2.0", "id": request["id"], "result": {"outcome": outcome}})
