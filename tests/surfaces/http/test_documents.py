"""A document whose reader does not read: no write waits without a deadline, and what was made gives its room back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.surfaces.http import documents
from perdure.surfaces.http.documents import Document, Documents
from tests.harness import WAIT_S

STALL_S = 0.05
SIZE = 1_000_000


async def pieces(*, large: bool) -> AsyncIterator[bytes | None]:
    if large:
        yield None
    yield b"x" * SIZE


class Reader:
    """Takes what is sent until a message for which it never has room."""

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


def unsent(every: Documents) -> int:
    return every._small._unsent_bytes + every._large._unsent_bytes


async def serve(every: Documents, reader: Reader, *, large: bool) -> None:
    async with asyncio.timeout(WAIT_S):
        await Document(every, pieces(large=large), "text/plain")(
            {"method": "GET", "path": "/long"}, reader.receive, reader.send
        )


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("refuses", ["start", "body", "end"])
async def test_a_reader_who_takes_nothing_is_cut_off_at_any_write(
    refuses: str, large: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(documents, "STALL_S", STALL_S)
    caplog.set_level("INFO")
    every = Documents()
    await serve(every, Reader(refuses), large=large)
    assert "is cut off: the client does not read" in caplog.text
    assert unsent(every) == 0


@pytest.mark.parametrize("refuses", ["start", "body", "end"])
async def test_a_reader_who_leaves_gives_back_the_room_of_its_piece(refuses: str) -> None:
    every, reader = Documents(), Reader(refuses)
    serving = asyncio.create_task(serve(every, reader, large=True))
    async with asyncio.timeout(WAIT_S):
        await reader.waits.wait()
    assert unsent(every) == (0 if refuses == "end" else SIZE)
    reader.left.set()
    await serving
    assert unsent(every) == 0
