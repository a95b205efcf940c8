"""Parses host names and origins in headers and settings. Strict, so that two parsers can't disagree.

Above: the HTTP guard, which checks headers; the configuration, the command line and the server. Below: only the
standard library.
"""

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from urllib.parse import urlsplit

MAX_PORT = 65_535
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_.])?))(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def host_name(host: str) -> str | None:
    """The host of a `Host` header, in lower case and without port; None if it is not valid."""
    found = _HOST.fullmatch(host.lower())
    if found is None or int(found[3] or 0) > MAX_PORT:
        return None
    if found[1] is None:
        return str(found[2])
    try:
        return f"[{IPv6Address(found[1]).compressed}]"
    except AddressValueError:
        return None


def host_of(text: str) -> str | None:
    """Like `host_name`, for a host typed by a person: an IPv6 address needs no brackets."""
    return host_name(text) or host_name(f"[{text}]")


def is_loopback(host: str) -> bool:
    """Whether this is `localhost` or a loopback address, reachable only from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_every_address(host: str) -> bool:
    """Whether this means all addresses of the machine, as 0.0.0.0 does."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_origin(text: str) -> bool:
    """Whether this is an origin as browsers send it: scheme, host, and the port unless it is the default."""
    try:
        parts = urlsplit(text)
        usual = _DEFAULT_PORTS.get(parts.scheme)
        return (
            usual is not None
            and host_name(parts.netloc) is not None
            and parts.port != usual
            and text == f"{parts.scheme}://{parts.netloc}".lower()
        )
    except ValueError:
        return False
