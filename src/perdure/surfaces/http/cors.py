"""Cross-origin resource sharing: the headers that let a front end of another origin read answers.

Above: the guard, which knows whether an origin is one of `allowed_origins`. Below: nothing. It is for requests with the
token or a ticket: browsers are never told that they may send cookies, so a page elsewhere can't act for somebody who is
signed in here.
"""

from starlette.responses import Response

Headers = list[tuple[bytes, bytes]]

ADDED = "perdure.added_headers"
"""Where a request's scope has headers for its answer; one that goes past the guard adds them itself."""
METHODS = "GET, HEAD, POST, PATCH, DELETE"
REQUEST_HEADERS = "Authorization, Cache-Control, Content-Type, If-None-Match, Last-Event-ID, X-Requested-With"
EXPOSED_HEADERS = b"Allow, Content-Disposition, ETag, Retry-After, WWW-Authenticate"
PREFLIGHT_LIFETIME_S = 600


def shared_with(origin: str) -> Headers:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED_HEADERS),
    ]


def preflight() -> Response:
    """The answer to a browser that asks whether it may send a request. It needs no token: none is sent with it."""
    headers = {
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": REQUEST_HEADERS,
        "access-control-max-age": str(PREFLIGHT_LIFETIME_S),
    }
    return Response(status_code=204, headers=headers)


def varying(headers: Headers) -> Headers:
    """The same headers, with a note for caches that the answer depends on the origin."""
    before = [value for name, value in headers if name == b"vary"]
    return [(name, value) for name, value in headers if name != b"vary"] + [(b"vary", b", ".join([*before, b"origin"]))]
