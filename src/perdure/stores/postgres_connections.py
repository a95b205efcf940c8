"""Connections to PostgreSQL: opening them, and a pool for everything except appends.

Above: PostgresStore and its writer. Below: psycopg. All of this works through a pooler in transaction mode: no prepared
statements, no startup options, no session state; each query is one statement in its own transaction.

Failed connections are retried with exponential backoff. At first callers wait, because a failover is short. After that
they fail immediately with StoreUnavailable, and the next attempt is made when the backoff allows one.
"""

import asyncio
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.core.errors import Refused, StoreError, StoreUnavailable
from perdure.stores.postgres_errors import AGAIN, LOST_CLASS, MISSHAPEN, UNKNOWN, code_of, is_lost, misread, told

CONNECT_TIMEOUT_S = 5
PATIENCE_S = 3.0
"""How long callers wait for a database that was reachable a moment ago."""
PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 2.0
READ_TIMEOUT_S = 60.0
"""Timeout of a query. Its connection is then closed."""

DEFAULTS: dict[str, str | int | None] = {
    "application_name": "perdure",
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "target_session_attrs": "read-write",
    "client_encoding": "utf8",
}
"""Connection settings. The URL overrides them."""

NOT_OPEN = "the store is not open"

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]
P = ParamSpec("P")
T = TypeVar("T")


def clean(text: str) -> str:
    """Replace what PostgreSQL can't store: NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [cleaned(each) for each in value]
    return value


async def ask(connection: Connection, statement: str, *parameters: Any) -> list[Row]:
    """Run one statement in its own transaction, and return its rows."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement, [cleaned(each) for each in parameters])
    return await cursor.fetchall() if cursor.description is not None else []


async def change(connection: Connection, statement: str, *parameters: Any) -> int:
    """Run one statement in its own transaction, and return the number of rows it changed."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement, [cleaned(each) for each in parameters])
    return cursor.rowcount


def settings(url: str) -> str:
    """Return the connection string: the URL plus DEFAULTS for what it leaves out."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Not libpq's message: it quotes a part of the URL, which may be the password.
        raise StoreError(
            "the database's address is malformed. Write it like postgresql://user:password@host/name, with %25 for "
            "%, %40 for @ and %2F for / in the password"
        ) from None
    said = {name: str(value) for name, value in given.items() if value is not None}
    return make_conninfo("", **{**DEFAULTS, **said})


def is_cut(connection: Connection) -> bool:
    """Return whether the server has closed an idle connection. A healthy idle connection has nothing to read."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


class Connector:
    """Opens connections, with backoff after failed attempts."""

    def __init__(self, url: str) -> None:
        self._settings = settings(url)
        self._was_there = False
        self._pause_s = PAUSE_MIN_S
        self._again_s = 0.0
        self._failure: Exception | None = None

    async def connect(self) -> Connection:
        """Raises StoreUnavailable."""
        patient_until_s = time.monotonic() + PATIENCE_S if self._was_there else 0.0
        while True:
            now = time.monotonic()
            if now >= self._again_s:
                made = await self._try()
                if made is not None:
                    return made
                continue
            if now >= patient_until_s:
                raise StoreUnavailable(f"the database can't be reached ({self._failure})") from self._failure
            await asyncio.sleep(min(self._again_s, patient_until_s) - now)

    async def _try(self) -> Connection | None:
        try:
            made = await psycopg.AsyncConnection.connect(self._settings, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            self._failure = error
            self._again_s = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
            if self._pause_s == PAUSE_MAX_S:
                self._was_there = False
            return None
        self._was_there = True
        self._pause_s, self._again_s = PAUSE_MIN_S, 0.0
        return made


class Pool:
    """A limited number of connections, opened on demand."""

    def __init__(self, connector: Connector, size: int) -> None:
        self._connector = connector
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def read(
        self, question: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a query. If the connection is lost, retry once on another one."""
        try:
            try:
                return await self._ask(question, *args, **kwargs)
            except psycopg.Error as error:
                if not is_lost(error):
                    raise
                return await self._ask(question, *args, **kwargs)
        except TimeoutError as error:
            raise StoreUnavailable(f"the database did not answer within {READ_TIMEOUT_S:g} s") from error
        except (psycopg.Error, *MISSHAPEN) as error:
            raise misread(error) from error

    async def write(
        self, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a change. If the connection is lost, the outcome is unknown, and the change is not retried."""
        try:
            try:
                return await self._ask(work, *args, **kwargs)
            except psycopg.Error as error:
                if code_of(error) not in AGAIN:
                    raise
                return await self._ask(work, *args, **kwargs)
        except TimeoutError as error:
            raise StoreError(UNKNOWN) from error
        except psycopg.Error as error:
            code = code_of(error)
            if is_lost(error) and (not code or code.startswith(LOST_CLASS)):
                # A pooler returns such a code if it has lost the server, which may have committed.
                raise StoreError(UNKNOWN) from error
            raise told(error) from error

    async def work(
        self, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run idempotent work without a timeout, such as a migration."""
        try:
            async with self.use() as connection:
                return await work(connection, *args, **kwargs)
        except psycopg.Error as error:
            raise told(error) from error

    async def _ask(
        self, question: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self.use() as connection, asyncio.timeout(READ_TIMEOUT_S):
            return await question(connection, *args, **kwargs)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        if not self._is_open:
            raise StoreError(NOT_OPEN)
        async with self._free:
            connection = await self._take()
            is_well = False
            try:
                yield connection
                is_well = True
            except psycopg.Error as error:
                # An error reported by the server leaves the connection usable.
                is_well = not is_lost(error)
                raise
            except (Refused, StoreError):
                is_well = pq.TransactionStatus(connection.pgconn.transaction_status) == pq.TransactionStatus.IDLE
                raise
            finally:
                if is_well and self._is_open and not connection.closed:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not is_cut(connection):
                return connection
            await connection.close()
        return await self._connector.connect()
