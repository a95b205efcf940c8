"""Attachments: files sent in a message are stored in the data directory, and the log refers to them.

Above: the verbs, which store the files before they accept the message, and the orders, which read images for the agent.
Below: the file system. Each session has one folder, which is erased with it. Attachments that are only a path or a URL
are not copied. With several nodes the files are also in the shared store, so that any node can run the session and
fetch a copy.
"""

import asyncio
import base64
import binascii
import contextlib
import mimetypes
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.core.errors import Refused, StoreError
from perdure.runtime.data.filesystem import make_private
from perdure.stores.shared import SharedStore

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PICTURE_MAX_BYTES = 5 * 1024 * 1024
"""The agent gets only the path of larger images: no model accepts them."""
MAX_NAME_BYTES = 255
"""The limit of common file systems."""
NAME_BYTES = 150
FIELDS = ("name", "mime_type", "path", "uri")
_UNSAFE = re.compile(r"[^\w.\- ]+")

MessageAttachments = tuple[dict[str, Any], ...]


class Attachments:
    pictures = PICTURES

    def __init__(self, root: Path, limit_bytes: int, store: SharedStore | None = None) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._store = store

    async def keep(self, session_id: str, given: MessageAttachments) -> MessageAttachments:
        """Store the files; see `write`."""
        kept = await asyncio.to_thread(self.write, session_id, given)
        try:
            await self.upload(session_id, kept)
        except BaseException:
            await self.withdraw(session_id, kept)
            raise
        return kept

    async def withdraw(self, session_id: str, kept: MessageAttachments) -> None:
        """Delete the files of a message that was not accepted."""
        self.take_back(session_id, kept)
        for attachment in kept if self._store is not None else ():
            path = self._own(session_id, attachment.get("file"))
            if path is not None and self._store is not None:
                with contextlib.suppress(StoreError):
                    await self._store.drop_file(session_id, path.name)

    async def upload(self, session_id: str, kept: Sequence[dict[str, Any]]) -> None:
        """Copy files from here to the shared store, for other nodes."""
        for attachment in kept if self._store is not None else ():
            path = self._own(session_id, attachment.get("file"))
            if path is not None and self._store is not None and path.is_file():
                await self._store.put_file(session_id, path.name, await asyncio.to_thread(path.read_bytes))

    async def fetch(self, session_id: str, attachments: Sequence[dict[str, Any]]) -> None:
        """Copy files to here from the shared store, if another node received them."""
        for attachment in attachments if self._store is not None else ():
            path = self._own(session_id, attachment.get("file"))
            if path is None or path.exists() or self._store is None:
                continue
            if (data := await self._store.file(session_id, path.name)) is not None:
                await asyncio.to_thread(self._put, path, data)

    @staticmethod
    def _put(path: Path, data: bytes) -> None:
        make_private(path.parent)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        part.replace(path)

    def write(self, session_id: str, given: MessageAttachments) -> MessageAttachments:
        """Write the data to files. Returns the attachments as the log stores them, with file names instead of data."""
        files = [_data(number, attachment) for number, attachment in enumerate(given)]
        size = sum(len(data) for data in files if data is not None)
        if size > self._limit_bytes:
            raise Refused(
                "too_large",
                f"The attachments have {size} bytes, more than max_attachment_bytes ({self._limit_bytes}). "
                "Put them into the working directory and attach their paths.",
            )
        kept: list[dict[str, Any]] = []
        try:
            for attachment, data in zip(given, files, strict=True):
                kept.append(_named(attachment) if data is None else self._write(session_id, attachment, data))
        except BaseException:
            self.take_back(session_id, tuple(kept))
            raise
        return tuple(kept)

    def _write(self, session_id: str, attachment: dict[str, Any], data: bytes) -> dict[str, Any]:
        known = _named(attachment)
        name = str(known.get("name") or "attachment")
        mime_type = known.get("mime_type") or mimetypes.guess_type(name)[0] or "application/octet-stream"
        folder = self._root / session_id
        file = f"{secrets.token_hex(4)}-{_safe(name, mime_type)}"
        try:
            make_private(folder)
            descriptor = os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as written:
                written.write(data)
                written.flush()
                os.fsync(written.fileno())
        except OSError as error:
            raise Refused("unavailable", f"Can't store an attachment: {error.strerror}. Nothing was sent.") from error
        return {"name": name, "mime_type": mime_type, "size": len(data), "path": str(folder / file), "file": file}

    def take_back(self, session_id: str, kept: MessageAttachments) -> None:
        """Delete these files from this node."""
        for attachment in kept:
            if (path := self._own(session_id, attachment.get("file"))) is not None:
                with contextlib.suppress(OSError):
                    path.unlink()
        with contextlib.suppress(OSError):
            (self._root / session_id).rmdir()

    def copy(self, origin: str, session_id: str, attachments: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Copy a message's files for another session, so that each session can be erased separately."""
        copied = []
        for attachment in attachments:
            path = self._own(origin, attachment.get("file"))
            if path is not None and path.is_file():
                attachment = {**attachment, "path": str(self._link(path, session_id))}
            copied.append(attachment)
        return copied

    def _link(self, path: Path, session_id: str) -> Path:
        folder = self._root / session_id
        try:
            make_private(folder)
            with contextlib.suppress(FileExistsError):
                os.link(path, folder / path.name)
        except OSError as error:
            raise Refused("unavailable", f"Can't copy an attachment: {error.strerror}.") from error
        return folder / path.name

    async def find(self, session_id: str, file: str) -> Path:
        path = self._own(session_id, file)
        if path is not None:
            await self.fetch(session_id, [{"file": file}])
        if path is None or not path.is_file():
            raise Refused("not_found", f"The session has no attachment {file!r}.")
        return path

    async def shown(self, session_id: str, attachments: MessageAttachments) -> MessageAttachments:
        """The attachments for the agent: images with their data, other files as paths on this node."""
        if self._store is not None:
            await self.fetch(session_id, attachments)
            owned = [(attachment, self._own(session_id, attachment.get("file"))) for attachment in attachments]
            attachments = tuple({**one, "path": str(path)} if path is not None else one for one, path in owned)
        return tuple(self._with_data(session_id, attachment) for attachment in attachments)

    def _with_data(self, session_id: str, attachment: dict[str, Any]) -> dict[str, Any]:
        path = self._own(session_id, attachment.get("file"))
        if path is None or attachment.get("mime_type") not in PICTURES:
            return attachment
        try:
            if path.stat().st_size > PICTURE_MAX_BYTES:
                return attachment
            return {**attachment, "data": base64.b64encode(path.read_bytes()).decode()}
        except OSError:
            return attachment

    def erase(self, session_id: str) -> None:
        shutil.rmtree(self._root / session_id, ignore_errors=True)

    def _own(self, session_id: str, file: Any) -> Path | None:
        """The path of a session's file. None if an untrusted id or name would lead outside the session's folder."""
        for part in (session_id, file):
            if not isinstance(part, str) or os.path.basename(part) != part or part in ("", ".", "..") or "\x00" in part:
                return None
            if len(part.encode("utf-8", "replace")) > MAX_NAME_BYTES:
                return None
        return self._root / session_id / str(file)


def _data(number: int, attachment: dict[str, Any]) -> bytes | None:
    if "data" not in attachment:
        if not isinstance(attachment.get("path"), str) and not isinstance(attachment.get("uri"), str):
            raise Refused(
                "invalid", f"attachments[{number}] needs data (base64), a path or a uri.", fields=["attachments"]
            )
        return None
    try:
        return base64.b64decode(attachment["data"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Refused("invalid", f"attachments[{number}].data must be base64.", fields=["attachments"]) from error


def _named(attachment: dict[str, Any]) -> dict[str, Any]:
    """The fields to store. `media_type` is an alias of `mime_type`. A client can't set `file`."""
    for name in ("name", "mime_type", "media_type", "path", "uri"):
        if name in attachment and not isinstance(attachment[name], str):
            raise Refused("invalid", f"The {name} of an attachment must be text.")
    found = {name: attachment[name] for name in FIELDS if name in attachment}
    if "media_type" in attachment:
        found.setdefault("mime_type", attachment["media_type"])
    return found


def _safe(name: str, mime_type: str) -> str:
    """A recognisable file name without unsafe characters."""
    plain = _UNSAFE.sub("_", os.path.basename(name)).strip(". ") or "attachment"
    plain = plain.encode("utf-8", "replace")[-NAME_BYTES:].decode("utf-8", "ignore")
    return plain if "." in plain else plain + (mimetypes.guess_extension(mime_type) or "")
