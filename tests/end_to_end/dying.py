"""A server that kills itself at a chosen moment of a file operation, as a power failure would.

Above: test_reviewing_changes.py. Below: a fork of the tests' warm process, and Python's audit events, which name every
change of the file system and every program that is started. The moment is in a file, so a running server can be armed:
the name of a step, or `change 7` for the moment before the change after seven many while its plans are carried out.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perdure.core.commands import RequestFiles
from perdure.runtime.log.journal import Journal
from perdure.runtime.review.operations import Operations
from perdure.runtime.review.plans import Planner
from perdure.runtime.running.commands import Commands
from tests import warm
from tests.harness import WAIT_S, LiveServer

CHANGES = {
    "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime",
    "subprocess.Popen",
}  # fmt: skip
NOTED = "noted"
"""The moment before an operation is recorded, so it never happens."""
STEPS = ("asked", "planned", "carried out", "followed", "stored", "recorded")
"""The steps of an operation at which a server can be killed."""


class MortalServer(LiveServer):
    """`die_at` arms it; the next server on the same data is not armed."""

    def __init__(self, data: Path, config: str = "") -> None:
        super().__init__(data, config)
        self._moment = data.parent / "die-at"

    def _begin(self, *arguments: str) -> "subprocess.Popen[bytes] | warm.Server":
        return _MortalFork(["serve", *arguments], self.start_environment, self.errors, self._moment)

    def die_at(self, moment: str) -> None:
        part = self._moment.with_suffix(".part")
        part.write_text(moment)
        part.replace(self._moment)

    @property
    def changes(self) -> int:
        """How many changes the newest operation took."""
        return int(self._moment.with_suffix(".count").read_text())

    def wait_dead(self) -> None:
        """Wait until it has killed itself."""
        assert self.process is not None
        assert self.process.wait(WAIT_S) == -signal.SIGKILL
        self.disarm()
        self.kill()

    def disarm(self) -> None:
        self._moment.unlink(missing_ok=True)


class _MortalFork(warm.Server):
    def __init__(self, arguments: list[str], env: dict[str, str], log: Path, moment: Path) -> None:
        reader, writer = warm.CONTEXT.Pipe(duplex=False)
        with writer:
            streams: list[str | Connection] = [os.devnull, writer, str(log)]
            given = (arguments, streams, env, str(Path.cwd()), str(moment))
            self._process = warm.CONTEXT.Process(target=_serve, args=given, daemon=True)
            self._process.start()
        with reader:
            self.stdout = os.fdopen(os.dup(reader.fileno()), "rb")
        assert self._process.pid is not None
        self.pid: int = self._process.pid


def _serve(arguments: list[str], streams: Sequence[str | Connection], env: dict[str, str], cwd: str, at: str) -> None:
    _Death(Path(at)).prepare()
    warm._command(arguments, streams, env, cwd)


class _Death:
    def __init__(self, moment: Path) -> None:
        self._moment = moment
        self._carrying_out = threading.local()
        self._changes = 0
        """Since the operation was asked for; it can have several plans."""

    def prepare(self) -> None:
        make, record, carry_out = Operations.__init__, Commands.record, Planner.carry_out

        def made(operations: Operations, *given: Any) -> None:
            make(operations, *given)
            operations.at = self.reached

        async def recorded(commands: Commands, journal: Journal, command: Any, **given: Any) -> Any:
            if isinstance(command, RequestFiles):
                self.reached(NOTED)
            return await record(commands, journal, command, **given)

        def carried_out(planner: Planner, *given: Any) -> Any:
            self._carrying_out.counts = True
            try:
                return carry_out(planner, *given)
            finally:
                self._carrying_out.counts = False
                self._moment.with_suffix(".count").write_text(str(self._changes))

        setattr(Operations, "__init__", made)  # noqa: B010
        setattr(Commands, "record", recorded)  # noqa: B010
        setattr(Planner, "carry_out", carried_out)  # noqa: B010
        sys.addaudithook(self._audited)

    def reached(self, moment: str) -> None:
        if moment == STEPS[0]:
            self._changes = 0
        if self._moment.exists() and self._moment.read_text() == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not getattr(self._carrying_out, "counts", False):
            return
        is_written = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or is_written:
            # Reading the moment is an event too.
            self._carrying_out.counts = False
            self.reached(f"change {self._changes}")
            self._changes += 1
            self._carrying_out.counts = True
