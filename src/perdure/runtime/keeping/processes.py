"""Processes of this machine: which belong to a launch, how to end them, how much memory and CPU time they use.

Above: recovery, runners and retiring end leftover processes; clocks measure trees; `explain` shows a session's tree.
Below: /proc.

Every process of a launch has `PERDURE_LAUNCH=<id>` in its environment (its mark). It is therefore found even after it
left its process session, group and parent. A process that clears its environment is found by its control group, if the
launch has one (cgroups.py). Otherwise only its keeper can end it, as a descendant, while the keeper is alive.

Deliberately not used to end a running launch: its keeper does that. Without /proc, marks can't be read:
`can_see_marks()` is False, no process is found and none is ended. Trees are then read with `ps`.
"""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct

from perdure.runtime.keeping.cgroups import launch_in
from perdure.runtime.keeping.keeper import MARK

KILL_WAIT_S = 5.0
LOOK_AGAIN_S = 0.02
PS_TIMEOUT_S = 5.0
GATHER_S = 0.005

_PROC = Path("/proc")
_looks: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[dict[str, list[int]]]]" = WeakKeyDictionary()
_UIDS = re.compile(rb"^Uid:\s+\d+\s+(\d+)", re.MULTILINE)
_KERNEL_THREAD = 0x00200000
"""Linux's process flag PF_KTHREAD."""
_MARK_BYTES = b"\0" + MARK.encode() + b"="


class Process(Struct, frozen=True):
    pid: int
    ppid: int
    command: str
    rss_bytes: int
    cpu_s: float = 0.0
    """CPU time used; if read from /proc, including that of children that have ended."""


def can_see_marks() -> bool:
    return (_PROC / "self" / "environ").exists()


def marks_of(pid: int) -> set[str]:
    """The launches that a living process belongs to, by its environment or by its control group. Both are read, because
    a process can change its environment."""
    environ = b"\0" + _read(pid, "environ")
    start = environ.find(_MARK_BYTES)
    found = {os.fsdecode(environ[start + len(_MARK_BYTES) :].split(b"\0", 1)[0])} if start >= 0 else set()
    member_of = launch_in(_read(pid, "cgroup"))
    return found | {member_of} if member_of is not None else found


def _read(pid: int, name: str) -> bytes:
    """Read a file of a process. Empty if the process is gone or hides it: an ssh-agent hides its environment, but not
    its control group."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def marked_all() -> dict[str, list[int]]:
    """All marked processes of this user, by launch, in one scan of /proc."""
    found: dict[str, list[int]] = {}
    for pid in _own_pids():
        for launch_id in marks_of(pid):
            found.setdefault(launch_id, []).append(pid)
    return found


def marked(launch_id: str) -> list[int]:
    return marked_all().get(launch_id, [])


def signal_marked(pid: int, launch_id: str, number: int) -> bool:
    """Send a signal if this process still has the mark; False if it is gone or its pid was reused.

    A pidfd pins the process before the mark is read again, so a reused pid is never signalled.
    """
    pin = _pin(pid)
    try:
        if launch_id not in marks_of(pid):
            return False
        if pin is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(pin, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if pin is not None:
            os.close(pin)
    return True


async def end_marked(launch_ids: Iterable[str], grace_s: float) -> list[int]:
    """End all processes of these launches: SIGTERM, then SIGKILL after `grace_s`. Returns the pids still alive."""
    wanted = set(launch_ids)
    left = await _signal_all(wanted, signal.SIGTERM)
    await _wait_gone(left, grace_s)
    deadline = time.monotonic() + KILL_WAIT_S
    # Scan again each time: a process that is being ended may have started another.
    while left := await _signal_all(wanted, signal.SIGKILL):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            break
        await _wait_gone(left, remaining_s)
    return sorted(left)


def started_between(launch_id: str, since: float, until: float, known: Collection[int] = ()) -> list[int]:
    """The living processes of a launch that started between these times (Unix time), and all that these, or those
    `known` from an earlier call, have started since. Parents come first, so that a shell loop is ended before it can
    start its command again.

    Empty if even the launch's first process seems to have started after `since`: the clock was changed meanwhile."""
    births = sorted(birth for pid in marked(launch_id) if (birth := _birth(pid)) is not None)
    if not births or (booted := _booted_at()) + births[0].began >= since:
        return []
    found = list(known)
    for birth in births:
        began_then = since <= booted + birth.began <= until
        if birth.pid not in found and (began_then or birth.parent in found or birth.session in found):
            found.append(birth.pid)
    living = {birth.pid for birth in births}
    return [pid for pid in found if pid in living]


def _booted_at() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Birth(NamedTuple):
    began: float
    """Seconds after boot."""
    pid: int
    parent: int
    session: int


