"""The server's memory does not grow with the number of sessions, turns and requests that it has handled.

The test walks the server's objects from the root. Every container must have about as many elements after thousands of
sessions as after the first hundreds. So this test detects a new dictionary that is never cleaned up.
"""

import asyncio
import gc
import sys
from collections import Counter, deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import pytest

from perdure.core import commands as cmd
from perdure.core.decision import Decision
from perdure.core.session import create, decide
from perdure.core.state import Session
from perdure.runtime.running.clocks import FORGET_TICKS
from tests.harness import eventually
from tests.surfaces.http.local import LocalServer

WARM_UP_SESSIONS = 600
"""Enough to fill containers with a fixed maximum, such as the feed's list of changes."""
SESSIONS = 3_000
ERASED = 20
SLACK = 40
"""Allowed fluctuation: keep-alive connections, short-lived tickets, the last erased sessions, SQL statements."""
OURS = ("perdure.", "uvicorn.", "starlette.")
HOLDERS = (dict, list, set, deque, asyncio.Queue, WeakValueDictionary)


def content(holder: Any) -> list[Any]:
    if isinstance(holder, asyncio.Queue):
        return list(holder._queue)  # type: ignore[attr-defined]
    return list(holder.values()) if isinstance(holder, dict | WeakValueDictionary) else list(holder)


def attributes(value: Any) -> dict[str, Any]:
    names = [*getattr(value, "__dict__", {}), *getattr(value, "__struct_fields__", ())]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return {name: getattr(value, name, None) for name in names if not name.startswith("__")}


def sizes(roots: dict[str, Any]) -> Counter[str]:
    """The number of elements at each place. All elements of a container share the name of their place."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo = deque(roots.items())
    while todo:
        # Breadth first, so an object that can be reached in several ways gets its shortest name.
        place, value = todo.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, HOLDERS):
            inside = content(value)
            found[place] += len(inside)
            todo += [(place + "[]", one) for one in inside]
        elif type(value).__module__.startswith(OURS) or isinstance(value, tuple | asyncio.Task):
            inner = enumerate(value) if isinstance(value, tuple) else attributes(value).items()
            todo += [(f"{place}.{name}", one) for name, one in inner]
    return found


def caches() -> Counter[str]:
    """The sizes of module-level containers and of function caches."""
    found: Counter[str] = Counter()
    for name, module in list(sys.modules.items()):
        if name.startswith("perdure."):
            for key, value in vars(module).items():
                if callable(getattr(value, "cache_info", None)):
                    found[f"{name}.{key}()"] = value.cache_info().currsize
                elif isinstance(value, HOLDERS) and not key.startswith("__"):
                    found[f"{name}.{key}"] = len(content(value))
    return found


def kinds() -> Counter[str]:
    """The number of our objects by class, as the garbage collector sees them. It does not track all classes."""
    gc.collect()
    every = (type(one) for one in gc.get_objects())
    return Counter(f"objects of {kind.__module__}.{kind.__qualname__}" for kind in every if _is_ours(kind))


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).startswith("perdure.") and not issubclass(kind, msgspec.Meta)


async def live(server: LocalServer, number: int) -> None:
    """A session from its first message to its end, without an agent."""
    log, facts = server.server.log, server.server.engine.facts
    opening = cmd.CreateSession(session_id=f"s{number}", project=None, agent="rehearsal", workdir="/srv")
    unborn = Session(id=opening.session_id, project=None, agent=opening.agent, workdir=opening.workdir, created_at="")

    def turn(state: Session) -> Decision:
        """Start and end the turn in one commit. With two commits, the first would start an agent."""
        sent = cmd.SubmitMessage(message_id=f"m{number}", text=f"number {number}")
        begun = decide(state, sent, facts.world(state, sent))
        over = decide(begun.state, cmd.GiveUpTurn(code="internal", message="There is no agent."), begun.world)
        over.events[:0] = begun.events
        return over

    journal, _ = await log.create(create(opening, facts.world(unborn)))
    await journal.snapshot_frame()
    await journal.record(turn)
    await journal.record(lambda state: decide(state, cmd.EndSession("completed", "closed"), facts.world(state)))


def used(server: LocalServer, first: int, count: int) -> Counter[str]:
    """Run this many sessions, with requests for some of them. Returns the sizes after everything has settled."""

    async def many() -> None:
        for begin in range(first, first + count, 100):
            await asyncio.gather(*(live(server, number) for number in range(begin, begin + 100)))

    server.run(many(), timeout_s=120)
    for number in range(first, first + ERASED):
        with server.watch(f"s{number}") as stream:
            next(stream.frames())
        server.get(f"/api/sessions/s{number}/transcript")
        server.http.get("/api/sessions/none")
        server.post("/api/tickets", {"path": f"/api/sessions/s{number}/log"})
        assert server.http.delete(f"/api/sessions/s{number}?purge=true").status_code == 200
    server.compacted()
    return settled(server)


def settled(server: LocalServer) -> Counter[str]:
    log, clocks = server.server.log, server.server.engine.clocks

    async def look() -> Counter[str]:
        for _ in range(FORGET_TICKS):
            await clocks.tick()
        log.evict(-1)
        gc.collect()
        return Counter({**sizes({"server": server.server}), **caches(), **kinds()})

    eventually(lambda: server.ask(lambda: not server.server.hub.viewers and not server.server.hub.tasks), "all left")
    found: Counter[str] = server.run(look(), timeout_s=60)
    return found


@pytest.mark.timeout(180)
def test_thousands_of_sessions_leave_nothing_in_memory(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(limits={"idle_timeout_s": 3600.0, "on_idle": "end"})
    before = used(server, 0, WARM_UP_SESSIONS)
    after = used(server, WARM_UP_SESSIONS, SESSIONS)
    assert "server.log.journals" in before and "server.engine.clocks._due" in before, "all of the server is looked at"
    assert before["server.log.journals"] <= SLACK
    grown = {place: (before[place], after[place]) for place in after if after[place] > before[place] + SLACK}
    assert grown == {}


def test_a_container_that_only_grows_is_detected() -> None:
    class Leaky:
        def __init__(self) -> None:
            self.kept: dict[int, list[int]] = {}

    Leaky.__module__ = "perdure.leaky"
    leaky = Leaky()
    for number in range(100):
        leaky.kept[number] = [number]
    found = sizes({"server": leaky})
    assert (found["server.kept"], found["server.kept[]"]) == (100, 100)
