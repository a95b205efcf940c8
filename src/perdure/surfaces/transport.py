"""How a request gets to a server and what comes back: connections, repeats, refusals.

Above: client.py, which has a verb for each thing that a server does, and stream.py, which follows events. Below: HTTP.
It knows no path of the API.

It uses httpx2: its import takes 70 to 90 ms on the machine where `http.client` takes 25, which is below the
120 ms that a command may lose, and it brings pooled connections, timeouts for each phase, and TLS done right. It is
imported when the first request is made, so a command that needs no server does not pay for it.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Json = dict[str, Any]


class Address(NamedTuple):
    """Where a server is, and what lets us in."""

    url: str
    token: str | None = None


class ClientError(Exception):
    """What can go wrong on the way to a server."""


class Unreachable(ClientError):
    """No server answers, or the connection broke before its answer came."""


class Problem(ClientError):
    """The server refused: a code, a sentence that says what to do, and facts that help."""

    def __init__(self, status: int, code: str, detail: str, facts: Json) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.facts = facts


class NeverSent(Unreachable):
    """The request did not reach any server, so that it may be repeated whatever it does."""


class Transport:
    """Requests to one server. `locate` is asked again after a lost connection, as a restarted server may listen
    elsewhere. With `patience_s` a request that can be repeated is, until it is answered or that time is over.
    """

    def __init__(self, locate: Address | Callable[[], Address], *, patience_s: float = 0.0) -> None:
        self._locate: Callable[[], Address] = (lambda: locate) if isinstance(locate, Address) else locate
        self.patience_s = patience_s
        self.answer_timeout_s = ANSWER_TIMEOUT_S
        self._lock = threading.Lock()
        self._http: httpx2.Client | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        self._disconnect()

    @property
    def address(self) -> Address:
        return self._locate()

    @property
    def url(self) -> str:
        return self._locate().url

    def connect(self) -> "httpx2.Client":
        """A new connection to where the server is now."""
        import httpx2

        address = self._locate()
        parts = urlsplit(address.url)
        return httpx2.Client(
            base_url=address.url,
            headers={"authorization": f"Bearer {address.token}"} if address.token else {},
            timeout=httpx2.Timeout(self.answer_timeout_s, connect=CONNECT_TIMEOUT_S),
            # Making a TLS context takes longer than the request when there is no TLS.
            verify=parts.scheme == "https",
            # A proxy is never the way to this machine itself.
            trust_env=parts.hostname not in LOOPBACK,
        )

    def _shared(self) -> "httpx2.Client":
        with self._lock:
            if self._http is None:
                self._http = self.connect()
            return self._http

    def _disconnect(self) -> None:
        """The next request looks up the server's address again."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def pause(self, delay_s: float) -> bool:
        """Wait between two tries; True if the client was closed meanwhile."""
        return self._closed.wait(delay_s)

    def _json(
        self, method: str, path: str, *, body: Json | None = None, params: Json | None = None, repeatable: bool = True
    ) -> Json:
        answer = self._ask(method, path, body=body, params=params, repeatable=repeatable)
        try:
            return msgspec.json.decode(answer.content, type=dict[str, Any]) if answer.content else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise problem_of(answer.status_code, answer.content) from None

    def _ask(
        self, method: str, path: str, *, body: Json | None = None, params: Json | None = None, repeatable: bool = True
    ) -> "httpx2.Response":
        deadline = time.monotonic() + self.patience_s
        delay_s = RETRY_FIRST_S
        while True:
            try:
                return self._ask_once(method, path, body, params)
            except Unreachable as error:
                never_sent = isinstance(error, NeverSent)
                if not (repeatable or never_sent) or time.monotonic() + delay_s > deadline or self.pause(delay_s):
                    raise
                delay_s = min(RETRY_MAX_S, delay_s * 2)

    def _ask_once(self, method: str, path: str, body: Json | None, params: Json | None) -> "httpx2.Response":
        import httpx2

        http = self._shared()
        given = {key: value for key, value in (params or {}).items() if value is not None}
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            answer = http.request(method, path, params=given, content=content, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._disconnect()
            raise NeverSent(f"No server answers at {http.base_url}.") from error
        except httpx2.TransportError as error:
            self._disconnect()
            is_late = isinstance(error, httpx2.TimeoutException)
            what = "was too slow to answer" if is_late else "broke the connection before its answer came"
            raise Unreachable(f"The server at {http.base_url} {what}.") from error
        if answer.status_code >= 400:
            raise problem_of(answer.status_code, answer.content)
        return answer


def problem_of(status: int, content: bytes) -> Problem:
    """The refusal in an answer; of something that is not our server too."""
    try:
        body = msgspec.json.decode(content)
        detail = str(body.get("error") or body.get("detail") or "")
        code = str(body.get("code") or "unknown")
    except (msgspec.DecodeError, AttributeError, UnicodeDecodeError):
        return Problem(status, "unknown", f"The server answered {status} without saying why.", {})
    return Problem(status, code, detail or f"The server answered {status} without saying why.", body)
