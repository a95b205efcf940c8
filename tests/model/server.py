"""A scripted model on loopback: real agents use it like their vendor's API, and it does what the user's text says.

Above: tests start one with `running()`; `python -m tests.model` starts one for manual use. Below: wire.py speaks HTTP,
a dialect reads and writes each API, script.py decides the answer, log.py stores the requests. It runs in a separate
thread, so it works for blocking and for asynchronous tests. The only state that affects an answer is how often a
failing step was reached.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.model.anthropic import Anthropic, used_up
from tests.model.conversation import Conversation
from tests.model.dialect import BYTES_PER_TOKEN, Answer, Dialect, Tokens, new_id
from tests.model.gemini import Gemini
from tests.model.log import Request, RequestLog
from tests.model.openai_chat import OpenAIChat
from tests.model.openai_responses import OpenAIResponses
from tests.model.script import Act, Cut, Fail, Pause, Text, Thought, Usage, perform
from tests.model.tools import Call
from tests.model.wire import BadRequest, Connection, Received

DIALECTS: tuple[Dialect, ...] = (Anthropic(), OpenAIChat(), OpenAIResponses(), Gemini())
START_TIMEOUT_S = 10
LONGEST_SILENCE_S = 600
"""The maximum duration of `hang`, so that nothing waits forever."""


class ModelServer:
    """Runs on a free port of 127.0.0.1. `url` has no path; `log` has every request."""

    def __init__(self) -> None:
        self.log = RequestLog()
        self.port = 0
        self._met: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, port: int = 0) -> None:
        """Start, or start again on the same port after a stop."""
        self.port = port
        self._ready.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="model", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise RuntimeError("the scripted model did not start")

    def stop(self) -> None:
        """Stop, and cut off every answer."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError("the scripted model did not stop")
        self._loop = self._thread = None

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        conversations: set[asyncio.Task[None]] = set()
        writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            if self._stop.is_set():
                return
            task = asyncio.create_task(self._converse(Connection(reader, writer)))
            conversations.add(task)
            task.add_done_callback(conversations.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        for task in conversations:
            task.cancel()
        # asyncio accepts each connection in a separate task. If the server closes during that, the socket stays open
        # (CPython 3.11), so the server closes only when nothing else runs.
        async with asyncio.timeout(START_TIMEOUT_S):
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)
        server.close()
        for writer in list(writers):
            writer.transport.abort()

    async def _converse(self, connection: Connection) -> None:
        try:
            while received := await connection.request():
                request = self.log.add(lambda number, received=received: _logged(number, received))  # type: ignore[misc]
                if not await self._until_left(connection, request):
                    break
        except (BadRequest, ConnectionError, TimeoutError):
            connection.cut()
        except asyncio.CancelledError:
            # Only a stop cancels. The stream would report the cancellation as an error.
            connection.cut()
        finally:
            connection.close()

    async def _until_left(self, connection: Connection, request: Request) -> bool:
        """Answer, unless the client disconnects first. Returns whether the connection stays open."""
        answering = asyncio.create_task(self._respond(connection, request))
        leaving = asyncio.create_task(connection.left())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return answering.done() and answering.result() and not leaving.done()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            self.log.finish(request, "left")

    # Answering -------------------------------------------------------------------------------------------------

    async def _respond(self, connection: Connection, request: Request) -> bool:
        if request.dialect is None:
            status, body = _other(request)
            request.status = status
            if request.method == "HEAD":
                await connection.send_head_only(status)
            else:
                await connection.send_json(status, body)
            self.log.finish(request, "answered")
            return True
        outcome = await _Performance(connection, request, request.dialect).run(self._met)
        self.log.finish(request, outcome)
        return outcome != "cut"


