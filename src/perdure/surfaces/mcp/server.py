"""The MCP server on stdin and stdout, through which MCP clients delegate work to sessions.

Above: cli/mcp.py, which starts it. Below: the official `mcp` package for the protocol, and client.py for requests to
the Perdure server. It is an ordinary client without durable state: if it dies in the middle of a turn, the turn
continues, and the same message_id finds it again.

Server errors, a missing server and failed turns become tool errors that say what to do. Importing this module takes
most of a second, so only cli/mcp.py imports it.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import anyio.to_thread
import msgspec
from mcp import types as wire
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from msgspec import UNSET, UnsetType

from perdure import __version__
from perdure.config import SESSION_VARIABLE
from perdure.surfaces.client import Client, Problem, Unreachable, new_message_id
from perdure.surfaces.diane_shapes import DianeSession
from perdure.surfaces.mcp import answers, tools
from perdure.surfaces.mcp.turn import Turn
from perdure.surfaces.refusals import reworded

T = TypeVar("T")
Report = Callable[[str], Awaitable[None]]

PATIENCE_S = 30.0
# Generous: the server itself gives up on an agent that does not start.
START_TIMEOUT_S = 600.0
STARTING = "Starting the agent."
LOST_LIMIT_S = 300.0
PROGRESS_INTERVAL_S = 0.5
# Many clients abandon a call after a minute without progress.
HEARTBEAT_S = 10.0
LISTED_SESSIONS = 100
LISTED_JOBS = 100
SCANNED_SESSIONS = 1000
KNOWN_PROMPTS = 1000
# How many long calls may wait at the same time; each takes a thread.
WAITING_CALLS = 100
ARGUMENTS = {"text": "prompt"}
"""API fields whose argument has a different name."""
SENTENCES = {
    "unauthorized": "The server needs its token. Start `perdure mcp` with --token, or with PERDURE_TOKEN set.",
    "unknown": "The response is not from a Perdure server. Check the --url of `perdure mcp`.",
    "turn_active": "A turn is running in this session. Wait until it ends, or start another session.",
}


class Delegate:
    """Runs the tools. `connect` creates a client for each call."""

    def __init__(self, connect: Callable[[], Client], *, lost_limit_s: float = LOST_LIMIT_S) -> None:
        self._connect = connect
        self._lost_limit_s = lost_limit_s
        self._threads = anyio.CapacityLimiter(WAITING_CALLS)
        self._known: deque[str] = deque(maxlen=KNOWN_PROMPTS)

    async def call(self, name: str, given: dict[str, Any] | None, report: Report) -> wire.CallToolResult:
        tool = tools.BY_NAME.get(name)
        if tool is None:
            raise MCPError(wire.INVALID_PARAMS, f"There is no tool {name!r}. Tools: {', '.join(tools.BY_NAME)}.")
        try:
            arguments = tools.read_arguments(tool, given)
        except ValueError as error:
            return _refusal(str(error))
        client = self._connect()
        client.patience_s = PATIENCE_S if isinstance(arguments, tools.PromptArguments | tools.RunJobArguments) else 0.0
        try:
            return _result(await self._perform(client, arguments, report))
        except (Problem, Unreachable) as error:
            return _refusal(_sentence(error))
        finally:
            client.close()

    async def _perform(self, client: Client, arguments: tools.Arguments, report: Report) -> tools.Answer:
        match arguments:
            case tools.StartArguments():
                client.answer_timeout_s = START_TIMEOUT_S
                return await self._with_progress(lambda: _start(client, arguments), lambda: STARTING, report)
            case tools.PromptArguments():
                return await self._send_message(client, arguments, report)
            case tools.ListArguments():
                return await self._in_thread(lambda: _list(client, arguments))
            case tools.CloseArguments():
                await self._in_thread(lambda: client.close_session(arguments.session_id))
                return tools.Closed(session_id=arguments.session_id, status="closed")
            case tools.ListJobsArguments():
                return await self._in_thread(lambda: _list_jobs(client))
            case tools.RunJobArguments():
                return await self._in_thread(lambda: _run_job(client, arguments))

    async def _send_message(self, client: Client, arguments: tools.PromptArguments, report: Report) -> tools.Run:
        session_id = arguments.session_id
        # Created here, so that a retry after a broken connection is the same message.
        message_id = _given(arguments.message_id) or new_message_id()
        agent, fresh = _given(arguments.agent), arguments.fresh is True
        # Never wait for a slot: the caller may be an agent whose own turn holds the last slot, which would deadlock.
        how: dict[str, Any] = {"message_id": message_id, "agent": agent, "fresh": fresh, "when_full": "refuse"}
        sent = await self._in_thread(lambda: client.send(arguments.prompt, session_id, **how))
        if sent["turn"] is None:
            raise Problem(409, "conflict", "This message_id belongs to a queued message. Use a new one.", {})
        turn = Turn(client, sent, frozenset(self._known), self._lost_limit_s)
        try:
            waiting = await self._with_progress(turn.read, turn.progress, report)
        finally:
            turn.close()
        self._known.extend(prompt["prompt_id"] for prompt in waiting)
        return await self._in_thread(lambda: _run(client, turn, waiting))

    async def _with_progress(self, work: Callable[[], T], words: Callable[[], str], report: Report) -> T:
        """Run long work in a thread, and report progress meanwhile."""
        working = asyncio.create_task(self._in_thread(work, self._threads))
        reported, silent_s = "", 0.0
        try:
            while True:
                now = words()
                if now != reported or silent_s >= HEARTBEAT_S:
                    reported, silent_s = now, 0.0
                    await report(reported)
                done, _ = await asyncio.wait({working}, timeout=PROGRESS_INTERVAL_S)
                if done:
                    return working.result()
                silent_s += PROGRESS_INTERVAL_S
        finally:
            working.cancel()

    @staticmethod
    async def _in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter | None = None) -> T:
        # If the caller goes away, the thread is abandoned. It ends soon, because its stream is closed.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


# One call each, in a thread -----------------------------------------------------------------------------------------


def _start(client: Client, arguments: tools.StartArguments) -> DianeSession:
    workdir = _given(arguments.workdir)
    # Relative to this process, which runs where the caller is.
    where = os.path.abspath(os.path.expanduser(workdir)) if workdir else ""
    fields = {"workdir": where, "title": _given(arguments.title) or ""}
    parent = os.environ.get(SESSION_VARIABLE)
    try:
        started = client.start_session(arguments.agent, **fields, parent=parent)
    except Problem as problem:
        # The parent may belong to another server: retry without it. Anything else is still not found then.
        if parent is None or problem.code != "not_found":
            raise
        started = client.start_session(arguments.agent, **fields)
    return msgspec.convert(started, DianeSession)


def _list(client: Client, arguments: tools.ListArguments) -> tools.Sessions:
    now_s = time.time()
    wanted, agent = _given(arguments.status), _given(arguments.agent)

    def found(state: str) -> Iterator[tools.Listed]:
        for entry in islice(client.all_sessions(state=state, agent=agent), SCANNED_SESSIONS):
            session = answers.listed(entry, now_s)
            if wanted in (None, session.status):
                yield session

    states = ("ended",) if wanted == "closed" else ("accepted", "processing", "idle")
    sessions = [session for state in states for session in islice(found(state), LISTED_SESSIONS + 1)]
    sessions.sort(key=lambda session: session.last_active_at, reverse=True)
    return tools.Sessions(sessions=sessions[:LISTED_SESSIONS], more=len(sessions) > LISTED_SESSIONS)


def _list_jobs(client: Client) -> tools.Jobs:
    jobs = client.jobs()
    return tools.Jobs(jobs=[answers.listed_job(job) for job in jobs[:LISTED_JOBS]], more=len(jobs) > LISTED_JOBS)


def _run_job(client: Client, arguments: tools.RunJobArguments) -> tools.JobRun:
    return answers.job_run(client.run_job(arguments.job_id, _given(arguments.run_id)))


def _run(client: Client, turn: Turn, waiting: list[dict[str, Any]]) -> tools.Run:
    for found in client.transcript(turn.session_id, turn.number)["turns"]:
        if found["turn"] == turn.number:
            return answers.run_of(turn.session_id, found, waiting)
    raise Problem(404, "not_found", "The turn was removed from the session's history.", {})


def _given(value: str | UnsetType) -> str | None:
    return None if value is UNSET else value


# The protocol -------------------------------------------------------------------------------------------------------


def _result(answer: tools.Answer) -> wire.CallToolResult:
    value = msgspec.to_builtins(answer)
    text = msgspec.json.encode(answer).decode()
    failed = isinstance(answer, tools.Run) and answer.status == "failed"
    # Also as text, for clients that don't read structured content.
    content: list[wire.ContentBlock] = [wire.TextContent(type="text", text=text)]
    return wire.CallToolResult(content=content, structured_content=value, is_error=failed)


def _sentence(error: Problem | Unreachable) -> str:
    """An error message in the terms of the tools."""
    if isinstance(error, Problem):
        return f"{reworded(error, SENTENCES, lambda field: ARGUMENTS.get(field, field))} ({error.code})"
    return f"{error} Start one with `perdure serve`."


def _refusal(sentence: str) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=sentence)], is_error=True)


def _listing() -> wire.ListToolsResult:
    listed = [
        wire.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tools.schema(tool.arguments),
            output_schema=tools.schema(tool.answer),
            annotations=wire.ToolAnnotations(**tool.hints),  # type: ignore[arg-type]
        )
        for tool in tools.TOOLS
    ]
    return wire.ListToolsResult(tools=listed)


def make_server(connect: Callable[[], Client]) -> Server[Any]:
    delegate = Delegate(connect)

    async def list_tools(_: ServerRequestContext[Any], __: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        return _listing()

    async def call_tool(context: ServerRequestContext[Any], params: wire.CallToolRequestParams) -> wire.CallToolResult:
        count = 0

        async def report(words: str) -> None:
            nonlocal count
            count += 1
            await context.session.report_progress(count, None, words)

        return await delegate.call(params.name, params.arguments, report)

    return Server(
        "perdure",
        version=__version__,
        title="Perdure",
        instructions=tools.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(connect: Callable[[], Client]) -> None:
    """Serve until stdin ends."""

    async def run() -> None:
        server = make_server(connect)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(run())
