"""Authentication: the token, browser sign-ins, one-time codes and tickets.

Above: the guard, which checks every request, and logins.py, which issues links and tickets. Below: the store, so that
what one node issues is valid on every other.

- The token is compared in constant time.
- A browser signs in with a one-time code in the fragment of a URL, which is never sent or logged. It exchanges the code
  for two secrets: a cookie, which scripts can't read, and a page key, which only pages of this origin can read. A
  request needs both, because a browser sends the cookies of a host to all its ports, and so to any other server there.
- A ticket opens one path once, for downloads and EventSource, which can't send headers.

The store has only hashes of these secrets.
"""

import contextlib
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core.clock import stamp
from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.runtime.verbs.documents import Documents
from perdure.surfaces.http.request_headers import RequestHeaders

USED = "This sign-in link was already used or has expired. Create a new one: perdure login"
COOKIE = "perdure_login"
"""The prefix of the cookie's name. The installation's id follows: a browser sends cookies to every port of a host."""
CODE_LIFETIME_S = 600
CODES_AT_ONCE = 100
CODES, TICKETS = "code", "ticket"
"""Kinds of documents. Their keys are hashes, so reading the database is not enough to sign in."""
VOIDED = ("login_state", "voided")
"""Changes when all browsers are signed out, to cancel sign-ins in progress."""
TICKET_LIFETIME_S = 30
TICKETS_AT_ONCE = 1_000
LOGINS_MAX = 1_000
"""Signed-in browsers. Beyond this, the oldest sign-in ends."""
LOGIN_ID_CHARS = 16
LOGIN = "perdure.login"
"""The key in the scope for the sign-in of the request; None if it has the token."""
COOKIE_LIFETIME_S = 90 * 24 * 3600
SAFE_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
"""Defaults, added to every response that does not set them."""


class Login(msgspec.Struct):
    """A signed-in browser: when it expires (seconds since 1970), a hash of the token, so that a new token ends all
    sign-ins, and the hash of the page key."""

    until: float = 0.0
    token: str = ""
    page_key: str = ""


class Pass(msgspec.Struct, frozen=True):
    """A code or a ticket: when it expires, who created it (a sign-in, or None for the token), and a ticket's path."""

    until: float
    maker: str | None
    path: str = ""


