"""Drivers answer for themselves: their traits are consistent, and nothing else knows a driver by its name."""

import ast
import importlib
from pathlib import Path

import pytest

from perdure.drivers import DRIVERS, names
from perdure.drivers.base import Driver, Probe
from tests.conformance.driver_traits import check_traits
from tests.conformance.drivers import DriverConformance

SOURCE = Path(__file__).parents[2] / "src" / "perdure"
MAY_NAME_DRIVERS = {
    "runtime/agents/catalogue.py": "the known agents, each with its driver",
    "runtime/agents/registry.py": "the built-in rehearsal agents, each with its driver",
    "surfaces/cli/agent_section.py": "the driver of an agent that a user adds by its command",
}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=list(DRIVERS))
def test_the_traits_of_every_driver_hold(driver: Driver) -> None:
    check_traits(driver)


def test_every_driver_passes_the_conformance_suite() -> None:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name != Path(__file__).name and "(DriverConformance)" in path.read_text("utf-8"):
            importlib.import_module(f"tests.drivers.{path.stem}")
    covered = {suite.driver.name for suite in DriverConformance.__subclasses__()}
    assert set(DRIVERS) <= covered, "write a subclass of DriverConformance with scenarios for each driver"


def test_the_defaults_fit_a_minimal_driver() -> None:
    driver, probe = Driver, Probe()
    assert not (driver.process_per_turn or driver.prewarms or driver.shares or driver.is_preferred)
    assert (driver.family, driver.fallback, driver.delivers_reasons) == ("", None, False)
    assert not probe.is_required
    assert probe.judge(0, "agent 1.2.3-beta").version == "1.2.3"


def test_no_driver_is_named_outside_the_drivers() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = str(path.relative_to(SOURCE))
        if place.startswith(("drivers/", "rehearsal/")) or place in MAY_NAME_DRIVERS:
            continue
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        literals = [node for node in nodes if isinstance(node, ast.Constant) and node.value in names()]
        found += [f"{place}:{node.lineno}: {node.value!r}" for node in literals]
    assert not found, "ask the driver instead (drivers/base.py): " + ", ".join(found)
