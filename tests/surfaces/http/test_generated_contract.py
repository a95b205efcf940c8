"""The OpenAPI document and the server agree, however long one tries: Schemathesis makes requests that fit the document
and requests that don't, also in sequences, against a real server, with all its checks.

    PERDURE_TEST_CONTRACT_S=600 ./run test --slow -k generated_contract

tries for ten minutes, and says its seed if it finds something. What is excepted, and why, is in contract.toml. The
quick version with fewer checks, which each run has, is in test_openapi.py.
"""

import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import LiveServer
from tests.sizes import size

SETTINGS = Path(__file__).with_name("contract.toml")
CONTRACT_S = size("CONTRACT_S", 120, fast=60)
SLACK_S = 300
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


@pytest.mark.slow
@pytest.mark.timeout(CONTRACT_S + 2 * SLACK_S)
def test_generated_requests_find_no_difference_between_the_document_and_the_server(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", CONFIG).start()
    seed = secrets.randbelow(2**31)
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-c", program, "--config-file", str(SETTINGS)),
                *("run", f"{server.url}/api/openapi.json", "--url", server.url),
                *("--header", f"Authorization: Bearer {server.token}"),
                *("--max-time", str(CONTRACT_S), "--seed", str(seed)),
                *("--continue-on-failure", "--no-shrink", "--warnings", "off", "--request-timeout", "60"),
            ],
            capture_output=True,
            text=True,
            timeout=CONTRACT_S + SLACK_S,
            cwd=tmp_path,
        )
    finally:
        server.destroy()
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-20_000:]}\n{done.stderr[-2_000:]}"
    # It tries nothing where it does not get at the document.
    tried = re.search(r"(\d+) generated", done.stdout)
    assert tried is not None and int(tried.group(1)) > 100, done.stdout[-2_000:]