def _birth(pid: int) -> Birth | None:
    fields = _stat(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Birth(int(fields[19]) / os.sysconf("SC_CLK_TCK"), pid, int(fields[1]), int(fields[3]))


def _stat(pid: int) -> list[bytes]:
    """The fields after the process name, which is in parentheses and may itself contain spaces and parentheses."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def describe_tree(pid: int) -> list[Process]:
    """A process and all its descendants, parents first; empty if it is gone.

    Orphans of the agent are below the keeper, which inherits them: pass the keeper's pid to include them.
    """
    table = _table()
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process.pid)
    order = [pid] if pid in table else []
    for found in order:
        order.extend(sorted(child for child in children.get(found, []) if child != found))
    return [table[found] for found in order]


def tree_rss_bytes(pid: int) -> int:
    return sum(process.rss_bytes for process in describe_tree(pid))


def tree_cpu_s(pid: int) -> float:
    return sum(process.cpu_s for process in describe_tree(pid))


def _own_pids() -> list[int]:
    user = os.geteuid()
    found = []
    for name in os.listdir(_PROC) if can_see_marks() else []:
        if name.isdigit():
            try:
                owner = os.stat(_PROC / name).st_uid
            except OSError:
                continue  # it ended after the listing
            # The files of a non-dumpable process belong to root: only its status names the real user.
            if (owner == user or _user_of(int(name)) == user) and not _is_kernel_thread(int(name)):
                found.append(int(name))
    return found


def _is_kernel_thread(pid: int) -> bool:
    """If the server runs as root, it would otherwise read hundreds of kernel threads, which never have a mark."""
    fields = _stat(pid)
    return len(fields) > 6 and bool(int(fields[6]) & _KERNEL_THREAD)


def _user_of(pid: int) -> int | None:
    """The effective user of a process, from the line `Uid: real effective saved filesystem`."""
    uids = _UIDS.search(_read(pid, "status"))
    return int(uids[1]) if uids else None


async def _look_together() -> dict[str, list[int]]:
    """Scan /proc once for all callers at about the same time, starting after their calls. If a hundred sessions end
    together, a hundred scans would block everything."""
    loop = asyncio.get_running_loop()
    look = _looks.get(loop)
    if look is None:

        async def begin() -> dict[str, list[int]]:
            await asyncio.sleep(GATHER_S)
            del _looks[loop]
            return await asyncio.to_thread(marked_all)

        look = _looks[loop] = asyncio.create_task(begin(), name="look for marks")
    return await asyncio.shield(look)


async def _signal_all(launch_ids: set[str], number: int) -> dict[int, str]:
    marks = await _look_together()
    found = {pid: launch_id for launch_id, pids in marks.items() if launch_id in launch_ids for pid in pids}
    return {pid: launch_id for pid, launch_id in found.items() if signal_marked(pid, launch_id, number)}


async def _wait_gone(pids: dict[int, str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(launch_id in marks_of(pid) for pid, launch_id in pids.items()):
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def _pin(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # the process is gone (then its mark is too), or the kernel has no pidfds


def _table() -> dict[int, Process]:
    return _table_from_proc() if can_see_marks() else _table_from_ps()


def _table_from_proc() -> dict[int, Process]:
    page_bytes, ticks_per_s = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    table = {}
    for name in os.listdir(_PROC):
        if not name.isdigit():
            continue
        try:
            stat = (_PROC / name / "stat").read_bytes()
            # The name is in parentheses and may itself contain spaces and parentheses.
            short, _, rest = stat.partition(b"(")[2].rpartition(b")")
            fields = rest.split()
            if fields[0] in (b"Z", b"X") or int(fields[6]) & _KERNEL_THREAD:
                continue
            line = (_PROC / name / "cmdline").read_bytes()
        except OSError:
            continue  # it ended after the listing
        command = (line.rstrip(b"\0").replace(b"\0", b" ") or short).decode(errors="replace")
        cpu_s = sum(map(int, fields[11:15])) / ticks_per_s
        table[int(name)] = Process(int(name), int(fields[1]), command, int(fields[21]) * page_bytes, cpu_s)
    return table


def _table_from_ps() -> dict[int, Process]:
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,rss=,time=,command="], capture_output=True, timeout=PS_TIMEOUT_S, check=True
    )
    table = {}
    for line in listing.stdout.decode(errors="replace").splitlines():
        pid, ppid, rss_kib, used, command = line.split(None, 4)
        table[int(pid)] = Process(int(pid), int(ppid), command, int(rss_kib) * 1024, _seconds_of(used))
    return table


def _seconds_of(used: str) -> float:
    """Parse `1-02:03:04` (Linux) or `123:04.56` (macOS)."""
    days, _, rest = used.rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + int(days or 0) * 86_400
