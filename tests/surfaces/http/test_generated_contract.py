"""The OpenAPI document and the server agree. Schemathesis sends valid and invalid requests, single and in sequences,
to a real server, with all its checks enabled.

    PERDURE_TEST_CONTRACT_S=600 ./run test --slow -k generated_contract

This tests for ten minutes in total and prints the seed of a failure. Each phase is a separate run of Schemathesis,
because a single run would spend all its time in the first phase. contract.toml lists the exceptions with their reasons.
test_openapi.py has a quick version with fewer checks, which is part of every test run.
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
"""Every boundary of every operation once, about 3,700 requests: one minute, or five on a busy machine."""
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
"""Short timeouts, because the test creates thousands of sessions and idle agents must not pile up."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path / "data", CONFIG).start()
    try:
        yield server
    finally:
        server.destroy()


def tried(server: LiveServer, phase: str, limit_s: int | None) -> str:
    """Run one phase, which must find no failure, and return the output. Without a time limit, it runs once."""
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
    """A number from the summary. It is missing, which fails the test, if the phase did not run."""
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
