"""The asynchronous client: the same verbs as client.py for programs that live in an event loop.

Above: programs in Python. Below: the synchronous client, in threads. It is deliberately not a second implementation:
what happens on the way to a server (repeats, positions, reconnects) is written and tested once, and a thread that waits
costs less than a copy that differs.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.surfaces.client import Address, Client
from perdure.surfaces.stream import Event, EventStream

P = ParamSpec("P")
T = TypeVar("T")

CALLS_AT_ONCE = 64
"""Each takes a thread while it waits; more of them wait for one."""


def _in_a_thread(
    verb: Callable[Concatenate[Client, P], T],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    """A verb of the synchronous client, to be awaited."""

    @functools.wraps(verb)
    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, lambda: verb(self.client, *args, **kwargs))

    return call


class AsyncClient:
    """One server. As Client, whose words these are; use it with `async with`."""

    def __init__(self, locate: Address | Callable[[], Address], *, patience_s: float = 0.0) -> None:
        self.client = Client(locate, patience_s=patience_s)
        self.threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="perdure-client")

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """What is being waited for fails; what was sent is sent."""
        self.client.close()
        self.threads.shutdown(wait=False, cancel_futures=True)

    send = _in_a_thread(Client.send)
    run = _in_a_thread(Client.run)
    begin_run = _in_a_thread(Client.begin_run)
    create_session = _in_a_thread(Client.create_session)
    import_session = _in_a_thread(Client.import_session)
    start_session = _in_a_thread(Client.start_session)
    session = _in_a_thread(Client.session)
    sessions = _in_a_thread(Client.sessions)
    explain = _in_a_thread(Client.explain)
    abort = _in_a_thread(Client.abort)
    stop = _in_a_thread(Client.stop)
    close_session = _in_a_thread(Client.close_session)
    erase = _in_a_thread(Client.erase)
    prompts = _in_a_thread(Client.prompts)
    answer = _in_a_thread(Client.answer)
    transcript = _in_a_thread(Client.transcript)
    transcript_markdown = _in_a_thread(Client.transcript_markdown)
    health = _in_a_thread(Client.health)
    agents = _in_a_thread(Client.agents)
    projects = _in_a_thread(Client.projects)
    add_project = _in_a_thread(Client.add_project)

    async def events(
        self,
        session_id: str,
        position: int | str | None = None,
        *,
        on_lost: Callable[[str], None] | None = None,
        on_back: Callable[[], None] | None = None,
    ) -> AsyncIterator[Event]:
        """The session's events after `position` (none: a snapshot first), live, until the session ends. `on_lost` and
        `on_back` are called in another thread."""
        stream = self.client.events(session_id, position, on_lost=on_lost, on_back=on_back)
        loop = asyncio.get_running_loop()
        # A thread of its own: a stream that waits for days must not take one from the calls.
        with _Reader(stream) as reader:
            while (event := await loop.run_in_executor(reader.thread, reader.next)) is not None:
                yield event


class _Reader:
    """A stream that is read one event at a time, so that a slow reader slows nothing but itself."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._events = iter(stream)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-events")

    def next(self) -> Event | None:
        return next(self._events, None)

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread, if it waits for an event that nobody wants any more.
        self._stream.close()
        self.thread.shutdown(wait=False)
