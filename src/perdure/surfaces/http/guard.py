"""Lets nothing through that may not come in. A pure ASGI layer in front of every route.

Above: the server. Below: the application; access.py says who is known. A request must name a host that this server has,
come from no other site than those in `allowed_origins`, and bring the token, a sign-in, or a ticket, unless its path is
open. Every answer, a refusal too, leaves with headers that keep browsers from storing, framing or guessing at it.
"""

from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.addresses import host_name
from perdure.core.errors import Refused, StoreError
from perdure.surfaces.http.access import LOGIN, SAFE_HEADERS, Access
from perdure.surfaces.http.cors import ADDED, Headers, preflight, shared_with, varying
from perdure.surfaces.http.head import Head, head_of, ticket_of
from perdure.surfaces.http.problems import refused, store_problem

LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
SIGN_IN_PATH = "/api/login"
PROBES = {"/api/health", "/api/ready"}
"""What load balancers ask: answered whether the store is there or not."""
OPEN_PATHS = {*PROBES, SIGN_IN_PATH, "/api/docs"}
"""Besides the page's own files. Whatever else there is, or will be, needs the token."""


class Guard:
    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        hosts: Iterable[str],
        origins: Iterable[str],
        page_paths: Iterable[str],
        is_view: Callable[[str], bool] = lambda _: False,
        lost: Callable[[Scope], ASGIApp | None] = lambda _: None,
        fresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = LOOPBACK | set(hosts)
        self._origins = set(origins)
        self._open = OPEN_PATHS | set(page_paths)
        self._is_view = is_view
        self._fresh = fresh
        """Reads sign-ins and projects again where other nodes have changed them."""
        self._lost = lost
        """What answers a person whose browser went where nothing is: a browser sends no key when it follows a link."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added = scope[ADDED] = varying([]) if self._origins else []

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._with_safe(list(message.get("headers", ())), added)}
            await send(message)

        answer: ASGIApp = self._app
        try:
            head = head_of(scope["headers"])
            self._check_host(head)
            if self._is_foreign(head):
                added += shared_with(head.origin or "")
                answer = self._checked_foreign(scope, head)
            if answer is self._app:
                if scope["path"].startswith("/api/") and scope["path"] not in PROBES:
                    await self._fresh()
                scope[LOGIN] = await self._login(scope, head)
        except StoreError as error:
            answer = store_problem(error)
        except Refused as refusal:
            lost = self._lost(scope) if refusal.code == "unauthorized" else None
            answer = lost or refused(refusal)
        await answer(scope, receive, send_safely)

    def _with_safe(self, given: Headers, added: Headers) -> Headers:
        names = {name for name, _ in given}
        given += [(name, value) for name, value in SAFE_HEADERS.items() if name not in names]
        given += [(name, value) for name, value in added if name != b"vary"]
        return varying(given) if self._origins else given

    def _check_host(self, head: Head) -> None:
        name = host_name(head.host)
        if name is None:
            raise Refused(
                "invalid", "Host must be one host name and maybe a port, such as localhost:7433.", fields=["Host"]
            )
        if name not in self._hosts:
            raise Refused(
                "forbidden", f"This server is not reached as {head.host!r}. Add it to allowed_hosts if it should be."
            )

    def _is_foreign(self, head: Head) -> bool:
        """Whether a request comes from a page of another origin, which must be a known one."""
        if head.origin is None or site_of(head.origin) == head.host:
            return False
        if head.origin not in self._origins:
            raise Refused(
                "forbidden",
                "Requests from other sites are not allowed. Add the site to allowed_origins if it should be.",
            )
        return True

    def _checked_foreign(self, scope: Scope, head: Head) -> ASGIApp:
        """What answers a request of a known other origin: it has the token or a ticket, and never a cookie."""
        if scope["method"] == "OPTIONS" and head.is_preflight:
            return preflight()
        if scope["path"] == SIGN_IN_PATH or (head.cookies and head.bearer is None):
            raise Refused(
                "forbidden", "A page of another origin sends the token as `Authorization: Bearer TOKEN`, and no cookie."
            )
        return self._app

    async def _login(self, scope: Scope, head: Head) -> str | None:
        """The sign-in by which a request comes; None if it comes with the token, or needs neither. A token that was
        sent and is wrong is not made good by a cookie."""
        if self._access.has_token(head):
            return None
        login = self._access.login_of(head) if head.bearer is None else None
        if login is not None:
            return login
        path = scope["path"]
        if path in self._open or self._is_view(path):
            return None
        ticket = ticket_of(scope["query_string"]) if scope["method"] == "GET" and head.bearer is None else None
        taken = await self._access.take_ticket(ticket, path) if ticket is not None else None
        if taken is None:
            raise Refused("unauthorized", "Send the token as `Authorization: Bearer TOKEN`, or sign in: perdure login")
        return taken.maker


def site_of(origin: str) -> str | None:
    """Host and port of an Origin header; None if it names none (`null`) or can't be read."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
