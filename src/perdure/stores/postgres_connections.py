"""Connections to PostgreSQL: how they are made, and a few of them for everything that is not an append.

Above: PostgresStore and its writer. Below: psycopg. All of this works through a pooler in transaction mode: no prepared
statements, no startup options, nothing that belongs to a session; each question is one statement in its own
transaction.

A server that can't be reached is tried again with growing pauses. For a moment callers wait, as a failover is short;
after that they learn at once that the store is not available, and one of them tries now and then.
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
"""How long callers wait for a database that was there a moment ago."""
PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 2.0
READ_TIMEOUT_S = 60.0
"""After this a question is given up, and its connection closed."""

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
"""What the URL may say otherwise."""

NOT_OPEN = "the store is not open"

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]
P = ParamSpec("P")
T = TypeVar("T")


def clean(text: str) -> str:
    """As PostgreSQL can hold it: without NUL, and without halves of surrogate pairs."""
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
    """One statement, in a transaction of its own; its rows."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement, [cleaned(each) for each in parameters])
    return await cursor.fetchall() if cursor.description is not None else []


async def change(connection: Connection, statement: str, *parameters: Any) -> int:
    """The same, for how many rows it changed."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement, [cleaned(each) for each in parameters])
    return cursor.rowcount


def settings(url: str) -> str:
    """The URL with what it does not say itself."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Not in libpq's words, which repeat a part of it: that may be the password.
        raise StoreError(
            "the database's address can't be read. Write it as in postgresql://user:password@host/name, with %25 for "
            "%, %40 for @ and %2F for / in the password"
        ) from None
    said = {name: str(value) for name, value in given.items() if value is not None}
    return make_conninfo("", **{**DEFAULTS, **said})


def is_cut(connection: Connection) -> bool:
    """Whether the server has closed a connection that was idle. There is nothing to read from one that is well."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


class Connector:
    """Makes connections, with pauses between attempts that fail."""

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
    """At most so many connections, made when they are needed."""

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
        """Ask something. If its connection is lost it is asked once more, through another one."""
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
        """Change something. If its connection is lost nobody knows whether it was done, and it is not done again."""
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
                # A pooler says the latter of a server that it has lost: that one may have committed.
                raise StoreError(UNKNOWN) from error
            raise told(error) from error

    async def work(
        self, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do something that takes as long as it takes and may be done again, as a migration."""
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
                # What the server refused has left the connection as it was.
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
