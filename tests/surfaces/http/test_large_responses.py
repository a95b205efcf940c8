"""Large responses to clients that don't read: each write has a deadline, and the memory is freed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.surfaces.http import large_responses
from perdure.surfaces.http.large_responses import LargeResponse, LargeResponses
from tests.harness import WAIT_S

STALL_S = 0.05
SIZE = 1_000_000


async def pieces(*, large: bool) -> AsyncIterator[bytes | None]:
    if large:
        yield None
    yield b"x" * SIZE


class Reader:
    """Reads messages until the first of the given kind, which it never reads."""

    def __init__(self, refuses: str) -> None:
        self._refuses = refuses
        self.waits = asyncio.Event()
        self.left = asyncio.Event()

    async def send(self, message: Any) -> None:
        kind = "start" if message["type"] == "http.response.start" else "body" if message["more_body"] else "end"
        if kind == self._refuses:
            self.waits.set()
            await asyncio.Event().wait()

    async def receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}


def unsent(every: LargeResponses) -> int:
    return every._small._unsent_bytes + every._large._unsent_bytes


async def serve(every: LargeResponses, reader: Reader, *, large: bool) -> None:
    async with asyncio.timeout(WAIT_S):
        await LargeResponse(every, pieces(large=large), "text/plain")(
            {"method": "GET", "path": "/long"}, reader.receive, reader.send
        )


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("refuses", ["start", "body", "end"])
async def test_a_client_that_stops_reading_is_disconnected(
    refuses: str, large: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(large_responses, "STALL_S", STALL_S)
    caplog.set_level("INFO")
    every = LargeResponses()
    await serve(every, Reader(refuses), large=large)
    assert "cut off the response to '/long': the client does not read" in caplog.text
    assert unsent(every) == 0


@pytest.mark.parametrize("refuses", ["start", "body", "end"])
async def test_a_disconnect_frees_the_memory_of_the_piece(refuses: str) -> None:
    every, reader = LargeResponses(), Reader(refuses)
    serving = asyncio.create_task(serve(every, reader, large=True))
    async with asyncio.timeout(WAIT_S):
        await reader.waits.wait()
    assert unsent(every) == (0 if refuses == "end" else SIZE)
    reader.left.set()
    await serving
    assert unsent(every) == 0
