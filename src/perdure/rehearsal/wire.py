"""Reads lines and writes bytes, on two file descriptors.

Above: a dialect. Below: the operating system.
A separate thread reads lines, so a cancel is received even while a slow client blocks the writing thread. Writing
blocks on purpose: an unbounded buffer would hide the backpressure that a rehearsal is meant to show. It knows nothing
about JSON.
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
        """The input has ended."""
        reader = threading.Thread(target=self._read, args=(input_fd,), name="stdin", daemon=True)
        reader.start()

    def receive(self, timeout_s: float | None) -> list[bytes]:
        """All available lines. Waits up to `timeout_s` for the first one; None: without limit."""
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
        """Add whole lines. They are sent by `flush`, so that many lines need few system calls."""
        self._pending.append(data)

    def flush(self) -> None:
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        while data:
            data = data[os.write(self._output_fd, data) :]

    def _read(self, input_fd: int) -> None:
        # Not sys.stdin: at exit the interpreter would wait for its lock, which this thread holds while it reads.
        with open(input_fd, "rb", closefd=False) as stream:
            for line in stream:
                self._inbox.put(line)
        self._inbox.put(None)
