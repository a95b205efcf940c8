"""Control groups: one for each launch, where the system allows it. What an agent starts leaves it only on purpose.

Above: the launcher makes and sweeps them, a launch that is over removes its own; processes.py recognises their members,
`perdure doctor` says whether they can be had. Below: the cgroup file system, version 2, or any writable hierarchy of
version 1. Only membership is used: no controller is turned on, and nothing is limited.

A process carries its mark in its environment, which it can clear, and has a parent, which it can leave. Its group it
leaves only on purpose. The group of a launch is called after it, below the group that the server is in: so its members
are seen in /proc, whatever hierarchy that is. Where groups can't be made, marks and parents are all there is. It finds
what an agent forgets; it is no fence: one that may write to the group above can put itself there.
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
# Those that need nothing to be set before a process may enter, the one that is made for ending processes first.
VERSION_1 = ("freezer", "pids", "cpuacct", "devices")
TRY_TIMEOUT_S = 5.0
REMOVE_TRIES = 10
REMOVE_AGAIN_S = 0.005

_MEMBER = re.compile(rb"/" + PREFIX.encode() + rb"([A-Za-z0-9][A-Za-z0-9_.-]{0,99})(?=/|$)", re.MULTILINE)


class Base(NamedTuple):
    """A group in which groups for launches may be made."""

    folder: Path
    version: int


def launch_in(membership: bytes) -> str | None:
    """The launch whose group a process is in, from its /proc/PID/cgroup. Where a server runs inside of a launch of
    another one, the inner launch, as with marks."""
    found = _MEMBER.findall(membership)
    return os.fsdecode(found[-1]) if found else None


def bases(mounts: str, membership: str) -> Iterator[Base]:
    """Where the process with this /proc/PID/cgroup could make groups, best first. `mounts` is its mountinfo."""
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
    """A group's path inside of a mount that shows only what is below `root`."""
    if root == "/":
        return path.lstrip("/")
    if path == root or path.startswith(root + "/"):
        return path[len(root) :].lstrip("/")
    return None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def here() -> list[Base]:
    """Where this process could make groups, best first."""
    try:
        return list(bases(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()))
    except OSError:
        return []


def try_out(base: Base) -> str | None:
    """Why no process can be put into a group there; None if it can."""
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
    return None if entering.returncode == 0 else f"{base.folder}: a process can't be put into a group"


def find() -> tuple[Base | None, str]:
    """The best place for groups, or why no place works."""
    reasons = []
    for base in here():
        reason = try_out(base)
        if reason is None:
            return base, ""
        reasons.append(reason)
    return None, "; ".join(reasons) or "no control groups are mounted"


def remove(group: Path) -> bool:
    """Remove a group and those that were made inside of it; False if a process is still in it."""
    for number in range(REMOVE_TRIES):
        if number:
            # The last process may be gone for everybody but its group.
            time.sleep(REMOVE_AGAIN_S)
        inside = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)] or [group]
        for folder in inside:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if not group.exists():
            return True
    return False


def remove_of(launch: Path) -> None:
    """Remove the group of a launch that is over. Its folder names it; if that is damaged, it is looked for."""
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
        """Where they are, or why they can't be made: for `perdure doctor`, whose own place may be another one."""
        folder = str(self._base.folder) if self._base is not None else None
        return {"folder": folder, "version": self._base.version if self._base else None, "reason": self._reason}

    def make(self, launch_id: str) -> str | None:
        """A group for a launch; None where there are none."""
        if self._base is None:
            return None
        group = self._base.folder / f"{PREFIX}{launch_id}"
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            logger.warning("launch %s has no control group: %s", launch_id, error)
            return None
        return str(group)

    def sweep(self, install_id: str, living: Collection[str]) -> None:
        """Remove what an earlier server left of launches that are over, after their processes were ended."""
        if self._base is not None:
            for group in self._base.folder.glob(f"{PREFIX}{install_id}-*"):
                if group.name.removeprefix(PREFIX) not in living:
                    remove(group)
