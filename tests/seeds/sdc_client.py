"""A client as the specification of server-driven chat (SDC) describes it: one input, one view, and a server that works
whether or not a client is connected.

Its rules: `send` continues a session or creates one; a view starts with a snapshot and continues live; after a
reconnect it starts with a snapshot again, never with a replay; prompts are answered over REST; the stop button aborts.
It knows only Perdure's address and a token.
"""

from collections.abc import Iterator
from typing import Any

from tests.seeds.wire import Events, Frame, Json, Wire


class Viewport:
    """What a user sees of a session: the text so far, the tools and their status, and open prompts."""

    def __init__(self, events: Events) -> None:
        assert events.status == 200
        self._events = events
        self._frames: Iterator[Frame] = iter(events)
        first = next(self._frames)
        assert first.event == "snapshot", "a snapshot comes first"
        self.session_id = ""
        self.text = ""
        self.tools: dict[str, str] = {}
        self.prompts: dict[str, Json] = {}
        self.processing = False
        self.result: str | None = None
        self._render(first.data)

    def _render(self, snapshot: Json) -> None:
        """Take the whole state from the snapshot; nothing is replayed."""
        self.session_id = snapshot["session_id"]
        self.text = snapshot["text"]
        self.tools = {tool["tool_id"]: tool["status"] for tool in snapshot["tools"]}
        self.prompts = {prompt["prompt_id"]: prompt for prompt in snapshot["pending_prompts"]}
        self.processing = snapshot["session"]["state"] == "processing"
        turns = snapshot["session"]["turns"]
        self.result = None if self.processing or not turns else turns[-1]["stop_reason"]

    def step(self) -> str:
        """The next live event."""
        frame = next(self._frames)
        data = frame.data
        match frame.event:
            case "snapshot":
                self._render(data)
            case "turn_start":
                self.text, self.tools, self.processing, self.result = "", {}, True, None
            case "assistant_text":
                self.text += data["delta"]
            case "tool_use":
                self.tools[data["tool_id"]] = "pending"
            case "tool_update" | "tool_result":
                self.tools[data["tool_id"]] = data["status"]
            case "pending_prompt":
                self.prompts[data["prompt_id"]] = data
            case "prompt_resolved":
                self.prompts.pop(data["prompt_id"], None)
            case "turn_end":
                self.processing, self.result = False, data["stop_reason"]
        return frame.event

    def until(self, event: str) -> None:
        while self.step() != event:
            pass

    def until_ended(self) -> None:
        """Read until the server closes the stream at the end of the session."""
        for frame in self._frames:
            if frame.event == "prompt_resolved":
                self.prompts.pop(frame.data["prompt_id"], None)

    def disconnect(self) -> None:
        self._events.close()


class Discussion:
    def __init__(self, base: str, token: str) -> None:
        self._wire = Wire(base, token)
        self.session_id: str | None = None

    def send(self, text: str, session_id: str | None = None) -> tuple[int, Json]:
        """The only entry point: continues a session, or without an id starts one."""
        body: Json = {"text": text}
        if session_id is not None:
            body["session_id"] = session_id
        answer = self._wire.ask("POST", "/api/messages", body)
        if answer.status == 202:
            self.session_id = answer.body["session_id"]
        return answer.status, answer.body

    def view(self, session_id: str | None = None) -> Viewport:
        return Viewport(self._wire.stream("GET", f"/api/sessions/{session_id or self.session_id}/events"))

    def abort(self) -> int:
        return self._wire.ask("POST", f"/api/sessions/{self.session_id}/abort").status

    def answer(self, prompt_id: str, answer: Json) -> tuple[int, Any]:
        found = self._wire.ask("POST", f"/api/sessions/{self.session_id}/prompts/{prompt_id}", answer)
        return found.status, found.body

    def session(self, session_id: str) -> Json:
        found: Json = self._wire.ask("GET", f"/api/sessions/{session_id}").body
        return found

    def active_sessions(self) -> list[str]:
        answer = self._wire.ask("GET", "/api/sessions?status=running")
        return [session["id"] for session in answer.body["sessions"]]

    def history(self, session_id: str) -> list[str]:
        """The stored answer of each turn."""
        turns = self._wire.ask("GET", f"/api/sessions/{session_id}/transcript").body["turns"]
        return ["".join(part["text"] for part in turn["parts"] if part["type"] == "text") for turn in turns]
