"""A failed start reports why and releases everything, so that the next one can start immediately."""

import asyncio
import socket
from pathlib import Path

import pytest

from perdure.config import Config
from perdure.server import Server, StartError
from tests.harness import WAIT_S

TOKEN = "test-token-of-the-tests"


async def test_a_start_that_fails_at_its_very_end_leaves_nothing_open(tmp_path: Path) -> None:
    # The temporary file for the server's address.
    in_the_way = tmp_path / ".server.json.part"
    in_the_way.mkdir(parents=True)
    before = asyncio.all_tasks()
    failed = Server(data=tmp_path, config=Config(), token=TOKEN)
    with pytest.raises(StartError, match=r"server\.json"):
        await failed.start()
    port = int(failed.url.rsplit(":", 1)[1])
    with socket.socket() as nobody:
        assert nobody.connect_ex(("127.0.0.1", port)) != 0
    async with asyncio.timeout(WAIT_S):
        while asyncio.all_tasks() - before:  # noqa: ASYNC110
            await asyncio.sleep(0)
    in_the_way.rmdir()
    next_one = Server(data=tmp_path, config=Config(), token=TOKEN)
    await next_one.start()
    await next_one.stop()
