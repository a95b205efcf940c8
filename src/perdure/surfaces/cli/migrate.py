"""`perdure migrate`: move all data from SQLite to PostgreSQL, or back.

Above: people who add a second node, or return to one. Below: stores/transfer.py, which copies and compares; the data
directory's lock, which prevents a server from starting meanwhile. No server is involved.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.config import data_directory
from perdure.core.errors import UNREADABLE, StoreDamaged, StoreError
from perdure.runtime.data.directory import MAX_EPOCH, Boot, DataDirectory, DataError
from perdure.stores.transfer import MARKER, Moved, Progress, Record, Side, Transfer, TransferError
from perdure.surfaces.cli.output import paragraph
from perdure.surfaces.cli.reach import Failure, read_token

if TYPE_CHECKING:
    from perdure.stores.transfer_sqlite import Home

POSTGRES = ("postgresql://", "postgres://")
SQLITE = "sqlite"
QUIET_S = 1.0
"""Progress is shown only after this time."""
TERMINAL_EVERY_S = 0.2
LOG_EVERY_S = 10.0
"""How often progress is shown: in place on a terminal, as lines elsewhere."""
LOCK_ATTEMPTS = 20
LOCK_RETRY_S = 0.05
AGAIN = "Run the same command again: it continues where it stopped."


@click.command()
@click.option("--data", metavar="DIR", help="The server's data directory.")
@click.option("--from", "origin", metavar="URL", help="With --to sqlite: PostgreSQL database to move from.")
@click.option(
    "--to",
    "target",
    metavar="URL",
    required=True,
    help="PostgreSQL database to move to, or `sqlite` for the data directory.",
)
@click.option("--verify", is_flag=True, help="Don't move anything; compare both databases row by row.")
@click.pass_context
def migrate_command(ctx: click.Context, data: str | None, origin: str | None, target: str, verify: bool) -> int:
    """Move all data from SQLite to PostgreSQL, or back.

    Stop all servers first. Copies every row, reads it back and compares it. The source database stays unchanged. If the
    command is interrupted, run it again: it continues where it stopped.
    """
    url = _database(origin, target)
    directory = DataDirectory(data_directory(data or (ctx.find_root().obj or {}).get("data")))
    to_postgres = origin is None
    if (to_postgres or verify) and not (directory.path / "perdure.db").is_file():
        raise Failure(f"There is no database in {directory.path}. Give the server's data directory with --data.")
    shown = Shown()
    try:
        with _locked(directory), _sides(directory, url, to_postgres, shown) as sides:
            return _verify(sides, shown) if verify else _move(sides, directory, url, to_postgres, shown)
    except (TransferError, DataError) as error:
        raise Failure(str(error)) from error
    except StoreDamaged as error:
        raise Failure(f"{_sentence(error)} `perdure doctor --deep` checks an SQLite database in detail.") from error
    except StoreError as error:
        raise Failure(f"{_sentence(error)} {AGAIN}") from error
    except OSError as error:
        raise Failure(f"Can't use {error.filename or directory.path}: {error.strerror}. {AGAIN}") from error
    finally:
        shown.clear()


def _database(origin: str | None, target: str) -> str:
    """The URL of the PostgreSQL database."""
    if (origin is None) == (target == SQLITE):
        raise click.UsageError("Give --to postgresql://..., or both --from postgresql://... and --to sqlite.")
    url = target if origin is None else origin
    if not url.startswith(POSTGRES):
        raise click.UsageError(
            f"{url.partition(':')[0]!r} is not a PostgreSQL URL. Give one such as "
            "postgresql://perdure@db.example.com/perdure."
        )
    if origin is not None and target != SQLITE:
        raise click.UsageError("With --from, --to must be sqlite.")
    return url


@contextmanager
def _locked(directory: DataDirectory) -> Iterator[None]:
    for attempt in range(LOCK_ATTEMPTS):
        try:
            directory.open()
            break
        except DataError as error:
            # A command that checks for a running server holds the lock for a moment.
            if attempt + 1 == LOCK_ATTEMPTS or not isinstance(error.__cause__, BlockingIOError):
                raise
        time.sleep(LOCK_RETRY_S)
    try:
        # Remove the file of a killed server: while the lock is held, commands would take it for a running one.
        directory.remove("server.json")
        yield
    finally:
        directory.close()


@contextmanager
def _sides(directory: DataDirectory, url: str, to_postgres: bool, shown: "Shown") -> Iterator[tuple[Side, Side]]:
    """The source and the target."""
    try:
        from perdure.stores.transfer_postgres import PostgresSide
        from perdure.stores.transfer_sqlite import SqliteSide
    except ImportError as error:
        raise Failure("`perdure migrate` needs psycopg: pip install 'perdure[postgres]'") from error
    home = home_of(directory)
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresSide(url, home.node, shown.look).opened())
        sqlite = stack.enter_context(SqliteSide(home).opened())
        yield (sqlite, postgres) if to_postgres else (postgres, sqlite)


def home_of(directory: DataDirectory) -> "Home":
    from perdure.stores.transfer_sqlite import Home

    def set_epoch(epoch: int, generation: int) -> None:
        directory.mark_boot(epoch, generation, clean=True)

    return Home(
        path=directory.path,
        node=directory.install_id(),
        token=lambda: read_token(directory.path),
        set_token=directory.token,
        epoch=lambda generation: _epoch(directory.path, generation),
        set_epoch=set_epoch,
    )


def _epoch(data: Path, generation: int) -> int:
    """The last server's epoch. If it can't be read, the store's generation, which is at least as high."""
    try:
        return msgspec.json.decode((data / "boot.json").read_bytes(), type=Boot).epoch
    except FileNotFoundError:
        return 0
    except (OSError, *UNREADABLE):
        return min(generation, MAX_EPOCH - 1)


