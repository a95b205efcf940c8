"""The agent for fault runs: the rehearsal agent, which also records when it is alive.

Above: nodes start it as an ACP agent; checker.py reads its records. Below: perdure.rehearsal. Every few milliseconds, a
thread appends a line `pid directory boottime` to the process's own file, in one write. A paused or dead process writes
nothing, so these files show which process was able to act, and when.
"""

import os
import sys
import threading
import time
from pathlib import Path

from perdure import rehearsal

FOLDER = "PERDURE_FAULT_LIFETIMES"
TICK_S = 0.02


def note_lifetime(folder: Path, over: threading.Event) -> None:
    pid, directory = os.getpid(), os.getcwd()
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    file = os.open(folder / f"{pid}-{began_s:.3f}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    while True:
        os.write(file, f"{pid} {directory} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n".encode())
        if over.wait(TICK_S):
            return


def main() -> int:
    over = threading.Event()
    noting = threading.Thread(target=note_lifetime, args=(Path(os.environ[FOLDER]), over), daemon=True)
    noting.start()
    try:
        return rehearsal.main(("--acp",))
    finally:
        over.set()
        noting.join()


if __name__ == "__main__":
    sys.exit(main())
