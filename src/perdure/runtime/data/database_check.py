"""What `perdure doctor` looks at of a shared database, and of this machine as one of its nodes. It changes nothing.

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
"""Nodes use the database's time, but people compare times in log files."""

Found = tuple[Literal["ok", "warning", "problem"], str]


def look(database: str, settings: ServerSettings) -> list[Found]:
    """Findings, each with its sentence."""
    try:
        from perdure.stores.postgres import PostgresStore
    except ImportError:
        return [("problem", "psycopg is not installed. Run: pip install 'perdure[postgres]'")]
    return asyncio.run(_look(PostgresStore(database, connections=3), settings))


async def _look(store: "PostgresStore", settings: ServerSettings) -> list[Found]:
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            if not await store.open_to_look():
                return [("ok", "reached; no server has started on it yet, and the first one makes its tables")]
            return [finding async for finding in _findings(store, settings)]
    except StoreError as error:
        return [("problem", f"{error}. Check the address, and whether PostgreSQL runs and lets this machine in.")]
    except TimeoutError:
        return [("problem", f"it has not answered within {LOOK_LIMIT_S:g} s. Check the address and the network.")]
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
    yield "ok", f"reached; {len(living)} of {len(nodes)} nodes are not marked dead (`perdure nodes` says more)"
    if settings.workdirs == "shared" and settings.workspaces is not None and not _is_writable(settings.workspaces):
        yield "problem", f"workspaces = {settings.workspaces!r} can't be written. Mount it, or correct the setting."


def _is_writable(folder: str) -> bool:
    return Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)
