"""What a store is: where facts are kept, in domain verbs.

Above: the log (runtime/log/log.py) and the engine. Below: SQLite and PostgreSQL; one conformance suite
(tests/conformance/stores.py) runs on each. What only a store for several nodes must do is in stores/shared.py. Facts
and wake-ups are two interfaces: losing a wake-up costs time, never data. The store gives events their numbers; it never
looks inside their JSON.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from perdure.core.compaction import Joined as Joined
from perdure.core.state import Given as Given
from perdure.core.turn_record import TurnRecord as TurnRecord

MAX_COUNT = 2**53
"""No log and no file gets this long: a larger number is damage."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class Owner(Struct, frozen=True):
    """A node in one of its lives: a restart makes it another owner."""

    node: str
    incarnation: int


class Node(Struct, frozen=True):
    """A server that has joined. It is alive as long as `heartbeat` keeps growing and nobody has marked it dead."""

    node: str
    incarnation: int
    heartbeat: int
    dead: bool
    about: bytes
    """JSON for people: its address, its version."""
    draining: bool = False
    """A person wants it to run nothing new."""


class Head(Struct, frozen=True):
    """How far a session's log goes, and who owns the session. `token` is the fencing token: a change of owner raises
    it."""

    last_seq: int
    decided_seq: int
    owner: Owner | None
    token: int


class Kept(Struct, frozen=True, gc=False):
    """What an append has made of a step."""

    first: int
    """The number of the step's first event, or of the last event before it if it has none."""
    token: int
    """The session's fencing token after the step."""
    owner: Owner | None
    """The session's owner after the step."""


class Draft(Struct, frozen=True, gc=False):
    """An event that has no number yet."""

    type: str
    turn: int | None
    body: bytes
    decisive: bool


class Stored(Struct, frozen=True, gc=False):
    """An event as it was kept. `first_seq` < `seq` where compaction joined a run of deltas; `cuts` are then the
    lengths of its parts, as in Joined."""

    seq: int
    first_seq: int
    type: str
    turn: int | None
    body: bytes
    cuts: list[int] = []


class Place(Struct, frozen=True):
    """Where the events of some turns lie: after one position, up to another (None: the end). `changes` of what was said
    in them came later."""

    after: int
    upto: int | None
    changes: list[Stored]


class KeptRecord(Struct, frozen=True, gc=False):
    """A turn's record as it was kept. `seq` is the last event that it was made of."""

    turn: int
    seq: int
    size: int
    body: bytes


class Records(Struct, frozen=True):
    """Records of turns, in order, and the later changes of what was said in these turns."""

    kept: list[KeptRecord]
    changes: list[Stored]


class Checkpoint(Struct, frozen=True, gc=False):
    """How far a launch has come; stored in one transaction with the events it led to.

    `pending_input` are the lines that this step wants written; they are the launch's input lines number
    `input_total - len(pending_input) + 1` to `input_total`. After a crash, those that the launch's `in` file does not
    hold yet are appended."""

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
    """Why this row can't be used, if it can't; never stored."""


class Listed(Struct, frozen=True):
    """What a session looks like in lists, with the columns that lists filter and sort by."""

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
    """The session's JSON as the API shows it, without `turns`."""
    due_at: str | None = None
    """When a clock of the idle session fires: see `due_sessions`."""
    takes_slot: bool = False
    """Whether its turn takes one of its project's slots."""


class Spent(Struct, frozen=True, kw_only=True):
    """What a turn has cost, once it is over. `said_bytes`: how long its message and its answer are."""

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
    """Only written; see `usage`."""


UsageKey = Literal["day", "agent", "project", "session", "model"]


class UsageQuery(Struct, frozen=True, kw_only=True):
    group_by: tuple[UsageKey, ...] = ()
    since: str | None = None
    until: str | None = None
    agent: str | None = None
    project: str | None = None
    session: str | None = None


class UsageGroup(Struct, frozen=True):
    """Sums over the turns of a group; those that were never said count as nothing."""

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
    """What was said before the turns whose agent held it already: at the most this was not sent again."""


class Receipt(Struct, frozen=True):
    """That a message was taken: the same `message_id` again gets the same answer."""

    message_id: str
    digest: str
    answer: bytes
    event: int | None = None
    """The index, in the step's events, of the one that took the message. Only written."""
    seq: int | None = None
    """The number of that event. The append sets it, never the caller; None for messages of older versions."""


class Phrase(Struct, frozen=True):
    """Text that search finds. A session has one title and a turn one user text: a newer one replaces it. A turn may
    have several of the assistant's. Turns that are not visible are not found."""

    turn: int
    role: Literal["title", "user", "assistant"]
    text: str


