"""The PostgreSQL store on each supported version that is available as a package (`./run agents postgres-14`)."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests import postgres, sizes
from tests.conftest import ROOT, find_agent

SUITES = [
    "tests/stores/test_postgres.py",
    "tests/stores/test_postgres_schema.py",
    "tests/stores/test_postgres_wakeups.py",
    "tests/end_to_end/test_two_nodes.py::test_a_message_accepted_by_one_node_is_shown_by_the_other",
]
LIMIT_S = 500
pytestmark = [pytest.mark.full, pytest.mark.needs("postgresql")]


# The oldest and the newest; usually, the machine has one in between.
@pytest.mark.parametrize("version", [14, *(pytest.param(each, marks=pytest.mark.slow) for each in (16, 17)), 18])
def test_the_store_and_two_nodes_work_on_postgresql(version: int) -> None:
    found = find_agent(f"postgres-{version}")
    if isinstance(found, str):
        pytest.skip(found)
    with postgres.private_server(Path(found.argv[0]).parent) as server:
        with psycopg.connect(server.url()) as connection:
            assert connection.info.server_version // 10_000 == version
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment[postgres.GIVEN] = server.url()
        # The run on the machine's own PostgreSQL uses many examples.
        environment[sizes.FAST] = "1"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES]
        ran = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert " skipped" not in ran.stdout.splitlines()[-1], ran.stdout[-500:]
