"""Processes that a test kills, and whether they are gone.

Above: the tests of this folder. Below: /proc and signals.
"""

import contextlib
import json
import os
import re
import signal
from pathlib import Path

from perdure.runtime.keeping import cgroups
from tests import harness
from tests.harness import LiveServer, eventually


def agent_of(server: LiveServer, session: str) -> int:
    """The agent's pid, once it is attached."""
    return int(server.wait(session, lambda found: found["pid"] is not None)["pid"])


def keeper_of(server: LiveServer, session: str) -> int:
    agent = agent_of(server, session)
    for note in (server.data / "launches").glob("*/pid.json"):
        pids = json.loads(note.read_text())
        if pids.get("pid") == agent:
            return int(pids["keeper_pid"])
    raise AssertionError(f"no keeper holds agent {agent}")


def kill(*pids: int) -> None:
    """Ignores a process that is already gone: if its keeper was killed, the server ends an agent immediately."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    """A zombie counts as gone, because it no longer runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def none_left(server: LiveServer) -> None:
    harness.none_left(server.data)


def groups_of(server: LiveServer) -> list[Path]:
    """The control groups of the server's launches."""
    install = (server.data / "install").read_text().split()[0]
    return [group for base in cgroups.here() for group in base.folder.glob(f"perdure-{install}-*")]


def zombies(server: LiveServer) -> list[int]:
    """Zombie children of the server that it has not waited for."""
    assert server.process is not None
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == server.process.pid:
            found.append(int(entry.parent.name))
    return found


def until_said(server: LiveServer, session: str, turn: int, pattern: str) -> "re.Match[str]":
    """Wait until the turn's output matches."""
    found: re.Match[str] = eventually(
        lambda: (
            turn in [t["turn"] for t in server.transcript(session)] and re.search(pattern, server.text(session, turn))
        ),
        lambda: f"turn {turn} of {session} says {pattern}; {server.account(session)}",
    )
    return found


def closed_order(log: list[dict[str, object]], turn: int) -> list[str]:
    """The event types that frame a turn, in the order in which they came."""
    frame = ("user_message", "turn_start", "error", "turn_end", "waiting_for_input")
    return [str(event["type"]) for event in log if event["turn"] == turn and event["type"] in frame]
