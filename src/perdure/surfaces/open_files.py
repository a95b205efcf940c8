"""How many files a process may have open: a connection is one, and so are an agent's pipes.

Above: server.py raises the limit, strangers.py stays within it, `perdure doctor` warns where it is low. Below: the
system.
"""

import logging
import resource
import sys

logger = logging.getLogger(__name__)

MAX_OPEN_FILES = 65_536
LOW_OPEN_FILES = 4096
"""Below it strangers get less room than usual, and some hundred viewers and agents use the limit up."""


def raise_limit() -> None:
    """Let this process open as many files as the system allows, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _reachable((soft, hard))
    if _number(soft) < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            # Some systems name a limit that they don't allow.
            logger.warning("the limit of open files stays at %d: %s", soft, error)


def limit() -> int:
    """Of this process, now."""
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit_of_server(pid: int | None) -> int:
    """What this running server has; without one, or where others can't be asked, what one started here would get."""
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
