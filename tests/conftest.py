"""What every test may use: markers that skip with a reason, and the real agents that `./run agents` installed.

Above: all tests. Below: pytest. Fixtures that only one folder needs are next to its tests, on purpose.
"""

import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres, sizes
from tests.harness import LiveServer, SharedServers
from tests.isolation import isolate

ROOT = Path(__file__).resolve().parent.parent
AGENTS = ROOT / ".agents"


class RealAgent(NamedTuple):
    """How to start an installed agent. Add `env` to a small base environment."""

    argv: list[str]
    env: dict[str, str]


# A background job of a shell ignores Ctrl+C, and so would every program that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Conditions for `needs(...)`, in addition to program names.
CONDITIONS: dict[str, Callable[[], bool]] = {
    "linux": lambda: sys.platform == "linux",
    "root": lambda: os.geteuid() == 0,
    "not-root": lambda: os.geteuid() != 0,
    "network": lambda: "PERDURE_TEST_NETWORK" in os.environ,
}
# Conditions that give their own reason.
REASONS: dict[str, Callable[[], str | None]] = {"postgresql": postgres.lack}


def lack(thing: str) -> str | None:
    """Return why a test that needs this can't run here; None if it can."""
    if thing in REASONS:
        return REASONS[thing]()
    condition = CONDITIONS.get(thing)
    if condition is not None:
        return None if condition() else f"needs {thing}"
    return None if shutil.which(thing) else f"needs {thing}, which is not on PATH"


def find_agent(name: str, agents: Path = AGENTS) -> RealAgent | str:
    """Return an agent that `./run agents` installed, or the reason why it is missing."""
    note = agents / f"{name}.json"
    if not note.exists():
        return f"the agent {name} is not installed (./run agents)"
    entry = json.loads(note.read_text(encoding="utf-8"))
    if "reason" in entry:
        return f"the agent {name} could not be installed: {entry['reason']}"
    if not all(Path(part).exists() for part in entry["argv"] if os.path.isabs(part)):
        return f"the agent {name} is no longer there (./run agents)"
    return RealAgent(entry["argv"], entry["env"])


# The duration of an example depends on how busy the machine is, not on the code.
BUSY: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("perdure", **BUSY)
settings.register_profile("perdure-fast", **BUSY, max_examples=15)
settings.load_profile("perdure")

# Tests start and kill hundreds of servers. Tests of the start itself use `python -m perdure serve`.
LiveServer.is_warm = True


@pytest.fixture(scope="session")
def real_agent() -> Callable[[str], RealAgent]:
    """`real_agent("hermes")` returns how to start it, or skips the test with the reason."""

    def installed(name: str) -> RealAgent:
        found = find_agent(name)
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return installed


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServers]:
    """Servers that the tests of this run share, one at a time."""
    shared = SharedServers(tmp_path_factory.mktemp("shared"))
    yield shared
    shared.close()


# PostgreSQL: one server for the run, and a database for each test. ---------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server() -> postgres.Shared:
    """The PostgreSQL server that the tests of this run share. Skips the test with the reason if there is none."""
    if reason := postgres.lack():
        pytest.skip(reason)
    return postgres.shared_server(postgres.run_folder())


@pytest.fixture(scope="session")
def postgres_template(postgres_server: postgres.Shared) -> str:
    """The name of a migrated template database. Don't connect to it."""
    return postgres.make_template(postgres_server, postgres.run_folder())


@pytest.fixture
def postgres_url(postgres_server: postgres.Shared, postgres_template: str) -> Iterator[str]:
    """A migrated database for this test only."""
    name = postgres.make_database(postgres_server, postgres_template)
    yield postgres_server.url(name)
    postgres.drop_database(postgres_server, name)


# The fast run, before each commit ---------------------------------------------------------------------------------

WHOLE_SYSTEM = ("end_to_end", "conversations", "continuity", "seeds")
SERVERS_OF_ONE_TEST = {"own", "make_server"}
"""Fixtures that start a server for a single test. The fast run uses only shared servers."""
REHEARSAL, LONG = "of the rehearsal agent alone", "of the parts that take long"
OF_PARTS = "of the parts"
LEFT_OUT = pytest.StashKey[Counter[str]]()


