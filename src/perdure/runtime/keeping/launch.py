"""The server's side of a launch: creates the folder, starts the keeper, and communicates with it.

Above: the runner writes lines and reads bytes. Below: keeper.py, through the files of one folder and one socket.

All data is in the files: what was written to `in` and read from `out` survives a crash of either side. The socket
carries only hints (there is more output, or more input) and the server's presence. A lost hint costs time, never data.
Files are read and written synchronously: they are in the page cache, and a thread would cost more than the call.

Deliberately knows no protocol, keeps no position and decides nothing: the runner decides when an agent ends.
"""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.errors import UNREADABLE, StoreFull
from perdure.runtime.data.filesystem import make_private, write_private
from perdure.runtime.keeping import cgroups
from perdure.runtime.keeping.hints import Hints
from perdure.runtime.keeping.keeper_start import connect_in, start_keeper

PROTOCOL = 1
ACK_STEP_BYTES = 256 * 1024
ROOM_BYTES = 64 * 1024
COUNT_CHUNK_BYTES = 1024 * 1024
LOOK_AGAIN_S = 0.01
HINT_BYTES = 4096

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LAUNCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def is_launch_id(name: str) -> bool:
    """Whether this is a valid launch id. Check it before using it as a folder name: a damaged row may hold anything."""
    return _LAUNCH_ID.fullmatch(name) is not None


class LaunchDamaged(OSError):
    """A file of a launch is missing or damaged, so its agent can't be reached. The message names the file."""


class LaunchLimits(Struct, frozen=True):
    """Limits that the keeper enforces, even without a server."""

    spool_limit_bytes: int = 64 * 1024 * 1024
    """The limit of unacknowledged output, beyond which the agent must wait."""
    disk_floor_bytes: int = 256 * 1024 * 1024
    """The free disk space below which the agent must wait."""
    orphan_quiet_s: float = 600
    """Without a server, the agent is ended after this much silence."""
    orphan_max_s: float = 3600
    """Without a server, the agent is ended after this time."""


class Lease(Struct, frozen=True):
    """Until when the agent may act without a renewal by this node. After that the keeper pauses the agent until the
    lease is renewed. If nodes share directories, another node may take over the session some time later."""

    path: str
    """The absolute path of the node's lease file (lease.py), which renews all launches of the same incarnation."""
    incarnation: int
    deadline_s: float
    """By the clock of `boottime_s()`."""
    paused_max_s: float
    """The agent is ended after it was paused for this long."""


class LaunchSpec(Struct, frozen=True):
    """How to start one agent. `env` is the complete environment, to which only the mark is added. `cgroup` is a control
    group created for this launch."""

    launch_id: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    limits: LaunchLimits = LaunchLimits()
    protocol: int = PROTOCOL
    cgroup: str | None = None
    lease: Lease | None = None


class Exit(Struct, frozen=True):
    """How the agent ended. `out` is complete at `out_size` bytes; read that far before acting on this."""

    how: str
    """exited | signalled | ended (by the server) | orphaned | spawn_failed | expired (the lease: the agent was paused
    for too long or, without exit code and signal, never started)"""
    exit_code: int | None
    signal: int | None
    out_size: int
    error: str | None
    ended_at: str
    in_fed: int | None = None
    """How many bytes of `in` the agent read; the rest certainly never reached it."""


def _nothing(*_: object) -> None:
    pass


