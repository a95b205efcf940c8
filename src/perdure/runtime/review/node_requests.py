"""Requests between nodes: a node asks the node that has a session's directory something that only that node can know.

Above: the verbs for changes and directories. Below: the store. Nodes never call each other: a request and its answer
are small values in the store, announced by wake-ups. Requests only read; changes go through the log (operations.py).
With one node, they are plain calls.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.errors import STATUS_OF_CODE, UNREADABLE, Refused, StoreError
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log

logger = logging.getLogger(__name__)

Answer = dict[str, Any] | None
Handler = Callable[[dict[str, Any]], Awaitable[Answer]]

PATIENCE_S = 10.0
"""How long to wait for another node's answer, besides the time budget of a snapshot."""
SILENT_PATIENCE_S = 3.0
"""The same if its heartbeat has not changed lately."""
LOOK_S = 0.5
"""How often to look for an answer whose wake-up was lost."""
AT_ONCE = 4
PING = "ping"


class _Asked(Struct):
    from_node: str
    what: str
    given: dict[str, Any]
    until: float
    """When the asking node gives up, by the store's clock."""


class _Answered(Struct):
    answer: dict[str, Any] | None = None
    code: str = ""
    detail: str = ""
    facts: dict[str, Any] = {}


async def _responds(_: dict[str, Any]) -> Answer:
    return {}


class NodeRequests:
    def __init__(self, log: Log, node_id: str, snapshot_timeout_s: float) -> None:
        self._log = log
        self._node_id = node_id
        self._patience_s = PATIENCE_S + snapshot_timeout_s
        self._waiting: set[str] = set()
        """The requests of this node that wait for an answer."""
        self._handlers: dict[str, Handler] = {PING: _responds}
        self._answers = asyncio.Event()
        self._at_once = asyncio.Semaphore(AT_ONCE)

    def handle(self, what: str, handler: Handler) -> None:
        self._handlers[what] = handler

    def start(self) -> None:
        self._log.watch_documents(_asked(self._node_id), self._asked_here)
        self._log.watch_documents(_answered(self._node_id), self._answers_came)

    async def can_reach(self, journal: Journal) -> bool:
        """Whether the node that has the session's directory responds; this one, if no other node has it."""
        return await self.ask(journal, PING, {}) is not None

    def is_alive(self, node: str) -> bool:
        return node == self._node_id or node in self._log.living

    def _is_here(self, journal: Journal) -> bool:
        return journal.is_ours or self._log.may_claim(journal.owner, journal.state)

    async def ask(self, journal: Journal, what: str, given: dict[str, Any]) -> Answer:
        """The answer of the session's node; None if it doesn't respond, or has nothing to say."""
        if self._log.shared is None or self._is_here(journal):
            return await self._handlers[what](given)
        if journal.owner is None or journal.owner.node not in self._log.living:
            return None
        return await self.ask_node(journal.owner.node, what, given)

    async def ask_node(self, node: str, what: str, given: dict[str, Any]) -> Answer:
        if node == self._node_id:
            return await self._handlers[what](given)
        key = secrets.token_hex(8)
        # A node that was not heard of lately may just have started, or may be gone.
        patience_s = self._patience_s if self._log.is_responsive(node) else SILENT_PATIENCE_S
        asked = msgspec.json.encode(_Asked(self._node_id, what, given, self._log.now() + patience_s))
        self._waiting.add(key)
        try:
            async with asyncio.timeout(patience_s):
                await self._log.store.put_document(_asked(node), key, asked)
                self._log.announce_documents(_asked(node))
                while (found := await self._log.store.take_document(_answered(self._node_id), key)) is None:
                    await self._woken()
        except BaseException as error:
            self._log.keep(self._withdraw(node, key))
            if isinstance(error, TimeoutError):
                return None
            raise
        finally:
            self._waiting.discard(key)
        answered = msgspec.json.decode(found, type=_Answered)
        if answered.code:
            raise Refused(answered.code, answered.detail, **answered.facts)
        return answered.answer

    async def _withdraw(self, node: str, key: str) -> None:
        """Delete a request that nobody waits for. If that fails, its node answers, and a sweep deletes the answer."""
        with contextlib.suppress(StoreError):
            await self._log.store.put_document(_asked(node), key, None)

    async def _woken(self) -> None:
        self._answers.clear()
        try:
            async with asyncio.timeout(LOOK_S):
                await self._answers.wait()
        except TimeoutError:
            return

    async def _answers_came(self) -> None:
        self._answers.set()

    def sweep_soon(self) -> None:
        """At every poll: delete answers that nobody waits for, because they came too late or their request was
        cancelled. Requests whose wake-up was lost are answered."""
        if self._log.shared is not None:
            self._log.keep(self._sweep())

    async def _sweep(self) -> None:
        try:
            for key in await self._log.store.documents(_answered(self._node_id)):
                if key not in self._waiting:
                    await self._log.store.put_document(_answered(self._node_id), key, None)
        except StoreError as error:
            logger.warning("could not delete old answers of other nodes; trying again at the next poll: %s", error)
        await self._answer_all()

    async def _asked_here(self) -> None:
        """In the background, because requests wait for this call."""
        self._log.keep(self._answer_all())

    async def _answer_all(self) -> None:
        try:
            keys = list(await self._log.store.documents(_asked(self._node_id)))
            for key in keys:
                body = await self._log.store.take_document(_asked(self._node_id), key)
                if body is not None:
                    self._log.keep(self._answer(key, body))
        except StoreError as error:
            logger.warning("could not read the requests of other nodes; they will ask again: %s", error)

    async def _answer(self, key: str, body: bytes) -> None:
        try:
            asked = msgspec.json.decode(body, type=_Asked)
        except UNREADABLE:
            return
        async with self._at_once:
            if self._log.now() > asked.until:
                return
            try:
                answer = _Answered(await self._handlers[asked.what](asked.given))
            except Refused as refusal:
                answer = _Answered(code=refusal.code, detail=refusal.detail, facts=refusal.facts)
            except StoreError:
                return  # the other node gives up after its patience
            except Exception:
                logger.exception("could not answer another node (%s)", asked.what)
                answer = _Answered(code="internal", detail="The node that has the directory failed; see its log.")
        assert not answer.code or answer.code in STATUS_OF_CODE
        try:
            await self._log.store.put_document(_answered(asked.from_node), key, msgspec.json.encode(answer))
            self._log.announce_documents(_answered(asked.from_node))
        except StoreError as error:
            logger.warning("could not answer another node: %s", error)


def _asked(node: str) -> str:
    return f"asked.{node}"


def _answered(node: str) -> str:
    return f"answered.{node}"