# Move and verify --------------------------------------------------------------------------------------------------


def _move(sides: tuple[Side, Side], directory: DataDirectory, url: str, to_postgres: bool, shown: "Shown") -> int:
    from perdure.stores.transfer_postgres import shown as without_password

    transfer = Transfer(*sides, shown.progress)
    record = transfer.run()
    shown.clear()
    address = without_password(url)
    if to_postgres:
        moved = Moved(address, record.finished_at or record.started_at)
        directory.write(MARKER, msgspec.json.encode(moved).decode() + "\n")
    else:
        directory.remove(MARKER)
    click.echo(_summary(transfer, record, shown.elapsed_s()))
    database = directory.path / "perdure.db"
    if to_postgres:
        _say(f"Start the server with: perdure serve --data {directory.path} --database {address}")
        _say(f"{database} is unchanged. Keep it until you have checked that everything works.")
    else:
        _say(f"Start the server with: perdure serve --data {directory.path}")
        _say(f"{address} is unchanged. Don't start a node on it any more.")
    return 0


def _summary(transfer: Transfer, record: Record, took_s: float) -> str:
    if transfer.was_finished:
        return f"Everything was already moved on {str(record.finished_at)[:10]}. --verify compares both databases."
    done = transfer.progress
    earlier = f" ({done.skipped} of them earlier)" if done.skipped else ""
    moved = (
        f"{_count(done.sessions, 'session')}{earlier}, {_count(done.events, 'event')} and {_count(done.jobs, 'job')}"
    )
    return f"Moved {moved} in {_duration(took_s)}. Every row was read back and compared."


def _verify(sides: tuple[Side, Side], shown: "Shown") -> int:
    transfer = Transfer(*sides, shown.progress)
    found = transfer.verify()
    shown.clear()
    for difference in found:
        click.echo(difference, err=True)
    if found:
        raise Failure("The databases differ.")
    done = transfer.progress
    click.echo(f"The databases match: {_count(done.sessions, 'session')}, {_count(done.events, 'event')}.")
    return 0


# Progress ---------------------------------------------------------------------------------------------------------


class Shown:
    """Shows progress on stderr if the command takes long."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._next_s = self._begun_s + QUIET_S
        self._terminal = sys.stderr.isatty()
        self._line = ""

    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun_s

    def look(self, left_s: float) -> None:
        self._show(f"Checking for {left_s:.0f} s whether a server uses the database")

    def progress(self, now: Progress) -> None:
        if time.monotonic() < self._next_s:
            return
        rate = now.events / max(self.elapsed_s(), 0.001)
        left = f", about {_duration(max(0, now.events_total - now.events) / rate)} left" if rate else ""
        self._show(
            f"{now.sessions:,} of {_count(now.sessions_total, 'session')}, {now.events:,} of "
            f"{_count(now.events_total, 'event')}, {rate:,.0f} events/s{left}"
        )

    def _show(self, line: str) -> None:
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + (TERMINAL_EVERY_S if self._terminal else LOG_EVERY_S)
        if not self._terminal:
            click.echo(line, err=True)
            return
        line = line[: shutil.get_terminal_size().columns - 1]
        click.echo(f"\r{line.ljust(len(self._line))}", err=True, nl=False)
        self._line = line

    def clear(self) -> None:
        if self._line:
            click.echo(f"\r{' ' * len(self._line)}\r", err=True, nl=False)
            self._line = ""


def _say(text: str) -> None:
    click.echo(paragraph(text, sys.stdout))


def _sentence(error: Exception) -> str:
    words = str(error)
    words = words[:1].upper() + words[1:] if not words.startswith("/") else words
    return words if words.endswith(".") else f"{words}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
