"""The keeper: a small process that holds one agent, so that a turn outlives the server.

    python3 -I -S keeper.py FOLDER LOCK_FD

Above: launch.py creates the folder, takes the lock, starts this file and connects to `sock`. Below: the agent and
everything it starts. The folder is the whole interface: spec.json, in, out, err, lock, sock, pid.json, exit.json.

The keeper deliberately knows nothing of the agent's protocol: it moves bytes, enforces limits and ends processes. It is
one file that needs only the standard library and imports everything at the start, so upgrading the package doesn't
affect a running keeper. It has one thread: PR_SET_PDEATHSIG fires when the *thread* that spawned the agent dies.

- stdout is a pipe, copied to `out`. A plain file has no backpressure, and asyncio agents refuse it. If the disk is full
  or the spool is unread, the agent waits; no byte is lost.
- stdin is a pipe, fed from `in` with complete lines only. A server that dies during a write leaves a partial line,
  which must never reach the agent.
- `lock` is inherited open and locked from the server, so a starting keeper never looks dead.
- `sock` shows that a server is present. The keeper sends single bytes ("o": there is output, "x": the agent has ended).
  They may be lost, as all data is in the files. It sends no second byte while one is unread, and no "o" to a server
  that watches `out` itself. The server sends one JSON object per line: feed, ack, end, limits, hints, lease.
- A lease (if nodes share directories) limits how long the agent may act, whether or not a server is present.
- exit.json is written last, with an atomic rename. If it is missing and the lock is free, the keeper was killed.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable

MARK = "PERDURE_LAUNCH"
CHUNK_BYTES = 64 * 1024
ERR_MAX_BYTES = 256 * 1024
ERR_KEPT_BYTES = 64 * 1024
PUNCH_STEP_BYTES = 1024 * 1024
DISK_CHECK_STEP_BYTES = 1024 * 1024
DISK_RETRY_S = 0.5
INPUT_LOOK_S = 1.0
SWEEP_GRACE_S = 0.3
SWEEP_KILL_S = 5.0
SWEEP_STEP_S = 0.02
KILL_AGAIN_S = 0.1
DRAIN_S = 2.0
ORPHAN_EOF_GRACE_S = 5.0
ORPHAN_TERM_GRACE_S = 2.0
LEASE_LOOK_S = 0.2
STOP_AGAIN_MAX_S = 5.0
MAX_STOP_LOOKS = 20
MAX_PEERS = 16
MAX_COMMAND_BYTES = 64 * 1024

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
FALLOC_KEEP_SIZE_AND_PUNCH_HOLE = 0x03

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None, use_errno=True)
NEVER = float("inf")


def timestamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def boottime_s() -> float:
    """The clock for leases. It includes time in which the machine is suspended, if the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def write_whole(name: str, value: dict[str, object]) -> None:
    """Write a small JSON file atomically."""
    with open(os.open(name + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(json.dumps(value).encode())
    os.rename(name + ".new", name)


def read_whole(path: str) -> bytes:
    """Read a small file; empty if it can't be read, because its process is gone or belongs to another user."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def unread(fd: int) -> bool:
    """Whether the other end still has to read bytes that we sent; False if the system can't tell."""
    with contextlib.suppress(OSError):
        return LINUX and fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)) != bytes(4)
    return False


