"""A client as TeamHQ's own documents describe it: a project page that starts a session, follows its events, sends
messages and stops it. It knows nothing of Perdure but its address and a token.

Its words: `SessionMetadata` and `SessionEvent` with their types, `GET .../events` with replay and `offset`, and the
sentences of refusals.
"""

from typing import Any

from tests.seeds.wire import Events, Frame, Json, Wire

STATUSES = ("running", "completed", "failed", "stopped", "timed-out")
STATES = ("processing", "idle", "ended")
EVENT_TYPES = (
    "assistant_text",
    "tool_use",
    "tool_result",
    "system",
    "error",
    "turn_start",
    "turn_end",
    "waiting_for_input",
    "user_message",
)


def check_metadata(session: Json) -> Json:
    """What `SessionMetadataSchema` says of each field."""

    def is_text(value: Any) -> bool:
        return isinstance(value, str)

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    assert is_text(session["id"]) and is_text(session["projectId"]) and is_text(session["startedAt"])
    assert session["status"] in STATUSES and session["state"] in STATES
    assert is_number(session["eventCount"]) and is_number(session["turnCount"])
    for name in ("endedAt", "error", "conversationId", "cliSessionId"):
        assert session[name] is None or is_text(session[name]), name
    for name in ("durationMs", "exitCode", "pid", "currentTurnPid"):
        assert session[name] is None or is_number(session[name]), name
    for turn in session["turns"]:
        assert set(turn) == {"turnNumber", "startedAt", "endedAt", "exitCode"}
    return session


class TeamHQ:
    def __init__(self, base: str, token: str, project: str) -> None:
        self._wire = Wire(base, token)
        self._path = f"/api/projects/{project}"

    def project(self) -> Json:
        answer = self._wire.ask("GET", self._path)
        assert answer.status == 200, answer
        found: Json = answer.body
        return found

    def start(self) -> Json:
        """The button: no body, the project's kickoff is the first message."""
        answer = self._wire.ask("POST", f"{self._path}/sessions")
        assert answer.status == 201, answer
        return check_metadata(answer.body)

    def refused_start(self) -> tuple[int, str]:
        answer = self._wire.ask("POST", f"{self._path}/sessions")
        return answer.status, answer.body["error"]

    def sessions(self) -> list[Json]:
        answer = self._wire.ask("GET", f"{self._path}/sessions")
        assert answer.status == 200, answer
        return [check_metadata(session) for session in answer.body["sessions"]]

    def session(self, session_id: str) -> Json:
        answer = self._wire.ask("GET", f"{self._path}/sessions/{session_id}")
        assert answer.status == 200, answer
        return check_metadata(answer.body)

    def message(self, session_id: str, text: str) -> tuple[int, Json]:
        answer = self._wire.ask("POST", f"{self._path}/sessions/{session_id}/message", {"message": text})
        return answer.status, answer.body

    def stop(self, session_id: str) -> tuple[int, Json]:
        answer = self._wire.ask("POST", f"{self._path}/sessions/{session_id}/stop")
        return answer.status, answer.body

    def log_of(self, session_id: str) -> "WorkLog":
        return WorkLog(self._wire, f"{self._path}/sessions/{session_id}/events")


class WorkLog:
    """The page's view of a session: every event once, in order, however often the connection is lost."""

    def __init__(self, wire: Wire, path: str) -> None:
        self._wire = wire
        self._path = path
        self._stream: Events | None = None
        self._frames: Any = iter(())
        self.events: list[Json] = []
        self.done: Json | None = None

    def connect(self) -> None:
        """From the first event on that is not here yet: the id of the last one, plus 1."""
        offset = self.events[-1]["id"] + 1 if self.events else 0
        self._stream = self._wire.stream("GET", self._path + (f"?offset={offset}" if offset else ""))
        assert self._stream.status == 200 and self._stream.kind.startswith("text/event-stream")
        self._frames = iter(self._stream)

    def lose_connection(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._frames = None, iter(())

    def take(self, count: int) -> None:
        for _ in range(count):
            self._next()

    def until(self, event_type: str) -> Json:
        """Read on up to the next event of this type."""
        while True:
            event = self._next()
            assert event is not None, f"the session ended before {event_type}"
            if event["type"] == event_type:
                return event

    def until_done(self) -> Json:
        while self._next() is not None:
            pass
        self.lose_connection()
        assert self.done is not None
        return self.done

    def _next(self) -> Json | None:
        if self._stream is None:
            self.connect()
        frame: Frame = next(self._frames)
        if frame.event == "session_done":
            self.done = frame.data
            return None
        assert frame.event == "session_event"
        event: Json = frame.data
        assert set(event) == {"id", "type", "timestamp", "data"} and event["type"] in EVENT_TYPES
        assert isinstance(event["id"], int) and frame.id == str(event["id"])
        assert not self.events or event["id"] > self.events[-1]["id"], "an event came twice"
        self.events.append(event)
        return event

    def text(self) -> str:
        return "".join(event["data"]["text"] for event in self.events if event["type"] == "assistant_text")

    def types(self) -> list[str]:
        """Without words and notes, which come as they come."""
        return [event["type"] for event in self.events if event["type"] not in ("assistant_text", "system")]
