"""Carries out a step in a child that kills itself before its Nth change. For the tests that kill commits and merges.

Above: test_commit.py, test_worktree.py, test_merge_kills.py. Below: fork, and Python's audit events, which name every
change of the file system and every program that is started.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tests.sizes import size

KILL_STEP = size("FINISH_KILL_STEP", 3, fast=7)
"""Each kill comes this many changes after the one before."""
CHANGES = {
    "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime",
    "subprocess.Popen",
}  # fmt: skip


def killed(action: Callable[[], object], changes: int) -> bool:
    """Run the action in a child, and kill it before the change after `changes` many. Returns whether it had that
    many."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.addaudithook(_killer(changes))
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def _killer(left: int) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        is_written = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or is_written:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