class Spool:
    """`out`: the agent's output. Limits the output that the server has not stored yet, and leaves free disk space."""

    def __init__(self, limit_bytes: int, disk_floor_bytes: int) -> None:
        self.fd = os.open("out", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self.fd).st_size
        self.acked = 0
        self.held = b""
        self.retry_at: float | None = None
        self.draining = False
        self._limit = limit_bytes
        self._floor = disk_floor_bytes
        self._punched = 0
        self._check_at_size = self.size
        self._check_disk()

    def may_read(self) -> bool:
        """Whether to read more output. Draining is bounded by the pipe's size, so only a failed write stops it."""
        if self.draining:
            return not self.held
        return self.retry_at is None and self.size - self.acked <= self._limit

    def append(self, data: bytes) -> None:
        assert not self.held, "read while a write is pending"
        self.held = data
        self._flush()

    def retry(self) -> None:
        self.retry_at = None
        self._check_disk()
        self._flush()

    def acknowledge(self, position: int) -> None:
        self.acked = max(self.acked, min(position, self.size))
        end = self.acked // PUNCH_STEP_BYTES * PUNCH_STEP_BYTES
        if not LINUX or end - self._punched < PUNCH_STEP_BYTES:
            return
        punch = getattr(LIBC, "fallocate64", None) or LIBC.fallocate
        # Ignore the result: without hole punching, the file only uses disk space until its folder is removed.
        begin, length = ctypes.c_int64(self._punched), ctypes.c_int64(end - self._punched)
        punch(self.fd, FALLOC_KEEP_SIZE_AND_PUNCH_HOLE, begin, length)
        self._punched = end

    def _flush(self) -> None:
        while self.held:
            try:
                written = os.write(self.fd, self.held)
            except OSError:
                # The disk or quota is full, or the disk fails: keep the bytes, stop reading, and retry.
                self.retry_at = time.monotonic() + DISK_RETRY_S
                return
            self.size, self.held = self.size + written, self.held[written:]
        if self.size >= self._check_at_size:
            self._check_disk()

    def _check_disk(self) -> None:
        self._check_at_size = self.size + DISK_CHECK_STEP_BYTES
        disk = os.fstatvfs(self.fd)
        if disk.f_bavail * disk.f_frsize < self._floor:
            self.retry_at = time.monotonic() + DISK_RETRY_S


class Tail:
    """`err`: the end of the agent's stderr. Always drained, since an unread stderr would block the agent."""

    def __init__(self) -> None:
        self._open("err", 0)

    def append(self, data: bytes) -> None:
        try:
            if self._size + len(data) > ERR_MAX_BYTES:
                data = self._shrink(data)
            self._size += os.write(2, data)
        except OSError:
            return  # drop it on a full disk: it is only diagnostic, and the agent must not block

    def _open(self, name: str, flags: int) -> None:
        """Open it as descriptor 2, the keeper's own stderr: if the keeper crashes, its traceback is here too."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags, 0o600)
        os.dup2(fd, 2, inheritable=False)
        os.close(fd)
        self._size = os.fstat(2).st_size

    def _shrink(self, data: bytes) -> bytes:
        with open("err", "rb") as old:
            old.seek(max(0, self._size - ERR_KEPT_BYTES))
            tail = old.read(ERR_KEPT_BYTES)
        self._open("err.new", os.O_TRUNC)
        os.rename("err.new", "err")
        return (tail + data)[-ERR_KEPT_BYTES:]


class Feed:
    """Copies `in` to the agent's stdin: complete lines of any length, without blocking on a full pipe."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.finished = False  # nothing more will be written: the loop closes the pipe
        self.broken = False  # the agent has closed its stdin
        self._source = os.open("in", os.O_RDONLY | os.O_CREAT, 0o600)
        self.fed = 0
        self._whole = 0
        self._closing = False
        os.set_blocking(pipe, False)

    def blocked(self) -> bool:
        return not self.finished and self.fed < self._whole

    def look(self) -> None:
        """Find complete lines and pass them on. A partial line is re-read each time: the server may truncate it."""
        position, size = self._whole, 0 if self._closing else os.fstat(self._source).st_size
        while position < size and (chunk := os.pread(self._source, CHUNK_BYTES, position)):
            last = chunk.rfind(b"\n")
            if last >= 0:
                self._whole = position + last + 1
            position += len(chunk)
        self.push()

    def close(self) -> None:
        """Send end of file after everything written so far."""
        self.look()
        self._closing = True
        self.push()

    def taken(self) -> int:
        """How many bytes were read, after the last reader is gone: what is left in the pipe never reached the agent."""
        if not LINUX:
            return self.fed
        unread = fcntl.ioctl(self.pipe, termios.FIONREAD, bytes(4))
        return self.fed - int.from_bytes(unread, sys.byteorder)

    def push(self) -> None:
        while self.blocked():
            chunk = os.pread(self._source, min(CHUNK_BYTES, self._whole - self.fed), self.fed)
            try:
                self.fed += os.write(self.pipe, chunk)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # The agent closed its stdin. Don't end it: it may still be working and writing output.
                self.finished = self.broken = True
        if self._closing:
            self.finished = True


