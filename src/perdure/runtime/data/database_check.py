"""The checks of `perdure doctor` for a shared database, and for this machine as one of its nodes. Changes nothing.

Above: the command line's doctor. Below: PostgreSQL, through the store that a server would use.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perdure.config import ServerSettings
from perdure.core.errors import StoreError
from perdure.stores.shared import SharedStore

if TYPE_CHECKING:
    from perdure.stores.postgres import PostgresStore

LOOK_LIMIT_S = 15.0
CLOCK_MAX_S = 5.0
"""Nodes use the database's time, but people compare timestamps in log files."""

Found = tuple[Literal["ok", "warning", "problem"], str]


def look(database: str, settings: ServerSettings) -> list[Found]:
    """All findings, each with a message."""
    try:
        from perdure.stores.postgres import PostgresStore
    except ImportError:
        return [("problem", "psycopg is not installed. Run: pip install 'perdure[postgres]'")]
    return asyncio.run(_look(PostgresStore(database, connections=3), settings))


async def _look(store: "PostgresStore", settings: ServerSettings) -> list[Found]:
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            if not await store.open_to_look():
                return [("ok", "reached; it has no tables yet, the first server to start creates them")]
            return [finding async for finding in _findings(store, settings)]
    except StoreError as error:
        return [("problem", f"{error}. Check the address, and that PostgreSQL is running and admits this machine.")]
    except TimeoutError:
        return [("problem", f"no answer within {LOOK_LIMIT_S:g} s. Check the address and the network.")]
    finally:
        await store.close()


async def _findings(store: SharedStore, settings: ServerSettings) -> AsyncIterator[Found]:
    for problem in await store.inspect():
        yield "warning", problem
    apart_s = abs(await store.time() - time.time())
    if apart_s > CLOCK_MAX_S:
        yield "warning", f"its clock and this machine's are {apart_s:.0f} s apart. Set up NTP on both."
    nodes = await store.nodes()
    living = [node for node in nodes if not node.dead]
    yield "ok", f"reached; {len(living)} of {len(nodes)} nodes are not marked dead (see `perdure nodes`)"
    if settings.workdirs == "shared" and settings.workspaces is not None and not _is_writable(settings.workspaces):
        yield "problem", f"workspaces = {settings.workspaces!r} is not writable. Mount it, or correct the setting."


def _is_writable(folder: str) -> bool:
    return Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)
