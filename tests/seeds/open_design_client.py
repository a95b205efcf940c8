"""A client as Open Design's specification describes it: a chat whose turns are runs, with an agent for each, context
restarts, a history that can be changed, and questions that are answered with a tool result.

It knows only Perdure's address and a token. It checks what the specification is about: whether a run was resumed, and
how much was sent for it.
"""

from collections.abc import Iterator
from typing import Any

from tests.seeds.wire import Frame, Json, Wire


class Chat:
    """One conversation of a project."""

    def __init__(self, base: str, token: str, project: str) -> None:
        self._wire = Wire(base, token)
        self._project = project
        self._session: str | None = None
        self._position = ""
        self._runs: dict[int, str] = {}
        """The run of each turn."""

    def send(self, text: str, *, agent: str | None = None, force_fresh_session: bool = False) -> str:
        """Start a run. Returns its id."""
        body: Json = {"text": text, "forceFreshSession": force_fresh_session}
        if agent is not None:
            body["agent"] = agent
        if self._session is None:
            answer = self._wire.ask("POST", "/api/messages", {**body, "project": self._project})
        else:
            answer = self._wire.ask("POST", f"/api/sessions/{self._session}/messages", body)
        assert answer.status == 202, answer
        self._session = answer.body["session_id"]
        return str(answer.body["run_id"])

    def run(self, run_id: str) -> Json:
        answer = self._wire.ask("GET", f"/api/runs/{run_id}")
        assert answer.status == 200, answer
        found: Json = answer.body
        assert isinstance(found["sessionResumed"], bool)
        return found

    def _watch(self) -> Iterator[Frame]:
        """The session's events over one connection, from this client's last position."""
        headers = {"Last-Event-ID": self._position} if self._position else {}
        with self._wire.stream("GET", f"/api/sessions/{self._session}/events", **headers) as events:
            for frame in events:
                self._position = frame.id
                turns = frame.data["session"]["turns"] if frame.event == "snapshot" else [frame.data]
                if frame.event in ("snapshot", "turn_start"):
                    self._runs.update((turn["turn"], turn["run_id"]) for turn in turns)
                yield frame

    def finished(self, run_id: str, *, lose_connection: bool = False) -> Json:
        """Wait for the end of the run, even if the connection is lost meanwhile. Returns the run."""
        while True:
            for frame in self._watch():
                over = frame.event == "turn_end" and self._runs[frame.data["turn"]] == run_id
                if over or (frame.event == "snapshot" and self.run(run_id)["status"] != "running"):
                    return self.run(run_id)
                if lose_connection and frame.event == "assistant_text":
                    lose_connection = False
                    break

    def until_said(self, run_id: str, text: str) -> None:
        """Wait until the run has produced this much text."""
        for _ in self._watch():
            if text in self.said({"run_id": run_id}):
                return

    def ask(self, text: str, **how: Any) -> Json:
        """Run a whole turn. Returns its run."""
        return self.finished(self.send(text, **how))

    def question(self, run_id: str) -> Json:
        """The question (AskUserQuestion) that the run is waiting for."""
        for _ in self._watch():
            if waiting := self.run(run_id)["pending_prompts"]:
                break
        found: Json = waiting[0]
        return found

    def tool_result(self, run_id: str, tool_use_id: str, content: str) -> tuple[int, Json]:
        body = {"toolUseId": tool_use_id, "content": content}
        answer = self._wire.ask("POST", f"/api/runs/{run_id}/tool-result", body)
        return answer.status, answer.body

    def edit(self, turn: int, text: str) -> None:
        """Change the message of a turn."""
        message = self.turns()[turn - 1]["message"]["message_id"]
        path = f"/api/sessions/{self._session}/messages/{message}"
        assert self._wire.ask("PATCH", path, {"text": text}).status == 200

    def retry(self, turn: int) -> Json:
        """Retry from a message: remove its turn and all later turns, and send it again."""
        answer = self._wire.ask("POST", f"/api/sessions/{self._session}/retry", {"turn": turn})
        assert answer.status == 202, answer
        return self.finished(str(answer.body["run_id"]))

    def cancel(self) -> None:
        assert self._wire.ask("POST", f"/api/sessions/{self._session}/abort").status == 202

    def turns(self) -> list[Json]:
        answer = self._wire.ask("GET", f"/api/sessions/{self._session}/transcript")
        found: list[Json] = answer.body["turns"]
        return found

    def said(self, run: Json) -> str:
        parts = next(turn for turn in self.turns() if turn["run_id"] == run["run_id"])["parts"]
        return "".join(part["text"] for part in parts if part["type"] == "text")
