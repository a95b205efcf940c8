"""Which tokens are taken: long enough that nobody guesses one, and of characters that every client can send.

Above: the data directory, which keeps the token, and server.py, which may be given one or a file with one. Below: the
file system. It is deliberately not about who may come in: that is surfaces/http/access.py.
"""

import os
import stat
from pathlib import Path

MIN_TOKEN_CHARS = 16
"""With 16 characters of a random token there are 2^95 to try; and nobody gets there with a word, a name or a date."""
MAX_TOKEN_CHARS = 1024
MAX_TOKEN_FILE_BYTES = 4096
FIRST, LAST = "!", "~"
"""The printable characters of ASCII without the space: others are changed or refused on the way by some clients."""
MAKE_ONE = "`openssl rand -hex 24` prints a good one"


class TokenError(Exception):
    """The token can't be used; the message says why and what to do, and never the token."""


def check_token(token: str) -> None:
    """Refuse a token that is weak, or that a header can't carry."""
    if len(token) < MIN_TOKEN_CHARS:
        raise TokenError(f"has {len(token)} characters. Use at least {MIN_TOKEN_CHARS}: {MAKE_ONE}.")
    if len(token) > MAX_TOKEN_CHARS:
        raise TokenError(f"has {len(token)} characters. Use at most {MAX_TOKEN_CHARS}: {MAKE_ONE}.")
    if not all(FIRST <= character <= LAST for character in token):
        raise TokenError(f"must be plain ASCII without spaces, line breaks and other control characters: {MAKE_ONE}.")


def read_token_file(path: Path) -> str:
    """The token in a file of the person's own, which others must not be able to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            raw = file.read(MAX_TOKEN_FILE_BYTES)
    except OSError as error:
        raise TokenError(f"can't be read: {error.strerror}. Correct --token-file, or leave it out.") from error
    if mode & 0o077:
        raise TokenError(f"may be read by others (mode {mode:04o}). Run: chmod 600 {path}")
    token = raw.decode("utf-8", "replace").strip()
    check_token(token)
    return token
