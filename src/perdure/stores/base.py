"""The interface of a store: durable storage for sessions, in domain verbs.

Above: the log (runtime/log/log.py) and the engine. Below: SQLite and PostgreSQL; one conformance suite
(tests/conformance/stores.py) runs on each. stores/shared.py adds what only a store for several nodes must do. Data and
wake-ups have separate interfaces: losing a wake-up costs time, never data. The store assigns event numbers; it never
looks inside the JSON of an event.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from perdure.core.compaction import Joined as Joined
from perdure.core.state import IssuedNativeSession as IssuedNativeSession
from perdure.core.turn_record import TurnRecord as TurnRecord

MAX_COUNT = 2**53
"""No log or file gets this long. A larger number means that the row is damaged."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class Owner(Struct, frozen=True):
    """One incarnation of a node. After a restart, the node is a different owner."""

    node: str
    incarnation: int


class Node(Struct, frozen=True):
    """A server that has joined. It is alive while `heartbeat` keeps increasing and it is not marked dead."""

    node: str
    incarnation: int
    heartbeat: int
    dead: bool
    about: bytes
    """JSON to show to people: its address and version."""
    draining: bool = False
    """An operator has told it to start no new turns."""


class Head(Struct, frozen=True):
    """The end of a session's log, and the session's owner. `token` is the fencing token, which increases with each
    change of owner."""

    last_seq: int
    decided_seq: int
    owner: Owner | None
    token: int


class Kept(Struct, frozen=True, gc=False):
    """The result of appending a step."""

    first: int
    """The number of the step's first event. If the step has no events: the number of the last event before it."""
    token: int
    """The session's fencing token after the step."""
    owner: Owner | None
    """The session's owner after the step."""


class Draft(Struct, frozen=True, gc=False):
    """An event before it has a number."""

    type: str
    turn: int | None
    body: bytes
    decisive: bool


class Stored(Struct, frozen=True, gc=False):
    """A stored event. If compaction joined a run of deltas, `first_seq` < `seq` and `cuts` has the lengths of the
    parts, as in Joined."""

    seq: int
    first_seq: int
    type: str
    turn: int | None
    body: bytes
    cuts: list[int] = []


class Place(Struct, frozen=True):
    """Where to find the events of some turns: after one position, up to another (None: the end). `changes` are later
    events that change the text of these turns."""

    after: int
    upto: int | None
    changes: list[Stored]


class KeptRecord(Struct, frozen=True, gc=False):
    """A stored turn record. `seq` is the last event that went into it."""

    turn: int
    seq: int
    size: int
    body: bytes


class Records(Struct, frozen=True):
    """Turn records, in order, and the later events that change the text of these turns."""

    kept: list[KeptRecord]
    changes: list[Stored]


class LaunchProgress(Struct, frozen=True, gc=False):
    """The progress of a launch, stored in the same transaction as the events it produced.

    `pending_input` has the lines that this step writes to the agent. They are lines
    `input_total - len(pending_input) + 1` to `input_total` of the launch's input. After a crash, the server appends the
    ones that are missing from the launch's `in` file."""

    launch_id: str
    session_id: str
    agent: str
    driver: str
    phase: Literal["launching", "live", "gone"]
    offset: Count
    performed_seq: Count
    input_total: Count
    pending_input: list[bytes]
    driver_state: bytes
    damage: str = ""
    """Why this row is unusable; empty if it is fine. Never stored."""


class Listed(Struct, frozen=True):
    """A session as lists show it, with the columns that lists filter and sort by."""

    project: str | None
    agent: str
    workdir: str
    state: str
    status: str
    title: str
    labels: list[str]
    archived: bool
    parent: str | None
    last_active_at: str
    public: bytes
    """The session's JSON as in the API, without `turns`."""
    due_at: str | None = None
    """When the next timer of an idle session fires; see `due_sessions`."""
    takes_slot: bool = False
    """Whether its turn occupies one of its project's slots."""


class Spent(Struct, frozen=True, kw_only=True):
    """The cost of a finished turn. `said_bytes` is the length of its message plus its answer."""

    started_at: str
    agent: str
    model: str | None
    context: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    input_bytes: int | None = None
    duration_ms: int | None = None
    said_bytes: int = 0


