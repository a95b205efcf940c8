"""Cross-origin resource sharing (CORS): response headers that let a front end on another origin read responses.

Above: the guard, which checks the origin against `allowed_origins`. Below: nothing. Only requests with the token or a
ticket can use it: credentials are never allowed, so a page on another origin can't use a visitor's sign-in.
"""

from starlette.responses import Response

Headers = list[tuple[bytes, bytes]]

ADDED = "perdure.added_headers"
"""The key in the scope for headers to add to the response. A response that bypasses the guard adds them itself."""
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
    """The response to a preflight request. Browsers send those without a token, so none is needed."""
    headers = {
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": REQUEST_HEADERS,
        "access-control-max-age": str(PREFLIGHT_LIFETIME_S),
    }
    return Response(status_code=204, headers=headers)


def varying(headers: Headers) -> Headers:
    """Add `Vary: origin`, because the response depends on the origin."""
    before = [value for name, value in headers if name == b"vary"]
    return [(name, value) for name, value in headers if name != b"vary"] + [(b"vary", b", ".join([*before, b"origin"]))]