class Append(Struct, frozen=True, kw_only=True, gc=False):
    """One step of one session. All of it is kept, or nothing."""

    session_id: str
    generation: int
    expect: int | None
    """The number of the last decisive event that the writer has read; Conflict if there is a newer one. None: any."""
    expect_last: int | None = None
    """The number of the last event of any kind, for a step that must come directly after it; else Conflict."""
    token: int | None = None
    """The owner's fencing token; NotOwner if it is not the session's. None for a command, which may come from any
    node."""
    claim: Owner | None = None
    """Who becomes the owner in this step if the session has no living one. If it has, the owner stays, and the step is
    kept unless it gives a `token` too: then it stands or falls with its claim."""
    events: list[Draft] = []
    state: bytes | None = None
    """The machine's state after these events; given whenever one of them is decisive."""
    listed: Listed | None = None
    turns: list[TurnRow] = []
    hidden: tuple[int, int] | None = None
    """The turns from the first number to the second are no longer visible."""
    records: list[TurnRecord] = []
    """Of turns that end in this step. One without a body removes what there was: the turn is read from the log."""
    records_after: int | None = None
    """The last event that the writer had read when it made the records. If others have been kept since, the records
    lack them, and none is kept."""
    receipt: Receipt | None = None
    checkpoint: Checkpoint | None = None
    phrases: list[Phrase] = []
    given: list[Given] = []


class SessionRecord(Struct, frozen=True):
    """Enough to go on with a session without reading its log."""

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
    """The turn that the snippet is of; None if it is of the title."""
    last_seq: int = 0
    """The number of the session's last event."""
    node: str | None = None
    """The node that owns the session."""


class Page(Struct, frozen=True):
    found: list[Found]
    next_cursor: str | None


class JobRow(Struct, frozen=True):
    """A scheduled job as it is kept. `start_at` is when its next run begins, in milliseconds since 1970."""

    job_id: str
    revision: int
    start_at: int | None
    body: bytes


