"""The server's side of a launch: makes the folder, starts the keeper, and speaks with it.

Above: the runner gives lines and reads bytes. Below: keeper.py, through the files of one folder and one socket.

The files are the facts: what was written to `in` and read from `out` survives either side. The socket carries hints
(there is more to read, look at your input) and the server's presence; a lost hint costs time, never data. Files are
read and written synchronously: they are in the page cache, and a thread would cost more than the call.

It deliberately knows no protocol, keeps no position and decides nothing: who ends an agent, and when, is decided
above.
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
    """It is the name of a folder, also where a damaged row gives it."""
    return _LAUNCH_ID.fullmatch(name) is not None


class LaunchDamaged(OSError):
    """A file of a launch is not as it was left, so that its agent can't be spoken with. The message says which."""


class LaunchLimits(Struct, frozen=True):
    """What the keeper holds to by itself."""

    spool_limit_bytes: int = 64 * 1024 * 1024
    """Output that is not yet acknowledged; beyond it the agent waits."""
    disk_floor_bytes: int = 256 * 1024 * 1024
    """Free space below which the agent waits."""
    orphan_quiet_s: float = 600
    """With no server: silence after which the agent is ended."""
    orphan_max_s: float = 3600
    """With no server: time after which the agent is ended."""


class Lease(Struct, frozen=True):
    """Until when the agent may act without word from this node. Where nodes share directories, another one may take the
    session over some time later. The keeper pauses the agent then, until the lease is renewed."""

    path: str
    """The node's lease file, absolute (lease.py). It renews the lease of every launch of the same incarnation."""
    incarnation: int
    deadline_s: float
    """On the clock of `boottime_s()`."""
    paused_max_s: float
    """Time paused after which the agent is ended."""


class LaunchSpec(Struct, frozen=True):
    """One start of one agent. `env` is its whole environment; only the mark is added. `cgroup` was made for it."""

    launch_id: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    limits: LaunchLimits = LaunchLimits()
    protocol: int = PROTOCOL
    cgroup: str | None = None
    lease: Lease | None = None


class Exit(Struct, frozen=True):
    """How the agent ended. `out` is complete at `out_size` bytes: read that far before believing this."""

    how: str
    """exited | signalled | ended (by the server) | orphaned | spawn_failed | expired (its lease: it was paused for too
    long, or, without exit code and signal, never started)"""
    exit_code: int | None
    signal: int | None
    out_size: int
    error: str | None
    ended_at: str
    in_fed: int | None = None
    """How much of `in` the agent took; what lies beyond surely never reached it."""


def _nothing(*_: object) -> None:
    pass


