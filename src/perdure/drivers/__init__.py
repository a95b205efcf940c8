"""The families of agents that can be spoken to, by the name that a configuration gives them.

Above: the runtime looks a driver up here. Below: one module or package per family. A new driver is a line here, and
the conformance suite picks it up.
"""

from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import Driver
from perdure.drivers.claude import ClaudeResumeDriver, ClaudeStreamDriver

DRIVERS: dict[str, Driver] = {
    AcpDriver.name: AcpDriver(),
    ClaudeStreamDriver.name: ClaudeStreamDriver(),
    ClaudeResumeDriver.name: ClaudeResumeDriver(),
}
