"""Who may come in: the token, sign-ins of browsers, and tickets. Nothing here knows of requests but their heads.

Above: the guard asks for every request; handlers make links, sign-ins and tickets. Below: the store, which keeps all
three, so that what one node gave out is good on every other. The token is compared in constant time. A browser signs in
with a one-time code, which travels in a URL's fragment (never sent, never logged) and is exchanged for two secrets: a
cookie, which no script can read, and the page's key, which only pages of this origin can read. Either alone opens
nothing: a browser sends a host's cookies to all of its ports, and so to whatever else serves there. Of all of them only
hashes are kept.
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
from perdure.runtime.verbs.sessions import Store
from perdure.surfaces.http.head import Head

USED = "This sign-in link was used or is too old. Make a new one: perdure login"
COOKIE = "perdure_login"
"""How a cookie's name begins. A browser sends it to every port of a host, so the installation's id follows."""
CODE_LIFETIME_S = 600
CODES_AT_ONCE = 100
CODES, TICKETS = "code", "ticket"
"""Kinds of documents. Their keys are hashes: whoever reads the database can't sign in with what is there."""
VOIDED = ("login_state", "voided")
"""Changes when everybody is signed out: a sign-in that is under way then is void too."""
TICKET_LIFETIME_S = 30
TICKETS_AT_ONCE = 1_000
LOGINS_MAX = 1_000
"""Browsers that are signed in at once. Beyond it the one that signed in first is signed out."""
LOGIN_ID_CHARS = 16
LOGIN = "perdure.login"
"""Where a request's scope names the sign-in by which it came, or has None if it came with the token."""
COOKIE_LIFETIME_S = 90 * 24 * 3600
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
    """A browser that signed in: until when, in seconds since 1970; a mark of the token under which it did, since
    another token ends it; and the hash of the page's key."""

    until: float = 0.0
    token: str = ""
    page_key: str = ""


class Pass(msgspec.Struct, frozen=True):
    """A code or a ticket: until when it is good, who made it (a sign-in, or None for the token), and for which path."""

    until: float
    maker: str | None
    path: str = ""