class Tree:
    """All processes of the launch: descendants of this subreaper, processes with its mark, and members of its control
    group, if it has one."""

    def __init__(self, launch_id: str, group: str | None) -> None:
        self._mark = b"\0" + os.fsencode(f"{MARK}={launch_id}") + b"\0"
        self.launch_id, self.group = launch_id, group
        self.leader = 0

    def living(self) -> list[int]:
        if not os.path.isdir("/proc/self"):
            return self._living_group()
        parents = self._parents()
        own = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in own and pid not in own}:
            own |= more
        own |= {pid for pid in parents if pid not in own and self._is_marked(pid)}
        own |= {pid for pid in self._members() if pid in parents}
        return sorted(own - {os.getpid()})

    def signal(self, number: int) -> list[int]:
        """Signal all of them. Pids are used immediately after they are listed: too soon to be reused."""
        pids = self.living()
        # Continue children before their parents: a shell that sees a stopped child takes that for job control.
        for pid in reversed(pids) if number == signal.SIGCONT else pids:
            # It may have ended, or changed its user, so that we may no longer signal it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return pids

    def stop(self) -> bool:
        """Stop all processes; False if some may still run. A process with SIGSTOP pending can't fork, so all have
        stopped if none is new. Process states don't tell: the parent of a stopped vfork child never reaches "T"."""
        seen: set[int] = set()
        for _ in range(MAX_STOP_LOOKS):
            found = set(self.signal(signal.SIGSTOP))
            if found <= seen:
                return True
            seen |= found
        return False

    def _living_group(self) -> list[int]:
        """Without /proc, only the agent's process group is visible."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, 0)
            return [-self.leader] if self.leader else []
        return []

    def _parents(self) -> dict[int, int]:
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                # Parse after the last ")": a command's name may contain anything.
                fields = read_whole(f"/proc/{name}/stat").rpartition(b")")[2].split()
                if len(fields) > 1 and fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1])
        return found

    def _members(self) -> list[int]:
        """The pids in the control group and in groups below it. Includes zombies: check in /proc which are alive."""
        groups = os.walk(self.group) if self.group else ()
        return [int(pid) for folder, *_ in groups for pid in read_whole(f"{folder}/cgroup.procs").split()]

    def _is_marked(self, pid: int) -> bool:
        return self._mark in b"\0" + read_whole(f"/proc/{pid}/environ") + b"\0"


def enter(group: str | None) -> None:
    """Move this process, and so everything it starts, into the launch's control group, if there is one."""
    if group:
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "wb", buffering=0) as members:
            members.write(b"0")


def spawn(argv: list[str], env: dict[str, str], cwd: str, group: str | None = None) -> tuple[int, int, int, int]:
    """Start the agent. Returns its pid and our ends of stdin, stdout, stderr. Raises OSError.
    Not with `subprocess`: PR_SET_PDEATHSIG must be set between fork and exec, and the module costs a megabyte.
    """
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    failed_read, failed_write = os.pipe()  # closed by a successful exec
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        name = cwd
        try:
            os.setsid()
            enter(group)
            if LINUX:
                LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != keeper:
                    os._exit(127)  # the keeper died before the prctl
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            for source, target in ((in_read, 0), (out_write, 1), (err_write, 2)):
                os.dup2(source, target)
            os.chdir(cwd)
            name = argv[0]
            os.execvpe(argv[0], argv, env)
        except (OSError, ValueError) as failure:
            code = getattr(failure, "errno", None) or errno.EINVAL  # ValueError: a NUL inside a string
            os.write(failed_write, f"{code} {name}".encode(errors="replace"))
        finally:
            os._exit(127)
    for fd in (in_read, out_write, err_write, failed_write):
        os.close(fd)
    failure_text = os.read(failed_read, 8192).decode()
    os.close(failed_read)
    if failure_text:
        os.waitpid(pid, 0)
        digits, _, what = failure_text.partition(" ")
        raise OSError(int(digits), os.strerror(int(digits)), what)
    return pid, in_write, out_read, err_read


