"""The asynchronous client: every method can be awaited, streams reconnect, and closing ends all waiting."""

import asyncio
import json
from inspect import isfunction

import pytest

from perdure.surfaces.async_client import AsyncClient
from perdure.surfaces.changes_client import ChangesClient
from perdure.surfaces.client import Client, Problem, Unreachable
from tests.surfaces.conftest import ServerProcess

LIMIT_S = 30.0


def test_it_has_every_method_of_the_synchronous_client() -> None:
    both = {**vars(ChangesClient), **vars(Client)}
    verbs = {name for name, found in both.items() if isfunction(found) and not name.startswith("_")}
    awaited = {name for name, found in vars(AsyncClient).items() if isfunction(found) and not name.startswith("_")}
    assert verbs == awaited - {"close"}


async def test_errors_and_lists_match_those_of_the_synchronous_client(server: ServerProcess) -> None:
    async with AsyncClient(server.address) as client, asyncio.timeout(LIMIT_S):
        with pytest.raises(Problem) as refused:
            await client.session("s_nothing")
        assert refused.value.code == "not_found"
        with pytest.raises(Problem):
            async for _ in client.events("s_nothing"):
                pass
        sessions = [(await client.create_session(title=f"number {number}"))["id"] for number in range(3)]
        assert {entry["id"] async for entry in client.all_sessions(limit=2)} == set(sessions)
        lines = [json.loads(line) async for line in client.log(sessions[0])]
        assert lines[0]["type"] == "session_created"


async def test_closing_an_asynchronous_client_ends_pending_calls(server: ServerProcess) -> None:
    async with asyncio.timeout(LIMIT_S):
        client = AsyncClient(server.address)
        session = str((await client.send("hang"))["session_id"])
        events = client.events(session, 0)
        assert (await anext(events)).type == "session_created"
        await events.aclose()  # type: ignore[attr-defined]
        waiting = asyncio.create_task(_read(client, session))
        assert (await client.health())["status"] == "ok"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        client.close()
        with pytest.raises((RuntimeError, Unreachable)):
            await client.health()


async def _read(client: AsyncClient, session: str) -> None:
    async for _ in client.events(session):
        pass


async def test_many_calls_of_an_asynchronous_client_wait_concurrently(server: ServerProcess) -> None:
    async with AsyncClient(server.address) as client, asyncio.timeout(LIMIT_S):
        runs = await asyncio.gather(*(client.run("sleep 1\nsay done", agent="rehearsal") for _ in range(3)))
        assert [run["text"] for run in runs] == ["done"] * 3
        assert max(run["created_at"] for run in runs) < min(run["finished_at"] for run in runs)


@pytest.mark.full
async def test_an_asynchronous_stream_resumes_after_a_server_crash(server: ServerProcess) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    async with AsyncClient(server.address, patience_s=LIMIT_S) as client, asyncio.timeout(2 * LIMIT_S):
        session = str((await client.send("stream 100 10", agent="rehearsal"))["session_id"])
        numbers: list[int] = []
        killed = False
        async for event in client.events(session, 0):
            numbers += range(event.data.get("first_seq", event.seq), event.seq + 1)
            if len(numbers) >= 20 and not killed:
                killed = True
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start, port)
            if event.type == "turn_end":
                break
        assert numbers == list(range(1, len(numbers) + 1))
