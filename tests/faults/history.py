"""The history of a run as seen from outside: one JSON object per line, in the order of recording.

Above: run.py and workload.py write it, checker.py reads it. Below: a file. Many threads write. Each line is written in
one piece, so the history of an interrupted run is still readable.

kind      besides `at_s`, the seconds since the run began
run       seed, plan: what the seed led to
op        op, what, phase ("invoke", "ok", "fail", "unknown"), session; for a message its id and text; all attempts of
          an operation have the same `op`
open      viewer, session, node, position: a viewer connects after this position
frame     viewer, id, type, seq, first_seq: what the viewer received
fault     what, node, ...
rest      within_s: how long after the last fault everything came to rest
stuck     what: what did not come to rest
log       session, node, events: the log as this node shows it at the end
prompts   session, prompts: prompts that are open at the end
lifetime  directory, pid, ticks: when an agent was alive
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class History:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def note(self, kind: str, **fields: Any) -> None:
        with self._lock:
            at_s = round(time.monotonic() - self._began_s, 4)
            self._file.write(json.dumps({"at_s": at_s, "kind": kind, **fields}, separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def of(records: list[Record], kind: str, **fields: Any) -> Iterator[Record]:
    """The records of one kind with these values."""
    for record in records:
        if record["kind"] == kind and all(record.get(name) == value for name, value in fields.items()):
            yield record