class _Performance:
    """The answer to one request, act by act."""

    def __init__(self, connection: Connection, request: Request, dialect: Dialect) -> None:
        self._connection = connection
        self._request = request
        self._dialect = dialect
        self._streamed = dialect.streamed(request.path, request.body)
        self._tokens = Tokens(request.size_bytes // BYTES_PER_TOKEN, None)
        self._answer: Answer | None = None

    async def run(self, met: Counter[str]) -> str:
        """The outcome."""
        conversation = self._dialect.conversation(self._request.body)
        key = _digest(conversation)

        def count(step: int) -> int:
            met[f"{key}/{step}"] += 1
            return met[f"{key}/{step}"]

        for act in perform(conversation, count):
            ended = await self._act(act)
            if ended:
                return ended
        answer = await self._opened()
        closing = answer.close()
        self._request.status = 200
        if self._streamed:
            await self._connection.send_chunk(closing)
            await self._connection.end_stream()
        else:
            await self._connection.send_json(200, answer.whole(), {"request-id": new_id("req_")})
        return "answered"

    async def _act(self, act: Act) -> str:
        """Empty, or the outcome of the answer."""
        if isinstance(act, Usage):
            self._tokens = Tokens(act.input_tokens, act.output_tokens)
        elif isinstance(act, Fail):
            return await self._fail(act)
        elif isinstance(act, Pause):
            if act.opened:
                await self._opened()
            await asyncio.sleep(LONGEST_SILENCE_S if act.seconds is None else act.seconds)
        elif isinstance(act, Cut):
            await self._opened()
            self._connection.cut()
            return "cut"
        else:
            await self._send(_written(await self._opened(), act))
        return ""

    async def _opened(self) -> Answer:
        if self._answer is None:
            self._answer = self._dialect.answer(self._request.path, self._request.body, self._tokens)
            opening = self._answer.open()
            if self._streamed:
                self._request.status = 200
                await self._connection.open_stream({"request-id": new_id("req_")})
            await self._send(opening)
        return self._answer

    async def _send(self, data: bytes) -> None:
        if self._streamed:
            await self._connection.send_chunk(data)

    async def _fail(self, act: Fail) -> str:
        status = act.status
        if self._answer is not None and self._streamed:
            await self._connection.send_chunk(self._answer.fail(status))
            await self._connection.end_stream()
            return "failed"
        self._request.status = status
        # Without this header, clients choose their own delay, which doubles each time.
        retry = {"retry-after": "0"} if status in (429, 529) else {}
        if act.resets_in_s is not None:
            retry = used_up(math.ceil(time.time() + act.resets_in_s))
        await self._connection.send_json(status, self._dialect.error(status), {"request-id": new_id("req_"), **retry})
        return "failed"


def _written(answer: Answer, act: Text | Thought | Call) -> bytes:
    if isinstance(act, Text):
        return answer.text(act.delta)
    return answer.thought(act.delta) if isinstance(act, Thought) else answer.call(act)


def _digest(conversation: Conversation) -> str:
    return hashlib.sha256(json.dumps([conversation.texts, conversation.calls]).encode()).hexdigest()


def _logged(number: int, received: Received) -> Request:
    path, _, query = received.target.partition("?")
    try:
        body = json.loads(received.body) if received.body else None
    except ValueError as error:
        raise BadRequest("the body is not JSON") from error
    request = Request(number, received.method, path, query, received.headers, body, len(received.body))
    request.dialect = next((dialect for dialect in DIALECTS if dialect.speaks(received.method, path)), None)
    return request


def _other(request: Request) -> tuple[int, Any]:
    """Other requests of clients: whether the server is up, which models exist, how long a text is."""
    if request.method == "HEAD" or request.path == "/":
        return 200, {}
    if request.method == "POST" and request.path == "/v1/messages/count_tokens":
        return 200, {"input_tokens": request.size_bytes // BYTES_PER_TOKEN}
    if request.method == "POST" and request.path.endswith(":countTokens"):
        return 200, {"totalTokens": request.size_bytes // BYTES_PER_TOKEN}
    if request.method == "GET" and request.path == "/v1/models":
        model = {
            "id": "scripted",
            "object": "model",
            "type": "model",
            "display_name": "Scripted",
            "owned_by": "perdure",
        }
        return 200, {"object": "list", "data": [model], "has_more": False}
    return 404, {"type": "error", "error": {"type": "not_found_error", "message": f"no such path: {request.path}"}}


@contextlib.contextmanager
def running() -> Iterator[ModelServer]:
    """A scripted model for the duration of a test."""
    server = ModelServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
