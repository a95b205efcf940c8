"""A long log is read in pieces, so memory use does not grow with its length."""

from typing import Any

import pytest

from perdure.runtime.log.reading import READ_BYTES
from perdure.stores.base import Stored
from perdure.stores.sqlite import SqliteStore
from tests.surfaces.http.local import LocalServer

LONG = "\n".join(["big 200000"] * 40)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes that each read of a log returned."""
    found: list[int] = []
    read = SqliteStore.read

    async def measured(store: SqliteStore, *given: Any, **named: Any) -> list[Stored]:
        rows = await read(store, *given, **named)
        found.append(sum(len(row.body) for row in rows))
        return rows

    monkeypatch.setattr(SqliteStore, "read", measured)
    return found


def test_a_download_and_a_reconnecting_viewer_read_a_long_log_in_pieces(server: LocalServer, sizes: list[int]) -> None:
    session = server.create()
    server.turn(session, LONG)
    server.compacted()
    server.post(f"/api/sessions/{session}/stop")
    server.evict(session)
    sizes.clear()
    text = "".join(event["delta"] for event in server.log(session) if event["type"] == "assistant_text")
    assert len(text) > 40 * 190_000
    assert len(sizes) > 5 and max(sizes) <= READ_BYTES
    server.evict(session)
    sizes.clear()
    with server.watch(session, "1") as stream:
        assert next(stream.frames())[1] == "snapshot", "it missed more than a snapshot holds"
    assert sizes and max(sizes) <= READ_BYTES
