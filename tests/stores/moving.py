"""Stores with all kinds of rows, and a dump of a SQLite database that is independent of the code that moves rows.

Above: test_transfer.py and the tests of `perdure migrate`. Below: the helpers of the conformance suites, and SQLite.
"""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from perdure.runtime.data.directory import DataDirectory
from perdure.stores.base import (
    IssuedNativeSession,
    JobRow,
    Owner,
    Phrase,
    Receipt,
    RunRow,
    Spent,
    Store,
    TurnRecord,
    TurnRow,
)
from perdure.stores.sqlite import SqliteStore
from perdure.stores.transfer_sqlite import Home
from perdure.surfaces.cli.migrate import home_of
from tests.conformance import stores as conformance
from tests.conformance.stores import delta, fact, listed
from tests.conformance.turns import a_turn

ODD = ("", "plain", "a\0b", "Ünïcödé \U0001f9ea", "\u202eright to left", "tab\tand\nline", "ﬁ ligature", "x" * 5_000)
OF_A_SESSION = ("events", "turns", "turn_records", "spent", "receipts", "phrases", "natives", "heads")
LEFT_BEHIND = {"position", "session_key", "output_offset", "phrase_key", "owner", "incarnation", "generation"}


def home(data: Path) -> Home:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home_of(DataDirectory(data))


def attach(data: Path, session_id: str, name: str, content: bytes) -> None:
    folder = data / "attachments" / session_id
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


async def fill(data: Path, seed: int, *, sessions: int = 6, steps: int = 60) -> None:
    """Create a SQLite database with sessions whose events are interleaved."""
    store = SqliteStore(data / "perdure.db")
    await store.open()
    try:
        await Filling(store, await store.claim(), random.Random(seed), data).make(sessions, steps)
    finally:
        await store.close()


