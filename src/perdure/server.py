"""The server: connects the store, the engine and the HTTP surface. Tests can start it on port 0 and stop it again.

Above: the `serve` command. Below: every other part of the package; only this module may import all of them.
"""

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
from perdure.surfaces import freed_memory, open_files
from perdure.surfaces.http.access import Access
from perdure.surfaces.http.app import make_app
from perdure.surfaces.http.connections import BoundedProtocol
from perdure.surfaces.http.viewers import Hub

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0001
"""Python's thread switch interval. With the default, a busy event loop starves the store's writer thread."""
DATE_S = 1.0
BACKLOG = 4096
SHUTDOWN_GRACE_S = 3
KEEP_ALIVE_S = 60
"""How long an idle connection stays open: much longer than clients reuse one. Otherwise the server may close it while a
request is on its way, and the client can't tell whether the request was processed."""
POSTGRES = ("postgresql://", "postgres://")
LOCK_ATTEMPTS = 60
LOCK_RETRY_S = 0.05


class StartError(Exception):
    """The server can't start; the message says why and what to do."""


class _Http(uvicorn.Server):
    """uvicorn's server, changed to signal when it is listening, and to sleep while there is nothing to do."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._leaving = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for `leave` instead of polling ten times a second. Refreshes the `date` header once a second."""
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
        """Whether other nodes have declared this one dead or replaced it, and may run its sessions."""
        self._http_protocol = http_protocol
        self._http: _Http | None = None
        self._serving: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()

    async def start(self) -> None:
        """Start: recover what an earlier server left, then answer requests."""
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
                where = "the database" if self._database else f"the store in {data}"
                raise StartError(f"Could not open {where}: {error}{_advice(error)}") from error
            if isinstance(error, OSError):
                raise StartError(f"Could not use {data}: {error}. Fix this and start again.") from error
            raise

    async def _undo(self, listener: socket.socket) -> None:
        """Release everything after a failed start. Agents continue under their keepers, for the next server."""
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
        self.hub = Hub(self.engine.streams, settings.replay_limit_events, settings.heartbeat_s)
        # A lambda, because a node replaces `log.now` at its first heartbeat.
        self.access = Access(self.token, self.store, cluster_id, clock=lambda: self.log.now())  # noqa: PLW0108
        self.log.watch_documents("login", self.access.reload)
        self.access.on_change = lambda: self.log.announce_documents("login")
        await self.access.load()

    def _lost(self) -> None:
        """Another server has replaced this one, or other nodes have declared it dead: it must stop."""
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
                made = "Or leave it out, and the server creates one."
                raise StartError(f"The token in --token or PERDURE_TOKEN {error} {made}") from error

    def _check_workdirs(self) -> None:
        settings = self.config.server
        if self._database and settings.workdirs == "shared" and settings.workspaces is None:
            raise StartError(
                'workdirs = "shared" requires the setting workspaces: a directory that every node can access, for '
                "sessions that are created without a working directory. Set it under [server] in perdure.toml, or use "
                'workdirs = "local".'
            )

    async def _open_directory(self) -> None:
        for attempt in range(LOCK_ATTEMPTS):
            try:
                self.directory.open()
                break
            except DataError as error:
                # A command that checks whether a server is running holds the lock for an instant, or longer on a busy
                # machine. So does a process that a killed server was about to start.
                if attempt + 1 == LOCK_ATTEMPTS or not isinstance(error.__cause__, BlockingIOError):
                    raise StartError(str(error)) from error
            await asyncio.sleep(LOCK_RETRY_S)
        # A file left by a killed server names a port that another program may use by now.
        self.directory.remove("server.json")

    def _listen(self) -> socket.socket:
        host, port = self._bind
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Without the explicit protocol, asyncio doesn't recognise TCP and leaves Nagle's delay of 40 ms on.
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
        """Refuse an address that other machines can reach, unless a proxy or the user has dealt with encryption: the
        token would be sent in plain text."""
        host, settings = self._bind[0], self.config.server
        if settings.insecure_http:
            logger.warning("--host %s %s", host, _meaning(host))
            logger.warning("plain HTTP on %s: anyone who can read the network traffic can read the token", host)
        elif not settings.behind_proxy:
            listener.close()
            self.directory.close()
            raise StartError(
                f"--host {host} {_meaning(host)}. The server uses plain HTTP, so anyone who can read the network "
                "traffic could read the token. Put a reverse proxy with TLS in front and start with --behind-proxy; "
                "or, on a network that you trust, start with --insecure-http. Without --host, only this machine can "
                "reach the server."
            )

    def _host_names(self) -> set[str]:
        """The host names of this server: the bound address, `allowed_hosts`, and the machine's own name."""
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
        """Shut down gracefully: complete open requests, close streams, leave running turns to their keepers, and close
        the store."""
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
    """The store and its wake-ups: SQLite in the data directory, or PostgreSQL with wake-ups between nodes."""
    path = data / "perdure.db"
    if not database:
        if (warning := transfer.moved_away(data)) is not None:
            logger.warning("%s", warning)
        return SqliteStore(path, durability=settings.durability), LocalWakeups()
    if path.exists():
        logger.warning("ignoring %s because of --database. To move its sessions, run: perdure migrate --to URL", path)
    try:
        from perdure.stores.postgres import PostgresStore
        from perdure.stores.postgres_wakeups import PostgresWakeups
    except ImportError as error:
        raise StartError("--database requires psycopg. Run: pip install 'perdure[postgres]'") from error
    store = PostgresStore(database, connections=settings.database_connections)
    return store, PostgresWakeups(settings.database_listen or database, node_id)


def _advice(error: Exception) -> str:
    """What to do about a store that can't be opened, unless the error already says so."""
    if isinstance(error, StoreDamaged):
        return (
            ". Nothing was changed. Run `perdure doctor --deep` to see what is damaged. Then restore a backup, or "
            "recover the readable data with sqlite3's .recover: see Damage in docs/operations.md."
        )
    if isinstance(error, StoreFull) or str(error).endswith("."):
        return ""
    return ". If this persists, run `perdure doctor --deep`."


async def _run(server: Server, stop_agents: bool) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopped.set)
    await server.start()
    # Freeze the objects loaded so far, which are permanent. Otherwise the collector scans them whenever a long log
    # creates many objects, and all requests wait for that.
    gc.collect()
    gc.freeze()
    sys.stdout.write(f"perdure: listening on {server.url}\n")
    sys.stdout.flush()
    await server.stopped.wait()
    await server.stop(stop_agents=stop_agents)


def _token_of(file: Path, given: str | None) -> str:
    if given:
        raise StartError("The token is set twice. Use either --token-file, or --token or PERDURE_TOKEN.")
    try:
        return read_token_file(file)
    except TokenError as error:
        raise StartError(f"The token file {file} {error}") from error


def _meaning(host: str) -> str:
    """Says that other machines can reach a server on this address."""
    if is_every_address(host):
        return "listens on every network of this machine, so other machines can reach the server"
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
    freed_memory.return_large_blocks()
    if database and not database.startswith(POSTGRES):
        raise StartError(
            f"--database must be a PostgreSQL address such as postgresql://perdure@db.example.com/perdure, not "
            f"{database.partition(':')[0]!r}. Leave it out to store everything in SQLite in the data directory."
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
