"""The asynchronous client: the methods of client.py for programs with an event loop.

Above: Python programs. Below: the synchronous client, in threads. It is deliberately not a second implementation:
retries, positions and reconnects are written and tested once, and a waiting thread costs less than a copy that
diverges.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.surfaces.client import Address, Client
from perdure.surfaces.stream import Event

P = ParamSpec("P")
T = TypeVar("T")

CALLS_AT_ONCE = 64
"""Each waiting call takes a thread; further calls wait for a free one."""


def _in_a_thread(
    verb: Callable[Concatenate[Client, P], T],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    """An awaitable version of a synchronous method."""

    @functools.wraps(verb)
    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, lambda: verb(self.client, *args, **kwargs))

    return call


class AsyncClient:
    """A client for one server, with the methods of Client. Use it with `async with`."""

    def __init__(self, locate: Address | Callable[[], Address], *, patience_s: float = 0.0) -> None:
        self.client = Client(locate, patience_s=patience_s)
        self.threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="perdure-client")

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client. Pending calls fail; requests that were already sent stay sent."""
        self.client.close()
        self.threads.shutdown(wait=False, cancel_futures=True)

    send = _in_a_thread(Client.send)
    run = _in_a_thread(Client.run)
    begin_run = _in_a_thread(Client.begin_run)
    create_session = _in_a_thread(Client.create_session)
    import_session = _in_a_thread(Client.import_session)
    start_session = _in_a_thread(Client.start_session)
    session = _in_a_thread(Client.session)
    whole_session = _in_a_thread(Client.whole_session)
    sessions = _in_a_thread(Client.sessions)
    explain = _in_a_thread(Client.explain)
    abort = _in_a_thread(Client.abort)
    stop = _in_a_thread(Client.stop)
    close_session = _in_a_thread(Client.close_session)
    erase = _in_a_thread(Client.erase)
    set_config = _in_a_thread(Client.set_config)
    change_session = _in_a_thread(Client.change_session)
    queue = _in_a_thread(Client.queue)
    edit_queued = _in_a_thread(Client.edit_queued)
    unqueue = _in_a_thread(Client.unqueue)
    files = _in_a_thread(Client.files)
    prompts = _in_a_thread(Client.prompts)
    answer = _in_a_thread(Client.answer)
    edit_message = _in_a_thread(Client.edit_message)
    rewind = _in_a_thread(Client.rewind)
    retry = _in_a_thread(Client.retry)
    fork = _in_a_thread(Client.fork)
    plan = _in_a_thread(Client.plan)
    file_changes = _in_a_thread(Client.file_changes)
    patch = _in_a_thread(Client.patch)
    file_content = _in_a_thread(Client.file_content)
    restore = _in_a_thread(Client.restore)
    discard = _in_a_thread(Client.discard)
    undo = _in_a_thread(Client.undo)
    commit = _in_a_thread(Client.commit)
    merge = _in_a_thread(Client.merge)
    review = _in_a_thread(Client.review)
    usage = _in_a_thread(Client.usage)
    transcript = _in_a_thread(Client.transcript)
    transcript_markdown = _in_a_thread(Client.transcript_markdown)
    attachments = _in_a_thread(Client.attachments)
    attachment = _in_a_thread(Client.attachment)
    health = _in_a_thread(Client.health)
    server = _in_a_thread(Client.server)
    directory = _in_a_thread(Client.directory)
    directories = _in_a_thread(Client.directories)
    default_agent = _in_a_thread(Client.default_agent)
    agents = _in_a_thread(Client.agents)
    agent = _in_a_thread(Client.agent)
    reload_agents = _in_a_thread(Client.reload_agents)
    catalogue = _in_a_thread(Client.catalogue)
    projects = _in_a_thread(Client.projects)
    project = _in_a_thread(Client.project)
    add_project = _in_a_thread(Client.add_project)
    change_project = _in_a_thread(Client.change_project)
    remove_project = _in_a_thread(Client.remove_project)
    jobs = _in_a_thread(Client.jobs)
    job = _in_a_thread(Client.job)
    add_job = _in_a_thread(Client.add_job)
    change_job = _in_a_thread(Client.change_job)
    remove_job = _in_a_thread(Client.remove_job)
    pause_job = _in_a_thread(Client.pause_job)
    resume_job = _in_a_thread(Client.resume_job)
    run_job = _in_a_thread(Client.run_job)
    job_runs = _in_a_thread(Client.job_runs)
    preview_schedule = _in_a_thread(Client.preview_schedule)
    nodes = _in_a_thread(Client.nodes)
    drain_node = _in_a_thread(Client.drain_node)
    resume_node = _in_a_thread(Client.resume_node)
    remove_node = _in_a_thread(Client.remove_node)
    move_sessions = _in_a_thread(Client.move_sessions)
    ready = _in_a_thread(Client.ready)
    login_link = _in_a_thread(Client.login_link)
    logins = _in_a_thread(Client.logins)
    end_login = _in_a_thread(Client.end_login)
    end_logins = _in_a_thread(Client.end_logins)

    def all_sessions(self, /, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        return _each(self.client.all_sessions(**filters), _nothing)

    def log(self, session_id: str) -> AsyncIterator[bytes]:
        """The session's stored events, one JSON line each."""
        return _each(self.client.log(session_id), _nothing)

    def events(
        self,
        session_id: str,
        position: int | str | None = None,
        *,
        on_lost: Callable[[str], None] | None = None,
        on_back: Callable[[], None] | None = None,
    ) -> AsyncIterator[Event]:
        """The session's events after `position`, live, until the session ends. Without a position, starts with a
        snapshot. `on_lost` and `on_back` are called in another thread."""
        stream = self.client.events(session_id, position, on_lost=on_lost, on_back=on_back)
        return _each(iter(stream), stream.close)

    def changes(
        self, *, on_lost: Callable[[str], None] | None = None, on_back: Callable[[], None] | None = None
    ) -> AsyncIterator[Event]:
        """Changes in all sessions from now on, live and without end."""
        stream = self.client.changes(on_lost=on_lost, on_back=on_back)
        return _each(iter(stream), stream.close)


def _nothing() -> None:
    """For iterators that never block for long, so nothing has to be woken."""


async def _each(found: Iterator[T], close: Callable[[], None]) -> AsyncIterator[T]:
    """Iterate in a separate thread, because a stream may block for days; one item at a time, so that the reader sets
    the pace. `close` wakes the thread if the reader stops early."""
    loop, end = asyncio.get_running_loop(), object()
    thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-reading")
    try:
        while (one := await loop.run_in_executor(thread, next, found, end)) is not end:
            yield one  # type: ignore[misc]
    finally:
        close()
        thread.shutdown(wait=False)
