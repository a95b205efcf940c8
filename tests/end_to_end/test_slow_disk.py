"""The disk stalls: other requests wait no longer than the one commit that hit the stall, and nothing is lost.

The server is real, with a small library preloaded in front of the C library, which delays a write to the database's
log.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import NO_LIMITS, ColdServer, eventually, no_holes

STALL_S = 0.4
MARGIN_S = 0.6
"""Allowance for a busy machine."""
WORDS = 60
SWITCH = "stall.on"
LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t writer(int, const void *, size_t, off64_t);
static long long ended_ns;

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Once per commit: its other writes follow within a moment. */
static void stall(int fd) {
    const char *switched = getenv("STALL_FILE");
    char link[64], path[4096];
    if (!switched || access(switched, F_OK)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4 || memcmp(path + length - 4, "-wal", 4)) return;
    if (now_ns() - ended_ns > 20000000LL) {
        usleep(atoi(getenv("STALL_MS")) * 1000);
        snprintf(path, sizeof path, "%s.met", switched);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    ended_ns = now_ns();
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t position) {
    static writer *real;
    if (!real) real = (writer *)dlsym(RTLD_NEXT, "pwrite64");
    stall(fd);
    return real(fd, bytes, count, position);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t position) {
    return pwrite64(fd, bytes, count, position);
}
"""


class Asking(threading.Thread):
    """A client that needs nothing from the disk. It sends requests all the time and records the response times."""

    def __init__(self, server: ColdServer) -> None:
        super().__init__()
        self._server = server
        self._is_over = threading.Event()
        self.took_s: list[float] = []

    def run(self) -> None:
        while not self._is_over.wait(0.005):
            began = time.monotonic()
            self._server.http.get("/api/health")
            self.took_s.append(time.monotonic() - began)

    def end(self) -> list[float]:
        self._is_over.set()
        self.join()
        return self.took_s


@pytest.fixture
def stalling(tmp_path: Path) -> Path:
    """The compiled library."""
    source = tmp_path / "stall.c"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(tmp_path / "stall.so"), str(source), "-ldl"], check=True)
    return tmp_path / "stall.so"


@pytest.fixture
def server(stalling: Path, tmp_path: Path) -> Iterator[ColdServer]:
    env = {"LD_PRELOAD": str(stalling), "STALL_FILE": str(tmp_path / SWITCH), "STALL_MS": str(int(STALL_S * 1000))}
    made = ColdServer(tmp_path / "data", NO_LIMITS, env)
    try:
        yield made.start()
    finally:
        (tmp_path / SWITCH).unlink(missing_ok=True)
        made.finish()


@pytest.mark.smoke
@pytest.mark.needs("linux", "cc")
def test_a_stalled_disk_delays_others_no_longer_than_the_stalled_commit(server: ColdServer, tmp_path: Path) -> None:
    session = server.create()
    server.send(session, f"stream {WORDS} 30")
    eventually(lambda: server.session(session)["event_count"] > 10, "the stream has started")
    others = Asking(server)
    others.start()
    (tmp_path / SWITCH).touch()
    eventually(lambda: server.session(session)["state"] == "idle", "the turn is over", 60)
    took_s = others.end()
    slow = [each for each in took_s if each > STALL_S / 2]
    print(f"{len(took_s)} answers, {len(slow)} of them slow, the slowest in {max(took_s):.3f} s")
    assert (tmp_path / f"{SWITCH}.met").exists(), "a commit hit the stall"
    assert max(took_s) < STALL_S + MARGIN_S
    # After each stall, the thread commits for a second, however long that takes.
    assert len(slow) <= len(took_s) / 10
    no_holes(server.log(session))
    assert server.text(session, 1).split() == [f"w{number}" for number in range(WORDS)]
