"""The only place where all is wired: a server is an object that can be started on port 0 and stopped again."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure import __version__
from perdure.config import Config, ServerSettings, load
from perdure.core.addresses import host_of, is_every_address, is_loopback
from perdure.core.errors import StoreDamaged, StoreError, StoreFull
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data import cluster, settings_check
from perdure.runtime.data.directory import DataDirectory, DataError
from perdure.runtime.data.projects import Projects
from perdure.runtime.data.tokens import TokenError, check_token, read_token_file
from perdure.runtime.engine import Engine
from perdure.runtime.log.log import Log
from perdure.runtime.verbs.nodes import Readiness
from perdure.stores import transfer
from perdure.stores.base import Store
from perdure.stores.sqlite import SqliteStore
from perdure.stores.wakeups import LocalWakeups, Wakeups
from perdure.surfaces import open_files
from perdure.surfaces.http.access import Access
from perdure.surfaces.http.app import make_app
from perdure.surfaces.http.connections import BoundedProtocol
from perdure.surfaces.http.viewers import Hub

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0001
"""How long a busy event loop may keep the interpreter from the store's writer: the default starves it."""
DATE_S = 1.0
BACKLOG = 4096
SHUTDOWN_GRACE_S = 3
KEEP_ALIVE_S = 60
"""How long an idle connection is kept: much longer than clients use one again. Else a request may meet the server
closing it, and nobody can say whether it was done."""
POSTGRES = ("postgresql://", "postgres://")
LOCK_ATTEMPTS = 60
LOCK_RETRY_S = 0.05


class StartError(Exception):
    """The server can't start; the message says why and what to do."""


