"""Who may come in: token, cookie, Host and Origin. A pure ASGI layer in front of every route.

The token is compared in constant time. A browser signs in with a one-time code, which travels in a URL's fragment
(never sent, never logged) and is exchanged for a cookie; the cookie's hash is kept, so that it outlives a restart.
"""

import hashlib
import hmac
import secrets
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.core.errors import Refused
from perdure.runtime.sessions import Store
from perdure.surfaces.http.problems import refused

COOKIE = "perdure_login"
CODE_LIFETIME_S = 600
CODES_AT_ONCE = 100
LOOPBACK = {"localhost", "127.0.0.1", "[::1]", "::1"}
OPEN_PATHS = {"/api/health", "/api/login"}


class Access:
    """Tokens, cookies and one-time codes of this server."""

    def __init__(self, token: str, store: Store, hosts: set[str]) -> None:
        self._token = token.encode()
        self._store = store
        self.hosts = LOOPBACK | hosts
        self._cookies: set[str] = set()
        self._codes: dict[str, float] = {}

    async def load(self) -> None:
        self._cookies = set(await self._store.documents("login"))

    def new_code(self) -> str:
        """A code that signs one browser in, once, soon."""
        now = time.monotonic()
        self._codes = {code: until for code, until in self._codes.items() if until > now}
        if len(self._codes) >= CODES_AT_ONCE:
            raise Refused("rate_limited", "Too many sign-in links are open. Use one of them, or wait ten minutes.")
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + CODE_LIFETIME_S
        return code

    async def redeem(self, code: str) -> str:
        """The cookie for a code."""
        until = self._codes.pop(code, 0.0)
        if until < time.monotonic():
            raise Refused("unauthorized", "This sign-in link was used or is too old. Make a new one: perdure login")
        cookie = secrets.token_urlsafe(32)
        key = fingerprint(cookie)
        await self._store.put_document("login", key, b"{}")
        self._cookies.add(key)
        return cookie

    async def forget(self, cookie: str) -> None:
        key = fingerprint(cookie)
        self._cookies.discard(key)
        await self._store.put_document("login", key, None)

    def knows(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return hmac.compare_digest(given.strip(), self._token)
        cookie = cookie_of(headers)
        return cookie is not None and fingerprint(cookie) in self._cookies

    def check(self, path: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host_name(host) not in self.hosts:
            raise Refused(
                "forbidden", f"This server is not reached as {host!r}. Add it to allowed_hosts if it should be."
            )
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() != host:
            raise Refused("forbidden", "Requests from other sites are not allowed.")
        if path.startswith("/api/") and path not in OPEN_PATHS and not self.knows(headers):
            raise Refused("unauthorized", "Send the token as `Authorization: Bearer TOKEN`, or sign in: perdure login")


def fingerprint(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def cookie_of(headers: dict[bytes, bytes]) -> str | None:
    for pair in headers.get(b"cookie", b"").split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == COOKIE.encode():
            return value.decode("latin-1")
    return None


def host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.split("]", maxsplit=1)[0] + "]"
    return host.rsplit(":", 1)[0] if ":" in host else host


class Guard:
    """Lets nothing through that may not come in."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            try:
                self._access.check(scope["path"], headers)
            except Refused as refusal:
                await refused(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)
