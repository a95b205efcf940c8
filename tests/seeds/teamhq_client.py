"""A client as TeamHQ's own documents describe it: a project page that starts a session, follows its events, sends
messages and stops it. It knows only Perdure's address and a token.

It checks `SessionMetadata` and `SessionEvent` with their types, `GET .../events` with replay and `offset`, and error
messages.
"""

from typing import Any

from tests.seeds.wire import Events, Frame, Json, Wire

STATUSES = ("running", "completed", "failed", "stopped", "timed-out")
STATES = ("processing", "idle", "ended")
MESSAGE_MAX_CHARS = 500

Shapes = dict[str, dict[str, tuple[type, ...]]]
TEXT, YES_NO, OBJECT, NUMBER, NUMBER_OR_NULL = (str,), (bool,), (dict,), (int, float), (int, float, type(None))
EVENT_DATA: Shapes = {
    "assistant_text": {"text": TEXT, "delta": YES_NO},
    "tool_use": {"tool": TEXT, "input": OBJECT},
    "tool_result": {"tool": TEXT, "output": TEXT, "truncated": YES_NO},
    "system": {"message": TEXT},
    "error": {"message": TEXT},
    "turn_start": {"turnNumber": NUMBER},
    "turn_end": {"turnNumber": NUMBER, "exitCode": NUMBER_OR_NULL, "durationMs": NUMBER},
    "waiting_for_input": {"turnNumber": NUMBER},
    "user_message": {"message": TEXT, "turnNumber": NUMBER},
}
"""Required fields of each event type."""
MORE_DATA: Shapes = {"turn_start": {"message": TEXT}, "turn_end": {"costUsd": NUMBER}, "error": {"detail": TEXT}}
"""Optional fields of each event type."""


def fits(value: Any, kinds: tuple[type, ...]) -> bool:
    """As in JSON, true is not a number."""
    return isinstance(value, kinds) and isinstance(value, bool) == (bool in kinds)


def check_data(event: Json) -> None:
    data, always = event["data"], EVENT_DATA[event["type"]]
    known = {**always, **MORE_DATA.get(event["type"], {})}
    assert always.keys() <= data.keys() <= known.keys(), event
    assert all(fits(value, known[name]) for name, value in data.items()), event
    if event["type"] in ("user_message", "turn_start"):
        assert len(data.get("message", "")) <= MESSAGE_MAX_CHARS, event


def check_metadata(session: Json) -> Json:
    """The fields of `SessionMetadataSchema`."""

    for name in ("id", "projectId", "startedAt"):
        assert fits(session[name], TEXT), name
    assert session["status"] in STATUSES and session["state"] in STATES
    for name in ("eventCount", "turnCount"):
        assert fits(session[name], NUMBER), name
    for name in ("endedAt", "error", "conversationId", "cliSessionId"):
        assert session[name] is None or fits(session[name], TEXT), name
    for name in ("durationMs", "exitCode", "pid", "currentTurnPid"):
        assert fits(session[name], NUMBER_OR_NULL), name
    for turn in session["turns"]:
        assert set(turn) == {"turnNumber", "startedAt", "endedAt", "exitCode"}
    return session


class TeamHQ:
    def __init__(self, base: str, token: str, project: str) -> None:
        self._base, self._token = base, token
        self._wire = Wire(base, token)
        self._path = f"/api/projects/{project}"

    def project(self) -> Json:
        answer = self._wire.ask("GET", self._path)
        assert answer.status == 200, answer
        found: Json = answer.body
        return found

    def start(self) -> Json:
        """The start button: no body; the project's kickoff is the first message."""
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

    def another(self, name: str, path: str) -> "TeamHQ":
        """A second project, with its own page."""
        body = {"name": name, "path": path, "kickoff": "say hello"}
        answer = self._wire.ask("POST", "/api/projects", body)
        assert answer.status == 201, answer
        return TeamHQ(self._base, self._token, answer.body["id"])

    def message(self, session_id: str, text: str) -> tuple[int, Json]:
        answer = self._wire.ask("POST", f"{self._path}/sessions/{session_id}/message", {"message": text})
        return answer.status, answer.body

    def stop(self, session_id: str) -> tuple[int, Json]:
        answer = self._wire.ask("POST", f"{self._path}/sessions/{session_id}/stop")
        return answer.status, check_metadata(answer.body) if answer.status == 200 else answer.body

    def log_of(self, session_id: str) -> "WorkLog":
        return WorkLog(self._wire, f"{self._path}/sessions/{session_id}/events")


class WorkLog:
    """The page's view of a session: every event once, in order, however often the connection is lost."""

    def __init__(self, wire: Wire, path: str) -> None:
        self._wire = wire
        self._path = path
        self._stream: Events | None = None
        self._frames: Any = iter(())
        self._last_id = ""
        self._tools: list[str] = []
        self._turn = 0
        self.events: list[Json] = []
        self.done: Json | None = None

    def connect(self, *, as_browser: bool = False) -> None:
        """Read from the first missing event: `offset` is its number, the header has the number before it."""
        offset = self.events[-1]["id"] + 1 if self.events else 0
        query = f"?offset={offset}" if offset and not as_browser else ""
        header = {"Last-Event-ID": str(offset - 1)} if offset and as_browser else {}
        self._stream = self._wire.stream("GET", self._path + query, **header)
        assert self._stream.status == 200 and self._stream.kind.startswith("text/event-stream")
        self._frames = iter(self._stream)

    def status_for_a_browser(self) -> int:
        """The status of a request by a browser that has every event."""
        with self._wire.stream("GET", self._path, **{"Last-Event-ID": self._last_id}) as stream:
            return stream.status

    def lose_connection(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._frames = None, iter(())

    def take(self, count: int) -> None:
        for _ in range(count):
            self._next()

    def until(self, event_type: str) -> Json:
        """Read until the next event of this type."""
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
        self._last_id = frame.id
        if frame.event == "session_done":
            assert set(frame.data) == {"status", "durationMs"}, frame
            assert frame.data["status"] in STATUSES and fits(frame.data["durationMs"], NUMBER), frame
            self.done = frame.data
            return None
        assert frame.event == "session_event"
        event: Json = frame.data
        assert set(event) == {"id", "type", "timestamp", "data"} and event["type"] in EVENT_DATA
        assert isinstance(event["id"], int) and frame.id == str(event["id"])
        assert not self.events or event["id"] > self.events[-1]["id"], "an event came twice"
        check_data(event)
        self._check_order(event)
        self.events.append(event)
        return event

    def _check_order(self, event: Json) -> None:
        """Turns count from 1, a message belongs to the turn that it starts, and a result to a tool that was used."""
        kind, data = event["type"], event["data"]
        self._turn += kind == "turn_start"
        if "turnNumber" in data:
            assert data["turnNumber"] == self._turn + (kind == "user_message"), event
        if kind == "tool_use":
            self._tools.append(data["tool"])
        assert kind != "tool_result" or data["tool"] in self._tools, event

    def text(self) -> str:
        return "".join(event["data"]["text"] for event in self.events if event["type"] == "assistant_text")

    def types(self) -> list[str]:
        """The events without text and notes, whose number varies."""
        return [event["type"] for event in self.events if event["type"] not in ("assistant_text", "system")]
