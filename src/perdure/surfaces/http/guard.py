"""ASGI middleware that checks every request before any route: host, origin and authentication.

Above: the server. Below: the application, and access.py, which knows the token, sign-ins and tickets. A request must
use a host name of this server and must not come from another site, except those in `allowed_origins`. It needs the
token, a sign-in or a ticket, unless its path is public. Every response, including refusals, gets headers that
keep browsers from storing it, framing it or guessing its type.
"""

from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.addresses import host_name
from perdure.core.errors import Refused, StoreError
from perdure.surfaces.http.access import LOGIN, SAFE_HEADERS, Access
from perdure.surfaces.http.cors import ADDED, Headers, preflight, shared_with, varying
from perdure.surfaces.http.problems import refused, store_problem
from perdure.surfaces.http.request_headers import RequestHeaders, read_headers, ticket_of

LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
SIGN_IN_PATH = "/api/login"
PROBES = {"/api/health", "/api/ready"}
"""For load balancers. They must respond even if the store is unavailable."""
OPEN_PATHS = {*PROBES, SIGN_IN_PATH, "/api/docs"}
"""The public paths, besides the page's files. Everything else needs authentication."""


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
        not_found: Callable[[Scope], ASGIApp | None] = lambda _: None,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = LOOPBACK | set(hosts)
        self._origins = set(origins)
        self._open = OPEN_PATHS | set(page_paths)
        self._is_view = is_view
        self._refresh = refresh
        """Reloads sign-ins and projects that other nodes have changed."""
        self._not_found = not_found
        """Returns the page's 404 for a browser that follows a link to an unknown path. It sends no page key, so without
        this it would get the error for missing authentication."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added = scope[ADDED] = varying([]) if self._origins else []

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._with_safe(list(message.get("headers", ())), added)}
            await send(message)

        answer: ASGIApp = self._app
        try:
            headers = read_headers(scope["headers"])
            self._check_host(headers)
            if self._is_foreign(headers):
                added += shared_with(headers.origin or "")
                answer = self._app_for_foreign(scope, headers)
            if answer is self._app:
                if scope["path"].startswith("/api/") and scope["path"] not in PROBES:
                    await self._refresh()
                scope[LOGIN] = await self._login(scope, headers)
        except StoreError as error:
            answer = store_problem(error)
        except Refused as refusal:
            not_found = self._not_found(scope) if refusal.code == "unauthorized" else None
            answer = not_found or refused(refusal)
        await answer(scope, receive, send_safely)

    def _with_safe(self, given: Headers, added: Headers) -> Headers:
        names = {name for name, _ in given}
        given += [(name, value) for name, value in SAFE_HEADERS.items() if name not in names]
        given += [(name, value) for name, value in added if name != b"vary"]
        return varying(given) if self._origins else given

    def _check_host(self, headers: RequestHeaders) -> None:
        name = host_name(headers.host)
        if name is None:
            raise Refused(
                "invalid", "Host must be a host name with an optional port, such as localhost:7433.", fields=["Host"]
            )
        if name not in self._hosts:
            raise Refused("forbidden", f"Unknown host name {headers.host!r}. To allow it, add it to allowed_hosts.")

    def _is_foreign(self, headers: RequestHeaders) -> bool:
        """Whether the request comes from a page on another origin. Refuses origins not in `allowed_origins`."""
        if headers.origin is None or site_of(headers.origin) == headers.host:
            return False
        if headers.origin not in self._origins:
            raise Refused(
                "forbidden",
                "Requests from other sites are not allowed. To allow this site, add it to allowed_origins.",
            )
        return True

    def _app_for_foreign(self, scope: Scope, headers: RequestHeaders) -> ASGIApp:
        """The app that handles a request from an allowed origin. It must use the token or a ticket, never a cookie."""
        if scope["method"] == "OPTIONS" and headers.is_preflight:
            return preflight()
        if scope["path"] == SIGN_IN_PATH or (headers.cookies and headers.bearer is None):
            raise Refused(
                "forbidden",
                "A page of another origin must send `Authorization: Bearer TOKEN`, and no cookie.",
            )
        return self._app

    async def _login(self, scope: Scope, headers: RequestHeaders) -> str | None:
        """The sign-in of the request; None if it has the token, or needs no authentication. A wrong token is refused
        even if a valid cookie comes with it."""
        if self._access.has_token(headers):
            return None
        login = self._access.login_of(headers) if headers.bearer is None else None
        if login is not None:
            return login
        path = scope["path"]
        if path in self._open or self._is_view(path):
            return None
        ticket = ticket_of(scope["query_string"]) if scope["method"] == "GET" and headers.bearer is None else None
        valid = await self._access.take_ticket(ticket, path) if ticket is not None else None
        if valid is None:
            raise Refused("unauthorized", "Send the token as `Authorization: Bearer TOKEN`, or sign in: perdure login")
        return valid.maker


def site_of(origin: str) -> str | None:
    """The host and port of an Origin header; None if it has none (`null`) or is invalid."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
