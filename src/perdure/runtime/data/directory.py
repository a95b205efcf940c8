"""The data directory, which is private, on a local disk, and used by one server at a time; and its small files.

perdure.db     the store              lock         held while a server runs
token          the API token          install      this installation's id
server.json    the server's address   launches/    one folder per running agent
boot.json      the epoch              rehearsal/, workspaces/, snapshots/
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
FOLDERS = ("launches", "quarantine", "attachments", "workspaces", "rehearsal", "snapshots")
MAX_EPOCH = 999_999_999
"""The epoch is part of positions, which clients send back, so its length is limited."""
_INSTALL = re.compile(r"[0-9a-f]{8}( [0-9]+( [0-9a-f]{8})?)?")


class Boot(Struct, frozen=True):
    """Whether the last server shut down cleanly, and its epoch and generation."""

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
        """Create the directory if it is missing, refuse it if it is unsafe, and lock it."""
        try:
            make_private(self.path)
            problem = not_ours(self.path)
        except OSError as error:
            raise DataError(f"Can't create {self.path}: {error.strerror}. Choose another with --data.") from error
        if problem is not None:
            raise DataError(problem)
        self._check_kinds()
        kind = file_system(self.path)
        if kind in NETWORK_FILE_SYSTEMS:
            raise DataError(
                f"{self.path} is on a network file system ({kind}), whose locks are unreliable. "
                "Choose a local disk with --data."
            )
        try:
            close_to_others(self.path)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise DataError(
                f"Another server is using {self.path} ({self.running()}). "
                "Stop it first, or choose another directory with --data."
            ) from error
        except OSError as error:
            raise DataError(f"Can't write to {self.path}: {error.strerror}. Choose another with --data.") from error

    def _check_kinds(self) -> None:
        """Refuse a folder in place of a file, or the reverse: Perdure did not create it, and must not touch it."""
        for name, wanted in (*((name, "file") for name in FILES), *((name, "folder") for name in FOLDERS)):
            path = self.path / name
            is_right = not path.exists() or path.is_file() if wanted == "file" else path.is_dir()
            if not is_right and os.path.lexists(path):
                raise DataError(f"{path} must be a {wanted}, but is something else. Move it away and start again.")

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def running(self) -> str:
        try:
            told = json.loads((self.path / "server.json").read_text())
            return f"pid {told['pid']}, {told['url']}"
        except (OSError, ValueError, LookupError, TypeError):
            return "address unknown"

    def token(self, given: str | None) -> str:
        """The API token. A given one is saved, so that the command line finds it. Otherwise the saved one, which the
        first start generates."""
        if given:
            self.write("token", given + "\n")
            return given
        try:
            kept = self._kept("token", lambda: secrets.token_urlsafe(32))
            check_token(kept)
        except (TokenError, UnicodeError) as error:
            problem = error if isinstance(error, TokenError) else "is not text."
            what = "Delete the file; the next start generates a new token."
            raise DataError(f"The token in {self.path / 'token'} {problem} {what}") from error
        return kept

    def install_id(self) -> str:
        """Identifies this directory's server: its agent processes and its node. A copy of the directory gets a new id,
        even on a copy of the whole disk in another machine: its server must not end the agents of the original server,
        nor take over its sessions."""
        place = [str(self.path.stat().st_ino), *([machine] if (machine := machine_id()) else [])]
        try:
            known = self._kept("install", lambda: " ".join((secrets.token_hex(4), *place)))
        except UnicodeError:
            known = ""
        if not _INSTALL.fullmatch(known):
            raise DataError(
                f"The id in {self.path / 'install'} is damaged. Restore the file from a backup, or delete it. If you "
                "delete it, the next start generates a new id: running turns fail, and browsers must sign in again."
            )
        install_id, *before = known.split()
        # Older versions stored fewer values.
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
        """Write a file atomically, readable by its owner only."""
        part = self.path / f".{name}.part"
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        part.replace(self.path / name)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def epoch(self, generation: int) -> int:
        """The epoch for this start. It increases when sequence numbers may have been assigned twice: after a reboot
        without a clean shutdown (with durability `normal` the newest events may be lost, although viewers have seen
        them), and after a backup was restored. A restore shows as a store generation that is not newer than the last
        one, or as a different directory."""
        place = self.path.stat().st_ino
        last = self._last_boot(generation)
        unclean = last.boot != boot_id() and not last.clean
        put_back = generation <= last.generation or last.place not in (None, place)
        epoch = last.epoch + (1 if unclean or put_back else 0)
        self.mark_boot(epoch, generation, clean=False)
        return epoch

    def _last_boot(self, generation: int) -> Boot:
        """The last server's record. An unreadable file counts as an unclean shutdown. The last epoch is then unknown,
        but it was lower than the store's generation."""
        try:
            return msgspec.json.decode((self.path / "boot.json").read_bytes(), type=Boot)
        except FileNotFoundError:
            return Boot(boot="", clean=True, epoch=0, generation=0)
        except (OSError, RecursionError, *UNREADABLE) as error:
            logger.warning("could not read boot.json; starting a new epoch, so viewers get a snapshot: %s", error)
            return Boot(boot="", clean=False, epoch=min(generation, MAX_EPOCH) - 1, generation=0)

    def mark_boot(self, epoch: int, generation: int, *, clean: bool) -> None:
        """Record a start or a clean shutdown. A shutdown that can't be recorded (the disk is full) counts as unclean,
        which only means a new epoch after a reboot."""
        noted = Boot(boot_id(), clean, min(epoch, MAX_EPOCH), generation, self.path.stat().st_ino)
        try:
            self.write("boot.json", msgspec.json.encode(noted).decode())
        except OSError as error:
            if not clean:
                raise
            logger.warning("could not record the clean shutdown: %s", error)