class _Http(uvicorn.Server):
    """uvicorn's server, which says when it listens, and sleeps while there is nothing to do."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._leaving = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for `leave` instead of polling ten times a second. Refresh the `date` header once a second."""
        while not self._leaving.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._leaving.wait()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class Server:
    def __init__(
        self,
        *,
        data: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        config: Config | None = None,
        config_path: Path | None = None,
        token: str | None = None,
        database: str | None = None,
        http_protocol: type[HttpToolsProtocol] = BoundedProtocol,
    ) -> None:
        self.directory = DataDirectory(data)
        self.config = config or Config()
        self._config_path = config_path
        self.url = ""
        self.token = ""
        self._bind = (host, port)
        self._given_token = token
        self._database = database
        self._is_lost = False
        """Whether this node lost its place among the others: they may run its sessions."""
        self._http_protocol = http_protocol
        self._http: _Http | None = None
        self._serving: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()

    async def start(self) -> None:
        """Be ready: everything that an earlier server left is taken up, and requests are answered."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        data = self.directory.path
        mode = os.environ.get("SESSION_RUNNER_MODE")
        agents = Agents(self.config.agents, data, self.config.server.agent, mode, self._config_path)
        self._check_agent(agents)
        self._check_token()
        self._check_workdirs()
        await self._open_directory()
        listener = self._listen()
        try:
            install_id = self.directory.install_id()
        except DataError as error:
            listener.close()
            self.directory.close()
            raise StartError(str(error)) from error
        self.store, self.wakeups = _stores(self._database, self.config.server, data, install_id)
        self.log = Log(self.store, wakeups=self.wakeups)
        try:
            await self.store.open()
            await transfer.check_complete(self.store)
            self.log.generation = await self.store.claim()
            if self.log.shared is not None:
                self.log.epoch = await self.log.shared.epoch()
                self.token = await cluster.token(self.log.shared, self.directory, self._given_token)
                cluster_id = await cluster.identity(self.log.shared)
            else:
                self.token = self.directory.token(self._given_token)
                self.log.epoch = self.directory.epoch(self.log.generation)
                cluster_id = install_id
            await self._wire(agents, install_id, cluster_id)
            await self.wakeups.start()
            await self.engine.start(self.url)
            self.hub.start()
            await self._serve(listener)
            noted = {"url": self.url, "pid": os.getpid(), "version": __version__}
            self.directory.write(
                "server.json", json.dumps(noted | {"control_groups": self.engine.launcher.groups.note()}) + "\n"
            )
        except BaseException as error:
            await self._undo(listener)
            if isinstance(error, DataError):
                raise StartError(str(error)) from error
            if isinstance(error, StoreError):
                where = "The database" if self._database else f"The store in {data}"
                raise StartError(f"{where} can't be opened: {error}{_advice(error)}") from error
            if isinstance(error, OSError):
                raise StartError(f"{data} can't be used: {error}. Put that right and start again.") from error
            raise

    async def _undo(self, listener: socket.socket) -> None:
        """After a start that failed: let go of everything. Keepers go on, for the next server."""
        if hasattr(self, "hub"):
            await self.hub.stop()
        if self._http is not None and self._serving is not None:
            self._http.leave()
            await asyncio.gather(self._serving, return_exceptions=True)
        listener.close()
        if hasattr(self, "engine"):
            await self.engine.abandon()
        await self._close_store()
        self.directory.close()

    async def _wire(self, agents: Agents, install_id: str, cluster_id: str) -> None:
        data, settings = self.directory.path, self.config.server
        projects = Projects(self.store, self.config.projects, data)
        for key, what in (await projects.load()).items():
            self.log.quarantine.add("project", key, None, what)
        for key, what in settings_check.projects(projects.all(), self.config.projects, agents, data):
            logger.warning("project %s: %s", key, what)
        made = (self.log, agents, projects, self.config, data)
        self.engine = Engine(*made, node_id=install_id, fenced=self._lost)
        self.sessions = self.engine.sessions
        self.readiness = Readiness(
            is_draining=lambda: self.engine.node.is_draining,
            store_silent_s=lambda: self.log.steady() - (self.engine.node.beaten_s or self.log.steady()),
        )
        self.hub = Hub(self.log, self.engine.feed, settings.replay_limit_events, settings.heartbeat_s)
        # Not the clock as it is now: nodes have another one from their first heartbeat on.
        self.access = Access(self.token, self.store, cluster_id, clock=lambda: self.log.now())  # noqa: PLW0108
        self.log.watch_documents("login", self.access.reload)
        self.access.on_change = lambda: self.log.announce_documents("login")
        await self.access.load()

    def _lost(self) -> None:
        """Another server took this one's place, or others declared it dead: it must stop."""
        self._is_lost = self.log.shared is not None
        self.stopped.set()

    def _check_agent(self, agents: Agents) -> None:
        if (problem := settings_check.default_agent(self.config, agents)) is not None:
            raise StartError(problem)

    def _check_token(self) -> None:
        if self._given_token:
            try:
                check_token(self._given_token)
            except TokenError as error:
                made = "Or leave it out, and the server makes one."
                raise StartError(f"The token of --token or PERDURE_TOKEN {error} {made}") from error

    def _check_workdirs(self) -> None:
        settings = self.config.server
        if self._database and settings.workdirs == "shared" and settings.workspaces is None:
            raise StartError(
                'workdirs = "shared" needs workspaces: the directory, seen by every node, in which sessions without a '
                'working directory get theirs. Set it under [server] in perdure.toml, or use workdirs = "local".'
            )

    async def _open_directory(self) -> None:
        for attempt in range(LOCK_ATTEMPTS):
            try:
                self.directory.open()
                break
            except DataError as error:
                # A command that looks whether a server is alive holds the lock for an instant, which is longer on a
                # busy machine; and so does what a killed server was about to start.
                if attempt + 1 == LOCK_ATTEMPTS or not isinstance(error.__cause__, BlockingIOError):
                    raise StartError(str(error)) from error
            await asyncio.sleep(LOCK_RETRY_S)
        # What a killed server left names a port that may be somebody else's by now.
        self.directory.remove("server.json")

    def _listen(self) -> socket.socket:
        host, port = self._bind
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol is named, or asyncio would not know it for TCP and would leave Nagle's delay of 40 ms on.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            self.directory.close()
            raise StartError(
                f"Port {port} on {host} can't be used: {error.strerror}. Choose another with --port."
            ) from error
        if not is_loopback(listener.getsockname()[0]):
            self._check_public(listener)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{listener.getsockname()[1]}"
        return listener

    def _check_public(self, listener: socket.socket) -> None:
        """Others can reach this address, and the token goes there in plain text unless a proxy encrypts it."""
        host, settings = self._bind[0], self.config.server
        if settings.insecure_http:
            logger.warning("--host %s %s", host, _meaning(host))
            logger.warning("plain HTTP on %s: whoever can read the network's traffic can read the token", host)
        elif not settings.behind_proxy:
            listener.close()
            self.directory.close()
            raise StartError(
                f"--host {host} {_meaning(host)}. The server speaks plain HTTP, so whoever reads the traffic there "
                "could read the token. Put a reverse proxy with TLS in front and start with --behind-proxy; or, on a "
                "network that you trust, start with --insecure-http. Without --host only this machine reaches it."
            )

    def _host_names(self) -> set[str]:
        """Under which names this server is reached: what it is bound to, what is configured, and this machine's own."""
        host = self._bind[0]
        named = [host_of(name) for name in (*self.config.server.allowed_hosts, host)]
        if not is_loopback(host):
            named.append(host_of(socket.gethostname()))
        return {name for name in named if name is not None}

    async def _serve(self, listener: socket.socket) -> None:
        parts = (self.sessions, self.engine.jobs, self.hub, self.access)
        config = uvicorn.Config(
            make_app(
                *parts,
                self._host_names(),
                self.config.server.allowed_origins,
                nodes=self.engine.nodes,
                readiness=self.readiness,
            ),
            http=self._http_protocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._http = _Http(config)
        self._serving = asyncio.create_task(self._http._serve(sockets=[listener]), name="http")
        ready = asyncio.create_task(self._http.ready.wait())
        await asyncio.wait([ready, self._serving], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            ready.cancel()
            await self._serving

    async def stop(self, *, stop_agents: bool = False) -> None:
        """Answer what was asked, close viewers, leave running turns to their keepers, and let go of everything."""
        self.readiness.is_stopping = True
        self.directory.remove("server.json")
        await self.hub.stop()
        if self._http is not None and self._serving is not None:
            self._http.leave()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._is_lost:
            await self.engine.discard()
        else:
            await self.engine.stop(stop_agents=stop_agents)
        await self._close_store()
        if self.log.shared is None:
            self.directory.mark_boot(self.log.epoch, self.log.generation, clean=True)
        self.directory.close()

    async def _close_store(self) -> None:
        await self.wakeups.stop()
        await self.store.close()


def _stores(database: str | None, settings: ServerSettings, data: Path, node_id: str) -> tuple[Store, Wakeups]:
    """SQLite in the data directory; or PostgreSQL, and what carries wake-ups between its nodes."""
    path = data / "perdure.db"
    if not database:
        if (warning := transfer.moved_away(data)) is not None:
            logger.warning("%s", warning)
        return SqliteStore(path, durability=settings.durability), LocalWakeups()
    if path.exists():
        logger.warning("%s is not used with --database. To move its sessions: perdure migrate --to URL", path)
    try:
        from perdure.stores.postgres import PostgresStore
        from perdure.stores.postgres_wakeups import PostgresWakeups
    except ImportError as error:
        raise StartError("--database needs psycopg: pip install 'perdure[postgres]'") from error
    store = PostgresStore(database, connections=settings.database_connections)
    return store, PostgresWakeups(settings.database_listen or database, node_id)


def _advice(error: Exception) -> str:
    """What to do about a store that can't be used, where the error does not say it already."""
    if isinstance(error, StoreDamaged):
        return (
            ". Nothing was changed. `perdure doctor --deep` says what can't be read. Restore a backup, or rescue what "
            "can be read with sqlite3's .recover: docs/operations.md says how, under Damage."
        )
    if isinstance(error, StoreFull) or str(error).endswith("."):
        return ""
    return ". If it stays so, run `perdure doctor --deep`."


async def _run(server: Server, stop_agents: bool) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopped.set)
    await server.start()
    # What was loaded stays for good. Else it is gone through each time that a long log makes many objects, and
    # everybody waits for that.
    gc.collect()
    gc.freeze()
    sys.stdout.write(f"perdure: listening on {server.url}\n")
    sys.stdout.flush()
    await server.stopped.wait()
    await server.stop(stop_agents=stop_agents)


def _token_of(file: Path, given: str | None) -> str:
    if given:
        raise StartError("Give the token in one way: leave out --token-file, or --token and PERDURE_TOKEN.")
    try:
        return read_token_file(file)
    except TokenError as error:
        raise StartError(f"The token file {file} {error}") from error


def _meaning(host: str) -> str:
    """Who can reach a server that listens there."""
    if is_every_address(host):
        return "means every network of this machine, so that other machines can reach the server"
    return "is an address that other machines can reach"


def serve(
    *,
    host: str,
    port: int,
    data: Path,
    config_path: Path | None = None,
    token: str | None = None,
    token_file: Path | None = None,
    database: str | None = None,
    stop_agents: bool = False,
    behind_proxy: bool = False,
    insecure_http: bool = False,
) -> None:
    """Run until SIGTERM or SIGINT. Raises StartError and ConfigError."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    open_files.raise_limit()
    if database and not database.startswith(POSTGRES):
        raise StartError(
            f"--database must be a PostgreSQL address such as postgresql://perdure@db.example.com/perdure, not "
            f"{database.partition(':')[0]!r}. Leave it out, and everything is kept in SQLite in the data directory."
        )
    if token_file is not None:
        token = _token_of(token_file, token)
    config_path = config_path or data / "perdure.toml"
    config = load(config_path)
    config.server.behind_proxy |= behind_proxy
    config.server.insecure_http |= insecure_http
    server = Server(
        data=data, host=host, port=port, config=config, config_path=config_path, token=token, database=database
    )
    uvloop.run(_run(server, stop_agents))
