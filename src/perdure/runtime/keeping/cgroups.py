"""Control groups: one for each launch, if the system allows it. A process of the launch leaves it only deliberately.

Above: the launcher creates and sweeps them, and a finished launch removes its own; processes.py recognises their
members; `perdure doctor` reports whether they are available. Below: the cgroup filesystem, version 2, or any writable
hierarchy of version 1. Only membership is used: no controller is enabled, and nothing is limited.

A process can clear its environment, where its mark is, and it can detach from its parent. But it leaves its control
group only deliberately. A launch's group is named after it and is below the server's own group. Its members are
therefore visible in /proc in any hierarchy. If groups can't be created, only marks and parents are left. Groups are no
sandbox: they find processes that an agent left behind, but a process that may write to the group above can leave.
"""

import contextlib
import json
import logging
import os
import re
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

PREFIX = "perdure-"
MEMBERS = "cgroup.procs"
# Hierarchies that a process may enter without further setup. The freezer comes first, as it is meant for this purpose.
VERSION_1 = ("freezer", "pids", "cpuacct", "devices")
TRY_TIMEOUT_S = 5.0
REMOVE_TRIES = 10
REMOVE_AGAIN_S = 0.005

_MEMBER = re.compile(rb"/" + PREFIX.encode() + rb"([A-Za-z0-9][A-Za-z0-9_.-]{0,99})(?=/|$)", re.MULTILINE)


class Base(NamedTuple):
    """A group in which groups for launches may be created."""

    folder: Path
    version: int


def launch_in(membership: bytes) -> str | None:
    """The launch whose group a process is in, from its /proc/PID/cgroup. If a server runs inside another server's
    launch, this is the inner launch, as with marks."""
    found = _MEMBER.findall(membership)
    return os.fsdecode(found[-1]) if found else None


def bases(mounts: str, membership: str) -> Iterator[Base]:
    """Where a process could create groups, best first. `membership` is its /proc/PID/cgroup, `mounts` its mountinfo."""
    own = dict(line.split(":", 2)[1:] for line in membership.splitlines() if line.count(":") >= 2)
    hierarchies: dict[str, Base] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        for names, path in own.items():
            below = _below(path, _unescaped(fields[3]))
            if below is None:
                continue
            folder = Path(_unescaped(fields[4])) / below
            if kind[0] == "cgroup2" and not names:
                hierarchies.setdefault("", Base(folder, 2))
            elif kind[0] == "cgroup" and names:
                mounted = kind[2].split(",")
                for name in set(names.split(",")) & set(mounted):
                    hierarchies.setdefault(name, Base(folder, 1))
    for name in ("", *VERSION_1):
        if name in hierarchies:
            yield hierarchies[name]


def _below(path: str, root: str) -> str | None:
    """A group's path inside a mount that shows only what is below `root`; None if it is elsewhere."""
    if root == "/":
        return path.lstrip("/")
    if path == root or path.startswith(root + "/"):
        return path[len(root) :].lstrip("/")
    return None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def here() -> list[Base]:
    """Where this process could create groups, best first."""
    try:
        return list(bases(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()))
    except OSError:
        return []


def try_out(base: Base) -> str | None:
    """Why no process can be moved into a group there; None if it can."""
    group = base.folder / f"{PREFIX}try-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError as error:
        return f"{base.folder}: {error.strerror}"
    try:
        entering = subprocess.run(
            ["sh", "-c", 'echo 0 > "$1"', "sh", str(group / MEMBERS)],
            capture_output=True,
            timeout=TRY_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{base.folder}: {error}"
    finally:
        remove(group)
    return None if entering.returncode == 0 else f"{base.folder}: could not move a process into a group"


def find() -> tuple[Base | None, str]:
    """The best place for groups, or why none works."""
    reasons = []
    for base in here():
        reason = try_out(base)
        if reason is None:
            return base, ""
        reasons.append(reason)
    return None, "; ".join(reasons) or "no control groups are mounted"


def remove(group: Path) -> bool:
    """Remove a group and those below it; False if a process is still in it."""
    for number in range(REMOVE_TRIES):
        if number:
            # A process that has ended may stay in its group for a moment.
            time.sleep(REMOVE_AGAIN_S)
        inside = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)] or [group]
        for folder in inside:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if not group.exists():
            return True
    return False


def remove_of(launch: Path) -> None:
    """Remove the group of a finished launch. The launch's spec.json names it; if that is damaged, search for it."""
    name = f"{PREFIX}{launch.name}"
    try:
        named = json.loads((launch / "spec.json").read_text()).get("cgroup")
        groups = [Path(named)] if named is not None else []
    except (OSError, ValueError, AttributeError, TypeError):
        groups = [base.folder / name for base in here()]
    for group in groups:
        if group.name == name:
            remove(group)


class ControlGroups:
    """The groups of one server's launches."""

    def __init__(self) -> None:
        self._base: Base | None = None
        self._reason = ""

    def start(self) -> None:
        self._base, self._reason = find()

    def note(self) -> dict[str, Any]:
        """Where they are, or why there are none. For `perdure doctor`, which may itself run in a different group."""
        folder = str(self._base.folder) if self._base is not None else None
        return {"folder": folder, "version": self._base.version if self._base else None, "reason": self._reason}

    def make(self, launch_id: str) -> str | None:
        """Create a group for a launch; None if groups are not available."""
        if self._base is None:
            return None
        group = self._base.folder / f"{PREFIX}{launch_id}"
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            logger.warning("launch %s: could not create a control group; starting without one: %s", launch_id, error)
            return None
        return str(group)

    def sweep(self, install_id: str, living: Collection[str]) -> None:
        """Remove the groups of finished launches that an earlier server left. End their processes first."""
        if self._base is not None:
            for group in self._base.folder.glob(f"{PREFIX}{install_id}-*"):
                if group.name.removeprefix(PREFIX) not in living:
                    remove(group)
