"""An in-memory model of the ownership rules, to compare a store with; see ownership.py.

`prepare` builds a request to the store, `carry_out` makes it, and `expect` returns the expected answer. A whole group
is prepared first, so the expectations of a step may be stale when it runs.
"""

from typing import Any, Literal

from hypothesis import strategies as st
from msgspec import Struct, structs

from perdure.core.errors import Conflict, NotOwner
from perdure.stores.base import Append, Head, Kept, Owner, Store
from tests.conformance.stores import delta, fact, listed

SESSIONS = ("s", "t")
NODES = ("a", "b")
GROUP_MAX_STEPS = 4
NONE = Head(0, 0, None, 0)

Verb = Literal["append", "claim", "release", "join", "beat", "erase"]


class Do(Struct, frozen=True):
    verb: Verb
    session: str
    node: str = "a"
    life: int = 0
    """0: the node's newest incarnation; 1: the one before."""
    decisive: bool = False
    by_owner: bool = False
    expects: bool = False
    expects_last: bool = False
    claims: bool = False
    off: int = 0
    """Added to every expected number."""


class Asked(Struct, frozen=True):
    verb: Verb
    owner: Owner
    step: Append
    """The step to append. For the other verbs: the session, its token and the expected decisive event."""


_sessions = st.sampled_from(SESSIONS)
_steps = st.builds(
    Do,
    st.sampled_from(("append", "append", "append", "append", "claim", "release", "join", "beat")),
    _sessions,
    st.sampled_from(NODES),
    st.sampled_from((0, 0, 1)),
    *(st.booleans() for _ in range(5)),
    st.sampled_from((0, 0, 0, 0, 1, -1)),
)
# An erasure is alone in its group: it has several steps, and others may be written in between.
groups = st.one_of(
    st.lists(_steps, min_size=1, max_size=GROUP_MAX_STEPS), _sessions.map(lambda session: [Do("erase", session)])
)


class Model:
    def __init__(self, store: Store, generation: int, prefix: str, *, one_server: bool) -> None:
        self.store = store
        self.generation = generation
        self.prefix = prefix
        self.one_server = one_server
        self.heads: dict[str, Head] = {}
        self.lives: dict[str, int] = {}
        self.dead: set[str] = set()

    async def stored_heads(self) -> dict[str, Head]:
        return await self.store.heads([self._name(session) for session in SESSIONS])

    def prepare(self, do: Do) -> Asked:
        session, node = self._name(do.session), self._name(do.node)
        owner = Owner(node, max(0, self.lives.get(node, 0) - do.life))
        before = self.heads.get(session, NONE)
        makes = session not in self.heads
        is_append = do.verb == "append"
        step = Append(
            session_id=session,
            generation=self.generation,
            expect=before.decided_seq + do.off if do.expects or makes or not is_append else None,
            expect_last=before.last_seq + do.off if do.expects_last else None,
            token=before.token + do.off if do.by_owner or not is_append else None,
            claim=owner if do.claims else None,
            events=[delta("x"), fact()] if do.decisive or makes else [delta("x")],
            state=b"state" if do.decisive or makes else None,
            listed=listed() if makes else None,
        )
        return Asked(do.verb, owner, step)

    async def carry_out(self, asked: Asked) -> Any:
        session, step = asked.step.session_id, asked.step
        match asked.verb:
            case "append":
                return await self.store.append(step)
            case "claim":
                return await self.store.claim_session(session, asked.owner, self.generation)
            case "release":
                assert step.token is not None and step.expect is not None
                return await self.store.release(session, step.token, step.expect, self.generation)
            case "join":
                return await self.store.join(asked.owner.node, b"{}")
            case "beat":
                return await self.store.beat(asked.owner)
            case "erase":
                return await self.store.erase(session, self.generation)

    def expect(self, asked: Asked) -> Any:
        match asked.verb:
            case "append":
                return self._append(asked.step)
            case "claim":
                return self._claim(asked.step.session_id, asked.owner)
            case "release":
                return self._release(asked.step)
            case "join":
                return self._join(asked.owner.node)
            case "beat":
                return self._is_living(asked.owner)
            case "erase":
                self.heads.pop(asked.step.session_id, None)
                return None

    def _append(self, step: Append) -> Any:
        head = self.heads.get(step.session_id, NONE)
        if step.token is not None and step.token != head.token:
            return NotOwner if step.session_id in self.heads else Conflict
        if step.expect is not None and step.expect != head.decided_seq:
            return Conflict
        if step.expect_last is not None and step.expect_last != head.last_seq:
            return Conflict
        if step.claim is not None:
            claimed = self._claimed(head, step.claim)
            if step.token is not None and claimed.owner != step.claim:
                return NotOwner
            head = claimed
        last = head.last_seq + len(step.events)
        decided = last if step.events[-1].decisive else head.decided_seq
        self.heads[step.session_id] = Head(last, decided, head.owner, head.token)
        return Kept(head.last_seq + 1, head.token, head.owner)

    def _claim(self, session: str, owner: Owner) -> int | None:
        if session not in self.heads:
            return None
        head = self.heads[session] = self._claimed(self.heads[session], owner)
        return head.token if head.owner == owner else None

    def _release(self, step: Append) -> bool:
        head = self.heads.get(step.session_id)
        if head is None or (head.token, head.decided_seq) != (step.token, step.expect):
            return False
        self.heads[step.session_id] = structs.replace(head, owner=None)
        return True

    def _join(self, node: str) -> int:
        self.lives[node] = self.lives.get(node, 0) + 1
        self.dead = set(self.lives) - {node} if self.one_server else self.dead - {node}
        return self.lives[node]

    def _claimed(self, head: Head, owner: Owner) -> Head:
        if head.owner == owner or not self._may_be_taken(head.owner, owner):
            return head
        return structs.replace(head, owner=owner, token=head.token + 1)

    def _may_be_taken(self, owner: Owner | None, claimer: Owner) -> bool:
        if owner is not None and owner.node == claimer.node:
            return claimer.incarnation > owner.incarnation
        return owner is None or owner.node not in self.lives or owner.node in self.dead

    def _is_living(self, owner: Owner) -> bool:
        return self.lives.get(owner.node) == owner.incarnation and owner.node not in self.dead

    def _name(self, short: str) -> str:
        return f"{self.prefix}-{short}"
