"""A node's lease: a file that says until when its agents may act, and the clock by which that is measured.

Above: the node writes the file after each heartbeat that the database has confirmed. Below: one file, which every
keeper of this node rereads when the deadline it knows has passed. Deliberately doesn't decide how long a lease lasts.
"""

import json
import os
from pathlib import Path

from perdure.runtime.data.filesystem import write_private
from perdure.runtime.keeping.keeper import boottime_s

__all__ = ["boottime_s", "write_lease"]


def write_lease(path: Path, incarnation: int, deadline_s: float) -> None:
    """Replace the file atomically. No fsync: the file need not survive a crash of the machine, as no keeper does."""
    new = path.with_name(path.name + ".new")
    write_private(new, json.dumps({"incarnation": incarnation, "deadline_s": deadline_s}))
    os.replace(new, path)
