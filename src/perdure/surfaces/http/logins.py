"""Signing in over HTTP: login links, logins, logout, the list of signed-in browsers, and tickets.

Above: routes.py. Below: access.py, which issues and checks the secrets.
"""

import asyncio
from typing import Annotated
from urllib.parse import unquote

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.surfaces.http.access import COOKIE_LIFETIME_S, LOGIN, TICKET_LIFETIME_S, Access
from perdure.surfaces.http.connections import LOGIN_MAX_BYTES
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.requests import body_of, reply

# Request bodies -------------------------------------------------------------------------------------------------------

PATH_ON_SERVER = {"pattern": r"^/([^/?\u0000-\u001f\u007f][^?\u0000-\u001f\u007f]*)?(\?[\s\S]*)?$"}
"""JSON Schema for a path of this server, with or without a query. The handler checks the unescaped path."""


class TicketBody(Struct, kw_only=True):
    path: Annotated[str, Meta(min_length=1, max_length=4_000, extra_json_schema=PATH_ON_SERVER)]
    """The path that the ticket opens, such as `/api/sessions/ID/events`."""


class LoginBody(Struct, kw_only=True):
    code: Annotated[str, Meta(min_length=1, max_length=200)]


# Responses ------------------------------------------------------------------------------------------------------------


class LoginLink(Struct):
    path: str


class LoggedIn(Struct):
    """The page key. Send it in the header `Perdure-Page-Key` together with the cookie."""

    page_key: str


class Ticket(Struct):
    ticket: str
    expires_in_s: int


class SignedIn(Struct, kw_only=True):
    id: str
    until: str
    this: bool


class Logins(Struct):
    logins: list[SignedIn]


class LoginsEnded(Struct):
    ended: int


# Handlers -------------------------------------------------------------------------------------------------------------


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


async def list_logins(request: Request) -> Response:
    return reply({"logins": access_of(request).logins(request.scope[LOGIN])})


async def end_logins(request: Request) -> Response:
    return reply({"ended": await asyncio.shield(access_of(request).end_all())})


async def end_login(request: Request) -> Response:
    await asyncio.shield(access_of(request).end_login(request.path_params["login_id"]))
    return Response(status_code=204)


async def new_login_link(request: Request) -> Response:
    """The code is in the fragment of the link, which browsers never send."""
    return reply({"path": f"/#login={await access_of(request).new_code(request.scope[LOGIN])}"}, 201)


async def login(request: Request) -> Response:
    body = await body_of(request, LoginBody, limit_bytes=LOGIN_MAX_BYTES)
    access = access_of(request)
    cookie, page_key = await access.redeem(body.code)
    response = reply({"page_key": page_key})
    secure = request.url.scheme == "https" or request.app.state.behind_proxy
    response.set_cookie(
        access.cookie, cookie, max_age=COOKIE_LIFETIME_S, httponly=True, samesite="strict", secure=secure
    )
    return response


async def logout(request: Request) -> Response:
    access = access_of(request)
    response = Response(status_code=204)
    if request.scope[LOGIN] is not None:
        await asyncio.shield(access.end(request.scope[LOGIN]))
        response.delete_cookie(access.cookie)
    return response


async def new_ticket(request: Request) -> Response:
    body = await body_of(request, TicketBody)
    path = unquote(body.path.partition("?")[0])
    if not path.startswith("/") or path.startswith("//") or not path.isprintable():
        raise Refused("invalid", "path must be a path of this server, such as /api/sessions/ID/events.")
    ticket = await access_of(request).new_ticket(path, request.scope[LOGIN])
    return reply({"ticket": ticket, "expires_in_s": TICKET_LIFETIME_S}, 201)


# Endpoints ------------------------------------------------------------------------------------------------------------

LOGINS = [
    Endpoint("GET", "/api/logins", list_logins, "List the signed-in browsers", answers={200: Logins}),
    Endpoint("DELETE", "/api/logins", end_logins, "Sign out all browsers", answers={200: LoginsEnded}),
    Endpoint(
        "DELETE",
        "/api/logins/{login_id}",
        end_login,
        "Sign out a browser",
        answers={204: None},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        "/api/login-links",
        new_login_link,
        "Create a one-time sign-in link",
        answers={201: LoginLink},
        refusals=("rate_limited",),
    ),
    Endpoint(
        "POST",
        "/api/login",
        login,
        "Exchange the code of a sign-in link for a cookie and a page key",
        body=LoginBody,
        answers={200: LoggedIn},
    ),
    Endpoint("POST", "/api/logout", logout, "Sign out this browser", answers={204: None}),
    Endpoint(
        "POST",
        "/api/tickets",
        new_ticket,
        "Create a ticket for one GET of a path (`?ticket=`), for clients that can't send headers",
        body=TicketBody,
        answers={201: Ticket},
        refusals=("rate_limited",),
    ),
]