class RunRow(Struct, frozen=True):
    """One run of a job. `detail`, `message` and `result` tell of its session: they go when that is erased."""

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
    """Whether several servers may use it at the same time; if so, it is a SharedStore (stores/shared.py)."""

    async def open(self) -> None:
        """Migrate and be ready."""
        ...

    async def close(self) -> None: ...

    async def claim(self) -> int:
        """Become the owner of the store: a number higher than any before. Appends with a lower one raise Fenced. A
        shared store has no owner: every server gets the same number."""
        ...

    async def append(self, step: Append) -> Kept:
        """Keep one step. Raises Conflict, Fenced, NotOwner or StoreFull, and then nothing of the step was kept. Steps
        given at the same time share one commit; one that is rejected does not hurt the others."""
        ...

    def append_now(self, steps: Sequence[Append]) -> list[Kept | Exception] | None:
        """Keep steps of different sessions in one commit before this returns; a step that was rejected has its error in
        its place. None if that would take more than a moment: then nothing was done, and `append_all` is to be used."""
        ...

    async def append_all(self, steps: Sequence[Append]) -> list[Kept | Exception]:
        """The same, however long it takes."""
        ...

    async def load(self, session_id: str) -> SessionRecord | None: ...

    async def read(
        self, session_id: str, after: int, *, limit: int, upto: int | None = None, max_bytes: int | None = None
    ) -> list[Stored]:
        """Events with seq > after, in order. A position inside a joined run gets the rest of that run, with
        `first_seq` = after + 1."""
        ...

    async def size(self, session_id: str, after: int, *, limit: int, upto: int | None = None) -> int:
        """How many bytes the events after this position have, without reading them."""
        ...

    async def find_turns(self, session_id: str, first: int, last: int | None) -> Place:
        """Where to read these turns, which are all from `first` on if there is no `last`."""
        ...

    async def read_records(
        self, session_id: str, first: int, last: int | None, upto: int, *, limit: int, max_bytes: int | None = None
    ) -> Records:
        """The records of these turns that were made of events up to this position: at least one, if there is any, else
        no more than `max_bytes` (as `size` counts). A turn that has none is left out."""
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
        """Visible turns in order (or also hidden ones), all or those before a turn, or only the `last` so many."""
        ...

    async def find_receipt(self, session_id: str, message_id: str) -> Receipt | None: ...

    async def list_sessions(self, query: Query) -> Page: ...

    async def list_changes(
        self, after: int, types: tuple[str, ...], limit: int, *, max_bytes: int | None = None
    ) -> list[tuple[int, str, Stored]]:
        """(position, session_id, event) across all sessions with position > after; at least one, else no more than
        `max_bytes` of events. Position -1 asks for none but the newest position: an empty session_id row may be the
        only one returned."""
        ...

    async def usage(self, query: UsageQuery) -> list[UsageGroup]:
        """What turns have cost, summed up by the keys of the query, in their order."""
        ...

    async def launches(self, launch_id: str | None = None, *, node: str | None = None) -> list[Checkpoint]:
        """Those that are not gone: all of them, the rows of one launch, or those of a node, with whose id and a hyphen
        the ids of its launches begin."""
        ...

    async def given_twice(self) -> set[tuple[str, str]]:
        """(program, native session id) of those that were given more than once, whether to several sessions or to one.
        It stays so for whoever is left when others are erased."""
        ...

    async def compact(self, session_id: str, generation: int, runs: list[Joined]) -> None:
        """Replace each run of events by its joined one. Reading any position gives the same text as before."""
        ...

    async def natives(self, session_id: str) -> list[str]:
        """The ids of all native sessions that agents gave to this session."""
        ...

    async def erase(self, session_id: str, generation: int) -> None:
        """Forget a session wholly, in steps that let others append in between. What is left in files is removed by
        `scrub`."""
        ...

    async def scrub(self, *, whole: bool) -> bool:
        """Make unreadable what was erased and still is in files; True if nothing is left to do. Without `whole` only
        what holds up nobody for long."""
        ...

    async def put_document(self, kind: str, key: str, value: bytes | None) -> None:
        """A small named value (a project, an agent's probed abilities); None removes it."""
        ...

    async def documents(self, kind: str) -> dict[str, bytes]: ...

    async def document(self, kind: str, key: str) -> bytes | None: ...

    async def add_document(self, kind: str, key: str, value: bytes) -> bool:
        """Store a document unless one with this key exists; whether it was stored."""
        ...

    async def take_document(self, kind: str, key: str) -> bytes | None:
        """Remove a document and return it. Of several callers, one gets it."""
        ...

    async def join(self, node: str, about: bytes) -> int:
        """Register a node that starts: its incarnation, higher than any before of this node. Where the store admits
        one server at a time, every other node is dead from then on."""
        ...

    async def beat(self, owner: Owner) -> bool:
        """Show that this node is alive. False if it was marked dead, or has joined again since: it must stop."""
        ...

    async def nodes(self) -> list[Node]:
        """All that have ever joined. A row that can't be read is left out."""
        ...

    async def claim_session(self, session_id: str, owner: Owner, generation: int) -> int | None:
        """Become the owner of a session that has no living one: its fencing token. None if another living node owns
        it, or if there is no such session. A node that is not marked dead keeps its sessions when it restarts: only its
        own next incarnation may claim them."""
        ...

    async def release(self, session_id: str, token: int, expect: int, generation: int) -> bool:
        """Leave a session without an owner, if the token is the session's and nothing was decided after `expect`. The
        token stays, and the next owner gets a higher one."""
        ...

    async def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        """The heads of many sessions, in one query. A session that does not exist, or whose head can't be read, is
        left out: `load` says which."""
        ...

    async def waiting(self, node: str | None = None) -> list[str]:
        """The sessions whose state is `accepted`, which wait for an owner to begin; least recently active first. With a
        node only those that it may begin: another living node owns none of them."""
        ...

    async def due_sessions(self, until: str, limit: int) -> list[str]:
        """Sessions that are due (`due_at`) at this time, the longest due first."""
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
        """Keep a job and its runs in one transaction. Raises Conflict if its revision is not the expected one (None: it
        must not exist), and then nothing was kept. A new run whose id there is already is left as it was."""
        ...

    async def remove_job(self, job_id: str, generation: int) -> None:
        """Forget a job and its runs. Their sessions stay."""
        ...

    async def load_job(self, job_id: str) -> JobRow | None: ...

    async def jobs(self) -> list[JobRow]: ...

    async def due_jobs(self, limit: int) -> list[JobRow]:
        """Those that have a next run, the soonest first, also if it is not due yet."""
        ...

    async def open_runs(self, job_id: str | None = None) -> list[RunRow]:
        """The runs that have not ended, of one job or of all."""
        ...

    async def list_runs(
        self, job_id: str, *, limit: int, before: tuple[int, str] | None = None, held: bool = False
    ) -> list[RunRow]:
        """The newest first, or those before a due time and id; with `held` only those that have a session. Without what
        was said in them."""
        ...

    async def load_run(self, job_id: str, run_id: str) -> RunRow | None: ...

    async def trim_runs(self, job_id: str, keep: int, generation: int) -> None:
        """Forget old runs that have ended: keep so many of those with a session, and so many of those without."""
        ...
