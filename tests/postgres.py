"""A private PostgreSQL for the tests of this run: started when the first test needs it, and never left behind.

Above: the fixtures in conftest.py and the tests of the PostgreSQL store. Below: Debian's binaries, or those on PATH; or
an existing server named by PERDURE_TEST_POSTGRES, in which databases are created. All workers of a run share one
server. It is the child of a small watcher (this file, run as a program), which stops it when the pipe to the first
process of the run is closed, even if that process was killed.
"""

import asyncio
import contextlib
import fcntl
import getpass
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

GIVEN = "PERDURE_TEST_POSTGRES"
"""The URL of a server to use instead of a private one. Tests create and drop databases there."""
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
USERS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root. In that case, run it as the first of these users that exists."""
FAST = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}
SETTINGS = {
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "autovacuum_naptime": "30s",
    "log_min_messages": "fatal",
    "dynamic_shared_memory_type": "posix",
}


def binaries() -> Path | None:
    """Return the folder with initdb and postgres."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: _version(path.parent.parent))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path and shutil.which("initdb") else None


def _version(folder: Path) -> float:
    return float(folder.name) if folder.name.replace(".", "", 1).isdigit() else 0.0


def has_pooler() -> bool:
    return bool(shutil.which("pgbouncer")) or Path("/usr/sbin/pgbouncer").exists()


def lack() -> str | None:
    """Return why there is no PostgreSQL for tests here; None if there is one."""
    if find_spec("psycopg") is None:
        return "needs PostgreSQL: psycopg is not installed (pip install 'perdure[postgres]')"
    if os.environ.get(GIVEN):
        return None
    if binaries() is None:
        return f"needs PostgreSQL: install it (Debian: postgresql), or name a server with {GIVEN}"
    if os.geteuid() == 0 and _user() is None:
        return f"needs PostgreSQL: it does not run as root, and no user of {', '.join(USERS)} exists"
    return None


def _user() -> pwd.struct_passwd | None:
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Server:
    """One database cluster in its own folder."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: dict[str, str] | None = None,
        port: int | None = None,
        programs: Path | None = None,
    ) -> None:
        found = programs or binaries()
        assert found is not None, lack()
        self.binaries = found
        self.folder = folder
        self.data = folder / "data"
        self.port = port or free_port()
        self.settings = {**SETTINGS, **FAST, **(settings or {})}
        self._user = _user() if os.geteuid() == 0 else None
        self.user = self._user.pw_name if self._user else getpass.getuser()
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", **more: Any) -> str:
        query = "&".join(f"{name}={value}" for name, value in more.items())
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def make(self) -> None:
        """Run initdb. The server's user must have access to the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._do(
            "initdb", "-D", self.data, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", self.user
        )

    def start(self) -> None:
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        place = ["-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.folder)]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            [str(self.binaries / "postgres"), *place, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self._as_user(),
        )
        log.close()
        self._wait()

    def _wait(self) -> None:
        import psycopg

        for _ in range(START_TIMEOUT_S * 20):
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url(), connect_timeout=5):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        raise RuntimeError("PostgreSQL did not start in time")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server. SIGINT: fast, with a clean shutdown. SIGQUIT: immediately, like a crash."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

    def _do(self, program: str, *args: Any) -> None:
        made = subprocess.run(
            [str(self.binaries / program), *map(str, args)], capture_output=True, check=False, **self._as_user()
        )
        if made.returncode != 0:
            raise RuntimeError(f"{program} failed: {made.stderr.decode()[-2000:]}")

    def _as_user(self) -> dict[str, Any]:
        return {**as_user(), "cwd": str(self.folder)}


def as_user() -> dict[str, Any]:
    """Return options of Popen for a program that refuses to run as root."""
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
    user = _user() if os.geteuid() == 0 else None
    ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    return {**ids, "env": environment}


