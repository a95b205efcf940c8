"""Names of hosts and origins, as headers and settings have them: read strictly, so that no two readers differ.

Above: the guard, which reads headers, and the configuration. Below: nothing of ours.
"""

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from urllib.parse import urlsplit

MAX_PORT = 65_535
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_.])?))(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def host_name(host: str) -> str | None:
    """What a `Host` header names, without its port and in small letters; None if it names no host."""
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
    """The same for a host as a person writes it: an IPv6 address needs no brackets."""
    return host_name(text) or host_name(f"[{text}]")


def is_loopback(host: str) -> bool:
    """Whether an address, or the name `localhost`, can be reached on this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_every_address(host: str) -> bool:
    """Whether this means every address of the machine, as 0.0.0.0 does."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_origin(text: str) -> bool:
    """Whether this is an origin as a browser writes it: scheme, host, and the port where it is not the usual one."""
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
