"""Probes an agent's program for its version and abilities. The result is valid as long as the file doesn't change.

Above: the agents, which probe at startup and before a program is used. Below: a short-lived child process. The agent's
driver says what to ask and judges the output (drivers/base.py); this module runs the program.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from perdure.drivers.base import Probe

VERSION_TIMEOUT_S = 20.0
KILL_TIMEOUT_S = 5.0
HELP_TRIES = 3
PLAIN = Probe()


class Probed(Struct, frozen=True):
    """The result of a probe. It is valid only for the program with this `fingerprint`."""

    fingerprint: str
    state: Literal["ready", "too_old", "broken"]
    version: str | None = None
    reason: str | None = None
    can_resume: bool = True

    @property
    def lasts(self) -> bool:
        """Whether the result stays valid while the file is the same. A failure may be temporary, for example on a busy
        machine or without a network."""
        return self.state != "broken"


def fingerprint_of(binary: str, arguments: Sequence[str], probe: Probe = PLAIN) -> str:
    """Identifies a program file with its arguments, and the version of the rules that judge it. With `npx`, the file
    alone doesn't say what it starts."""
    path = os.path.realpath(binary)
    words = " ".join([path, *arguments])
    try:
        found = os.stat(path)
    except OSError:
        return f"{words}|missing"
    return f"{words}|{found.st_size}|{found.st_mtime_ns}|{probe.rules_version}"


async def ask_version(
    binary: str, arguments: Sequence[str], environment: dict[str, str], probe: Probe = PLAIN
) -> Probed:
    """Run `PROGRAM --version`, and `--help` if the probe needs it. The probe judges the output."""
    fingerprint = fingerprint_of(binary, arguments, probe)
    try:
        code, output = await _run([binary, *arguments, "--version"], environment)
    except TimeoutError:
        return Probed(fingerprint, "broken", reason=f"`{binary} --version` did not exit in {VERSION_TIMEOUT_S:g} s.")
    except OSError as error:
        return Probed(fingerprint, "broken", reason=f"Can't run {binary}: {error.strerror}.")
    verdict = probe.judge(code, output)
    if verdict.state != "broken" and probe.help_options:
        verdict = probe.judge(code, output, await _help([binary, *arguments], environment, probe.help_options))
    return Probed(fingerprint, *verdict)


async def _help(argv: list[str], environment: dict[str, str], options: Sequence[str]) -> str:
    """The program's help text, or "" if it shows none. Retries if an option is missing: on a busy machine a program may
    fail or its output may be cut, and a wrong conclusion would be stored."""
    shown = ""
    for _ in range(HELP_TRIES):
        try:
            code, output = await _run([*argv, "--help"], environment)
        except (OSError, TimeoutError):
            break
        if code == 0:
            shown = max(shown, output, key=len)
        if all(option in shown for option in options):
            break
    return shown


async def _run(argv: list[str], environment: dict[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(VERSION_TIMEOUT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            await _end(process)
    return process.returncode or 0, output.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it with all its children: a child that holds the pipe open would block the wait."""
    os.killpg(process.pid, signal.SIGKILL)
    async with asyncio.timeout(KILL_TIMEOUT_S):
        await process.wait()
