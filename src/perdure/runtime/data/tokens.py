"""Rules for API tokens: too long to guess, and only characters that every client can send.

Above: the data directory, which stores the token, and server.py, which can get a token or a file with one. Below: the
file system. Checking a client's token is not done here but in surfaces/http/access.py.
"""

import os
import stat
from pathlib import Path

MIN_TOKEN_CHARS = 16
"""16 random characters give 2^95 possibilities, and a word, a name or a date is usually shorter."""
MAX_TOKEN_CHARS = 1024
MAX_TOKEN_FILE_BYTES = 4096
FIRST, LAST = "!", "~"
"""Printable ASCII without the space. Some clients change or refuse other characters."""
MAKE_ONE = "`openssl rand -hex 24` prints a good one"


class TokenError(Exception):
    """The token can't be used. The message says why and what to do, and never contains the token."""


def check_token(token: str) -> None:
    """Refuse a token that is too short or too long, or that can't be sent in a header."""
    if len(token) < MIN_TOKEN_CHARS:
        raise TokenError(f"has {len(token)} characters. Use at least {MIN_TOKEN_CHARS}: {MAKE_ONE}.")
    if len(token) > MAX_TOKEN_CHARS:
        raise TokenError(f"has {len(token)} characters. Use at most {MAX_TOKEN_CHARS}: {MAKE_ONE}.")
    if not all(FIRST <= character <= LAST for character in token):
        raise TokenError(f"must be ASCII without spaces, line breaks or other control characters: {MAKE_ONE}.")


def read_token_file(path: Path) -> str:
    """Read the token from a user's file. Other users must not be able to read that file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            raw = file.read(MAX_TOKEN_FILE_BYTES)
    except OSError as error:
        raise TokenError(f"can't be read: {error.strerror}. Correct --token-file, or leave it out.") from error
    if mode & 0o077:
        raise TokenError(f"is readable by other users (mode {mode:04o}). Run: chmod 600 {path}")
    token = raw.decode("utf-8", "replace").strip()
    check_token(token)
    return token
