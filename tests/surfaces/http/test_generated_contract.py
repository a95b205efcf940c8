"""The OpenAPI document and the server agree, however long one tries: Schemathesis makes requests that fit the document
and requests that don't, also in sequences, against a real server, with all its checks.

    PERDURE_TEST_CONTRACT_S=600 ./run test --slow -k generated_contract

tries for ten minutes in all, and says its seed if it finds something. Its phases are runs of their own, since one run
spends all its time in the first of them. What is excepted, and why, is in contract.toml. The quick version with fewer
checks, which each run has, is in test_openapi.py.
"""

import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import LiveServer
from tests.sizes import size

SETTINGS = Path(__file__).with_name("contract.toml")
CONTRACT_S = size("CONTRACT_S", 300, fast=180)
COVERAGE_MAX_S = 900
"""Every boundary of every operation once, some 3,700 requests: a minute, or five where the machine is busy."""
SHARE_MIN_S = 60
SLACK_S = 120
CONFIG = """
[server]
agent = "rehearsal"
slots = 8
project_slots = 0

[limits]
idle_timeout_s = 2
turn_timeout_s = 20
"""
"""Agents that are done with don't stay: thousands of sessions are made."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path / "data", CONFIG).start()
    try:
        yield server
    finally:
        server.destroy()


def tried(server: LiveServer, phase: str, limit_s: int | None) -> str:
    """What Schemathesis says after this phase, in which it found nothing. Without a limit it does it once."""
    seed = secrets.randbelow(2**31)
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "--config-file", str(SETTINGS)),
            *("run", f"{server.url}/api/openapi.json", "--url", server.url, "--phases", phase),
            *("--header", f"Authorization: Bearer {server.token}"),
            *(() if limit_s is None else ("--max-time", str(limit_s))),
            *("--seed", str(seed), "--continue-on-failure", "--no-shrink", "--warnings", "off"),
            *("--request-timeout", "60"),
        ],
        capture_output=True,
        text=True,
        timeout=(limit_s or COVERAGE_MAX_S) + SLACK_S,
        cwd=server.data.parent,
    )
    assert done.returncode == 0, f"{phase}, seed {seed}\n{done.stdout[-20_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


def count(pattern: str, said: str) -> int:
    """The number that its summary gives there; a run in which the phase did not come up has none."""
    found = re.search(pattern, said)
    assert found is not None, f"{pattern} is not in\n{said[-3_000:]}"
    return int(found[1])


@pytest.mark.slow
@pytest.mark.timeout(CONTRACT_S + COVERAGE_MAX_S + 4 * SLACK_S)
def test_generated_requests_find_no_difference_between_the_document_and_the_server(live: LiveServer) -> None:
    begun = time.monotonic()
    covered = tried(live, "coverage", None)
    assert count(r"Tested: (\d+)", covered) == count(r"Selected: (\d+)/", covered) > 50
    assert count(r"(\d+) generated", covered) > 1_000
    share_s = max(SHARE_MIN_S, int(CONTRACT_S - (time.monotonic() - begun)) // 2)
    fuzzed = tried(live, "fuzzing", share_s)
    assert count(r"Tested: (\d+)", fuzzed) > 20 and count(r"(\d+) generated", fuzzed) > 100
    walked = tried(live, "stateful", share_s)
    assert count(r"Scenarios: +(\d+)", walked) > 0 and count(r"API Links: +(\d+) covered", walked) > 0