class Access:
    """The token, sign-ins, one-time codes and tickets of this server."""

    def __init__(self, token: str, store: Documents, install_id: str, clock: Callable[[], float] = time.time) -> None:
        """`install_id` is the id of the cluster if several nodes share the store."""
        self._token = token.encode()
        self.cookie = f"{COOKIE}_{install_id}"
        self._token_mark = fingerprint(f"{install_id} {token}")
        self._store = store
        self._clock = clock
        self._logins: dict[str, Login] = {}
        self.on_signed_out: Callable[[str], None] | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called after each sign-in and sign-out on this server, to make other nodes reload."""

    async def load(self) -> None:
        await self.reload()
        for key, login in list(self._logins.items()):
            if login.until <= self._clock() or login.token != self._token_mark or not login.page_key:
                await self._drop(key)

    async def reload(self) -> None:
        """Reload the sign-ins. The streams of sign-ins that are gone are closed."""
        found: dict[str, Login] = {}
        for key, body in (await self._store.documents("login")).items():
            # A sign-in that can't be decoded counts as signed out.
            with contextlib.suppress(*UNREADABLE):
                found[key] = msgspec.json.decode(body, type=Login)
        before, self._logins = self._logins, found
        for key in before.keys() - found.keys():
            self._signed_out(key)

    async def _drop(self, key: str) -> None:
        if key in self._logins:
            await self._store.put_document("login", key, None)
            self._logins.pop(key, None)
            self._signed_out(key)
            self.on_change()

    def _signed_out(self, key: str) -> None:
        if self.on_signed_out is not None:
            self.on_signed_out(key)

    # Checking requests -----------------------------------------------------------------------------------------------

    def has_token(self, headers: RequestHeaders) -> bool:
        return headers.bearer is not None and hmac.compare_digest(headers.bearer, self._token)

    def login_of(self, headers: RequestHeaders) -> str | None:
        """The id of the sign-in that both the cookie and the page key belong to. It is a hash, not a secret."""
        if not headers.page_key:
            return None
        given = fingerprint(headers.page_key)
        for key in map(fingerprint, headers.cookies_named(self.cookie)):
            if self.is_signed_in(key) and hmac.compare_digest(self._logins[key].page_key, given):
                return key
        return None

    def is_signed_in(self, login: str) -> bool:
        known = self._logins.get(login)
        return known is not None and known.until > self._clock()

    # Signing in and out ----------------------------------------------------------------------------------------------

    async def new_code(self, maker: str | None) -> str:
        """A one-time code for signing in, valid for `CODE_LIFETIME_S`."""
        detail = "Too many unused sign-in links. Use one of them, or wait ten minutes."
        return await self._new_pass(CODES, CODES_AT_ONCE, CODE_LIFETIME_S, detail, maker)

    async def _new_pass(
        self, kind: str, most: int, lifetime_s: float, detail: str, maker: str | None, path: str = ""
    ) -> str:
        valid = await self._valid(kind)
        if len(valid) >= most:
            raise Refused("rate_limited", detail, retry_after_s=lifetime_s)
        secret = secrets.token_urlsafe(24)
        issued = Pass(self._clock() + lifetime_s, maker, path)
        await self._store.put_document(kind, fingerprint(secret), msgspec.json.encode(issued))
        return secret

    async def _valid(self, kind: str) -> dict[str, Pass]:
        """Valid codes or tickets, by hash. Removes expired ones from the store."""
        found, now = {}, self._clock()
        for key, body in (await self._store.documents(kind)).items():
            issued = _pass(body)
            if issued is not None and issued.until > now:
                found[key] = issued
            else:
                await self._store.put_document(kind, key, None)
        return found

    async def _take(self, kind: str, key: str) -> Pass | None:
        """Consume a code or ticket. None if it is invalid, or if its creator has signed out."""
        body = await self._store.take_document(kind, key)
        issued = _pass(body) if body is not None else None
        if issued is None or issued.until <= self._clock():
            return None
        return issued if issued.maker is None or self.is_signed_in(issued.maker) else None

    async def redeem(self, code: str) -> tuple[str, str]:
        """Exchange a code for the cookie and the page key."""
        voided = await self._store.document(*VOIDED)
        issued = await self._take(CODES, fingerprint(code))
        if issued is None:
            raise Refused("unauthorized", USED)
        cookie, page_key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        key = fingerprint(cookie)
        login = Login(self._clock() + COOKIE_LIFETIME_S, self._token_mark, fingerprint(page_key))
        try:
            await self._store.put_document("login", key, msgspec.json.encode(login))
        except BaseException:
            # The sign-in failed, so restore the code for another attempt, unless all links were revoked meanwhile.
            with contextlib.suppress(StoreError):
                if voided == await self._store.document(*VOIDED):
                    await self._store.put_document(CODES, fingerprint(code), msgspec.json.encode(issued))
            raise
        is_void = voided != await self._store.document(*VOIDED)
        if is_void or (issued.maker is not None and await self._store.document("login", issued.maker) is None):
            # Meanwhile, all browsers or the creator of the link were signed out.
            await self._store.put_document("login", key, None)
            raise Refused("unauthorized", USED)
        self._logins[key] = login
        self.on_change()
        await self._drop_oldest()
        return cookie, page_key

    async def _drop_oldest(self) -> None:
        """Remove expired sign-ins and the oldest beyond the limit. If the store fails, the next sign-in tries again."""
        oldest = sorted(self._logins, key=lambda key: self._logins[key].until)
        beyond = len(oldest) - LOGINS_MAX
        for number, key in enumerate(oldest):
            if number < beyond or not self.is_signed_in(key):
                with contextlib.suppress(StoreError):
                    await self._drop(key)

    def logins(self, mine: str | None) -> list[dict[str, Any]]:
        """The signed-in browsers. Their ids are not secret."""
        return [
            {"id": key[:LOGIN_ID_CHARS], "until": stamp(login.until), "this": key == mine}
            for key, login in sorted(self._logins.items(), key=lambda item: item[1].until)
            if login.until > self._clock()
        ]

    async def end(self, login: str) -> None:
        await self._drop(login)

    async def end_login(self, login_id: str) -> None:
        found = [key for key in self._logins if key[:LOGIN_ID_CHARS] == login_id]
        if not found:
            raise Refused("not_found", "This sign-in does not exist. It may have ended already.")
        for key in found:
            await self._drop(key)

    async def end_all(self) -> int:
        """Sign out all browsers and revoke unused sign-in links. Returns how many browsers were signed in."""
        await self._store.put_document(*VOIDED, secrets.token_hex(8).encode())
        for key in await self._store.documents(CODES):
            await self._store.put_document(CODES, key, None)
        # Include sign-ins on other nodes since the last reload.
        await self.reload()
        ended = sum(login.until > self._clock() for login in self._logins.values())
        for key in list(self._logins):
            await self._drop(key)
        return ended

    # Tickets ---------------------------------------------------------------------------------------------------------

    async def new_ticket(self, path: str, maker: str | None) -> str:
        """A ticket that opens this path once, within `TICKET_LIFETIME_S`."""
        detail = f"Too many unused tickets. Wait {TICKET_LIFETIME_S} seconds."
        return await self._new_pass(TICKETS, TICKETS_AT_ONCE, TICKET_LIFETIME_S, detail, maker, path)

    async def take_ticket(self, ticket: str, path: str) -> Pass | None:
        """Consume a ticket if it is valid for this path."""
        key = fingerprint(ticket)
        body = await self._store.document(TICKETS, key)
        issued = _pass(body) if body is not None else None
        return await self._take(TICKETS, key) if issued is not None and issued.path == path else None


def _pass(body: bytes) -> Pass | None:
    try:
        return msgspec.json.decode(body, type=Pass)
    except UNREADABLE:
        return None


def fingerprint(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
