"""Large blocks of memory go back to the system as soon as they are freed.

Above: server.py. Below: the C library.
"""

import ctypes
import os

LARGE_BYTES = 256 * 1024
M_MMAP_THRESHOLD = -3


def return_large_blocks() -> None:
    """Without this, glibc raises its limit for blocks outside the heap after the first large request. Later ones then
    fragment the heap, and the server keeps up to twice the memory that it uses. Other C libraries don't need it."""
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
