"""1,500 hostile requests, with and without the token: each gets a response or is closed, and nothing breaks."""

import re
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attack import memory_comes_back, plain
from tests.harness import LiveServer
from tests.surfaces.http.hostile import Attack, Attacker, Place

SEED = 20261116
ATTACKS = 1_000
"""This many with the token, and as many without."""
ANSWER_S = 20.0


def status_of(server: LiveServer, attack: Attack) -> int:
    """The status of the response; 0 if the connection was closed without one. Raises if nothing arrives in time."""
    with closing(plain(server, ANSWER_S)) as connection:
        received = b""
        try:
            connection.sendall(attack.sent)
            if attack.unfinished:
                with suppress(OSError):
                    # The connection may already be closed.
                    connection.shutdown(socket.SHUT_WR)
            while b"\r\n\r\n" not in received and (data := connection.recv(65536)):
                received += data
        except (ConnectionResetError, BrokenPipeError):
            pass
    answer = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    assert found or not answer, (attack, received)
    return int(found.group(1)) if found else 0


def talked(server: LiveServer, **fields: Any) -> str:
    """A new session with one successful turn."""
    session = server.create(**fields)
    assert server.turn(session, "say hello")["stop_reason"] == "end_turn"
    return session


def place(server: LiveServer, folder: Path) -> Place:
    """A live session of a project."""
    folder.mkdir()
    project = server.post("/api/projects", {"name": folder.name, "path": str(folder)}, expect=201)["id"]
    return Place(talked(server, project=project, agent="rehearsal"), project)


@pytest.mark.needs("linux")
def test_no_hostile_request_breaks_hangs_or_stays_in_memory(own: LiveServer, tmp_path: Path) -> None:
    own.post(f"/api/sessions/{talked(own)}/stop", expect=200)
    places = [place(own, tmp_path / name) for name in ("one", "two", "three", "four")]
    known, stranger = Attacker(SEED, own.token, places), Attacker(SEED + 1, None, places)
    attacks = [*known.attacks(ATTACKS), *stranger.attacks(ATTACKS)]
    begun = time.monotonic()
    with memory_comes_back(own), ThreadPoolExecutor(8) as attackers:
        statuses = list(attackers.map(lambda attack: status_of(own, attack), attacks))
    count = Counter(statuses)
    print(f"{time.monotonic() - begun:.1f} s; {count}")
    log = own.errors.read_text(errors="replace")
    failed = [
        (attack.kind, attack.sent[:300]) for attack, status in zip(attacks, statuses, strict=True) if status >= 500
    ]
    assert not failed, (failed, log[-3000:])
    assert "Traceback" not in log, log[:5000]
    assert count[200] > 50 and count[400] > 200 and count[401] > 200, "they get where they should"
    assert count[201] + count[202] > 0 and count[404] > 50, "also to what is there, and to what is not"
    own.post(f"/api/sessions/{talked(own)}/stop", expect=200)
