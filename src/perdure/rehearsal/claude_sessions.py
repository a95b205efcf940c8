"""Finds the native session of a `claude` process: new, resumed, forked, or the last one of its working directory.

Above: claude.py opens it when its first turn begins. Below: memory.py stores the sessions.
Sessions are stored per working directory, in a folder named as the real one names it, so a session can't be found from
another directory. A session without a turn is never written and can't be resumed.
"""

import os
import re
import zlib
from typing import NamedTuple

from perdure.rehearsal.claude_flags import BadFlags, Flags
from perdure.rehearsal.claude_lines import new_id
from perdure.rehearsal.memory import SESSION_ID, Memory, Session

NAME_LIMIT_CHARACTERS = 200


class NoConversation(Exception):
    """The session can't be resumed. `session_id` is the id to show in the result."""

    def __init__(self, message: str, session_id: str) -> None:
        super().__init__(message)
        self.session_id = session_id


class SessionToOpen(NamedTuple):
    """What the first turn opens: an existing session, or a new one with the context of `source`."""

    session_id: str
    session: Session | None = None
    source: Session | None = None
    lasting: bool = True

    def begin(self, memory: Memory, workdir: str) -> Session:
        if self.session is not None and self.lasting:
            return self.session
        if not self.lasting:
            held = self.session or self.source
            return Session(os.devnull, self.session_id, held.context() if held else [])
        if self.source is not None:
            return memory.fork(self.source, self.session_id)
        return memory.create(workdir, self.session_id)


def is_uuid(text: str) -> bool:
    return SESSION_ID.fullmatch(text) is not None


def folder_of(folder: str, workdir: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]", "-", workdir)
    if len(name) > NAME_LIMIT_CHARACTERS:
        name = f"{name[:NAME_LIMIT_CHARACTERS]}-{zlib.crc32(os.fsencode(workdir)):08x}"
    return os.path.join(folder, "claude", name)


def find(flags: Flags, memory: Memory) -> SessionToOpen:
    """Raises BadFlags if the id of a new session is already in use, NoConversation if there is nothing to resume."""
    lasting = not flags.no_persistence
    session = None
    if flags.resume is not None:
        session = _resumed(flags.resume, memory)
    elif flags.continue_last:
        session = next((memory.open(one.session_id) for one in memory.newest(None)), None)
    if session is not None and not flags.fork:
        return SessionToOpen(session.session_id, session, lasting=lasting)
    if flags.session_id and memory.open(flags.session_id) is not None:
        raise BadFlags(f"Error: Session ID {flags.session_id} is already in use.")
    return SessionToOpen(flags.session_id or new_id(), source=session, lasting=lasting)


def _resumed(session_id: str, memory: Memory) -> Session:
    if not is_uuid(session_id):
        message = (
            "Error: --resume requires a valid session ID or session title when used with --print. Usage: claude -p "
            f'--resume <session-id|title>. Provided value "{session_id}" is not a UUID and does not match any '
            "session title."
        )
        raise NoConversation(message, new_id())
    session = memory.open(session_id)
    if session is None or session.take_rejection():
        raise NoConversation(f"No conversation found with session ID: {session_id}", session_id)
    return session
