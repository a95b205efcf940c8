"""A PostgreSQL server for one run. It can be killed, stopped for some time, or fail over to a synchronous replica.

Above: nodes.py; the schedule of faults. Below: tests/postgres.py starts and stops one server. Every process ends with
the context manager, even if a test fails.

`fsync` is off, because runs kill processes but never the operating system. Whatever PostgreSQL wrote before it
responded is in the page cache, so no acknowledged data is lost. A replica confirms each commit before it is
acknowledged (`synchronous_commit = on`), so a failover loses nothing either.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.harness import eventually
from tests.postgres import Server

NAME = "perdure"
REPLICA = "replica"
STREAMS_WITHIN_S = 20.0
PROMOTED_WITHIN_S = 20.0
STOPPED_WITHIN_S = 10.0
SETTINGS = {"max_connections": "60", "shared_buffers": "16MB", "wal_level": "replica", "max_wal_senders": "4"}


class Database:
    """The primary and, with `has_replica`, a replica that confirms every commit."""

    def __init__(self, *, has_replica: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-faults-"))
        self._folder.chmod(0o755)
        self.primary = Server(self._folder / "one", settings=SETTINGS)
        self.replica = Server(self._folder / "two", settings=SETTINGS) if has_replica else None

    def __enter__(self) -> Self:
        try:
            self.primary.make()
            self.primary.start()
            self.ask(f"CREATE DATABASE {NAME}", "postgres")
            if self.replica is not None:
                self._follow(self.replica)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self.primary, self.replica):
            if server is not None:
                end(server)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def port(self) -> int:
        return self.primary.port

    def url(self, port: int) -> str:
        """The URL through this port, for example of a proxy."""
        return f"postgresql://{self.primary.user}@127.0.0.1:{port}/{NAME}"

    def ask(self, statement: str, database: str = NAME) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.primary.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    # Faults --------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill all its processes with SIGKILL."""
        end(self.primary)

    def start(self) -> None:
        if self.primary.process is None:
            self.primary.start()

    def restart(self) -> None:
        """Restart cleanly and immediately, as an upgrade does."""
        self.primary.stop(signal.SIGINT)
        self.primary.start()

    def fail_over(self) -> None:
        """Kill the primary and promote the replica, which then has no replica of its own."""
        assert self.replica is not None, "there is no replica"
        end(self.primary)
        self.primary, self.replica = self.replica, None
        self.ask("SELECT pg_promote(true)", "postgres")
        eventually(
            lambda: self.ask("SELECT NOT pg_is_in_recovery()", "postgres")[0][0], "the promotion", PROMOTED_WITHIN_S
        )

    def _follow(self, replica: Server) -> None:
        replica.folder.mkdir()
        shutil.chown(replica.folder, replica.user)
        source = f"host=127.0.0.1 port={self.primary.port} user={self.primary.user} application_name={REPLICA}"
        copy = ("-D", replica.data, "-d", source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self.primary._do("pg_basebackup", *copy)
        replica.start()
        self.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'", "postgres")
        self.ask("SELECT pg_reload_conf()", "postgres")
        streams = f"SELECT 1 FROM pg_stat_replication WHERE application_name = '{REPLICA}' AND sync_state = 'sync'"
        eventually(lambda: self.ask(streams, "postgres"), "the replica confirms", STREAMS_WITHIN_S)


def end(server: Server) -> None:
    """Kill the server and all its processes with SIGKILL; each is in its own process session."""
    process, server.process = server.process, None
    if process is None:
        return
    process.send_signal(signal.SIGSTOP)  # or it would start others meanwhile
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    process.kill()
    process.wait(STOPPED_WITHIN_S)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(_is_alive, pids)), "PostgreSQL's processes are gone", STOPPED_WITHIN_S)


def _is_alive(pid: int) -> bool:
    try:
        # An orphan that has not been reaped yet is a zombie, and counts as gone.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
