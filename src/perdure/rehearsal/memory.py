"""The memory of the rehearsal agent: its native sessions on disk, one append-only file each.

Above: a dialect opens sessions, and records messages and answers. Below: the file system.
A record is one line, written in one call, so a kill loses at most a torn last line, which is skipped on reading. A
session contains only the conversation. The chosen model, mode and permissions are lost with the process, as in real
agents.
"""

import contextlib
import json
import os
import re
import time
import uuid
from typing import Any, NamedTuple

from perdure.core.transcript_text import unwrap

LIST_LIMIT_SESSIONS = 100
CHARS_PER_TOKEN = 4
SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUFFIX = ".ndjson"


class Summary(NamedTuple):
    session_id: str
    workdir: str
    title: str
    updated_at: str


class Session:
    """One native session: its records, in memory and in its file."""

    def __init__(self, path: str, session_id: str, records: list[dict[str, Any]]) -> None:
        self.session_id = session_id
        self._path = path
        self._records = records

    @property
    def workdir(self) -> str:
        return str(self._records[0].get("workdir", ""))

    @property
    def poisoned(self) -> bool:
        return any(record["type"] == "poisoned" for record in self._records)

    def hear(self, text: str) -> None:
        self._append({"type": "user", "text": text})

    def answered(self, text: str, stop_reason: str) -> None:
        self._append({"type": "assistant", "text": text, "stop_reason": stop_reason})

    def poison(self) -> None:
        self._append({"type": "poisoned"})

    def reject_next_resume(self) -> None:
        self._append({"type": "resume", "reject": True})

    def take_rejection(self) -> bool:
        """Whether to refuse this resume. The call consumes the refusal."""
        orders = [record for record in self._records if record["type"] == "resume"]
        if not orders or not orders[-1].get("reject"):
            return False
        self._append({"type": "resume", "reject": False})
        return True

    def history(self) -> list[tuple[str, str]]:
        """Role and raw text of every input and answer, in order."""
        return [(record["type"], record["text"]) for record in self._records if record["type"] in ("user", "assistant")]

    def context(self) -> list[dict[str, Any]]:
        """The records that a fork copies: all except those about this session itself."""
        return [record for record in self._records if record["type"] not in ("session", "resume")]

    def recall(self) -> list[str]:
        """Every user message in the context: received directly, or in a transcript or catch-up."""
        messages: list[str] = []
        for role, text in self.history():
            if role == "user":
                entries, message = unwrap(text)
                messages += [entry.text for entry in entries if entry.role == "user"]
                messages.append(message)
        return messages

    def recite(self) -> list[tuple[str, str]]:
        """Role and text of every message and answer in the context: direct ones, and those in transcripts."""
        found: list[tuple[str, str]] = []
        for role, text in self.history():
            if role == "user":
                entries, message = unwrap(text)
                found += [(entry.role, entry.text) for entry in entries]
                text = message
            found.append((role, text))
        return [(role, text) for role, text in found if text]

    def too_long(self, text: str) -> bool:
        """Whether this input is too long: the session is poisoned, or the input would exceed the context limit."""
        held = sum(len(each) for _, each in self.history()) + len(text)
        return self.poisoned or held // CHARS_PER_TOKEN > context_tokens()

    def title(self) -> str:
        messages = self.recall()
        return messages[0].strip().split("\n", 1)[0][:80] if messages else ""

    def _append(self, record: dict[str, Any], *, begins: bool = False) -> None:
        """Only the first record creates the file: an erased file must not reappear."""
        record["at"] = timestamp(time.time())
        try:
            self._write(json.dumps(record).encode() + b"\n", os.O_CREAT if begins else 0)
        except FileNotFoundError:
            if begins:
                raise
        self._records.append(record)

    def _write(self, line: bytes, how: int) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | how, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            while line:
                line = line[os.write(descriptor, line) :]
        finally:
            os.close(descriptor)


class Memory:
    """The folder of all native sessions."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create(self, workdir: str, session_id: str | None = None) -> Session:
        _make_private(self._folder)
        session_id = session_id or str(uuid.uuid4())
        session = Session(self._path(session_id), session_id, [])
        session._append({"type": "session", "id": session_id, "workdir": workdir}, begins=True)
        return session

    def fork(self, session: Session, session_id: str | None = None) -> Session:
        """A new session with the context of this one."""
        copy = self.create(session.workdir, session_id)
        for record in session.context():
            copy._append(dict(record))
        return copy

    def open(self, session_id: str) -> Session | None:
        """None if there is no such session, or if the id is malformed (so that it can't be used as a path)."""
        if not SESSION_ID.fullmatch(session_id):
            return None
        try:
            with open(self._path(session_id), "rb") as file:
                records = [record for line in file if (record := _record(line)) is not None]
        except FileNotFoundError:
            return None
        return Session(self._path(session_id), session_id, records) if records else None

    def newest(self, workdir: str | None) -> list[Summary]:
        """The most recently used sessions, of one working directory or (None) of all, up to a limit."""
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []
        dated = sorted(((os.path.getmtime(os.path.join(self._folder, name)), name) for name in names), reverse=True)
        found: list[Summary] = []
        for changed, name in dated:
            session = self.open(name.removesuffix(_SUFFIX))
            if session is not None and workdir in (None, session.workdir):
                found.append(Summary(session.session_id, session.workdir, session.title(), timestamp(changed)))
                if len(found) == LIST_LIMIT_SESSIONS:
                    break
        return found

    def _path(self, session_id: str) -> str:
        return os.path.join(self._folder, session_id + _SUFFIX)


def _make_private(folder: str) -> None:
    """Create a folder and its missing parents, all private: `makedirs` applies its mode only to the last one."""
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def default_folder() -> str:
    configured = os.environ.get("PERDURE_REHEARSAL_DIR")
    return configured or os.path.join(os.path.expanduser("~"), ".local", "state", "perdure", "rehearsal")


def context_tokens() -> float:
    """The context limit in tokens; unlimited by default."""
    configured = os.environ.get("PERDURE_REHEARSAL_CONTEXT", "")
    return int(configured) if configured.isdigit() else float("inf")


def timestamp(seconds: float) -> str:
    """RFC 3339, UTC, with milliseconds."""
    milliseconds = int(seconds * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03d}Z"


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("type"), str) else None
