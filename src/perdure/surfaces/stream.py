"""An event stream that survives disconnects.

Above: client.py, which creates it. Below: HTTP, through the client's connections, and sse.py.

The position is the id of the last frame that was delivered, so a reconnect continues exactly there. In addition, events
are numbered: an event whose number was already delivered is dropped, even if a server or proxy repeats it. A snapshot
may arrive at any time and resets the number.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.surfaces.sse import Frame, Frames

if TYPE_CHECKING:
    import httpx2

    from perdure.surfaces.client import Client

# Three heartbeats of the server.
SILENCE_LIMIT_S = 45.0
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0


class Event(NamedTuple):
    """One event as received. `id` is the position after it."""

    id: str
    seq: int
    type: str
    turn: int | None
    data: dict[str, Any]
    raw: bytes


class Broken(Exception):
    """The connection was lost, with a reason for people."""


class EventStream:
    """Iterate over it. `close` may be called from any thread and ends the iteration immediately."""

    def __init__(
        self,
        client: "Client",
        path: str,
        position: int | str | None,
        on_lost: Callable[[str], None] | None,
        on_back: Callable[[], None] | None,
        *,
        all_sessions: bool = False,
    ) -> None:
        self.position: int | str | None = position
        self._client = client
        self._path = path
        self._on_lost = on_lost
        self._on_back = on_back
        self._seq = int(str(position).partition("-")[0]) if position is not None else 0
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        # A caller with a position has reached the server before, so even the first connection is retried.
        self._connected_once = position is not None
        self._lost = False
        self._retry_s = RETRY_FIRST_S
        self._ended = False
        self._all_sessions = all_sessions

    def close(self) -> None:
        self._closed.set()
        wire = self._socket
        if wire is not None:
            try:
                # Closing alone would not wake a thread that is blocked in recv.
                wire.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # already closed

    def __iter__(self) -> Iterator[Event]:
        from perdure.surfaces.client import Unreachable

        while not self._closed.is_set():
            try:
                yield from self._connection()
                return
            except (Broken, Unreachable) as error:
                if self._closed.is_set():
                    return
                if not self._connected_once:
                    raise Unreachable(str(error)) from error
                self._mourn(str(error))
                if self._closed.wait(self._retry_s):
                    return
                self._retry_s = min(RETRY_MAX_S, self._retry_s * 2)

    def _mourn(self, reason: str) -> None:
        if not self._lost:
            self._lost = True
            if self._on_lost is not None:
                self._on_lost(reason)

    def _connection(self) -> Iterator[Event]:
        """The events of one connection. Returns at the end of the stream; raises Broken if the connection is lost."""
        import httpx2

        from perdure.surfaces.client import problem_of

        # A separate connection: another thread that loses the shared one must not break this stream.
        http = self._client.connect()
        headers = {"accept": "text/event-stream"}
        params = {"all": "true"} if self._all_sessions else {}
        # A plain number only counts events; an id also contains the epoch of the log.
        if isinstance(self.position, int):
            params["offset"] = str(self.position)
        elif self.position is not None:
            headers["last-event-id"] = self.position
        timeout = httpx2.Timeout(SILENCE_LIMIT_S, connect=5.0)
        try:
            with http, http.stream("GET", self._path, params=params, headers=headers, timeout=timeout) as answer:
                if answer.status_code == 204:
                    return
                if answer.status_code >= 500:
                    raise Broken("The server could not send the events.")
                if answer.status_code != 200:
                    raise problem_of(answer.status_code, answer.read())
                self._arrived(answer)
                yield from self._read(answer)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise Broken(f"No server responds at {http.base_url}.") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise Broken("The connection to the server was lost.") from error
        finally:
            self._socket = None
        if not self._ended:
            raise Broken("The server closed the connection.")

    def _arrived(self, answer: "httpx2.Response") -> None:
        network = answer.extensions.get("network_stream")
        found = network.get_extra_info("socket") if network is not None else None
        self._socket = found if isinstance(found, socket.socket) else None
        self._connected_once = True
        if self._lost:
            self._lost = False
            if self._on_back is not None:
                self._on_back()

    def _read(self, answer: "httpx2.Response") -> Iterator[Event]:
        frames = Frames()
        for chunk in answer.iter_raw():
            for frame in frames.feed(chunk):
                self._retry_s = RETRY_FIRST_S
                event = self._event(frame)
                if event is not None:
                    yield event
            if self._closed.is_set():
                return

    def _event(self, frame: Frame) -> Event | None:
        data: dict[str, Any] = msgspec.json.decode(frame.data)
        seq = int(data.get("seq", 0))
        if self._all_sessions:
            # Sequence numbers are per session; the position in this stream is the frame's id.
            self.position = frame.id if frame.id is not None else self.position
            return Event(str(self.position), seq, frame.event, data.get("turn"), data, frame.data)
        if frame.event != "snapshot" and seq <= self._seq:
            return None
        self._seq = seq
        self.position = frame.id if frame.id is not None else str(seq)
        if frame.event == "session_end" or (frame.event == "snapshot" and data["session"].get("state") == "ended"):
            self._ended = True
        return Event(str(self.position), seq, frame.event, data.get("turn"), data, frame.data)
