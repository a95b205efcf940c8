"""A minimal client for TeamHQ's API: its paths, its fields, its event stream.

Above: the tests of TeamHQ's surface. Below: the server's HTTP connection, and a plain socket for the stream.
"""

from pathlib import Path
from typing import Any

from tests.harness import LiveServer, Stream

Json = dict[str, Any]


class TeamHQ:
    """One project of a server."""

    def __init__(self, server: LiveServer, folder: Path, **project: Any) -> None:
        self.server = server
        folder.mkdir(parents=True, exist_ok=True)
        body = {"name": folder.name, "path": str(folder), "agent": "rehearsal", **project}
        self.project = str(server.post("/api/projects", body, expect=201)["id"])
        self.sessions = f"/api/projects/{self.project}/sessions"

    def start(self, message: str | None = None, **body: Any) -> Json:
        given = body if message is None else {"message": message, **body}
        found: Json = self.server.post(self.sessions, given, expect=201)
        return found

    def started(self, message: str) -> str:
        """A new session whose first turn is over."""
        session = str(self.start(message)["id"])
        self.server.wait_idle(session)
        return session

    def get(self, session: str) -> Json:
        found: Json = self.server.get(f"{self.sessions}/{session}")
        return found

    def all(self) -> list[Json]:
        found: list[Json] = self.server.get(self.sessions)["sessions"]
        return found

    def message(self, session: str, text: str, **body: Any) -> Json:
        path = f"{self.sessions}/{session}/message"
        found: Json = self.server.post(path, {"message": text, **body}, expect=202)
        return found

    def turn(self, session: str, text: str, **body: Any) -> int:
        number = int(self.message(session, text, **body)["turnNumber"])
        self.server.wait_idle(session)
        return number

    def stop(self, session: str) -> Json:
        found: Json = self.server.post(f"{self.sessions}/{session}/stop", expect=200)
        return found

    def refused(self, session: str, verb: str, body: Json | None = None) -> tuple[int, str]:
        """The status and the message of a refusal."""
        answer = self.server.http.post(f"{self.sessions}/{session}/{verb}", json=body or {})
        return answer.status_code, str(answer.json()["error"])

    def watch(self, session: str, *, offset: int | None = None, last_event_id: str | None = None) -> Stream:
        path = f"{self.sessions}/{session}/events" + ("" if offset is None else f"?offset={offset}")
        return self.server.stream(path, last_event_id)

    def events(self, session: str, *, offset: int | None = None) -> list[Json]:
        """All events of a session that has ended, without `session_done`."""
        with self.watch(session, offset=offset) as stream:
            frames = list(stream.frames())
        assert [name for _, name, _ in frames][-1] == "session_done"
        return [data for _, name, data in frames if name == "session_event"]


def text_of(events: list[Json]) -> str:
    return "".join(event["data"]["text"] for event in events if event["type"] == "assistant_text")