class TurnRow(Struct, frozen=True):
    turn: int
    visible: bool
    public: bytes
    spent: Spent | None = None
    """Write-only; read it through `usage`."""


UsageKey = Literal["day", "agent", "project", "session", "model"]


class UsageQuery(Struct, frozen=True, kw_only=True):
    group_by: tuple[UsageKey, ...] = ()
    since: str | None = None
    until: str | None = None
    agent: str | None = None
    project: str | None = None
    session: str | None = None


class UsageGroup(Struct, frozen=True):
    """Sums over the turns of a group. A value that no agent reported counts as 0."""

    keys: list[str]
    turns: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    live: int
    resumed: int
    fresh: int
    input_bytes: int
    duration_ms: int
    saved_bytes: int
    """Size of the earlier conversation that agents already had when these turns began. This is an upper bound on the
    bytes that did not have to be sent again."""


class Receipt(Struct, frozen=True):
    """Proof that a message was accepted. Sending the same `message_id` again returns the same answer (idempotency)."""

    message_id: str
    digest: str
    answer: bytes
    event: int | None = None
    """Index, in the step's events, of the event that accepted the message. Write-only."""
    seq: int | None = None
    """The number of that event, set by the append and never by the caller. None for messages stored by older
    versions."""


class Phrase(Struct, frozen=True):
    """Text for full-text search. A session has one title and a turn has one user text; a newer one replaces the old.
    A turn may have several assistant texts. Search skips hidden turns."""

    turn: int
    role: Literal["title", "user", "assistant"]
    text: str


class Append(Struct, frozen=True, kw_only=True, gc=False):
    """One step of one session, stored atomically."""

    session_id: str
    generation: int
    expect: int | None
    """Number of the last decisive event that the writer has read. Raises Conflict if there is a newer one. None: don't
    check."""
    expect_last: int | None = None
    """Number of the last event of any kind, for a step that must directly follow it. Raises Conflict otherwise."""
    token: int | None = None
    """The owner's fencing token. Raises NotOwner if it isn't the session's current one. None for commands, which may
    come from any node."""
    claim: Owner | None = None
    """The node that becomes the owner in this step if the session has no living owner. If it has one, that owner stays,
    and the step is stored anyway, unless it also gives a `token`: then a failed claim rejects the step."""
    events: list[Draft] = []
    state: bytes | None = None
    """The state machine's state after these events. Required if one of them is decisive."""
    listed: Listed | None = None
    turns: list[TurnRow] = []
    hidden: tuple[int, int] | None = None
    """First and last number of a range of turns to hide."""
    records: list[TurnRecord] = []
    """Records of the turns that end in this step. A record without a body deletes the stored one; the turn is then
    read from the log."""
    records_after: int | None = None
    """The last event that the writer had read when it made the records. If newer events exist, the records are out of
    date and are not stored."""
    receipt: Receipt | None = None
    progress: LaunchProgress | None = None
    phrases: list[Phrase] = []
    issued: list[IssuedNativeSession] = []


class SessionRecord(Struct, frozen=True):
    """What is needed to continue a session without reading its log."""

    state: bytes
    last_seq: int
    decided_seq: int
    owner: Owner | None = None
    token: int = 0


class Query(Struct, frozen=True, kw_only=True):
    project: str | None = None
    agent: str | None = None
    state: str | None = None
    status: str | None = None
    label: str | None = None
    workdir: str | None = None
    below: str | None = None
    """A directory: the sessions that work in it or in a directory inside it."""
    parent: str | None = None
    archived: bool | None = None
    q: str | None = None
    limit: int = 50
    cursor: str | None = None


class Found(Struct, frozen=True):
    session_id: str
    public: bytes
    snippet: str | None = None
    snippet_turn: int | None = None
    """The turn that the snippet comes from; None if it comes from the title."""
    last_seq: int = 0
    """The number of the session's last event."""
    node: str | None = None
    """The node that owns the session."""


class Page(Struct, frozen=True):
    found: list[Found]
    next_cursor: str | None


class Workdir(Struct, frozen=True):
    """A working directory of sessions."""

    path: str
    sessions: int
    last_active_at: str


class JobRow(Struct, frozen=True):
    """A stored job. `start_at` is when its next run begins, in milliseconds since 1970."""

    job_id: str
    revision: int
    start_at: int | None
    body: bytes


