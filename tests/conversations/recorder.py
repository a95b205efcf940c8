"""A wrapper around an agent's program that records its arguments and its input, line by line.

`python recorder.py FOLDER PROGRAM ARGUMENTS ...` writes one file per start. It changes nothing, except that with
`--hides-resume` before the program, the program looks as if it can't resume sessions.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from typing import BinaryIO

HIDES = "--hides-resume"
HIDDEN = ((b'"loadSession":true', b'"loadSession":false'), (b'"resume":{}', b'"other":{}'), (b"--resume", b"--other"))


def main() -> int:
    folder, *command = sys.argv[1:]
    hides = command[0] == HIDES
    command = command[hides:]
    asked = command[-1:] in (["--version"], ["--help"])
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE if hides else None)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    assert child.stdin is not None
    if hides:
        threading.Thread(target=_show, args=(child.stdout,), daemon=not asked).start()
    if asked:
        child.stdin.close()
    else:
        path = os.path.join(folder, f"{uuid.uuid4().hex}.ndjson")
        threading.Thread(target=_feed, args=(child.stdin, path, command), daemon=True).start()
    return child.wait()


def _feed(stdin: BinaryIO, path: str, command: list[str]) -> None:
    with open(path, "ab", buffering=0) as record:
        record.write(json.dumps({"argv": command}).encode() + b"\n")
        for line in sys.stdin.buffer:
            record.write(line)
            try:
                stdin.write(line)
                stdin.flush()
            except OSError:
                return
    stdin.close()


def _show(stdout: BinaryIO) -> None:
    for line in stdout:
        for shown, instead in HIDDEN:
            line = line.replace(shown, instead)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