def kind_left_out(item: pytest.Item) -> str | None:
    """Return why a test is not part of the fast run, as a kind to count; None if it is."""
    fixtures = getattr(item, "fixturenames", ())
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if item.get_closest_marker("slow"):
        return "slow"
    if "real_agent" in fixtures or any(getattr(one, "real", False) for one in parameters):
        return "with real agents"
    if "browser" in fixtures:
        return "in a browser"
    if item.get_closest_marker("nodes"):
        return "on two nodes"
    if item.get_closest_marker("smoke"):
        return None
    if item.get_closest_marker("long"):
        return LONG
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    if item.get_closest_marker("full") or SERVERS_OF_ONE_TEST & {*fixtures} or folder in WHOLE_SYSTEM:
        return "of the whole system"
    return REHEARSAL if folder == "rehearsal" else None


def why_left_out(item: pytest.Item, only: str) -> str | None:
    """Return why a test is left out with `--only`: `fast`, `parts` for the tests of the system's parts, or `rest` for
    all that `parts` leaves out or runs with fewer examples."""
    kind = kind_left_out(item)
    if only == "fast":
        return kind
    of_parts = kind in (None, REHEARSAL, LONG) and not item.get_closest_marker("smoke")
    if only == "rest":
        return OF_PARTS if of_parts and not has_sizes(item) else None
    return None if of_parts else kind or "of the whole system"


def has_sizes(item: pytest.Item) -> bool:
    """Whether a test may be smaller in the fast run."""
    module, function = getattr(item, "module", None), getattr(item, "obj", None)
    return getattr(module, "size", None) is sizes.size or getattr(function, "is_hypothesis_test", False)


def long_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Sort the tests for the workers. Each worker gets one part of the tests, and steals from the ends of other parts
    when it is done. So each part starts with long tests, many of which mostly wait, and ends with short ones, and no
    long test remains for the end."""
    long = [item for item in items if kind_left_out(item) is not None]
    short = [item for item in items if kind_left_out(item) is None]

    def part(of: list[pytest.Item], number: int) -> list[pytest.Item]:
        return of[len(of) * number // workers : len(of) * (number + 1) // workers]

    return [item for number in range(workers) for item in (*part(long, number), *part(short, number))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only", choices=("fast", "parts", "rest"), help="the fast tests; those of the system's parts; or the rest"
    )
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # The workers inherit this.
        folder = tempfile.TemporaryDirectory(prefix="perdure-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        isolate(Path(folder.name))
        postgres.hold(Path(folder.name))
        config.add_cleanup(postgres.drop_template)
    config.stash[LEFT_OUT] = Counter()
    if config.getoption("--only") in ("fast", "parts"):
        # Generated tests use fewer examples here; the full run uses many.
        os.environ[sizes.FAST] = "1"
    if sizes.FAST in os.environ:
        settings.load_profile("perdure-fast")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if only := config.getoption("--only"):
        kinds = [(item, why_left_out(item, only)) for item in items]
        items[:] = [item for item, kind in kinds if kind is None]
        config.stash[LEFT_OUT].update(kind for _, kind in kinds if kind is not None)
    if only in (None, "rest") and (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
        items[:] = long_ones_first(items, workers)
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --slow"))
        for marker in item.iter_markers("needs"):
            for thing in marker.args:
                reason = lack(thing)
                if reason:
                    item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which would scan thousands of them each time, and make
    collections rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of left-out tests to the main process, which writes the summary but collects no tests."""
    if hasattr(session.config, "workeroutput"):
        left_out = session.config.stash[LEFT_OUT]
        session.config.workeroutput["left_out"] = dict(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Every worker collects the same tests, so all counts are the same.
    left_out: Counter[str] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))
    node.config.stash[LEFT_OUT] = left_out or node.config.stash[LEFT_OUT]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT]
    if left_out and config.getoption("--only") == "fast":
        kinds = ", ".join(f"{count} {kind}" for kind, count in left_out.most_common())
        terminalreporter.section("left out of the fast run")
        terminalreporter.line(f"{left_out.total()} tests: {kinds}. Run them with ./run test --all (slow ones: --slow).")
