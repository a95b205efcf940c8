"""What happened in a run, as it was seen from outside: one JSON object per line, in the order in which it was noted.

Above: run.py and workload.py write it, checker.py reads it. Below: a file. Many threads write; a line is written
whole, so that a run that is interrupted leaves a history that can be read.

kind      besides `at_s`, the seconds since the run began
run       seed, plan: what the seed led to
op        op, what, phase ("invoke", "ok", "fail", "unknown"), session; of a message its id and text; attempts of the
          same operation have the same `op`
open      viewer, session, node, position: a viewer connects, after this position
frame     viewer, id, type, seq, first_seq: what it got
fault     what, node, ...
rest      within_s: everything came to rest so long after the last fault was healed
stuck     what: it did not
log       session, node, events: the log as this node shows it, when all was over
prompts   session, prompts: those still open then
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
    """Those of one kind, with these values."""
    for record in records:
        if record["kind"] == kind and all(record.get(name) == value for name, value in fields.items()):
            yield record
