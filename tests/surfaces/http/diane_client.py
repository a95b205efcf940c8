"""A minimal client for Diane's API: its paths, its fields, its event stream.

Above: the tests of Diane's surface. Below: the server's HTTP connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from perdure.surfaces.sse import Frames
from tests.surfaces.http.local import LocalServer

Event = tuple[str, Any]


class Diane:
    def __init__(self, server: LocalServer, agent: str = "rehearsal") -> None:
        self.server = server
        self.sessions = f"/agents/{agent}/sessions"

    def start(self, **body: Any) -> Any:
        return self.server.post(self.sessions, body, expect=201)

    def prompt(self, session: str, text: str) -> Any:
        return self.server.post(f"{self.sessions}/{session}/prompt", {"prompt": text}, expect=200)

    def get(self, session: str) -> Any:
        return self.server.get(f"{self.sessions}/{session}")

    def close(self, session: str) -> Any:
        answer = self.server.http.delete(f"{self.sessions}/{session}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    @contextmanager
    def prompting(self, session: str, text: str) -> Iterator[Iterator[Event]]:
        """The events of a prompt as they arrive."""
        path = f"{self.sessions}/{session}/prompt"
        headers = {"accept": "text/event-stream"}
        with self.server.http.stream(
            "POST", path, params={"stream": "true"}, json={"prompt": text}, headers=headers
        ) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _events(answer.iter_raw())

    def streamed(self, session: str, text: str) -> list[Event]:
        with self.prompting(session, text) as events:
            return list(events)


def _events(chunks: Iterator[bytes]) -> Iterator[Event]:
    frames = Frames()
    for chunk in chunks:
        for frame in frames.feed(chunk):
            yield frame.event, msgspec.json.decode(frame.data)
