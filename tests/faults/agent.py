"""The agent of fault runs: the rehearsal agent, which also notes when it is alive.

Above: nodes start it as an ACP agent; checker.py reads its notes. Below: perdure.rehearsal. A thread appends one line
`pid directory boottime` every few milliseconds to a file of its own, in one write. A process that is paused or dead
notes nothing, so the notes of all processes show who was able to act when.
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