@contextmanager
def private_server(programs: Path | None = None, /, **settings: Any) -> Iterator[Server]:
    """Start a server for one test, which may stop and restart it. `programs` other than the machine's are copied first,
    because the server's user may not have access to them."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
    if programs is not None:
        programs = Path(shutil.copytree(programs.parent, folder / "installed")) / programs.name
    server = Server(folder, settings=settings, programs=programs)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def pooler(server: "Shared", folder: Path) -> Iterator[int]:
    """Run PgBouncer in transaction mode in front of a server. Yields its port."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    parts = urlsplit(server.admin_url)
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port or 5432} user={parts.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\n"
    )
    settings.chmod(0o644)
    for each in (folder, *folder.parents[:3]):
        each.chmod(each.stat().st_mode | 0o111)
    options = as_user()
    process = subprocess.Popen(
        [program, "-q", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        for _ in range(START_TIMEOUT_S * 20):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


# The shared server of a run ---------------------------------------------------------------------------------------


class Shared(NamedTuple):
    """The address of the shared server: a URL in which the database name is replaced."""

    admin_url: str

    @property
    def port(self) -> int:
        return urlsplit(self.admin_url).port or 5432

    def url(self, database: str) -> str:
        base, _, query = self.admin_url.partition("?")
        return f"{base.rsplit('/', 1)[0]}/{database}" + (f"?{query}" if query else "")


def shared_server(place: Path) -> Shared:
    """Return the server of this run. The first process that needs it starts it. `place` is the folder of the run. The
    watcher reads from a pipe that the first process of the run holds open (see `hold`)."""
    if given := os.environ.get(GIVEN):
        return Shared(given)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = place / "server.json"
        if not note.exists():
            _start_watcher(place)
        return Shared(json.loads(note.read_text())["url"])


def _start_watcher(place: Path) -> None:
    pipe = os.environ[PIPE]
    with (place / "watcher.log").open("wb") as log:
        watcher = subprocess.Popen(
            [sys.executable, __file__, pipe, str(place / "server.json")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert watcher.stdout is not None
    # It prints one line when the server is ready, or nothing if the start failed.
    if watcher.stdout.readline() != b"ready\n":
        raise RuntimeError(f"no PostgreSQL for tests: {(place / 'watcher.log').read_text()[-2000:]}")
    watcher.stdout.close()
    # On purpose, it outlives this worker.
    watcher.returncode = 0


PIPE = "PERDURE_TEST_POSTGRES_PIPE"
"""The path of a FIFO that the first process of the run holds open for writing until it ends."""


def run_folder() -> Path:
    """Return the folder that the processes of a run share."""
    return Path(os.environ[PIPE]).parent / "postgres"


def hold(folder: Path) -> None:
    """Called once by the first process of a run. The server may run as long as this process lives."""
    path = folder / "postgres.pipe"
    os.mkfifo(path)
    os.environ[PIPE] = str(path)
    # Also for reading, or opening would wait for a reader. No child inherits it; it is closed when this process ends.
    os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def watch(pipe: str, note: str) -> None:
    """Main function of the watcher: start the server, report that, and stop it when the pipe is closed."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
    server = Server(folder)
    # Don't wait for a writer: the first process of the run may already be gone.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    try:
        server.make()
        server.start()
        written = Path(note + ".new")
        written.write_text(json.dumps({"url": server.url()}))
        written.rename(note)
        os.write(1, b"ready\n")
        os.close(1)
        os.read(reader, 1)  # returns at EOF, when the first process of the run is gone
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


# Databases --------------------------------------------------------------------------------------------------------


def make_database(shared: Shared, template: str | None = None, prefix: str = "perdure_test") -> str:
    """Create a database and return its name."""
    name = f"{prefix}_{uuid4().hex[:12]}"
    import psycopg

    with psycopg.connect(shared.admin_url, autocommit=True) as connection:
        # If possible, don't copy every page to the write-ahead log.
        quickly = "STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""
        sql = f'CREATE DATABASE "{name}" ENCODING \'UTF8\' TEMPLATE "{template or "template0"}" {quickly}'
        connection.execute(sql.encode())
    return name


def drop_database(shared: Shared, name: str) -> None:
    run_sql(shared, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def make_template(shared: Shared, place: Path) -> str:
    """Create a migrated database, once for all workers of a run. The databases of the tests are copies of it."""
    from perdure.stores.postgres import PostgresStore

    async def migrate(url: str) -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    place.mkdir(parents=True, exist_ok=True)
    with (place / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = place / "template"
        if not note.exists():
            name = make_database(shared, prefix="perdure_template")
            asyncio.run(migrate(shared.url(name)))
            note.write_text(name)
        return note.read_text()


def drop_template() -> None:
    """Called at the end of a run by its first process. A private server is deleted entirely, so it needs no cleanup."""
    given, note = os.environ.get(GIVEN), run_folder() / "template"
    if given and note.exists():
        drop_database(Shared(given), note.read_text())


def run_sql(shared: Shared, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
    import psycopg

    url = shared.admin_url if database is None else shared.url(database)
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


# A proxy that sees each round trip -----------------------------------------------------------------------------------


class Proxy:
    """Forwards connections to a server, counts round trips, and cuts connections on request."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.round_trips = 0
        self.cuts: Literal["", "request", "reply"] = ""
        """What not to forward next: the connection is cut instead, and this is reset."""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, url: str) -> str:
        """Return the URL of the same database through this proxy, unencrypted, so that it can read the messages."""
        parts = urlsplit(url)
        place = f"{parts.username}@127.0.0.1:{self.port}"
        return urlunsplit((parts.scheme, place, parts.path, "sslmode=disable&gssencmode=disable", ""))

    def cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += (writer, back)
        both = (self._requests(reader, back), self._replies(there, writer))
        tasks = [asyncio.ensure_future(one) for one in both]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, back):
            each.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward message by message; the first one has no type. Count simple queries and syncs, which have a reply."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            size = await reader.readexactly(4)
            writer.write(size + await reader.readexactly(int.from_bytes(size, "big") - 4))
            while True:
                head = await reader.readexactly(5)
                message = head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                if head[:1] in b"SQ":
                    self.round_trips += 1
                    if self.cuts == "request":
                        self.cuts = ""
                        return
                writer.write(message)

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.cuts == "reply":
                    self.cuts = ""
                    return
                writer.write(data)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watch(sys.argv[1], sys.argv[2])
