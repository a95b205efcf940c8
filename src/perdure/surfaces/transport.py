"""Requests to a server: connections, retries and errors.

Above: client.py, which has a method for each operation, and stream.py, which follows events. Below: HTTP. It knows no
paths of the API.

It uses httpx2. Importing httpx2 takes 70 to 90 ms (`http.client` takes 25 ms on the same machine), which is within the
budget of 120 ms for a command. In return, it provides connection pooling, a timeout for each phase, and proper TLS. It
is imported with the first request, so a command that needs no server does not pay for it.
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
    """A server's URL and token."""

    url: str
    token: str | None = None


class ClientError(Exception):
    """Base class of client errors."""


class Unreachable(ClientError):
    """No server responded, or the connection broke before the response arrived."""


class Problem(ClientError):
    """The server refused a request: status, error code, message and further facts."""

    def __init__(self, status: int, code: str, detail: str, facts: Json) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.facts = facts


class NeverSent(Unreachable):
    """The request did not reach a server, so it is always safe to retry."""


class Transport:
    """Requests to one server. `locate` is called again after a lost connection, because a restarted server may listen
    elsewhere. Repeatable requests are retried for `patience_s` seconds.
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
        """A new connection to the server's current address."""
        import httpx2

        address = self._locate()
        parts = urlsplit(address.url)
        return httpx2.Client(
            base_url=address.url,
            headers={"authorization": f"Bearer {address.token}"} if address.token else {},
            timeout=httpx2.Timeout(self.answer_timeout_s, connect=CONNECT_TIMEOUT_S),
            # Without TLS, don't create a TLS context: that would take longer than the request.
            verify=parts.scheme == "https",
            # Never use a proxy for a server on this machine.
            trust_env=parts.hostname not in LOOPBACK,
        )

    def _shared(self) -> "httpx2.Client":
        with self._lock:
            if self._http is None:
                self._http = self.connect()
            return self._http

    def _disconnect(self) -> None:
        """Drop the connection. The next request looks up the server's address again."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def pause(self, delay_s: float) -> bool:
        """Wait between two attempts. Returns True if the client was closed meanwhile."""
        return self._closed.wait(delay_s)

    def _json(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: Json | None = None,
        repeatable: bool = True,
        timeout_s: float | None = None,
    ) -> Json:
        answer = self._ask(method, path, body=body, params=params, repeatable=repeatable, timeout_s=timeout_s)
        try:
            return msgspec.json.decode(answer.content, type=dict[str, Any]) if answer.content else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise problem_of(answer.status_code, answer.content) from None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: Json | None = None,
        repeatable: bool = True,
        timeout_s: float | None = None,
    ) -> "httpx2.Response":
        """`timeout_s` replaces the time that is allowed for the answer."""
        deadline = time.monotonic() + self.patience_s
        delay_s = RETRY_FIRST_S
        while True:
            try:
                return self._ask_once(method, path, body, params, timeout_s)
            except Unreachable as error:
                never_sent = isinstance(error, NeverSent)
                if not (repeatable or never_sent) or time.monotonic() + delay_s > deadline or self.pause(delay_s):
                    raise
                delay_s = min(RETRY_MAX_S, delay_s * 2)

    def _ask_once(
        self, method: str, path: str, body: Json | None, params: Json | None, timeout_s: float | None
    ) -> "httpx2.Response":
        import httpx2

        http = self._shared()
        given = {key: value for key, value in (params or {}).items() if value is not None}
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if content is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(timeout_s or self.answer_timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            answer = http.request(method, path, params=given, content=content, headers=headers, timeout=timeout)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._disconnect()
            raise NeverSent(f"No server responds at {http.base_url}.") from error
        except httpx2.TransportError as error:
            self._disconnect()
            is_late = isinstance(error, httpx2.TimeoutException)
            what = "did not respond in time" if is_late else "closed the connection before it responded"
            raise Unreachable(f"The server at {http.base_url} {what}.") from error
        if answer.status_code >= 400:
            raise problem_of(answer.status_code, answer.content)
        return answer


def problem_of(status: int, content: bytes) -> Problem:
    """The error in a response, even if it is not from a Perdure server."""
    try:
        body = msgspec.json.decode(content)
        detail = str(body.get("error") or body.get("detail") or "")
        code = str(body.get("code") or "unknown")
    except (msgspec.DecodeError, AttributeError, UnicodeDecodeError):
        return Problem(status, "unknown", f"The server responded with status {status} and no error message.", {})
    return Problem(status, code, detail or f"The server responded with status {status} and no error message.", body)
