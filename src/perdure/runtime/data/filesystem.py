"""Whether a directory is safe for our data, what of it agents may work in, whether two processes see the same one, and
how files are made that nobody else may read.

Above: the data directory, which refuses what is not safe, `perdure doctor`, which says so beforehand, sessions and
projects, and whatever makes files in the data directory. Below: the system. Modes are given explicitly: the umask is
the user's, and agents inherit it.
"""

import contextlib
import hashlib
import os
import pwd
import re
import stat
from pathlib import Path

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre"}
NETWORK_FILE_SYSTEMS |= {"fuse.sshfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"}

WORKSPACES = "workspaces"
"""In the data directory: the folders of sessions that name no directory."""
PRIVATE = "is in Perdure's data directory, where an agent could change what was said and read the token"
"""What is wrong with a path that is private."""
MOUNTS = Path("/proc/self/mounts")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MACHINE_ID = Path("/etc/machine-id")
UNKNOWN_BOOT = "unknown"
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system(path: Path) -> str:
    """The kind of file system that a path is on; empty where the system does not say."""
    try:
        table = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    real = os.path.realpath(path)
    found, longest = "", -1
    for fields in (line.split(" ") for line in table.split("\n")):
        if len(fields) < 3:
            continue
        # Blanks and the like stand there as octal numbers.
        place = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1])
        # Of those at the same place the last one was mounted over the others.
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= longest:
            found, longest = fields[2], len(place)
    return found


def not_ours(directory: Path) -> str | None:
    """Why a directory can't hold what is private, and what to do; None if it can."""
    found = directory.stat()
    me = os.geteuid()
    if found.st_uid != me:
        return (
            f"{directory} belongs to {_user(found.st_uid)}, and this runs as {_user(me)}. Run it as "
            f"{_user(found.st_uid)}, or make it yours: chown -R {_user(me)} {directory}"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return (
            f"Others may write to {directory}, and so could have changed what is in it. Look at it, then run: "
            f"chmod 700 {directory}"
        )
    return None


def is_within(real: str, root: str) -> bool:
    """Whether a real path is another one or lies below it."""
    return os.path.commonpath((real, root)) == root


def is_private(path: str, data: Path) -> bool:
    """Whether a path leads into the data directory, and not into a folder that was made there for a session."""
    real, root, own = (Path(os.path.realpath(place)) for place in (path, data, data / WORKSPACES))
    return (real == root or root in real.parents) and own not in real.parents


def boot_id() -> str:
    """The same for every process of a running machine, and for no other machine. Linux alone has one."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return UNKNOWN_BOOT


def machine_id() -> str:
    """A hash of this machine's own id, which copies of its disk may keep; empty where it has none."""
    try:
        own = MACHINE_ID.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(own).hexdigest()[:8] if own else ""


def directory_identity(path: str) -> str | None:
    """Which directory a path leads to; None if it leads to none. Two processes that get the same identity for a path
    see the same directory there: they run on one kernel, and the path has the same device and inode for both. So a
    machine behind a tunnel differs, and a container too, unless this very directory is mounted into it."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    return hashlib.sha256(f"{boot_id()}:{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:32]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def make_private(folder: Path) -> None:
    """Make a directory, and those above it that are missing, for its owner alone. One that is there stays as it is."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Make a file for its owner alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def close_to_others(directory: Path) -> None:
    """The directory and what lies in it directly: an earlier version, or another program, may have made it readable.
    What is deeper can't be reached by others then."""
    directory.chmod(0o700)
    for entry in list(os.scandir(directory)):
        with contextlib.suppress(FileNotFoundError):  # somebody else's short-lived file
            mode = 0o700 if entry.is_dir() else 0o600
            found = entry.stat(follow_symlinks=False)
            is_ours = found.st_uid == os.geteuid() and not entry.is_symlink()
            if is_ours and stat.S_IMODE(found.st_mode) != mode:
                os.chmod(entry.path, mode)
