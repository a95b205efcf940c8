"""Who may come in: token, cookie, Host and Origin. A pure ASGI layer in front of every route.

The token is compared in constant time. A browser signs in with a one-time code, which travels in a URL's fragment
(never sent, never logged) and is exchanged for a cookie; the cookie's hash is kept, so that it outlives a restart.
Every answer, a refusal too, leaves with headers that keep browsers from storing, framing or guessing at it.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.clock import stamp
from perdure.core.errors import Refused
from perdure.runtime.sessions import Store
from perdure.surfaces.http.problems import refused

COOKIE = "perdure_login"
"""How a cookie's name begins. A browser sends it to every port of a host, so the installation's id follows."""
CODE_LIFETIME_S = 600
CODES_AT_ONCE = 100
LOGIN_ID_CHARS = 16
COOKIE_LIFETIME_S = 90 * 24 * 3600
LOOPBACK = {"localhost", "127.0.0.1", "[::1]", "::1"}
OPEN_PATHS = {"/api/health", "/api/login"}
"""Besides the page's own files. Whatever else there is, or will be, needs the token."""
SAFE_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
"""Where an answer does not say otherwise."""


class Login(msgspec.Struct):
    """A browser that signed in: until when its cookie is good, in seconds since 1970."""

    until: float = 0.0


class Access:
    """Tokens, cookies and one-time codes of this server."""

    def __init__(
        self, token: str, store: Store, hosts: set[str], install_id: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._token = token.encode()
        self.cookie = f"{COOKIE}_{install_id}"
        self._store = store
        self.hosts = LOOPBACK | hosts
        self._clock = clock
        self._cookies: dict[str, float] = {}
        self._codes: dict[str, float] = {}
        self.on_signed_out: Callable[[str], None] | None = None

    async def load(self) -> None:
        kept = await self._store.documents("login")
        self._cookies = {key: msgspec.json.decode(body, type=Login).until for key, body in kept.items()}
        for key in [key for key, until in self._cookies.items() if until <= self._clock()]:
            await self._drop(key)

    async def _drop(self, key: str) -> None:
        if key in self._cookies:
            await self._store.put_document("login", key, None)
            self._cookies.pop(key, None)
            if self.on_signed_out is not None:
                self.on_signed_out(key)

    def login_of(self, headers: dict[bytes, bytes]) -> str | None:
        """The sign-in by which a request came, under a name that can't be used to sign in; None if by the token."""
        cookie = None if b"authorization" in headers else self.cookie_of(headers)
        return fingerprint(cookie) if cookie is not None else None

    def new_code(self) -> str:
        """A code that signs one browser in, once, soon."""
        now = self._clock()
        self._codes = {code: until for code, until in self._codes.items() if until > now}
        if len(self._codes) >= CODES_AT_ONCE:
            raise Refused("rate_limited", "Too many sign-in links are open. Use one of them, or wait ten minutes.")
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + CODE_LIFETIME_S
        return code

    async def redeem(self, code: str) -> str:
        """The cookie for a code."""
        until = self._codes.pop(code, 0.0)
        if until <= self._clock():
            raise Refused("unauthorized", "This sign-in link was used or is too old. Make a new one: perdure login")
        cookie = secrets.token_urlsafe(32)
        key = fingerprint(cookie)
        login = Login(self._clock() + COOKIE_LIFETIME_S)
        try:
            await self._store.put_document("login", key, msgspec.json.encode(login))
        except BaseException:
            # Nobody was signed in by it, so it is good for another attempt.
            self._codes[code] = until
            raise
        self._cookies[key] = login.until
        return cookie

    async def forget(self, cookie: str) -> None:
        await self._drop(fingerprint(cookie))

    def logins(self, headers: dict[bytes, bytes]) -> list[dict[str, Any]]:
        """Browsers that are signed in, under names that can't be used to sign in."""
        own = self.cookie_of(headers)
        mine = fingerprint(own) if own is not None else None
        return [
            {"id": key[:LOGIN_ID_CHARS], "until": stamp(until), "this": key == mine}
            for key, until in sorted(self._cookies.items(), key=lambda item: item[1])
            if until > self._clock()
        ]

    async def end_login(self, login_id: str) -> None:
        found = [key for key in self._cookies if key[:LOGIN_ID_CHARS] == login_id]
        if not found:
            raise Refused("not_found", "There is no such sign-in. It may have ended already.")
        for key in found:
            await self._drop(key)

    def cookie_of(self, headers: dict[bytes, bytes]) -> str | None:
        for pair in headers.get(b"cookie", b"").split(b";"):
            name, _, value = pair.strip().partition(b"=")
            if name == self.cookie.encode():
                return value.decode("latin-1")
        return None

    def knows(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return hmac.compare_digest(given.strip(), self._token)
        cookie = self.cookie_of(headers)
        return cookie is not None and self._cookies.get(fingerprint(cookie), 0.0) > self._clock()

    def check(self, headers: dict[bytes, bytes], *, is_open: bool) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host_name(host) not in self.hosts:
            raise Refused(
                "forbidden", f"This server is not reached as {host!r}. Add it to allowed_hosts if it should be."
            )
        origin = headers.get(b"origin")
        if origin is not None and site_of(origin.decode("latin-1")) != host:
            raise Refused("forbidden", "Requests from other sites are not allowed.")
        if not is_open and not self.knows(headers):
            raise Refused("unauthorized", "Send the token as `Authorization: Bearer TOKEN`, or sign in: perdure login")


def fingerprint(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.split("]", maxsplit=1)[0] + "]"
    return host.rsplit(":", 1)[0] if ":" in host else host


def site_of(origin: str) -> str | None:
    """Host and port of an Origin header; None if it names none (`null`) or can't be read."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


class Guard:
    """Lets nothing through that may not come in."""

    def __init__(
        self, app: ASGIApp, access: Access, page_paths: Iterable[str], is_view: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._app = app
        self._access = access
        self._open = OPEN_PATHS | set(page_paths)
        self._is_view = is_view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                given += [(name, value) for name, value in SAFE_HEADERS.items() if name not in names]
                message = {**message, "headers": given}
            await send(message)

        try:
            path = scope["path"]
            self._access.check(dict(scope["headers"]), is_open=path in self._open or self._is_view(path))
        except Refused as refusal:
            await refused(refusal)(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)