class RunRow(Struct, frozen=True):
    """One run of a job. `detail`, `message` and `result` describe its session and are erased together with it."""

    job_id: str
    run_id: str
    due_at: int
    is_open: bool
    session_id: str | None
    body: bytes
    detail: bytes = b""
    message: bytes = b""
    result: bytes = b""


class Store(Protocol):
    is_shared: bool
    """Whether several servers may use it at the same time. If so, it is a SharedStore (stores/shared.py)."""

    async def open(self) -> None:
        """Connect, and run the migrations."""
        ...

    async def close(self) -> None: ...

    async def claim(self) -> int:
        """Take ownership of the store, and return its generation, which is higher than any before. Appends with a lower
        generation raise Fenced. A shared store has no owner: every server gets the same number."""
        ...

    async def append(self, step: Append) -> Kept:
        """Store one step. If it raises Conflict, Fenced, NotOwner or StoreFull, nothing of the step was stored.
        Concurrent steps share one commit; a rejected step does not affect the others."""
        ...

    def append_now(self, steps: Sequence[Append]) -> list[Kept | Exception] | None:
        """Store steps of different sessions in one commit, synchronously. A rejected step has its error in its place.
        Returns None, with nothing stored, if this could block for long: use `append_all` then."""
        ...

    async def append_all(self, steps: Sequence[Append]) -> list[Kept | Exception]:
        """Like `append_now`, but waits as long as it takes."""
        ...

    async def load(self, session_id: str) -> SessionRecord | None: ...

    async def read(
        self, session_id: str, after: int, *, limit: int, upto: int | None = None, max_bytes: int | None = None
    ) -> list[Stored]:
        """Return events with seq > after, in order. If `after` is inside a joined run, the first result is the rest of
        that run, with `first_seq` = after + 1."""
        ...

    async def size(self, session_id: str, after: int, *, limit: int, upto: int | None = None) -> int:
        """Return the size in bytes of the events after this position, without reading them."""
        ...

    async def find_turns(self, session_id: str, first: int, last: int | None) -> Place:
        """Return where to read these turns. Without `last`: all turns from `first` on."""
        ...

    async def read_records(
        self, session_id: str, first: int, last: int | None, upto: int, *, limit: int, max_bytes: int | None = None
    ) -> Records:
        """Return the records of these turns that were made from events up to `upto`: at most `max_bytes` of them
        (measured like `size`), but at least one if there is any. Turns without a record are left out."""
        ...

    async def read_turns(
        self,
        session_id: str,
        *,
        from_turn: int = 1,
        before: int | None = None,
        last: int | None = None,
        hidden: bool = False,
    ) -> list[TurnRow]:
        """Return visible turns in order; with `hidden`, hidden ones too. `before` limits them to the turns before that
        one, and `last` to that many from the end."""
        ...

    async def find_receipt(self, session_id: str, message_id: str) -> Receipt | None: ...

    async def list_sessions(self, query: Query) -> Page: ...

    async def workdirs(self, newest: int) -> list[Workdir]:
        """Return the working directories of this many most recently active sessions, the most recently used first.
        Only these sessions are counted."""
        ...

    async def list_changes(
        self, after: int, types: tuple[str, ...], limit: int, *, max_bytes: int | None = None
    ) -> list[tuple[int, str, Stored]]:
        """Return (position, session_id, event) of all sessions with position > after: at most `max_bytes` of events,
        but at least one if there is any. `after` = -1 returns only the newest position, perhaps in a single row with an
        empty session_id."""
        ...

    async def usage(self, query: UsageQuery) -> list[UsageGroup]:
        """Return the cost of turns, grouped and sorted by the keys of the query."""
        ...

    async def launches(self, launch_id: str | None = None, *, node: str | None = None) -> list[LaunchProgress]:
        """Return the launches that are not gone: all, the rows of one launch, or those of a node. The launch ids of a
        node start with its id and a hyphen."""
        ...

    async def issued_twice(self) -> set[tuple[str, str]]:
        """Return (program, native session id) of each native session that was issued more than once, to different
        sessions or to the same one. An id stays in this set when some of the sessions involved are erased."""
        ...

    async def compact(self, session_id: str, generation: int, runs: list[Joined]) -> None:
        """Replace each run of events by one joined event. Reading from any position gives the same text as before."""
        ...

    async def natives(self, session_id: str) -> list[str]:
        """Return the ids of all native sessions that agents created for this session."""
        ...

    async def erase(self, session_id: str, generation: int) -> None:
        """Delete everything about a session, in small steps so that other sessions can append in between. `scrub`
        removes the remains in database files."""
        ...

    async def scrub(self, *, whole: bool) -> bool:
        """Overwrite the remains of erased data in the database files. Returns True if nothing is left to do. Without
        `whole`, does only what does not block other work for long."""
        ...

    async def put_document(self, kind: str, key: str, value: bytes | None) -> None:
        """Store a small named value (a project, an agent's probed abilities). None deletes it."""
        ...

    async def documents(self, kind: str) -> dict[str, bytes]: ...

    async def document(self, kind: str, key: str) -> bytes | None: ...

    async def add_document(self, kind: str, key: str, value: bytes) -> bool:
        """Store a document unless one with this key exists. Returns whether it was stored."""
        ...

    async def take_document(self, kind: str, key: str) -> bytes | None:
        """Delete a document and return it. Only one of several concurrent callers gets it."""
        ...

    async def join(self, node: str, about: bytes) -> int:
        """Register a starting node, and return its incarnation, which is higher than any it had before. If the store
        admits one server at a time, this marks every other node dead."""
        ...

    async def beat(self, owner: Owner) -> bool:
        """Record a heartbeat. Returns False if the node was marked dead or has joined again since: it must stop."""
        ...

    async def nodes(self) -> list[Node]:
        """Return every node that has ever joined. Unreadable rows are left out."""
        ...

    async def claim_session(self, session_id: str, owner: Owner, generation: int) -> int | None:
        """Become the owner of a session that has no living owner, and return its fencing token. Returns None if another
        living node owns it, or if there is no such session. A node that is not marked dead keeps its sessions across
        a restart: only its own next incarnation may claim them."""
        ...

    async def release(self, session_id: str, token: int, expect: int, generation: int) -> bool:
        """Give up ownership of a session, if the token is current and there is no decisive event after `expect`. The
        token stays; the next owner gets a higher one."""
        ...

    async def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        """Return the heads of many sessions, in one query. A session that does not exist, or whose head is unreadable,
        is left out; `load` tells the two apart."""
        ...

    async def waiting(self, node: str | None = None) -> list[str]:
        """Return the sessions in state `accepted`, which wait for an owner to start their turn; least recently active
        first. With `node`: only those that no other living node owns."""
        ...

    async def due_sessions(self, until: str, limit: int) -> list[str]:
        """Return sessions whose `due_at` is not after `until`, the longest due first."""
        ...

    async def put_job(
        self,
        row: JobRow,
        generation: int,
        *,
        expect: int | None,
        new: Sequence[RunRow] = (),
        changed: Sequence[RunRow] = (),
    ) -> None:
        """Store a job and its runs in one transaction. Raises Conflict, with nothing stored, if the job's revision is
        not `expect` (None: the job must not exist). A new run whose id already exists is left unchanged."""
        ...

    async def remove_job(self, job_id: str, generation: int) -> None:
        """Delete a job and its runs, but not their sessions."""
        ...

    async def load_job(self, job_id: str) -> JobRow | None: ...

    async def jobs(self) -> list[JobRow]: ...

    async def due_jobs(self, limit: int) -> list[JobRow]:
        """Return the jobs that have a next run, due or not, the soonest first."""
        ...

    async def open_runs(self, job_id: str | None = None) -> list[RunRow]:
        """Return the runs that have not ended, of one job or of all."""
        ...

    async def list_runs(
        self, job_id: str, *, limit: int, before: tuple[int, str] | None = None, held: bool = False
    ) -> list[RunRow]:
        """Return runs, the newest first, without `message` and `result`. With `before` (a due time and a run id): only
        older ones. With `held`: only runs that have a session."""
        ...

    async def load_run(self, job_id: str, run_id: str) -> RunRow | None: ...

    async def trim_runs(self, job_id: str, keep: int, generation: int) -> None:
        """Delete old runs that have ended. Keeps the newest `keep` runs with a session, and as many without one."""
        ...