class Access:
    """The token, sign-ins, one-time codes and tickets of this server."""

    def __init__(self, token: str, store: Store, install_id: str, clock: Callable[[], float] = time.time) -> None:
        """`install_id` is the cluster's where several nodes share the store."""
        self._token = token.encode()
        self.cookie = f"{COOKIE}_{install_id}"
        self._mark = fingerprint(f"{install_id} {token}")
        self._store = store
        self._clock = clock
        self._logins: dict[str, Login] = {}
        self.on_signed_out: Callable[[str], None] | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when this server has signed somebody in or out: other nodes read it again."""

    async def load(self) -> None:
        await self.reload()
        for key, login in list(self._logins.items()):
            if login.until <= self._clock() or login.token != self._mark or not login.page_key:
                await self._drop(key)

    async def reload(self) -> None:
        """Read who is signed in; whoever is not any more loses their streams."""
        found: dict[str, Login] = {}
        for key, body in (await self._store.documents("login")).items():
            # One that can't be read is signed out.
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

    # Coming in -------------------------------------------------------------------------------------------------------

    def has_token(self, head: Head) -> bool:
        return head.bearer is not None and hmac.compare_digest(head.bearer, self._token)

    def login_of(self, head: Head) -> str | None:
        """The sign-in that both the cookie and the page's key belong to, under a name that can't be used to sign in."""
        if not head.page_key:
            return None
        given = fingerprint(head.page_key)
        for key in map(fingerprint, head.cookies_named(self.cookie)):
            if self.is_signed_in(key) and hmac.compare_digest(self._logins[key].page_key, given):
                return key
        return None

    def is_signed_in(self, login: str) -> bool:
        known = self._logins.get(login)
        return known is not None and known.until > self._clock()

    # Signing in and out ----------------------------------------------------------------------------------------------

    async def new_code(self, maker: str | None) -> str:
        """A code that signs one browser in, once, soon."""
        words = "Too many sign-in links are open. Use one of them, or wait ten minutes."
        return await self._new_pass(CODES, CODES_AT_ONCE, CODE_LIFETIME_S, words, maker)

    async def _new_pass(
        self, kind: str, most: int, lifetime_s: float, words: str, maker: str | None, path: str = ""
    ) -> str:
        good = await self._good(kind)
        if len(good) >= most:
            raise Refused("rate_limited", words, retry_after_s=lifetime_s)
        secret = secrets.token_urlsafe(24)
        made = Pass(self._clock() + lifetime_s, maker, path)
        await self._store.put_document(kind, fingerprint(secret), msgspec.json.encode(made))
        return secret

    async def _good(self, kind: str) -> dict[str, Pass]:
        """Codes or tickets that can still be used, by their hashes; the others are removed."""
        found, now = {}, self._clock()
        for key, body in (await self._store.documents(kind)).items():
            made = _pass(body)
            if made is not None and made.until > now:
                found[key] = made
            else:
                await self._store.put_document(kind, key, None)
        return found

    async def _take(self, kind: str, key: str) -> Pass | None:
        """Use one up; None if it is not good, or whoever made it was signed out."""
        body = await self._store.take_document(kind, key)
        made = _pass(body) if body is not None else None
        if made is None or made.until <= self._clock():
            return None
        return made if made.maker is None or self.is_signed_in(made.maker) else None

    async def redeem(self, code: str) -> tuple[str, str]:
        """The cookie and the page's key for a code."""
        voided = await self._store.document(*VOIDED)
        made = await self._take(CODES, fingerprint(code))
        if made is None:
            raise Refused("unauthorized", USED)
        cookie, page_key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        key = fingerprint(cookie)
        login = Login(self._clock() + COOKIE_LIFETIME_S, self._mark, fingerprint(page_key))
        try:
            await self._store.put_document("login", key, msgspec.json.encode(login))
        except BaseException:
            # Nobody was signed in by it, so it is good for another attempt; unless all links were made useless.
            with contextlib.suppress(StoreError):
                if voided == await self._store.document(*VOIDED):
                    await self._store.put_document(CODES, fingerprint(code), msgspec.json.encode(made))
            raise
        is_void = voided != await self._store.document(*VOIDED)
        if is_void or (made.maker is not None and await self._store.document("login", made.maker) is None):
            # Everybody was signed out meanwhile, or whoever made the link.
            await self._store.put_document("login", key, None)
            raise Refused("unauthorized", USED)
        self._logins[key] = login
        self.on_change()
        await self._drop_oldest()
        return cookie, page_key

    async def _drop_oldest(self) -> None:
        """Forget sign-ins that are over, and the oldest beyond the limit. What the store does not take now is tried
        again with the next sign-in."""
        oldest = sorted(self._logins, key=lambda key: self._logins[key].until)
        beyond = len(oldest) - LOGINS_MAX
        for number, key in enumerate(oldest):
            if number < beyond or not self.is_signed_in(key):
                with contextlib.suppress(StoreError):
                    await self._drop(key)

    def logins(self, mine: str | None) -> list[dict[str, Any]]:
        """Browsers that are signed in, under names that can't be used to sign in."""
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
            raise Refused("not_found", "There is no such sign-in. It may have ended already.")
        for key in found:
            await self._drop(key)

    async def end_all(self) -> int:
        """Sign every browser out, and make links useless that nobody has opened yet. How many were signed in."""
        await self._store.put_document(*VOIDED, secrets.token_hex(8).encode())
        for key in await self._store.documents(CODES):
            await self._store.put_document(CODES, key, None)
        # Another node may have signed somebody in since this one has looked.
        await self.reload()
        ended = sum(login.until > self._clock() for login in self._logins.values())
        for key in list(self._logins):
            await self._drop(key)
        return ended

    # Tickets ---------------------------------------------------------------------------------------------------------

    async def new_ticket(self, path: str, maker: str | None) -> str:
        """A ticket that opens this path once, soon: for what can't send a header (a download, an EventSource)."""
        words = f"Too many tickets are open. Wait {TICKET_LIFETIME_S} seconds."
        return await self._new_pass(TICKETS, TICKETS_AT_ONCE, TICKET_LIFETIME_S, words, maker, path)

    async def take_ticket(self, ticket: str, path: str) -> Pass | None:
        """The ticket, which is used up by this, if it is good for the path."""
        key = fingerprint(ticket)
        body = await self._store.document(TICKETS, key)
        made = _pass(body) if body is not None else None
        return await self._take(TICKETS, key) if made is not None and made.path == path else None


def _pass(body: bytes) -> Pass | None:
    try:
        return msgspec.json.decode(body, type=Pass)
    except UNREADABLE:
        return None


def fingerprint(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
