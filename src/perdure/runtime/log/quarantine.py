"""Quarantine for damaged data: it is reported and preserved, and doesn't affect anything else.

Above: the log, for unreadable sessions; recovery, for launches that can't be continued; `GET /api/server`, the page and
`perdure doctor`, which list the damage. Below: the folder `quarantine`, to which the folders of damaged launches are
moved. A damaged session stays in the store, so that it can be repaired; until then, requests for it fail with an error.
Nothing is repaired here.
"""

import asyncio
import base64
import json
import logging
import re
import shutil
from collections.abc import Awaitable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from perdure.core import state as st
from perdure.core.errors import UNREADABLE, Refused, StoreDamaged, StoreError
from perdure.runtime.data.filesystem import write_private
from perdure.runtime.keeping.cgroups import remove_of
from perdure.runtime.keeping.launch import Launch
from perdure.stores.base import MAX_COUNT, LaunchProgress, SessionRecord

logger = logging.getLogger(__name__)

NOTE = "damage-{}.json"
_UNSAFE = re.compile(r"[^\w-]")
MAX_WORDS = 300

T = TypeVar("T")


Kind = Literal["session", "launch", "project", "job"]


class Damage(Struct, frozen=True):
    kind: Kind
    id: str
    session_id: str | None
    what: str


class Quarantine:
    def __init__(self) -> None:
        self._folder: Path | None = None
        # No limit: one entry per damaged item in the store, until the item is erased or can be read again.
        self._found: dict[tuple[str, str], Damage] = {}

    def open(self, folder: Path) -> None:
        """Load the list of launches that earlier servers have quarantined."""
        self._folder = folder
        for damage in read_notes(folder):
            self._found[damage.kind, damage.id] = damage

    def all(self) -> list[Damage]:
        return sorted(self._found.values(), key=lambda damage: (damage.kind, damage.id))

    def __contains__(self, session_id: str) -> bool:
        return ("session", session_id) in self._found

    def add(self, kind: Kind, id_: str, session_id: str | None, what: str) -> None:
        damage = Damage(kind, id_, session_id, what[:MAX_WORDS])
        if (kind, id_) not in self._found:
            logger.error("%s %s is damaged; quarantined it and continuing without it: %s", kind, id_, damage.what)
        self._found[kind, id_] = damage

    def forget(self, session_id: str) -> None:
        """Drop the entries of a session that was erased or can be read again."""
        self._found = {key: one for key, one in self._found.items() if one.session_id != session_id}

    def forget_job(self, job_id: str) -> None:
        """Drop the entry of a job that was removed."""
        self._found.pop(("job", job_id), None)

    def forget_launches(self, launch_ids: Collection[str]) -> None:
        """Drop the entries of launches whose folders were removed. A shared launch is listed under one session only."""
        for launch_id in launch_ids:
            self._found.pop(("launch", launch_id), None)

    async def guard(self, session_id: str, reading: Awaitable[T]) -> T:
        """Read a session. If its stored data is unreadable, quarantine the session and raise Refused."""
        try:
            read = await reading
            self._found.pop(("session", session_id), None)
            return read
        except StoreDamaged as error:
            what = str(error)
        except (StoreError, Refused):
            raise
        except Exception as error:  # noqa: BLE001  a damaged row can cause any error, and affects only this session
            what = f"{type(error).__name__}: {error}"
        self.add("session", session_id, session_id, what)
        raise refusal(session_id)

    async def set_aside(self, row: LaunchProgress, launch: Launch, what: str) -> None:
        """Quarantine a launch: preserve its folder and its row."""
        if self._folder is not None:
            # In a thread: a control group may need several attempts. First, so that the rest runs without an await.
            await asyncio.to_thread(remove_of, launch.folder)
        self.add("launch", row.launch_id, row.session_id, what)
        if self._folder is None:
            return
        target = self._folder / row.launch_id
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if launch.folder.is_dir() and not target.exists():
                launch.folder.rename(target)
            target.mkdir(mode=0o700, exist_ok=True)
            if launch.folder.is_file():
                launch.folder.rename(target / "instead-of-the-folder")
            damage = self._found["launch", row.launch_id]
            note = {**msgspec.to_builtins(damage), "row": msgspec.to_builtins(row, enc_hook=_as_text)}
            # One note per session of the launch.
            write_private(target / NOTE.format(_UNSAFE.sub("_", row.session_id)), json.dumps(note, default=_as_text))
        except OSError as error:
            logger.warning("could not move the folder of launch %s to %s: %s", row.launch_id, target, error)

    def erase(self, session_id: str | None, launches: Sequence[str] = ()) -> set[str]:
        """Delete the quarantined files of an erased session and of launches that it shared. Returns the launches whose
        folders are gone, to pass to `forget_launches`. May run in a thread."""
        if self._folder is None:
            return set()
        removed = set()
        for damage in read_notes(self._folder):
            if damage.id in launches or (session_id is not None and damage.session_id == session_id):
                shutil.rmtree(self._folder / damage.id, ignore_errors=True)
                if not (self._folder / damage.id).exists():
                    removed.add(damage.id)
        return removed


def restored(session_id: str, record: SessionRecord) -> st.Session:
    """A session's stored state. Raises StoreDamaged if its row doesn't match the session or its log: continuing with it
    could write to another session."""
    state = st.restore(record.state)
    if state.id != session_id:
        raise StoreDamaged(f"its row holds the state of session {state.id}")
    if not 0 < record.decided_seq <= record.last_seq <= MAX_COUNT:
        raise StoreDamaged(f"its row refers to event {record.decided_seq}, but its log ends at {record.last_seq}")
    return state


def refusal(session_id: str, what: str = "its stored data can't be read") -> Refused:
    return Refused(
        "damaged",
        f"Session {session_id} is damaged: {what}. Nothing was deleted. `perdure doctor --deep` shows the damage. "
        "Restore a backup, or erase the session.",
    )


def read_notes(folder: Path) -> list[Damage]:
    """The quarantined launches in the folder, including those with an unreadable note."""
    if not folder.is_dir():
        return []
    found = []
    for entry in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        notes = sorted(entry.glob(NOTE.format("*")))
        try:
            told = [msgspec.json.decode(note.read_bytes(), type=Damage) for note in notes]
            found += [msgspec.structs.replace(damage, id=entry.name) for damage in told]
        except (OSError, *UNREADABLE):
            notes = []
        if not notes:
            found.append(Damage("launch", entry.name, None, "it was quarantined, but its note can't be read"))
    return found


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
