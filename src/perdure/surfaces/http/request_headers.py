"""The request headers that decide about access: host, origin, token, page key, cookies. Also tickets in the query.

Above: the guard. Below: the raw headers. A repeated header makes a request ambiguous, because a proxy in between may
have checked the other value, so it is refused. Cookies may be split over several headers, as HTTP/2 allows.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qs

from perdure.core.errors import Refused

PAGE_KEY = b"perdure-page-key"
"""The page sends the key that it received at sign-in in this header."""
PREFLIGHT = b"access-control-request-method"
ONCE = (b"host", b"origin", b"authorization", PAGE_KEY, PREFLIGHT)
MAX_QUERY_FIELDS = 100


class RequestHeaders(NamedTuple):
    host: str
    origin: str | None
    bearer: bytes | None
    """The given token, right or wrong."""
    page_key: str | None
    cookies: tuple[tuple[bytes, bytes], ...]
    is_preflight: bool
    """A browser asks whether it may send a cross-origin request."""

    def cookies_named(self, name: str) -> list[str]:
        return [value.decode("latin-1") for known, value in self.cookies if known == name.encode()]


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
    once: dict[bytes, bytes] = {}
    cookies: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name == b"cookie":
            pairs = (pair.strip().partition(b"=") for pair in value.split(b";"))
            cookies += [(key, content) for key, _, content in pairs]
        elif name in once:
            raise Refused("invalid", f"The header {name.decode()} was sent twice. Send it once.")
        elif name in ONCE:
            once[name] = value
    scheme, _, given = once.get(b"authorization", b"").partition(b" ")
    return RequestHeaders(
        host=once.get(b"host", b"").decode("latin-1").lower(),
        origin=once[b"origin"].decode("latin-1") if b"origin" in once else None,
        bearer=given.strip() if scheme.lower() == b"bearer" else None,
        page_key=once[PAGE_KEY].decode("latin-1") if PAGE_KEY in once else None,
        cookies=tuple(cookies),
        is_preflight=PREFLIGHT in once,
    )


def ticket_of(query_string: bytes) -> str | None:
    """The ticket in the query, if there is exactly one."""
    if b"ticket=" not in query_string:
        return None
    try:
        found = parse_qs(query_string.decode("latin-1"), max_num_fields=MAX_QUERY_FIELDS).get("ticket", [])
    except ValueError:
        return None
    return found[0] if len(found) == 1 else None
