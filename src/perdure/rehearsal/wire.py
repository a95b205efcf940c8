"""Lines in and bytes out, on two file descriptors.

Above: a dialect. Below: the operating system.
Lines are read by a thread of their own, so a cancel is taken in even while the one that writes is blocked by a slow
client. Writing blocks on purpose: an agent that buffered without limit would hide the back-pressure that is to be
rehearsed. It knows nothing of JSON.
"""

import os
import queue
import threading

INBOX_LIMIT_LINES = 1024


class Wire:
    def __init__(self, input_fd: int, output_fd: int) -> None:
        self._output_fd = output_fd
        self._pending: list[bytes] = []
        self._inbox: queue.Queue[bytes | None] = queue.Queue(INBOX_LIMIT_LINES)
        self.ended = False
        """Nothing more will come in."""
        reader = threading.Thread(target=self._read, args=(input_fd,), name="stdin", daemon=True)
        reader.start()

    def receive(self, timeout_s: float | None) -> list[bytes]:
        """The lines that are there, after waiting for the first one no longer than this. None: for ever."""
        lines: list[bytes] = []
        while not self.ended:
            try:
                line = self._inbox.get(timeout=timeout_s) if timeout_s != 0 else self._inbox.get_nowait()
            except queue.Empty:
                break
            if line is None:
                self.ended = True
            else:
                lines.append(line)
            timeout_s = 0
        return lines

    def write(self, data: bytes) -> None:
        """Whole lines. Nothing goes out before `flush`, so that a flood costs few system calls."""
        self._pending.append(data)

    def flush(self) -> None:
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        while data:
            data = data[os.write(self._output_fd, data) :]

    def _read(self, input_fd: int) -> None:
        # Unbuffered by the interpreter's own stdin, whose lock could not be had at exit while this thread waits.
        with open(input_fd, "rb", closefd=False) as stream:
            for line in stream:
                self._inbox.put(line)
        self._inbox.put(None)
