"""The limit of open files. Connections and agents' pipes count.

Above: server.py, which raises the limit; unauthenticated.py, which stays within it; `perdure doctor`, which warns if
it is low. Below: the operating system.
"""

import logging
import resource
import sys

logger = logging.getLogger(__name__)

MAX_OPEN_FILES = 65_536
LOW_OPEN_FILES = 4096
"""Below this, unauthenticated connections get less room than usual, and some hundred viewers and agents exhaust it."""


def raise_limit() -> None:
    """Raise this process's limit to what the system allows, at most MAX_OPEN_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _reachable((soft, hard))
    if _number(soft) < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            # Some systems report a hard limit that they don't allow.
            logger.warning("could not raise the limit of open files, it stays at %d: %s", soft, error)


def limit() -> int:
    """This process's current limit."""
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit_of_server(pid: int | None) -> int:
    """The limit of the running server with this pid. Without a pid, or if it can't be read, that of a server started
    here."""
    if pid is not None and sys.platform == "linux":
        try:
            return _number(resource.prlimit(pid, resource.RLIMIT_NOFILE)[0])
        except OSError:
            pass
    return _reachable(resource.getrlimit(resource.RLIMIT_NOFILE))


def _reachable(limits: tuple[int, int]) -> int:
    soft, hard = map(_number, limits)
    return max(soft, min(hard, MAX_OPEN_FILES))


def _number(given: int) -> int:
    return sys.maxsize if given == resource.RLIM_INFINITY else given