class Launch:
    """A handle to a launch. There may be any number of handles, in this server or the next: all state is in the
    folder."""

    def __init__(self, folder: Path, keeper: "subprocess.Popen[bytes] | None" = None) -> None:
        self.folder = folder
        self._path = str(folder)
        self.launch_id = folder.name
        self.keeper = keeper
        self._out: int | None = None
        self._connection: socket.socket | None = None
        self._unwatch: Callable[[socket.socket], object] = _nothing
        self._on_output: Callable[[], object] = _nothing
        self._on_closed: Callable[[], object] = _nothing
        self._hints: Hints | None = None
        """What could watch `out` instead of the keeper; None once that was tried."""
        self._followed: tuple[Hints, int, Callable[[], object]] | None = None
        """The active watch of `out`, if there is one: hints, watch, callback."""
        self._unsent: dict[str, Any] = {}
        self._acknowledged = 0
        self._ack_step = ACK_STEP_BYTES

    # Creating and finding ------------------------------------------------------------------------------------

    @classmethod
    def create(cls, root: Path, spec: LaunchSpec, files: dict[str, str] | None = None) -> "Launch":
        """Create the folder with `files` in it and start the keeper. If that fails, nothing is left behind.

        The lock is taken here and passed on to the keeper while held, so a launch whose lock is free is always dead.
        """
        if not is_launch_id(spec.launch_id):
            raise ValueError(f"not a launch id: {spec.launch_id!r}")
        make_private(root)
        folder = root / spec.launch_id
        folder.mkdir(mode=0o700)
        try:
            # Not msgspec's encoder: paths and arguments that aren't UTF-8 are encoded as lone surrogates.
            write_private(folder / "spec.json", json.dumps(msgspec.to_builtins(spec)))
            for name, text in (files or {}).items():
                write_private(folder / name, text)
            for name in ("in", "out", "err"):
                (folder / name).touch(mode=0o600)
            keeper = start_keeper(folder)
        except BaseException as failure:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(failure, OSError) and failure.errno in _NO_ROOM:
                raise StoreFull("no disk space to start an agent") from failure
            raise
        launch = cls(folder, keeper)
        launch._read_ack_step()
        return launch

    @classmethod
    def find(cls, root: Path, launch_id: str) -> "Launch | None":
        """Find a launch of this or an earlier server, alive or not."""
        if not is_launch_id(launch_id) or not (root / launch_id).is_dir():
            return None
        launch = cls(root / launch_id)
        launch._read_ack_step()
        return launch

    def _read_ack_step(self) -> None:
        """Adapt the step to the spool limit: with a smaller limit, the agent would block before the first
        acknowledgement is sent."""
        try:
            spec = msgspec.json.decode((self.folder / "spec.json").read_bytes())
            self._ack_step = min(ACK_STEP_BYTES, max(1, int(spec["limits"]["spool_limit_bytes"]) // 4))
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            # The server died while it created the folder. There is no keeper that needs acknowledgements.
            self._ack_step = ACK_STEP_BYTES

    # Process state -------------------------------------------------------------------------------------------

    def is_alive(self) -> bool:
        """Whether the keeper is alive, which means that its lock is held."""
        try:
            fd = os.open(self.folder / "lock", os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            # A shared lock, so that two simultaneous checks don't take each other for the keeper.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def began(self) -> bool:
        """Whether the keeper ever ran: it creates its socket before it spawns the agent."""
        return (self.folder / "sock").exists()

    def exit(self) -> Exit | None:
        """How the agent ended. None while it runs, and also if its keeper was killed: then end its processes by their
        mark."""
        try:
            return msgspec.json.decode((self.folder / "exit.json").read_bytes(), type=Exit)
        except (OSError, *UNREADABLE):
            return None

    def pid(self) -> int | None:
        """The agent's pid, for display and measurements. Never use it to decide whether the agent is alive."""
        return self._pids().get("pid")

    def keeper_pid(self) -> int | None:
        return self._pids().get("keeper_pid")

    def _pids(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = msgspec.json.decode((self.folder / "pid.json").read_bytes(), type=dict[str, Any])
        except (OSError, *UNREADABLE):
            return {}
        return found

    def kill_keeper(self) -> None:
        """Kill a hung keeper; its agent dies with it. The pid is safe to use: the lock is held, so it wasn't reused."""
        pid = self.keeper_pid()
        if pid is not None and self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the lock is free and, if this server started the keeper, until it is reaped. False on timeout."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive() or (self.keeper is not None and self.keeper.poll() is None):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        self.reap()
        return True

    def reap(self) -> None:
        """Reap the keeper if this server started it and it has ended: it would stay a zombie."""
        if self.keeper is not None and self.keeper.poll() is not None:
            self.keeper = None

    # Connection ----------------------------------------------------------------------------------------------

    async def connect(
        self,
        on_output: Callable[[], object],
        on_closed: Callable[[], object],
        timeout_s: float,
        hints: Hints | None = None,
    ) -> None:
        """Connect to the keeper. `on_output` is called soon after, and whenever there may be more output; `on_closed`
        once, at the end. Pass `hints` to watch many launches together.

        It is no error if the keeper is already gone: both are called then too, and the files have the rest.
        """
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + timeout_s
        while (connection := self._connection or self._try_connect()) is None:
            if not self.is_alive():
                loop.call_soon(on_output)
                loop.call_soon(on_closed)
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the keeper of {self.launch_id} did not respond within {timeout_s} s")
            await asyncio.sleep(LOOK_AGAIN_S)
        if self._connection is not None:
            self._unwatch(connection)
            self._unfollow()
        self._connection, self._on_output, self._on_closed = connection, on_output, on_closed
        self._hints = hints
        if hints is not None:
            hints.add(connection, self._hinted)
            self._unwatch = hints.remove
        else:
            loop.add_reader(connection, self._hinted)
            self._unwatch = loop.remove_reader
        # Make the keeper look now for input that was written before the connection.
        self._send(feed=True, hints=True)
        loop.call_soon(on_output)

    def _try_connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connect_in(connection, self.folder)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError, BlockingIOError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        return connection

    def _hinted(self) -> None:
        """Handle bytes from the keeper. Their number and value don't matter: each is the same hint."""
        assert self._connection is not None
        try:
            data = self._connection.recv(HINT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            if self._unsent:
                self._send()
            if self._hints is not None:
                self._follow(self._hints)
            self._on_output()
        else:
            on_closed = self._on_closed
            self.disconnect()
            on_closed()

    def _follow(self, hints: Hints) -> None:
        """The agent produces output: watch `out`, and turn the keeper's hints off."""
        self._hints = None  # try once; if `out` can't be watched, the keeper continues to send hints
        with contextlib.suppress(OSError):  # the next read reports it
            watch = hints.follow(self._open_out(), self._on_output)
            if watch is not None:
                self._followed = (hints, watch, self._on_output)
                self._send(hints=False)

    def _unfollow(self) -> None:
        if self._followed is not None:
            hints, watch, call = self._followed
            hints.unfollow(watch, call)
            self._followed = None

    def _send(self, **command: Any) -> None:
        """Send a command. If there is no connection, or the keeper doesn't read, keep the newest of each kind to send
        later."""
        command, self._unsent = self._unsent | command, {}
        try:
            if self._connection is not None:
                # A line this short is sent completely or not at all.
                self._connection.send(msgspec.json.encode(command) + b"\n")
                return
        except OSError:
            pass  # the buffer is full, or the connection is closed and there will be another
        self._unsent = command

    def disconnect(self) -> None:
        """Disconnect. No callback is called until the next `connect`."""
        self._on_output = self._on_closed = _nothing
        self._unfollow()
        if self._connection is not None:
            self._unwatch(self._connection)
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the handle and call no callback any more. The agent continues, within its keeper's orphan limits."""
        self.disconnect()
        if self._out is not None:
            os.close(self._out)
            self._out = None
        self.reap()
        if self.keeper is not None:
            # The keeper outlives this server by design; Popen would report it as a leak.
            self.keeper.returncode = 0

    # Output --------------------------------------------------------------------------------------------------

    def out_size(self) -> int:
        return os.fstat(self._open_out()).st_size

    def read(self, position: int, max_bytes: int) -> bytes:
        """Read bytes from `position`. Empty if there are none yet, or if a server died while it created the folder.
        Acknowledged bytes may read as zeros. Raises LaunchDamaged if the agent is alive and its file is gone.
        """
        try:
            data = os.pread(self._out if self._out is not None else self._open_out(), max_bytes, position)
        except LaunchDamaged:
            if self.is_alive():
                raise
            return b""
        if not data and self.out_size() < position:
            raise self._shortened()
        return data

    def damage(self, position: int) -> str | None:
        """Describes what is wrong with the files of a running launch; None if nothing. `position` is how far `out` was
        read."""
        for name, read in (("in", 0), ("out", position)):
            try:
                found = os.stat(f"{self._path}/{name}")  # a plain string: this runs every second for each launch
            except OSError:
                found = None
            if found is None or not stat.S_ISREG(found.st_mode):
                is_used = self.is_alive() or (self._connection is not None)
                return str(self._without(name)) if is_used else None
            if found.st_size < read:
                return str(self._shortened())
        return None

    def _without(self, name: str) -> LaunchDamaged:
        return LaunchDamaged(f"the file {self.folder / name} was removed, so the agent can't be reached")

    def _shortened(self) -> LaunchDamaged:
        return LaunchDamaged(f"the file {self.folder / 'out'} was truncated, so the agent can't be reached")

    def _open_out(self) -> int:
        if self._out is None:
            self._out = self._open("out", os.O_RDONLY)
        return self._out

    def _open(self, name: str, flags: int) -> int:
        try:
            fd = os.open(self.folder / name, flags)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise self._without(name) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self._without(name)
        return fd

    def acknowledge(self, position: int, force: bool = False) -> None:
        """Tell the keeper that everything before `position` is stored and may be freed. Not sent for every position, to
        save messages, unless `force` is set."""
        if position - self._acknowledged >= self._ack_step or (force and position > self._acknowledged):
            self._acknowledged = position
            self._send(ack=position)
        elif self._unsent:
            self._send()

    def stderr_tail(self, max_bytes: int = 4096) -> str:
        try:
            with open(self.folder / "err", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
                return file.read(max_bytes).decode(errors="replace")
        except OSError:
            return ""

    # Input ---------------------------------------------------------------------------------------------------

    def in_size(self) -> int:
        try:
            return os.stat(self.folder / "in").st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._without("in") from error

    def repair_input(self) -> int:
        """Truncate a partial line that a crashed writer left. Returns the number of complete lines.

        Safe while the keeper reads: it never passes on a line without its newline.
        """
        fd = self._open("in", os.O_RDWR)
        try:
            lines = position = whole = 0
            while chunk := os.pread(fd, COUNT_CHUNK_BYTES, position):
                lines += chunk.count(b"\n")
                last = chunk.rfind(b"\n")
                if last >= 0:
                    whole = position + last + 1
                position += len(chunk)
            if whole < position:
                os.ftruncate(fd, whole)
            return lines
        finally:
            os.close(fd)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, each ending in its newline. Raises StoreFull if there is no disk space.

        Space is checked first, so normally nothing has been written then. If it runs out during the write, complete
        lines stay (the agent may have read them already), and the partial line is truncated. As after a crash,
        `repair_input` returns how many lines there are.
        """
        for line in lines:
            if not line or line.find(b"\n") != len(line) - 1:
                raise ValueError("a line must end in a newline and contain no other")
        data = memoryview(b"".join(lines))
        if not data:
            return
        fd = self._open("in", os.O_WRONLY | os.O_APPEND)
        try:
            disk = os.fstatvfs(fd)
            if disk.f_bavail * disk.f_frsize < len(data) + ROOM_BYTES:
                raise StoreFull(f"no disk space for {len(data)} bytes of input")
            while data:
                data = data[os.write(fd, data) :]
        except OSError as failure:
            if failure.errno not in _NO_ROOM:
                raise
            self.repair_input()
            raise StoreFull(f"no disk space for {len(data)} bytes of input") from failure
        finally:
            os.close(fd)
        self._send(feed=True)

    # Commands to the keeper ----------------------------------------------------------------------------------

    def end(self, eof_grace_s: float, term_grace_s: float) -> None:
        """End the whole process tree: close stdin, after `eof_grace_s` send SIGTERM, after `term_grace_s` SIGKILL. The
        keeper completes this even if this server dies. A later call can shorten the grace periods."""
        self._send(end={"eof_grace_s": eof_grace_s, "term_grace_s": term_grace_s})

    def set_limits(self, orphan_quiet_s: float, orphan_max_s: float) -> None:
        self._send(limits={"orphan_quiet_s": orphan_quiet_s, "orphan_max_s": orphan_max_s})

    def set_lease(self, incarnation: int, deadline_s: float) -> None:
        """Set the lease to an incarnation of this node and a deadline. A paused agent continues, and from now on the
        lease file of that incarnation renews the lease. No effect on a launch that was created without a lease."""
        self._send(lease={"incarnation": incarnation, "deadline_s": deadline_s})

    async def forget(self) -> None:
        """Remove the folder of a finished launch."""
        if self.is_alive():
            raise RuntimeError(f"launch {self.launch_id} is still running; end it first")
        self.close()
        # In a thread: removing its control group may take several attempts, and a large folder takes time.
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        cgroups.remove_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