def parse_command(line: bytes) -> dict[str, float] | None:
    """Parse one line from the server into a flat dict; None if it is invalid."""
    try:
        command = json.loads(line)
        found = {name: float(command[name]) for name in ("ack", "feed", "hints") if name in command}
        for group in ("end", "limits", "lease"):
            found |= {name: float(value) for name, value in command.get(group, {}).items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return found if all(abs(value) < NEVER for value in found.values()) else None


class Lease:
    """Until when the agent may act. After that the tree is paused, because another node may take over the session some
    time later. It isn't ended: minutes without the database must not cost a turn. The default lease never expires."""

    def __init__(
        self, tree: Tree, path: str = "", incarnation: float = 0, deadline_s: float = NEVER, paused_max_s: float = NEVER
    ) -> None:
        self._tree, self._path, self._incarnation = tree, path, incarnation
        self._deadline_s = self.look_at_s = deadline_s
        self._paused_max_s = paused_max_s
        self._paused_since_s, self._stop_at_s = NEVER, 0.0

    def is_paused(self) -> bool:
        return self._paused_since_s < NEVER

    def is_paused_too_long(self) -> bool:
        return boottime_s() >= self._paused_since_s + self._paused_max_s

    def holds(self) -> bool:
        """Whether the lease is valid. The file renews it only for the incarnation that claimed the session. The node's
        next incarnation may have lost the session, and confirms over the socket which launches it still owns."""
        if boottime_s() >= self._deadline_s:
            written = parse_command(b'{"lease":%b}' % read_whole(self._path)) or {}
            if written.get("incarnation") == self._incarnation:
                self._deadline_s = max(self._deadline_s, written.get("deadline_s", 0))
        return boottime_s() < self._deadline_s

    def set(self, incarnation: float, deadline_s: float) -> None:
        if self._path:
            self._incarnation, self._deadline_s, self.look_at_s = incarnation, deadline_s, 0
            self.look()

    def look(self) -> bool:
        """Pause or continue the tree if that is due. Returns whether it is paused."""
        now = boottime_s()
        if now < self.look_at_s:
            return self.is_paused()
        if self.holds():
            if self.is_paused():
                self._tree.signal(signal.SIGCONT)
            self.look_at_s, self._paused_since_s, self._stop_at_s = self._deadline_s, NEVER, 0
        else:
            self.look_at_s, self._paused_since_s = now + LEASE_LOOK_S, min(now, self._paused_since_s)
            if now >= self._stop_at_s:
                # Stop it repeatedly, since somebody may send SIGCONT. Less and less often, since each time reads all
                # processes of the machine, and usually all launches are paused at the same time.
                is_still = self._tree.stop()
                self._stop_at_s = now + (min(now - self._paused_since_s, STOP_AGAIN_MAX_S) if is_still else 0)
        return self.is_paused()


class Ladder:
    """The steps that end an agent: stdin EOF, SIGTERM, SIGKILL, each after a grace period."""

    def __init__(self, how: str, eof_grace_s: float, term_grace_s: float) -> None:
        self.how = how
        self.deadline = time.monotonic() + eof_grace_s
        self._term_grace_s = term_grace_s
        self._sent = 0

    def hurry(self, eof_grace_s: float, term_grace_s: float) -> None:
        """A second request to end it: grace periods may become shorter, never longer."""
        self._term_grace_s = min(self._term_grace_s, term_grace_s)
        grace_s = self._term_grace_s if self._sent else eof_grace_s
        self.deadline = min(self.deadline, time.monotonic() + grace_s)

    def climb(self, tree: Tree, is_paused: bool) -> None:
        """Take the next step if it is due. A paused tree can neither read its input nor handle SIGTERM, so it gets no
        grace period."""
        now = time.monotonic()
        if now < self.deadline and not (is_paused and self._sent != signal.SIGKILL):
            return
        self._sent = signal.SIGKILL if self._sent or is_paused else signal.SIGTERM
        tree.signal(self._sent)
        self.deadline = now + (self._term_grace_s if self._sent == signal.SIGTERM else KILL_AGAIN_S)


class Keeper:
    """The main loop: sleeps until the agent, the server or a deadline needs attention."""

    def __init__(self, tree: Tree, lease: Lease, limits: dict[str, float], listener: socket.socket, wake: int) -> None:
        self._tree, self._lease = tree, lease
        self._orphan_quiet_s = limits["orphan_quiet_s"]
        self._orphan_max_s = limits["orphan_max_s"]
        self._tail = Tail()
        self._spool = Spool(int(limits["spool_limit_bytes"]), int(limits["disk_floor_bytes"]))
        self._feed: Feed | None = None
        self._fed = 0
        self._ladder: Ladder | None = None
        self._stdout = self._stderr = -1
        self._status: int | None = None
        self._listener = listener
        self._peers: dict[int, tuple[socket.socket, bytearray]] = {}
        self._hinted: set[int] = set()  # peers that want hints about output
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._told_size = 0
        self._absent_since = self._last_output = self._looked_at = time.monotonic()
        self._want(listener.fileno(), self._accept)
        # Only SIGCHLD is not ignored.
        self._want(wake, lambda: self._reap(os.read(wake, CHUNK_BYTES)))

    def run(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        if not self._lease.holds():
            self._finish("expired", "its lease expired before it was started")
            return
        try:
            started = spawn(argv, env | {MARK: self._tree.launch_id}, cwd, self._tree.group)
        except OSError as failure:
            self._finish("spawn_failed", f"{failure.strerror}: {failure.filename or argv[0]}")
            return
        pid, stdin, self._stdout, self._stderr = started
        self._tree.leader = pid
        self._feed = Feed(stdin)
        self._feed.look()
        self._want(self._stderr, self._read_stderr)
        try:
            write_whole("pid.json", {"pid": pid, "keeper_pid": os.getpid(), "started_at": timestamp()})
        except OSError as failure:
            self._tail.append(f"could not write pid.json: {failure}\n".encode())  # the agent can run without it
        while self._status is None:
            self._iterate(self._deadline())
            if self._ladder is not None:
                self._ladder.climb(self._tree, self._lease.is_paused())
            elif not self._peers:
                self._check_orphan()
            if self._lease.look() and self._ladder is None and self._lease.is_paused_too_long():
                self._end("expired", 0, 0)
        left = self._sweep()
        self._drain()
        if self._tree.group and not left:
            with contextlib.suppress(OSError):
                os.rmdir(self._tree.group)  # if it has groups inside, the server removes it with the folder
        how = "exited" if os.WIFEXITED(self._status) else "signalled"
        self._finish(self._ladder.how if self._ladder else how, f"could not end {left}" if left else None)

    # One iteration of the loop -------------------------------------------------------------------------------

    def _iterate(self, deadline: float) -> None:
        self._want(self._stdout, self._read_stdout, self._stdout >= 0 and self._spool.may_read())
        if self._feed is not None:
            self._want(self._feed.pipe, self._feed.push, self._feed.blocked(), select.POLLOUT)
            if self._feed.finished:
                # After end of file, the agent may still read what is in the pipe.
                self._fed = self._feed.taken() if self._feed.broken else self._feed.fed
                os.close(self._feed.pipe)
                self._feed = None
        while True:
            # One millisecond more: rounding down would busy-wait for the last one.
            ready = self._poll.poll(wait_ms := max(0, int((deadline - time.monotonic()) * 1000)) + 1)
            for fd, _ in ready:
                self._handlers[fd]()
            if len(ready) != 1 or ready[0][0] != self._stdout or wait_ms == 1 or not self._spool.may_read():
                break
            # The usual case: the agent has written something, no deadline is due, and there is nothing else to do.
            if self._hinted:
                self._tell(b"o")
        now = time.monotonic()
        if self._spool.retry_at is not None and now >= self._spool.retry_at:
            self._spool.retry()
        if now >= self._looked_at + INPUT_LOOK_S:  # a server may have died between its write and its `feed`
            self._look()
        if self._spool.size != self._told_size:
            self._tell(b"o")

    def _deadline(self) -> float:
        deadlines = [self._looked_at + INPUT_LOOK_S, time.monotonic() + self._lease.look_at_s - boottime_s()]
        if self._spool.retry_at is not None:
            deadlines.append(self._spool.retry_at)
        if self._ladder is not None:
            deadlines.append(self._ladder.deadline)
        elif not self._peers:
            deadlines.append(self._absent_since + self._orphan_max_s)
            deadlines.append(max(self._absent_since, self._last_output) + self._orphan_quiet_s)
        return min(deadlines)

    def _want(self, fd: int, handler: Callable[[], object], wanted: bool = True, mask: int = select.POLLIN) -> None:
        """Start or stop watching a descriptor. Don't watch a pipe at its end: it is always ready, and poll spins."""
        if wanted and fd not in self._handlers:
            self._handlers[fd] = handler
            self._poll.register(fd, mask)
        elif not wanted and fd in self._handlers:
            del self._handlers[fd]
            self._poll.unregister(fd)

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        if self._feed:
            self._feed.look()

    def _reap(self, _: bytes) -> None:
        """Reap all children: as a subreaper, the keeper inherits the agent's orphans."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._tree.leader:
                    self._status = found[1]

    # The agent's output --------------------------------------------------------------------------------------

    def _read_stdout(self) -> None:
        self._stdout = self._read(self._stdout, self._spool)

    def _read_stderr(self) -> None:
        self._stderr = self._read(self._stderr, self._tail)

    def _read(self, pipe: int, sink: Spool | Tail) -> int:
        """Pass on a chunk. Returns the pipe, or -1 at its end."""
        if data := os.read(pipe, CHUNK_BYTES):
            sink.append(data)
            self._last_output = time.monotonic()
            return pipe
        self._want(pipe, self._accept, False)
        os.close(pipe)
        return -1

    # The server ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # the peer is gone, or there are no free descriptors: it will retry
        if len(self._peers) >= MAX_PEERS:
            peer.close()
            return
        peer.setblocking(False)
        fd = peer.fileno()
        self._peers[fd] = (peer, bytearray())
        self._hinted.add(fd)
        self._want(fd, lambda: self._listen(fd))
        self._told_size = -1  # it may have missed something before it was accepted

    def _listen(self, fd: int) -> None:
        peer, buffer = self._peers[fd]
        try:
            data = peer.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer += data
        while (end := buffer.find(b"\n")) >= 0:
            command = parse_command(bytes(buffer[:end]))
            del buffer[: end + 1]
            if command is None:
                data = b""  # an invalid command: close the connection, but don't fail
                break
            self._obey(fd, command)
        if not data or len(buffer) > MAX_COMMAND_BYTES:
            self._drop(fd)

    def _obey(self, fd: int, command: dict[str, float]) -> None:
        if "ack" in command:
            self._spool.acknowledge(int(command["ack"]))
        self._orphan_quiet_s = command.get("orphan_quiet_s", self._orphan_quiet_s)
        self._orphan_max_s = command.get("orphan_max_s", self._orphan_max_s)
        if "incarnation" in command and "deadline_s" in command:
            self._lease.set(command["incarnation"], command["deadline_s"])
        if "feed" in command:
            self._look()
        if "hints" in command:
            (self._hinted.add if command["hints"] else self._hinted.discard)(fd)
            self._told_size = -1  # it may not have seen the latest output
        if "eof_grace_s" in command and "term_grace_s" in command:
            self._end("ended", command["eof_grace_s"], command["term_grace_s"])

    def _drop(self, fd: int) -> None:
        self._want(fd, self._accept, False)
        self._peers.pop(fd)[0].close()
        self._hinted.discard(fd)
        self._absent_since = time.monotonic()  # counts only while there are no peers

    def _tell(self, byte: bytes) -> None:
        self._told_size = self._spool.size
        for fd in self._hinted if byte == b"o" else self._peers:
            if byte != b"o" or not unread(fd):
                # Its buffer may be full of hints; or it is gone, but its last commands must still be read.
                with contextlib.suppress(OSError):
                    self._peers[fd][0].send(byte)

    # The end -------------------------------------------------------------------------------------------------

    def _end(self, how: str, eof_grace_s: float, term_grace_s: float) -> None:
        if self._ladder is not None:
            self._ladder.hurry(eof_grace_s, term_grace_s)
            return
        self._ladder = Ladder(how, eof_grace_s, term_grace_s)
        if self._feed is not None:
            self._feed.close()

    def _is_abandoned(self) -> bool:
        return not self._peers and time.monotonic() >= self._absent_since + self._orphan_max_s

    def _check_orphan(self) -> None:
        now = time.monotonic()
        if self._lease.is_paused() or (self._stdout >= 0 and not self._spool.may_read()):
            self._last_output = now  # the keeper holds it up, so this isn't silence; `orphan_max_s` still applies
        is_quiet = now >= max(self._absent_since, self._last_output) + self._orphan_quiet_s
        if is_quiet or self._is_abandoned():
            self._end("orphaned", ORPHAN_EOF_GRACE_S, ORPHAN_TERM_GRACE_S)

    def _sweep(self) -> list[int]:
        """End the processes that the agent left. Returns those that could not be ended."""
        left = self._tree.signal(signal.SIGTERM)
        until = time.monotonic() + SWEEP_GRACE_S
        while left and time.monotonic() < until and not self._lease.look():  # no grace if paused
            self._iterate(time.monotonic() + SWEEP_STEP_S)
            left = self._tree.living()
        until = time.monotonic() + SWEEP_KILL_S
        while left and time.monotonic() < until:
            self._tree.signal(signal.SIGKILL)
            self._iterate(time.monotonic() + SWEEP_STEP_S)
            left = self._tree.living()
        return left

    def _drain(self) -> None:
        """Read what is still in the pipes. Limited in time, since an escaped process may hold them open; but while
        bytes wait for disk space, keep trying until the orphan limit."""
        self._spool.draining = True
        until = time.monotonic() + DRAIN_S
        while self._stdout >= 0 or self._stderr >= 0 or self._spool.held:
            now = time.monotonic()
            if self._spool.held and not self._is_abandoned():
                until = now + DRAIN_S
            if now >= until:
                return
            self._iterate(now + DISK_RETRY_S)

    def _finish(self, how: str, error: str | None) -> None:
        status = self._status
        if self._feed is not None:
            self._fed = self._feed.taken()
        record: dict[str, object] = {
            "how": how,
            "exit_code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "out_size": self._spool.size,
            "in_fed": self._fed,
            "error": error,
            "ended_at": timestamp(),
        }
        while True:
            try:
                write_whole("exit.json", record)
                break
            except FileNotFoundError:
                return  # the folder was removed: nobody will read it
            except OSError:
                if self._is_abandoned():
                    return
                self._iterate(time.monotonic() + DISK_RETRY_S)
        self._tell(b"x")


def main(folder: str, lock_fd: int) -> None:
    # A service manager that stops the server may signal all its processes; the turn must outlive that.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(lock_fd, False)  # the agent must not hold the lock after the keeper is gone
    # Use relative names from here on: a Unix socket address is limited to about 100 bytes, and a path may be longer.
    os.chdir(folder)
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the wake-up fd requires a handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])  # the server may have inherited it blocked
    if LINUX:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no other user may connect; the agent gets the original umask
    listener.bind("sock")
    os.umask(before)
    listener.listen(MAX_PEERS)
    listener.setblocking(False)
    with open("spec.json", "rb") as file:
        spec = json.load(file)
    tree = Tree(spec["launch_id"], spec.get("cgroup"))
    lease = Lease(tree, **(spec.get("lease") or {}))
    Keeper(tree, lease, spec["limits"], listener, wake_read).run(spec["argv"], spec["env"], spec["cwd"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