class Launch:
    """A handle of one launch. Any number may exist, in this server or the next; the folder is what counts."""

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
        """What may follow `out` instead of its keeper, as long as that was not tried."""
        self._followed: tuple[Hints, int, Callable[[], object]] | None = None
        """What says that `out` has grown, if its keeper does not: hints, watch, call."""
        self._unsent: dict[str, Any] = {}
        self._acknowledged = 0
        self._ack_step = ACK_STEP_BYTES

    # Making and finding --------------------------------------------------------------------------------------

    @classmethod
    def create(cls, root: Path, spec: LaunchSpec, files: dict[str, str] | None = None) -> "Launch":
        """Make the folder with `files` in it and start the keeper. Nothing is left behind if that fails.

        The lock is taken here and handed over open, so that a launch whose lock nobody holds is dead, always.
        """
        if not is_launch_id(spec.launch_id):
            raise ValueError(f"not a launch id: {spec.launch_id!r}")
        make_private(root)
        folder = root / spec.launch_id
        folder.mkdir(mode=0o700)
        try:
            # Not msgspec's encoder: paths and arguments that are not UTF-8 travel as lone surrogates.
            write_private(folder / "spec.json", json.dumps(msgspec.to_builtins(spec)))
            for name, text in (files or {}).items():
                write_private(folder / name, text)
            for name in ("in", "out", "err"):
                (folder / name).touch(mode=0o600)
            keeper = start_keeper(folder)
        except BaseException as failure:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(failure, OSError) and failure.errno in _NO_ROOM:
                raise StoreFull("no room for a launch") from failure
            raise
        launch = cls(folder, keeper)
        launch._read_ack_step()
        return launch

    @classmethod
    def find(cls, root: Path, launch_id: str) -> "Launch | None":
        """A launch of this or an earlier server, alive or not."""
        if not is_launch_id(launch_id) or not (root / launch_id).is_dir():
            return None
        launch = cls(root / launch_id)
        launch._read_ack_step()
        return launch

    def _read_ack_step(self) -> None:
        """A spool limit smaller than the step would stop the agent before the first acknowledgement was sent."""
        try:
            spec = msgspec.json.decode((self.folder / "spec.json").read_bytes())
            self._ack_step = min(ACK_STEP_BYTES, max(1, int(spec["limits"]["spool_limit_bytes"]) // 4))
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            # The server died while it made the folder; there is no keeper, so nobody waits for acknowledgements.
            self._ack_step = ACK_STEP_BYTES

    # Life ----------------------------------------------------------------------------------------------------

    def is_alive(self) -> bool:
        """Whether the keeper lives: whether anybody holds the lock."""
        try:
            fd = os.open(self.folder / "lock", os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            # Shared: two who look at the same moment must not take each other for a keeper.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def began(self) -> bool:
        """Whether a keeper has ever run: it makes its socket before it spawns the agent."""
        return (self.folder / "sock").exists()

    def exit(self) -> Exit | None:
        """None while it runs, and for ever if the keeper was killed: then sweep by the mark."""
        try:
            return msgspec.json.decode((self.folder / "exit.json").read_bytes(), type=Exit)
        except (OSError, *UNREADABLE):
            return None

    def pid(self) -> int | None:
        """The agent's; to show it, never to decide whether it lives."""
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
        """For a keeper that hangs. Its lock is held, so the pid is still its own; the agent dies with it."""
        pid = self.keeper_pid()
        if pid is not None and self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def wait_gone(self, timeout_s: float) -> bool:
        """Until the lock is free and, if this server started the keeper, its zombie is buried."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive() or (self.keeper is not None and self.keeper.poll() is None):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        self.reap()
        return True

    def reap(self) -> None:
        """A keeper that this server started and that ended stays a zombie until it is asked for."""
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
        """Be present. `on_output` is called at once and whenever there may be more; `on_closed` once, at the end. Who
        has many launches gives the `hints` that watch them all.

        A keeper that is already gone is no error: both are called then too, and the files tell the rest.
        """
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + timeout_s
        while (connection := self._connection or self._try_connect()) is None:
            if not self.is_alive():
                loop.call_soon(on_output)
                loop.call_soon(on_closed)
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the keeper of {self.launch_id} did not answer within {timeout_s} s")
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
        # What was written before there was a connection is looked for now, not at the keeper's next look.
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
        """Every byte that comes is the same hint."""
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
        """It talks: from now on the system says when `out` grows, and the keeper need not."""
        self._hints = None  # once: where it can't be followed now, its keeper goes on sending
        with contextlib.suppress(OSError):  # whoever reads it meets that too
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
        """Without a connection, or with a keeper that does not read, it waits: the newest of each kind."""
        command, self._unsent = self._unsent | command, {}
        try:
            if self._connection is not None:
                # A line of this size is taken whole or not at all.
                self._connection.send(msgspec.json.encode(command) + b"\n")
                return
        except OSError:
            pass  # full, or closed: then there will be another connection
        self._unsent = command

    def disconnect(self) -> None:
        """Nobody is called any more, until it is connected to again."""
        self._on_output = self._on_closed = _nothing
        self._unfollow()
        if self._connection is not None:
            self._unwatch(self._connection)
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Let go of it: the agent goes on, its keeper's orphan limits begin to run. Nobody is called any more."""
        self.disconnect()
        if self._out is not None:
            os.close(self._out)
            self._out = None
        self.reap()
        if self.keeper is not None:
            # It outlives us by design, which Popen would report as a leak.
            self.keeper.returncode = 0

    # Output --------------------------------------------------------------------------------------------------

    def out_size(self) -> int:
        return os.fstat(self._open_out()).st_size

    def read(self, position: int, max_bytes: int) -> bytes:
        """Bytes from `position` on; empty if there are none yet, or never were because the server died while it made
        the folder. What was acknowledged may read as zeros. Raises LaunchDamaged if the agent lives and they are gone.
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
        """What somebody has done to the files that a running launch needs, in words; None if nothing. `out` was read up
        to `position`."""
        for name, read in (("in", 0), ("out", position)):
            try:
                found = os.stat(f"{self._path}/{name}")  # once a second for each launch
            except OSError:
                found = None
            if found is None or not stat.S_ISREG(found.st_mode):
                is_used = self.is_alive() or (self._connection is not None)
                return str(self._without(name)) if is_used else None
            if found.st_size < read:
                return str(self._shortened())
        return None

    def _without(self, name: str) -> LaunchDamaged:
        return LaunchDamaged(f"somebody removed the file {self.folder / name}, through which it is spoken with")

    def _shortened(self) -> LaunchDamaged:
        return LaunchDamaged(f"somebody cut the file {self.folder / 'out'}, through which it is spoken with")

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
        """All before `position` is stored: the keeper may free it. Sent in steps, since each is a message."""
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
        """Cut the line that a dying writer left torn; the number of whole lines that are there.

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
        """Append lines, each ending in its newline. Raises StoreFull if there is no room.

        Room is looked for before, so that normally nothing was written then. If it ran out inside the write, whole
        lines that went in stay (the agent may have them already) and the torn one is cut: as after a crash,
        `repair_input` says how many there are.
        """
        for line in lines:
            if not line or line.find(b"\n") != len(line) - 1:
                raise ValueError("a line must end in a newline and hold no other")
        data = memoryview(b"".join(lines))
        if not data:
            return
        fd = self._open("in", os.O_WRONLY | os.O_APPEND)
        try:
            disk = os.fstatvfs(fd)
            if disk.f_bavail * disk.f_frsize < len(data) + ROOM_BYTES:
                raise StoreFull(f"no room for {len(data)} bytes of input")
            while data:
                data = data[os.write(fd, data) :]
        except OSError as failure:
            if failure.errno not in _NO_ROOM:
                raise
            self.repair_input()
            raise StoreFull(f"no room for {len(data)} bytes of input") from failure
        finally:
            os.close(fd)
        self._send(feed=True)

    # Orders --------------------------------------------------------------------------------------------------

    def end(self, eof_grace_s: float, term_grace_s: float) -> None:
        """Stdin EOF, after `eof_grace_s` SIGTERM, after `term_grace_s` SIGKILL, to the whole tree. The keeper does it,
        even if this server dies meanwhile. Again with shorter graces: it hurries."""
        self._send(end={"eof_grace_s": eof_grace_s, "term_grace_s": term_grace_s})

    def set_limits(self, orphan_quiet_s: float, orphan_max_s: float) -> None:
        self._send(limits={"orphan_quiet_s": orphan_quiet_s, "orphan_max_s": orphan_max_s})

    def set_lease(self, incarnation: int, deadline_s: float) -> None:
        """Claim it for an incarnation of this node, until then: a paused agent goes on, and from now on the lease file
        of that incarnation renews it. No effect on a launch that was made without a lease."""
        self._send(lease={"incarnation": incarnation, "deadline_s": deadline_s})

    async def forget(self) -> None:
        """Remove the folder of a launch that is over."""
        if self.is_alive():
            raise RuntimeError(f"launch {self.launch_id} is alive: end it first")
        self.close()
        # In a thread: its group may be free only after some tries, and a large folder takes its time.
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        cgroups.remove_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
