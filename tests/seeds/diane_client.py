"""A client as Diane's specification describes it: its Manager's verbs over HTTP, with its types.

Start a session with an agent, prompt it again and again, read the stream of a prompt, cancel, set the model, list and
close. It knows only Perdure's address and a token.
"""

from collections.abc import Generator
from typing import Any

from tests.seeds.wire import Json, Wire

STATUSES = ("active", "idle", "disconnected", "closed")
UPDATES = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan")
NOT_OF_DIANE = ("pending_prompt", "prompt_resolved", "error")


class Failed(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def check_session(session: Json) -> Json:
    """`ACPSession`: its required fields, and the types of its optional fields."""
    for name in ("session_id", "agent_name", "agent_key", "workdir", "created_at", "last_active_at"):
        assert isinstance(session[name], str), name
    assert session["status"] in STATUSES and isinstance(session["turn_count"], int)
    for name in ("model_id", "mode_id", "title", "summary"):
        # omitempty
        assert name not in session or (isinstance(session[name], str) and session[name]), name
    return session


class Manager:
    def __init__(self, base: str, token: str) -> None:
        self._wire = Wire(base, token)

    def start_session(self, agent: str, workdir: str, title: str = "") -> Json:
        body = {"workdir": workdir, "title": title}
        return check_session(self._ask("POST", f"/agents/{agent}/sessions", body, expect=201))

    def prompt_session(self, session: Json, prompt: str) -> Json:
        """A finished run."""
        run: Json = self._ask("POST", f"{self._path(session)}/prompt", {"prompt": prompt})
        assert run["session_id"] == session["session_id"] and run["agent_name"] == session["agent_name"]
        assert run["status"] in ("completed", "failed", "cancelled") and isinstance(run["turn_number"], int)
        for message in run["output"]:
            assert message["role"] == "agent"
            assert all(part["content_type"] == "text/plain" for part in message["parts"])
        assert run["created_at"] and run["finished_at"]
        return run

    def stream_prompt(self, session: Json, prompt: str) -> Generator[tuple[str, Any]]:
        """The updates of a prompt as they arrive; the last one is `done`. Leaving early closes the connection."""
        path = f"{self._path(session)}/prompt?stream=true"
        with self._wire.stream("POST", path, {"prompt": prompt}) as events:
            assert events.status == 200
            for frame in events:
                assert frame.event in (*UPDATES, *NOT_OF_DIANE, "done"), frame
                yield frame.event, frame.data
                if frame.event == "done":
                    assert set(frame.data) == {"run_id", "stop_reason", "turn_number"}
                    return
        raise AssertionError("the stream ended without done")

    def get_session(self, session: Json) -> Json:
        return check_session(self._ask("GET", self._path(session)))

    def list_sessions(self, agent: str | None = None, status: str | None = None) -> list[Json]:
        path = "/sessions" if agent is None else f"/agents/{agent}/sessions"
        found = self._ask("GET", path + (f"?status={status}" if status else ""))
        assert isinstance(found, list)
        return [check_session(session) for session in found]

    def cancel(self, session: Json) -> Json:
        found: Json = self._ask("POST", f"{self._path(session)}/cancel")
        return found

    def set_session_config(self, session: Json, config_id: str, value: str) -> Json:
        answer: Json = self._ask("POST", f"{self._path(session)}/config", {"config_id": config_id, "value": value})
        assert answer["status"] == "ok" and isinstance(answer["config_options"], list)
        return answer

    def close_session(self, session: Json) -> None:
        assert self._ask("DELETE", self._path(session)) == {"status": "closed"}

    @staticmethod
    def _path(session: Json) -> str:
        return f"/agents/{session['agent_name']}/sessions/{session['session_id']}"

    def _ask(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        answer = self._wire.ask(method, path, body)
        if answer.status >= 400:
            raise Failed(answer.status, answer.body["error"])
        assert answer.status == expect, answer
        return answer.body


def text_of(run: Json) -> str:
    return "".join(part["content"] for message in run["output"] for part in message["parts"])
