"""What an agent's program is: asked once, and remembered by what the file is, not by when it was asked.

Above: the agents, which ask at the start and when one is about to be used. Below: a short-lived child process. Help
texts leave options out, so what a version can do is known by its number; but a program that shows the options of Claude
Code without `--resume` is a copy of it that can't resume, and is never asked to.

A fork of Claude Code counts its versions in its own way, so that its number says nothing. Claude Code calls itself so
beside its number (`2.1.197 (Claude Code)`); a program with another name there is a fork, and so is one without a name
that shows Claude Code's options.
"""

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

VERSION_TIMEOUT_S = 20.0
KILL_TIMEOUT_S = 5.0
HELP_TRIES = 3
PRINTS, RESUMES = "--output-format", "--resume"
"""Options of Claude Code: one that every copy shows which can be driven, and the one that it may lack."""
JUDGED_AS = 2
"""How answers are judged. A new number lets every program be asked again: an older rule may have judged it wrongly."""
CLAUDE_CODE = "claude code"
OLDEST_CLAUDE = (2, 0, 0)
"""The first version that is known to take messages, permissions and interrupts over its standard streams."""


class Probed(Struct, frozen=True):
    """`fingerprint` is the program as it was asked; another one makes the answer worthless."""

    fingerprint: str
    state: Literal["ready", "too_old", "broken"]
    version: str | None = None
    reason: str | None = None
    can_resume: bool = True

    @property
    def lasts(self) -> bool:
        """Whether the answer holds as long as the file is the same. A program that failed once may have had a bad
        moment: a full machine, a missing network."""
        return self.state != "broken"


def fingerprint_of(binary: str, arguments: Sequence[str]) -> str:
    """A program file and how it is called: `npx` alone says nothing of what it starts."""
    path = os.path.realpath(binary)
    words = " ".join([path, *arguments])
    try:
        found = os.stat(path)
    except OSError:
        return f"{words}|missing"
    return f"{words}|{found.st_size}|{found.st_mtime_ns}|{JUDGED_AS}"


async def ask_version(
    binary: str, arguments: Sequence[str], environment: dict[str, str], oldest: tuple[int, ...] = ()
) -> Probed:
    """Ask `PROGRAM --version`, and judge the answer."""
    fingerprint = fingerprint_of(binary, arguments)
    try:
        code, output = await _run([binary, *arguments, "--version"], environment)
    except TimeoutError:
        return Probed(fingerprint, "broken", reason=f"`{binary} --version` did not answer in {VERSION_TIMEOUT_S:g} s.")
    except OSError as error:
        return Probed(fingerprint, "broken", reason=f"{binary} can't be run: {error.strerror}.")
    probed = judge(fingerprint, code, output, oldest)
    if probed.state != "broken" and oldest:
        # Only a Claude has an oldest version, and may be a copy that lacks something.
        shown = await _help([binary, *arguments], environment)
        if probed.state == "too_old" and PRINTS in shown and _name_in(output) is None:
            probed = Probed(fingerprint, "ready", probed.version)
        probed = msgspec.structs.replace(probed, can_resume=PRINTS not in shown or RESUMES in shown)
    return probed


def _name_in(output: str) -> str | None:
    """What a program calls itself beside its version, in small letters."""
    words = re.findall(r"[^\W\d_]{2,}", re.sub(r"\d+\.\d+\.\d+\S*", " ", output))
    return " ".join(words).lower() or None


async def _help(argv: list[str], environment: dict[str, str]) -> str:
    """What it shows of its options; nothing, if it does not. Asked again where something is missing: on a busy machine
    a program may fail, or end before all that it wrote was read, and what is concluded from that is remembered."""
    shown = ""
    for _ in range(HELP_TRIES):
        try:
            code, output = await _run([*argv, "--help"], environment)
        except (OSError, TimeoutError):
            break
        if code == 0:
            shown = max(shown, output, key=len)
        if PRINTS in shown and RESUMES in shown:
            break
    return shown


def judge(fingerprint: str, code: int, output: str, oldest: tuple[int, ...] = ()) -> Probed:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", output)
    if code != 0 or found is None:
        said = "".join(output.strip().splitlines()[:1])[:200] or "it says nothing"
        return Probed(fingerprint, "broken", reason=f"It does not tell its version (exit code {code}): {said}.")
    version = found.group(0)
    name = _name_in(output)
    is_fork = name is not None and CLAUDE_CODE not in name
    if tuple(int(part) for part in found.groups()) < oldest and not is_fork:
        wanted = ".".join(map(str, oldest))
        return Probed(fingerprint, "too_old", version, f"Version {version} is too old; {wanted} or newer is needed.")
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
            await _end(process)
    return process.returncode or 0, output.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """With all that it started: a child of its own would hold the pipe open, and the wait with it."""
    os.killpg(process.pid, signal.SIGKILL)
    async with asyncio.timeout(KILL_TIMEOUT_S):
        await process.wait()
