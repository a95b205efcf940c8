"""HTTP and server-sent events with only the standard library, like a third-party client.

Above: one client for each design that Perdure serves. Below: a socket. Every wait has a limit.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

WAIT_S = 60.0

Json = dict[str, Any]


class Answer(NamedTuple):
    status: int
    body: Any


class Frame(NamedTuple):
    """One event of a stream."""

    id: str
    event: str
    data: Any


class Wire:
    def __init__(self, base: str, token: str) -> None:
        self._host = urlsplit(base).netloc
        self._token = token

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, timeout=WAIT_S)
        sent = {"Authorization": f"Bearer {self._token}", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        return connection

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        connection = self.open(method, path, body)
        try:
            answer = connection.getresponse()
            text = answer.read()
            return Answer(answer.status, json.loads(text) if text else None)
        finally:
            connection.close()

    def stream(self, method: str, path: str, body: Any = None, **headers: str) -> "Events":
        return Events(self.open(method, path, body, Accept="text/event-stream", **headers))


class Events:
    """A stream of server-sent events, parsed as in the standard: a field per line, an event per empty line."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._answer = connection.getresponse()
        self.status = self._answer.status
        self.kind = self._answer.headers.get("Content-Type", "")

    def __iter__(self) -> Iterator[Frame]:
        fields: dict[str, str] = {}
        for raw in self._answer:
            line = raw.decode().rstrip("\r\n")
            if not line:
                if "data" in fields:
                    event = fields.get("event", "message")
                    yield Frame(fields.get("id", ""), event, json.loads(fields["data"]))
                fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
