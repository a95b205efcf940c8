"""How the server detects that a launch has more output: real keepers, real inotify, and their failures."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.runtime.keeping import hints as hints_module
from perdure.runtime.keeping.hints import Hints
from tests.runtime.launches import WAIT_S, Launches, launching, python, until_true

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
async def launches(tmp_path: Path) -> AsyncIterator[Launches]:
    async with launching(tmp_path / "launches") as made:
        made.root.mkdir()
        yield made


class Reader:
    """Follows a launch through `Hints`, as a runner does through the pump."""

    def __init__(self, launches: Launches, argv: list[str]) -> None:
        self.launch = launches.create(argv)
        self.output = bytearray()
        self.hints = Hints(self._look)
        self._news = asyncio.Event()

    def _look(self) -> None:
        self.hints.look()

    async def begin(self) -> None:
        self.hints.watch()
        await self.launch.connect(self._read, self._read, WAIT_S, self.hints)

    def _read(self) -> None:
        while chunk := self.launch.read(len(self.output), 1024 * 1024):
            self.output += chunk
        self._news.set()

    async def until(self, wanted: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while wanted not in self.output:
                self._news.clear()
                await self._news.wait()

    async def say(self, word: bytes) -> None:
        self.launch.write([word + b"\n"])
        await self.until(word + b"\n")

    def close(self) -> None:
        self.launch.close()
        self.hints.close()


def bytes_from_the_keeper(reader: Reader) -> list[bytes]:
    """The bytes that the launch's keeper sends from now on."""
    connection = reader.launch._connection
    assert connection is not None
    received: list[bytes] = []
    answer = reader.launch._hinted

    def peek() -> None:
        received.append(connection.recv(100, socket.MSG_PEEK))
        answer()

    reader.hints.remove(connection)
    reader.hints.add(connection, peek)
    return received


async def test_output_of_an_active_launch_is_seen_without_a_byte_from_its_keeper(launches: Launches) -> None:
    with closing(Reader(launches, ["cat"])) as reader:
        await reader.begin()
        await reader.say(b"first")
        await until_true(lambda: reader.launch._followed is not None)
        # Once its answer to this has arrived, so has everything that it sent before hints were turned off.
        await reader.say(b"second")
        received = bytes_from_the_keeper(reader)
        for number in range(50):
            await reader.say(b"word %d" % number)
        assert received == []


async def test_output_written_while_watching_starts_is_not_missed(launches: Launches) -> None:
    talks = python("for number in range(3000): print(number, flush=True)")
    with closing(Reader(launches, talks)) as reader:
        await reader.begin()
        await reader.until(b"\n2999\n")
        assert reader.output.split() == [b"%d" % number for number in range(3000)]


async def test_without_inotify_the_keeper_keeps_sending_hints(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(hints_module._Files, "__init__", too_many)
    with closing(Reader(launches, ["cat"])) as reader:
        await reader.begin()
        received = bytes_from_the_keeper(reader)
        for number in range(20):
            await reader.say(b"word %d" % number)
        assert received and set(b"".join(received)) == set(b"o")


async def test_if_a_file_can_not_be_watched_its_keeper_keeps_sending_hints(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_watch_left(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hints_module._Files, "add", no_watch_left)
    with closing(Reader(launches, ["cat"])) as reader:
        await reader.begin()
        for number in range(20):
            await reader.say(b"word %d" % number)
        assert reader.launch._followed is None


async def test_output_is_seen_even_if_its_file_could_not_be_opened_at_first(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor_left() -> int:
        raise OSError(24, "Too many open files")

    def starved(hints: Hints) -> None:
        with monkeypatch.context() as then:
            then.setattr(reader.launch, "_open_out", no_descriptor_left)
            follow(hints)

    with closing(Reader(launches, ["cat"])) as reader:
        follow = reader.launch._follow
        monkeypatch.setattr(reader.launch, "_follow", starved)
        await reader.begin()
        for number in range(20):
            await reader.say(b"word %d" % number)
        assert reader.launch._followed is None


async def test_commands_that_a_busy_keeper_did_not_read_are_sent_with_the_next_acknowledgement(
    launches: Launches,
) -> None:
    with closing(Reader(launches, ["cat"])) as reader:
        await reader.begin()
        await reader.say(b"first")
        # As `_send` leaves it if the socket's buffer is full.
        reader.launch._unsent = {"end": {"eof_grace_s": 5, "term_grace_s": 1}}
        reader.launch.acknowledge(1)
        assert await reader.launch.wait_gone(WAIT_S)


async def test_after_a_reconnect_the_keeper_sends_hints_again(launches: Launches) -> None:
    with closing(Reader(launches, ["cat"])) as reader:
        await reader.begin()
        await reader.say(b"first")
        await until_true(lambda: reader.launch._followed is not None)
        # Connect without hints, as when a process is being ended. It reads only when it is called.
        await reader.launch.connect(reader._read, reader._read, WAIT_S)
        for number in range(20):
            await reader.say(b"word %d" % number)


async def test_the_end_of_a_watched_launch_is_noticed(launches: Launches) -> None:
    with closing(Reader(launches, python("print('first', flush=True); input(); print('last', flush=True)"))) as reader:
        closed = asyncio.Event()
        reader.hints.watch()
        await reader.launch.connect(reader._read, closed.set, WAIT_S, reader.hints)
        await reader.until(b"first\n")
        reader.launch.write([b"\n"])
        async with asyncio.timeout(WAIT_S):
            await closed.wait()
        reader._read()
        assert reader.output == b"first\nlast\n"
        assert reader.launch._followed is None


def test_after_an_inotify_overflow_every_file_is_checked(tmp_path: Path) -> None:
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    called = {"one": 0, "two": 0, "quiet": 0}

    def called_as(name: str) -> None:
        called[name] += 1

    with closing(Hints(lambda: None)) as hints:
        files = {name: os.open(tmp_path / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY) for name in called}
        for name, fd in files.items():
            assert hints.follow(fd, lambda name=name: called_as(name)) is not None  # type: ignore[misc]
        for _ in range(queue):  # alternate: inotify merges two identical events in a row
            os.write(files["one"], b"x")
            os.write(files["two"], b"x")
        for _ in range(queue // 1000 + 2):
            hints.look()
        assert all(called.values())
        for fd in files.values():
            os.close(fd)


def test_one_of_two_watchers_of_a_file_may_leave(tmp_path: Path) -> None:
    calls: list[str] = []
    with closing(Hints(lambda: None)) as hints:
        fd = os.open(tmp_path / "out", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        first, second = (lambda: calls.append("first")), (lambda: calls.append("second"))
        watch = hints.follow(fd, first)
        assert watch is not None and hints.follow(fd, second) == watch
        os.write(fd, b"x")
        hints.look()
        hints.unfollow(watch, first)
        os.write(fd, b"x")
        hints.look()
        hints.unfollow(watch, second)
        hints.unfollow(watch, second)
        os.write(fd, b"x")
        hints.look()
        os.close(fd)
    assert calls == ["first", "second", "second"]


def test_removing_a_watched_file_does_no_harm(tmp_path: Path) -> None:
    calls: list[int] = []
    with closing(Hints(lambda: None)) as hints:
        fd = os.open(tmp_path / "out", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        watch = hints.follow(fd, lambda: calls.append(1))
        assert watch is not None
        os.unlink(tmp_path / "out")
        os.close(fd)
        hints.look()
        hints.look()
    assert calls == []