class Filling:
    def __init__(self, store: Store, generation: int, chance: random.Random, data: Path) -> None:
        self.owner = conformance.Owner(store, generation)
        self.store = store
        self.chance = chance
        self.data = data
        self.turns: dict[str, int] = {}

    async def make(self, sessions: int, steps: int) -> None:
        node = Owner("n", await self.store.join("n", b"{}"))
        names = [f"s_{number:03}" for number in range(sessions)]
        for name in names:
            await self._create(name)
        for _ in range(steps):
            await self._step(self.chance.choice(names), node)
        for name in self.chance.sample(names, sessions // 2):
            await self.owner.compact(name)
        await self._jobs(names)
        for kind, key, value in (
            ("project", "site", b'{"path": "/srv/site"}'),
            ("login", "abc", b"{}"),
            ("cursor", "jobs", b"12"),
            ("agent", "rehearsal", b'{"version": "1"}'),
            ("later kind", "k\0", b"\x00\xff"),
        ):
            await self.store.put_document(kind, key, value)

    async def _create(self, name: str) -> None:
        title = self.chance.choice(ODD)
        shown = listed(
            title=title,
            labels=self.chance.sample(ODD, 2),
            project=self.chance.choice([None, "site"]),
            parent=self.chance.choice([None, "s_000"]),
            archived=self.chance.random() < 0.3,
            last_active_at=f"2026-01-{self.chance.randint(1, 28):02}T00:00:00Z",
            due_at=self.chance.choice([None, "2026-02-01T00:00:00Z"]),
            public=json.dumps({"title": title}).encode(),
        )
        self.turns[name] = 0
        phrases = [Phrase(0, "title", title)] if title else []
        await self.owner.create(name, state=self.chance.randbytes(40), listed=shown, phrases=phrases)
        if self.chance.random() < 0.5:
            attach(self.data, name, f"{name}-picture.png", self.chance.randbytes(3_000))
            attach(self.data, name, "empty", b"")
            attach(self.data, name, ".half.part", b"never complete")

    async def _step(self, name: str, node: Owner) -> None:
        kind = self.chance.randrange(6)
        if kind == 0:
            await self.store.claim_session(name, node, self.owner.generation)
        elif kind == 1:
            await self.owner.append(name, *[delta(self.chance.choice(ODD[:-1]), turn=9) for _ in range(8)])
        elif kind == 2 and self.turns[name] > 1:
            await self.owner.append(
                name, fact("rewound"), state=b"rewound", hidden=(self.turns[name], self.turns[name])
            )
        elif kind == 3:
            issued = IssuedNativeSession("claude", self.chance.choice(["n1", "n2", "n\0"]), "rehearsal")
            await self.owner.append(name, fact("given"), state=b"given", issued=[issued])
        else:
            await self._turn(name)

    async def _turn(self, name: str) -> None:
        turn = self.turns[name] = self.turns[name] + 1
        said = f"{self.chance.choice(ODD)} needle{turn} {name}"
        spent = Spent(
            started_at=f"2026-01-0{turn % 9 + 1}T00:00:00Z",
            agent="rehearsal",
            model=self.chance.choice([None, "model"]),
            context="fresh",
            input_tokens=self.chance.choice([None, 2**40]),
            cost_usd=self.chance.choice([None, 0.1, 1e-9, 3.0]),
            said_bytes=turn,
        )
        head = (await self.store.heads([name]))[name]
        await self.owner.append(
            name,
            *a_turn(turn, 5),
            state=self.chance.randbytes(100),
            turns=[TurnRow(turn, True, b'{"turn":%d}' % turn, spent)],
            records=[TurnRecord(turn=turn, size=50, body=self.chance.randbytes(50))],
            records_after=head.last_seq,
            receipt=Receipt(f"m{turn}\0" if turn % 3 == 0 else f"m{turn}", "digest", b'{"seq":1}', event=0),
            phrases=[Phrase(turn, "user", said), Phrase(turn, "assistant", said), Phrase(turn, "assistant", "more")],
        )

    async def _jobs(self, names: list[str]) -> None:
        for number in range(3):
            job = f"job{number}"
            runs = [
                RunRow(job, str(run), run, run == 4, self.chance.choice([None, *names]), b"{}", b"d", b"", b"r\0")
                for run in range(5)
            ]
            start_at = self.chance.choice([None, 1_800_000_000_000])
            row = JobRow(job, 1, start_at, b'{"id":"%s"}' % job.encode())
            await self.store.put_job(row, self.owner.generation, expect=None, new=runs)


# Dumping ----------------------------------------------------------------------------------------------------------


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every table, without what is specific to this file: positions, keys, nodes and owners."""
    with closing(sqlite3.connect(path)) as database:
        found = {}
        for table in ("sessions", *OF_A_SESSION, "jobs", "job_runs"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            kept = [column for column in columns if column not in LEFT_BEHIND]
            of_session = table in OF_A_SESSION
            shown = [f"{table}.{column}" for column in kept] + (["sessions.session_id"] if of_session else [])
            joined = " JOIN sessions USING (session_key)" if of_session else ""
            rows = database.execute(f"SELECT {', '.join(shown)} FROM {table}{joined}").fetchall()
            found[table] = sorted((_without_nul(row) for row in rows), key=repr)
        found["heads"] = [row for row in found["heads"] if row[0]]
        kinds = "('cursor', 'upkeep', 'migration')"
        rows = database.execute(f"SELECT * FROM documents WHERE kind NOT IN {kinds}").fetchall()
        found["documents"] = sorted(_without_nul(row) for row in rows)
        order = "SELECT session_id, seq FROM events JOIN sessions USING (session_key) WHERE decisive = 1"
        found["order"] = database.execute(f"{order} ORDER BY position").fetchall()
        order = "SELECT session_id, turn, role, text FROM phrases JOIN sessions USING (session_key)"
        found["phrases in order"] = [
            _without_nul(row) for row in database.execute(f"{order} ORDER BY sessions.session_key, phrase_key")
        ]
    return found


def _without_nul(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace NUL, which PostgreSQL can't store in text. JSON escapes it."""
    return tuple(
        value.replace("\0", "\ufffd").replace("\\u0000", "\ufffd") if isinstance(value, str) else value for value in row
    )


def files(data: Path) -> dict[str, bytes]:
    folder = data / "attachments"
    paths = [path for path in folder.glob("*/*") if not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def ask(url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description is not None else []
