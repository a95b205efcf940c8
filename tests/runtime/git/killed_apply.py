"""Applies steps in a child that kills itself before its Nth change. Started by test_apply_kills.py.

Reads numbers from standard input, and prints for each how the child ended: "killed", or "done" if it made fewer
changes. The children are forked, because starting Python each time would take longer than the test. Arguments: the
directory, and a file with the steps.
"""

import json
import os
import signal
import sys
from pathlib import Path

import msgspec

from perdure.runtime.git.apply import Step, apply
from perdure.runtime.git.repository import find


def main(directory: str, steps_file: str) -> None:
    repository = find(directory)
    assert repository is not None
    steps = msgspec.convert(json.loads(Path(steps_file).read_text()), list[Step])
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            left = int(line)

            def between(_: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            conflicts = apply(repository, steps, between=between)
            os._exit(1 if conflicts else 0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print({0: "done", -signal.SIGKILL: "killed"}.get(code, f"exit status {code}"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
