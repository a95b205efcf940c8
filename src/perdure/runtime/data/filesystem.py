"""File system helpers: is a directory safe for private data, may agents work in it, do two processes see the same one;
and creating private files.

Above: the data directory, which refuses unsafe ones; `perdure doctor`, which reports them beforehand; sessions and
projects; all code that creates files in the data directory. Below: the operating system. Files get explicit modes,
because the umask is the user's and agents inherit it.
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
"""Folder in the data directory for the workspaces of sessions without a working directory."""
PRIVATE = "is in Perdure's data directory, where an agent could change conversations and read the token"
"""The error for a private path."""
MOUNTS = Path("/proc/self/mounts")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MACHINE_ID = Path("/etc/machine-id")
UNKNOWN_BOOT = "unknown"
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system(path: Path) -> str:
    """The type of file system that a path is on; empty if the system doesn't report it."""
    try:
        table = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    real = os.path.realpath(path)
    found, longest = "", -1
    for fields in (line.split(" ") for line in table.split("\n")):
        if len(fields) < 3:
            continue
        # Spaces and similar characters are octal escapes.
        place = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1])
        # Of several mounts at the same place, the last one covers the others.
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= longest:
            found, longest = fields[2], len(place)
    return found


def not_ours(directory: Path) -> str | None:
    """Why a directory is not safe for private data, and what to do; None if it is."""
    found = directory.stat()
    me = os.geteuid()
    if found.st_uid != me:
        return (
            f"{directory} belongs to {_user(found.st_uid)}, but Perdure is running as {_user(me)}. Run it as "
            f"{_user(found.st_uid)}, or take ownership: chown -R {_user(me)} {directory}"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return (
            f"Other users can write to {directory} and may have changed its contents. Check it, then run: "
            f"chmod 700 {directory}"
        )
    return None


def is_within(real: str, root: str) -> bool:
    """Whether a resolved path is `root` or below it."""
    return os.path.commonpath((real, root)) == root


def is_private(path: str, data: Path) -> bool:
    """Whether a path is in the data directory but not in a session's workspace."""
    real, root, own = (Path(os.path.realpath(place)) for place in (path, data, data / WORKSPACES))
    return (real == root or root in real.parents) and own not in real.parents


def boot_id() -> str:
    """The id of this boot: the same for all processes of a running machine, and different on others. Linux only."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return UNKNOWN_BOOT


def machine_id() -> str:
    """A hash of this machine's id, which a copy of its disk may share; empty if it has none."""
    try:
        own = MACHINE_ID.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(own).hexdigest()[:8] if own else ""


def directory_identity(path: str) -> str | None:
    """Identifies the directory at a path; None if there is none. Two processes that get the same identity for a path
    see the same directory: they run on the same kernel, and the device and inode are equal. It differs for a machine
    behind a tunnel, and for a container, unless the directory is mounted into it."""
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
    """Create a directory and its missing parents with access for the owner only. Existing ones are unchanged."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file with access for the owner only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def close_to_others(directory: Path) -> None:
    """Remove other users' access to the directory and its direct entries, which an earlier version or another program
    may have left readable. Deeper entries are then unreachable for others."""
    directory.chmod(0o700)
    for entry in list(os.scandir(directory)):
        with contextlib.suppress(FileNotFoundError):  # a temporary file of another process
            mode = 0o700 if entry.is_dir() else 0o600
            found = entry.stat(follow_symlinks=False)
            is_ours = found.st_uid == os.geteuid() and not entry.is_symlink()
            if is_ours and stat.S_IMODE(found.st_mode) != mode:
                os.chmod(entry.path, mode)
