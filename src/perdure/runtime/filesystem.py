"""Which kind of file system a directory is on, and which kinds are not safe: their locks can't be trusted.

Above: the data directory, which refuses them, and `perdure doctor`, which says so beforehand. Below: the system.
"""

import os
import re
from pathlib import Path

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre"}
NETWORK_FILE_SYSTEMS |= {"fuse.sshfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"}

MOUNTS = Path("/proc/self/mounts")
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
