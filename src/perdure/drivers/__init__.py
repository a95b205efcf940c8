"""The drivers, by the name that the configuration uses for them.

Above: the runtime looks up drivers here. Below: one module or package per agent protocol. To add a driver, add it to
the list here. Nothing else needs to know it: the runtime asks the driver (base.py), and the conformance suite includes
it.
"""

from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import Driver
from perdure.drivers.claude import ClaudeResumeDriver, ClaudeStreamDriver

_DRIVERS: tuple[Driver, ...] = (
    AcpDriver(),
    ClaudeStreamDriver(),
    ClaudeResumeDriver(),
)

DRIVERS: dict[str, Driver] = {driver.name: driver for driver in _DRIVERS}

PER_TURN = "resume"
"""The `runner_mode` with one process per turn."""


def names() -> list[str]:
    """The names that perdure.toml may use: drivers and families."""
    return sorted({*DRIVERS, *(driver.family for driver in DRIVERS.values() if driver.family)})


def resolve(name: str, runner_mode: str | None = None) -> str:
    """The driver that a name in perdure.toml stands for: itself, or the member of a family that `runner_mode` chooses.
    Returns an unknown name unchanged."""
    if name in DRIVERS:
        return name
    members = [driver for driver in DRIVERS.values() if name and driver.family == name]
    wanted = [driver for driver in members if driver.process_per_turn == (runner_mode == PER_TURN)]
    return next((driver.name for driver in (*wanted, *members)), name)
