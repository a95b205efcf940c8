"""Starts a keeper, and connects to its socket however long the path is.

Above: launch.py. Below: the operating system. Knows neither the folder's other files nor the messages on the socket.
"""

import fcntl
import importlib.util
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from perdure.runtime.keeping import keeper as keeper_program

# The shortest known limit is 104 bytes, including the final NUL.
MAX_SOCKET_PATH_BYTES = 100
# What an interpreter may need to start. The keeper must not inherit the rest, such as the server's secrets.
_KEEPER_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def start_keeper(folder: Path) -> "subprocess.Popen[bytes]":
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The keeper's stderr goes to the agent's `err` file: if the keeper can't start, the reason is there.
        with open(folder / "err", "ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", _program(), str(folder.absolute()), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={name: os.environ[name] for name in _KEEPER_ENVIRONMENT if name in os.environ},
                pass_fds=(lock,),
                start_new_session=True,
            )
    finally:
        os.close(lock)  # the keeper's copy of the descriptor holds the same lock


def _program(source: str = keeper_program.__file__) -> str:
    """The keeper's compiled file if it exists and is up to date, which saves each keeper 1.5 MB and 20 ms.

    Python doesn't check a compiled file that is run by its path, so this does.
    """
    compiled = importlib.util.cache_from_source(source)
    try:
        with open(compiled, "rb") as file:
            header = file.read(16)
    except OSError:
        return source
    now = os.stat(source)
    fresh = struct.pack("<III", 0, int(now.st_mtime) & 0xFFFFFFFF, now.st_size & 0xFFFFFFFF)
    return compiled if header == importlib.util.MAGIC_NUMBER + fresh else source


def connect_in(connection: socket.socket, folder: Path) -> None:
    """Connect to `sock` in a folder, even if its path is too long for a socket address."""
    path = str(folder / "sock")
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        connection.connect(path)
    elif os.path.isdir("/proc/self/fd"):
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{directory}/sock")
        finally:
            os.close(directory)
    else:
        with tempfile.TemporaryDirectory(prefix="perdure-") as short:
            link = os.path.join(short, "l")
            os.symlink(folder.absolute(), link)
            connection.connect(os.path.join(link, "sock"))
