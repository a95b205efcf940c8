"""A node's lease: the file that says until when its agents may act, and the clock that it is measured by.

Above: the node's heartbeat writes the file each time the database has confirmed it. Below: one file, which every keeper
of this node rereads when the deadline it knows has come. It deliberately does not decide how long a lease is.
"""

import json
import os
from pathlib import Path

from perdure.runtime.data.filesystem import write_private
from perdure.runtime.keeping.keeper import boottime_s

__all__ = ["boottime_s", "write_lease"]


def write_lease(path: Path, incarnation: int, deadline_s: float) -> None:
    """Replace the file in one step. It need not survive a crash of the machine: no keeper does."""
    new = path.with_name(path.name + ".new")
    write_private(new, json.dumps({"incarnation": incarnation, "deadline_s": deadline_s}))
    os.replace(new, path)
