"""The data directory: one server at a time, private, on a local disk; and the few small files in it.

perdure.db     the store              lock         held while a server runs
token          the API's token        install      this installation's id
server.json    where it listens       launches/    one folder per running agent
boot.json      for the epoch          rehearsal/, workspaces/
"""

import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perdure.core.errors import UNREADABLE
from perdure.runtime.data.filesystem import (
    NETWORK_FILE_SYSTEMS,
    boot_id,
    close_to_others,
    file_system,
    machine_id,
    make_private,
    not_ours,
)
from perdure.runtime.data.tokens import TokenError, check_token

logger = logging.getLogger(__name__)

FILES = ("perdure.db", "perdure.db-wal", "perdure.db-shm", "lock", "token", "install", "boot.json", "server.json")
FOLDERS = ("launches", "quarantine", "attachments", "workspaces", "rehearsal")
MAX_EPOCH = 999_999_999
"""It is a part of positions, which clients send back."""
_INSTALL = re.compile(r"[0-9a-f]{8}( [0-9]+( [0-9a-f]{8})?)?")


class Boot(Struct, frozen=True):
    """How the last server ended, and what it had come to."""

    boot: str
    clean: bool
    epoch: Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
    generation: int
    place: int | None = None


class DataError(Exception):
    """The data directory can't be used; the message says why and what to do."""


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self) -> None:
        """Make it, refuse what would not be safe, and lock it."""
        try:
            make_private(self.path)
            problem = not_ours(self.path)
        except OSError as error:
            raise DataError(f"{self.path} can't be made: {error.strerror}. Choose another with --data.") from error
        if problem is not None:
            raise DataError(problem)
        self._check_kinds()
        kind = file_system(self.path)
        if kind in NETWORK_FILE_SYSTEMS:
            raise DataError(
                f"{self.path} is on a network file system ({kind}), whose locks can't be trusted. "
                "Choose a local one with --data."
            )
        try:
            close_to_others(self.path)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise DataError(
                f"Another server uses {self.path} ({self.running()}). "
                "Stop it first, or choose another directory with --data."
            ) from error
        except OSError as error:
            raise DataError(f"{self.path} can't be written: {error.strerror}. Choose another with --data.") from error

    def _check_kinds(self) -> None:
        """A folder where a file belongs, or the other way round, is somebody else's doing: nothing of it is touched."""
        for name, wanted in (*((name, "file") for name in FILES), *((name, "folder") for name in FOLDERS)):
            path = self.path / name
            is_right = not path.exists() or path.is_file() if wanted == "file" else path.is_dir()
            if not is_right and os.path.lexists(path):
                raise DataError(f"{path} must be a {wanted}, and is something else. Move it away and start again.")

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def running(self) -> str:
        try:
            told = json.loads((self.path / "server.json").read_text())
            return f"pid {told['pid']}, {told['url']}"
        except (OSError, ValueError, LookupError, TypeError):
            return "it has not said where it listens"

    def token(self, given: str | None) -> str:
        """The token as given, which is kept from then on so that the command line finds it; or the kept one, made at
        the first start."""
        if given:
            self.write("token", given + "\n")
            return given
        try:
            kept = self._kept("token", lambda: secrets.token_urlsafe(32))
            check_token(kept)
        except (TokenError, UnicodeError) as error:
            problem = error if isinstance(error, TokenError) else "is not text."
            what = "Delete the file, and the next start makes a new token."
            raise DataError(f"The token in {self.path / 'token'} {problem} {what}") from error
        return kept

    def install_id(self) -> str:
        """By which the processes of this directory's server, and its node, are known. A copy of the directory gets
        another one, also on a copy of the whole disk in another machine: its server must not end the agents of the
        server that it was copied from, nor take its sessions."""
        place = [str(self.path.stat().st_ino), *([machine] if (machine := machine_id()) else [])]
        try:
            known = self._kept("install", lambda: " ".join((secrets.token_hex(4), *place)))
        except UnicodeError:
            known = ""
        if not _INSTALL.fullmatch(known):
            raise DataError(
                f"The id in {self.path / 'install'} is damaged. Restore the file from a backup; or delete it, and the "
                "next start makes another id: then turns that still run fail, and browsers have to sign in again."
            )
        install_id, *before = known.split()
        # Older versions have noted less.
        if before != place[: len(before)]:
            install_id = secrets.token_hex(4)
        self.write("install", " ".join((install_id, *place)) + "\n")
        return install_id

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        path = self.path / name
        if path.exists() and (kept := path.read_text().strip()):
            return kept
        made = make()
        self.write(name, made + "\n")
        return made

    def write(self, name: str, text: str) -> None:
        """Whole or not at all, and readable by its owner only."""
        part = self.path / f".{name}.part"
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        part.replace(self.path / name)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def epoch(self, generation: int) -> int:
        """Moves when numbers may have been given twice: after a reboot that no server saw coming (with durability
        `normal` the newest events may be gone then, while a viewer has seen them), and after a backup was put back,
        which a generation of the store shows that is no newer than the last one, or a directory that is another."""
        place = self.path.stat().st_ino
        last = self._last_boot(generation)
        unclean = last.boot != boot_id() and not last.clean
        put_back = generation <= last.generation or last.place not in (None, place)
        epoch = last.epoch + (1 if unclean or put_back else 0)
        self.mark_boot(epoch, generation, clean=False)
        return epoch

    def _last_boot(self, generation: int) -> Boot:
        """A file that can't be read counts as an end that was not clean. The epochs before are not known then; there
        were fewer than the store has seen servers."""
        try:
            return msgspec.json.decode((self.path / "boot.json").read_bytes(), type=Boot)
        except FileNotFoundError:
            return Boot(boot="", clean=True, epoch=0, generation=0)
        except (OSError, RecursionError, *UNREADABLE) as error:
            logger.warning("boot.json can't be read; viewers get a snapshot, as after a power cut: %s", error)
            return Boot(boot="", clean=False, epoch=min(generation, MAX_EPOCH) - 1, generation=0)

    def mark_boot(self, epoch: int, generation: int, *, clean: bool) -> None:
        """An end that can't be noted (the disk is full) counts as unclean, which costs a new epoch after a reboot."""
        noted = Boot(boot_id(), clean, min(epoch, MAX_EPOCH), generation, self.path.stat().st_ino)
        try:
            self.write("boot.json", msgspec.json.encode(noted).decode())
        except OSError as error:
            if not clean:
                raise
            logger.warning("that the server ended in order could not be noted: %s", error)
