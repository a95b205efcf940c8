"""What an agent's program is: asked once, and remembered by what the file is, not by when it was asked.

Above: the host asks at the start and when an agent is about to be used. Below: a short-lived child process. Only the
version is asked for: help texts leave options out, so what a version can do is known by its number.
"""

import asyncio
import os
import re
from typing import Literal

from msgspec import Struct

VERSION_TIMEOUT_S = 20.0
OLDEST_CLAUDE = (2, 0, 0)
"""The first version that is known to take messages, permissions and interrupts over its standard streams."""


class Probed(Struct, frozen=True):
    """`fingerprint` is the program file as it was asked; another one makes the answer worthless."""

    fingerprint: str
    state: Literal["ready", "too_old", "broken"]
    version: str | None = None
    reason: str | None = None


def file_fingerprint(binary: str) -> str:
    path = os.path.realpath(binary)
    try:
        found = os.stat(path)
    except OSError:
        return f"{path}|missing"
    return f"{path}|{found.st_size}|{found.st_mtime_ns}"


async def probe_claude(binary: str, arguments: list[str], environment: dict[str, str]) -> Probed:
    """Ask `claude --version`."""
    fingerprint = file_fingerprint(binary)
    try:
        code, output = await _run([binary, *arguments, "--version"], environment)
    except TimeoutError:
        return Probed(fingerprint, "broken", reason=f"`{binary} --version` did not answer in {VERSION_TIMEOUT_S:g} s.")
    except OSError as error:
        return Probed(fingerprint, "broken", reason=f"{binary} can't be run: {error.strerror}.")
    return judge_claude(fingerprint, code, output)


def judge_claude(fingerprint: str, code: int, output: str) -> Probed:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", output)
    if code != 0 or found is None:
        said = output.strip().splitlines()[:1]
        return Probed(fingerprint, "broken", reason=f"It does not tell its version (exit code {code}): {''.join(said)}")
    version = found.group(0)
    if tuple(int(part) for part in found.groups()) < OLDEST_CLAUDE:
        oldest = ".".join(map(str, OLDEST_CLAUDE))
        return Probed(fingerprint, "too_old", version, f"Version {version} is too old; {oldest} or newer is needed.")
    return Probed(fingerprint, "ready", version)


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
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode(errors="replace")
