"""The checks of `perdure doctor` on this machine: Python, data directory, SQLite, keeper guarantees, open files.

Above: doctor.py. Below: the operating system. Each check yields findings and leaves nothing behind. A finding that is
not ok says what to do.
"""

import ctypes
import json
import os
import shutil
import signal
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from perdure.config import MIB, Config, ConfigError, load
from perdure.runtime.data import database_check, inspection, settings_check
from perdure.runtime.data.filesystem import NETWORK_FILE_SYSTEMS, file_system, not_ours
from perdure.runtime.keeping import cgroups
from perdure.surfaces import open_files

MIN_PYTHON = (3, 11)
LOW_FREE_BYTES = 1024 * 1024 * 1024
# The first version with `remove_diacritics 2`, which the search index uses.
MIN_SQLITE = (3, 27, 0)
PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER = 2, 37
CONTAINER_SIGNS = ("/.dockerenv", "/run/.containerenv")
INIT_NAMES = ("systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "runit", "launchd")

Level = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    level: Level
    about: str
    what: str


def check_python() -> Iterator[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < MIN_PYTHON:
        yield Finding("problem", "python", f"{version} is too old. Install Python 3.11 or newer.")
    else:
        yield Finding("ok", "python", f"{version}, {sys.executable}")


def check_database(database: str | None, config: Config) -> Iterator[Finding]:
    """PostgreSQL, if `--database` or PERDURE_DATABASE is set."""
    if database:
        for level, what in database_check.look(database, config.server):
            yield Finding(level, "postgresql", what)


def read_settings(data: Path) -> tuple[Config, list[Finding]]:
    """The settings for a server on this directory, and problems with them."""
    path = data / "perdure.toml"
    try:
        config = load(path)
    except ConfigError as error:
        return Config(), [Finding("problem", "settings", f"{error} Until then, no server can start here.")]
    found = [Finding("problem", about, what) for about, what in settings_check.troubles(config, data)]
    if not found and path.exists():
        found = [Finding("ok", "settings", str(path))]
    return config, found


def check_data(data: Path, config: Config) -> Iterator[Finding]:
    """The data directory, or its nearest existing parent."""
    place = data
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        yield Finding("problem", "data directory", f"{place} is not a directory. Choose another with --data.")
        return
    made = "" if place == data else " (created when the server first starts)"
    try:
        with tempfile.TemporaryFile(dir=place):
            yield Finding("ok", "data directory", f"{data}{made} is writable")
    except OSError as error:
        what = f"Can't write to {data}: {error.strerror}. Fix its owner, or choose another with --data."
        yield Finding("problem", "data directory", what)
    if place == data and (problem := not_ours(data)) is not None:
        yield Finding("problem", "data directory", problem)
    kind = file_system(place)
    if kind in NETWORK_FILE_SYSTEMS:
        what = f"{data} is on a network file system ({kind}), where SQLite is not safe. Choose a local one with --data."
        yield Finding("problem", "file system", what)
    elif kind:
        yield Finding("ok", "file system", kind)
    yield _free_space(place, config.server.disk_floor_mb * MIB)


def _free_space(place: Path, floor_bytes: int) -> Finding:
    free = shutil.disk_usage(place).free
    shown = f"{free / 1024**3:.1f} GiB free"
    if free < floor_bytes:
        what = f"{shown}, less than disk_floor_mb. Agents wait until there is more. Free some space."
        return Finding("problem", "free space", what)
    if free < LOW_FREE_BYTES:
        return Finding("warning", "free space", f"{shown}. Free some space before the disk is full.")
    return Finding("ok", "free space", shown)


def check_sqlite() -> Iterator[Finding]:
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        wanted = ".".join(str(part) for part in MIN_SQLITE)
        yield Finding(
            "problem", "sqlite", f"{sqlite3.sqlite_version} is too old. Use a Python with SQLite {wanted} or newer."
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(os.path.join(folder, "check.db"))
        try:
            mode = database.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            database.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
            has_search = True
        except sqlite3.OperationalError:
            has_search = False
        finally:
            database.close()
    if not has_search:
        yield Finding("problem", "sqlite", "has no FTS5, which search needs. Use another build of Python.")
    elif mode != "wal":
        yield Finding("problem", "sqlite", f"can't use WAL here (journal mode is {mode}). Use a local file system.")
    else:
        yield Finding("ok", "sqlite", f"{sqlite3.sqlite_version} with WAL and FTS5")


def check_store(data: Path, deep: bool) -> Iterator[Finding]:
    """Whether stored data can be read, and what is damaged."""
    found = list(dict.fromkeys([*inspection.look(data), *(inspection.look_deep(data) if deep else ())]))
    for fault in found:
        yield Finding("problem", fault.about, fault.what)
    if any(not fault.about.startswith("launch") for fault in found):
        more = "" if deep else "`perdure doctor --deep` checks every row. "
        yield Finding(
            "problem",
            "database",
            f"{data / 'perdure.db'} is damaged. {more}Copy it before you do anything else. Restore a backup, or "
            "recover the readable data: see Damage in docs/operations.md. Undamaged sessions keep working.",
        )
    elif (data / "perdure.db").exists():
        what = "every page and row is readable" if deep else "sessions are readable (--deep reads every page and row)"
        yield Finding("ok", "database", what)


def check_token(data: Path) -> Iterator[Finding]:
    token = data / "token"
    try:
        mode = stat.S_IMODE(token.stat().st_mode)
    except FileNotFoundError:
        yield Finding("ok", "token", "none yet; the server creates one when it first starts")
        return
    except OSError as error:
        yield Finding(
            "problem", "token", f"Can't read {token}: {error.strerror}. Run this command as the server's user."
        )
        return
    if mode & 0o077:
        yield Finding("problem", "token", f"other users can read {token}. Run: chmod 600 {token}")
    else:
        yield Finding("ok", "token", f"mode {mode:04o}")


def check_keeper(data: Path) -> Iterator[Finding]:
    """Which guarantees hold here: a turn survives the server, and no process outlives its keeper."""
    if sys.platform != "linux":
        what = "this system has neither subreaper nor death signal; orphans are found only through the process tree"
        yield Finding("warning", "keeper", f"{what}. Use Linux if agents start many processes.")
        return
    for about, works, what in (
        ("subreaper", _can_prctl(PR_GET_CHILD_SUBREAPER), "a keeper adopts its agent's orphaned processes"),
        ("death signal", _can_prctl(PR_GET_PDEATHSIG), "an agent ends when its keeper is killed"),
        ("process marks", Path("/proc/self/environ").exists(), "processes left by a dead launch are found"),
        ("pidfd", _can_pidfd(), "a reused pid is never signalled"),
    ):
        if works:
            yield Finding("ok", about, what)
        else:
            yield Finding(
                "warning", about, f"not available, so Perdure can't guarantee that {what}. Use a newer kernel."
            )
    yield _control_groups(data)
    yield _init_process()


def check_open_files(pid: int | None) -> Iterator[Finding]:
    """The limit of the running server with this pid, or of a server started here."""
    limit = open_files.limit_of_server(pid)
    if limit < open_files.LOW_OPEN_FILES:
        what = f"at most {limit}, and every viewer and agent needs some. Raise `ulimit -Hn` (systemd: LimitNOFILE) to "
        yield Finding("warning", "open files", f"{what}{open_files.LOW_OPEN_FILES} or more, and restart the server.")
    else:
        yield Finding("ok", "open files", f"at most {limit}")


def _control_groups(data: Path) -> Finding:
    """As the server found them, because this command may run elsewhere; without a server, as found here."""
    try:
        noted = json.loads((data / "server.json").read_text())["control_groups"]
        base = cgroups.Base(Path(noted["folder"]), noted["version"]) if noted["folder"] else None
        reason = str(noted["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        base, reason = cgroups.find()
    if base is not None:
        what = "after a keeper is killed, even processes without a parent and environment are found"
        return Finding("ok", "control groups", f"version {base.version}, {base.folder}; {what}")
    what = f"not usable ({reason}), so a process that detaches and clears its environment survives if its keeper is "
    what += "killed. Run the server as a systemd service with Delegate=yes, or as root."
    return Finding("warning", "control groups", what)


def _can_prctl(option: int) -> bool:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(option, ctypes.byref(ctypes.c_int()), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _can_pidfd() -> bool:
    opened: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opened is None or not hasattr(signal, "pidfd_send_signal"):
        return False
    try:
        os.close(opened(os.getpid()))
    except OSError:
        return False
    return True


def _init_process() -> Finding:
    try:
        name = Path("/proc/1/comm").read_text("utf-8").strip()
    except OSError:
        name = "unknown"
    if os.getpid() == 1:
        what = "Perdure would be PID 1, and turns end with it. Run an init process: see docs/operations.md#containers."
        return Finding("warning", "init", what)
    if any(Path(sign).exists() for sign in CONTAINER_SIGNS) and name not in INIT_NAMES:
        what = f"PID 1 of this container is {name}, not an init process. Turns survive a server crash only if the "
        what += "container does: see docs/operations.md#containers."
        return Finding("warning", "init", what)
    return Finding("ok", "init", f"PID 1 is {name}; turns survive a server crash")
