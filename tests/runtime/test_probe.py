"""Asking a program for its version: real programs, including some that hang, fail or print nothing."""

import asyncio
import os
from pathlib import Path

import pytest

from perdure.drivers.claude.probing import ClaudeProbe
from perdure.runtime.agents import probe
from perdure.runtime.agents.probe import ask_version, fingerprint_of
from tests.harness import eventually
from tests.runtime.programs import claude, program, touched

ENVIRONMENT = {"PATH": os.environ["PATH"]}
CLAUDE = ClaudeProbe()


async def test_a_program_that_prints_its_version_is_ready(tmp_path: Path) -> None:
    found = await ask_version(str(claude(tmp_path / "claude")), [], ENVIRONMENT, CLAUDE)
    assert (found.state, found.version, found.reason, found.lasts) == ("ready", "2.1.197", None, True)


async def test_an_old_version_is_too_old_and_stays_so(tmp_path: Path) -> None:
    found = await ask_version(str(claude(tmp_path / "claude", "1.0.128")), [], ENVIRONMENT, CLAUDE)
    assert (found.state, found.version, found.lasts) == ("too_old", "1.0.128", True)
    assert found.reason == "Version 1.0.128 is too old; 2.0.0 or newer is needed."


CLAUDES_OPTIONS = "echo '-p, --print'; echo '--output-format'; echo '-r, --resume'"


@pytest.mark.parametrize(
    ("told", "shown", "state"),
    [
        ("0.4.2 (Open Fork)", "true", "ready"),
        ("openfork v0.4.2", "true", "ready"),
        ("0.4.2", CLAUDES_OPTIONS, "ready"),
        ("0.4.2", "true", "too_old"),
        ("0.4.2 (Claude Code)", CLAUDES_OPTIONS, "too_old"),
        ("1.0.128 (Claude Code)", CLAUDES_OPTIONS, "too_old"),
        ("2.1.197 (Claude Code)", CLAUDES_OPTIONS, "ready"),
    ],
)
async def test_a_fork_is_not_too_old_by_its_own_numbers_but_claude_is(
    tmp_path: Path, told: str, shown: str, state: str
) -> None:
    body = f'case "$1" in --version) echo "{told}";; --help) {shown};; esac'
    found = await ask_version(str(program(tmp_path / "claude", body)), [], ENVIRONMENT, CLAUDE)
    assert (found.state, (found.version or "-") in told) == (state, True)


@pytest.mark.parametrize(
    ("shown", "able"),
    [
        ("echo '-p, --print'; echo '--output-format'; echo '-r, --resume'", True),
        ("echo '-p, --print'; echo '--output-format'", False),
        ("echo 'See the manual.'", True),
        ("echo '--output-format'; exit 2", True),
    ],
)
async def test_a_copy_of_claude_without_resume_is_never_asked_to_resume(tmp_path: Path, shown: str, able: bool) -> None:
    body = f'case "$1" in --version) echo 2.1.197;; --help) {shown};; esac'
    found = await ask_version(str(program(tmp_path / "claude", body)), [], ENVIRONMENT, CLAUDE)
    assert (found.state, found.can_resume) == ("ready", able)


@pytest.mark.parametrize("broken", ["echo '--output-format'", "true", "exit 1"])
@pytest.mark.parametrize("resumes", [True, False])
async def test_a_help_text_that_was_cut_is_requested_again(tmp_path: Path, broken: str, resumes: bool) -> None:
    whole = f"echo '--output-format'; echo '{'--resume' if resumes else '--verbose'}'"
    again = f'if [ -e "{tmp_path}/asked" ]; then {whole}; else touch "{tmp_path}/asked"; {broken}; fi'
    body = f'case "$1" in --version) echo 2.1.197;; --help) {again};; esac'
    found = await ask_version(str(program(tmp_path / "claude", body)), [], ENVIRONMENT, CLAUDE)
    assert found.can_resume is resumes


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo no licence; exit 3", "It printed no version (exit code 3): no licence."),
        ("exit 1", "It printed no version (exit code 1): no output."),
        ("echo hello", "It printed no version (exit code 0): hello."),
    ],
)
async def test_a_program_that_prints_no_version_is_broken_for_now(tmp_path: Path, body: str, reason: str) -> None:
    found = await ask_version(str(program(tmp_path / "claude", body)), [], ENVIRONMENT)
    assert (found.state, found.reason, found.lasts) == ("broken", reason, False)


async def test_a_file_that_can_not_be_run_is_broken(tmp_path: Path) -> None:
    path = program(tmp_path / "claude", "")
    path.write_text("#!/no/such/interpreter\n")
    found = await ask_version(str(path), [], ENVIRONMENT)
    assert found.state == "broken" and "Can't run" in (found.reason or "")


async def test_a_program_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "VERSION_TIMEOUT_S", 3)
    hangs = program(tmp_path / "claude", f'sleep 600 & echo $! > "{tmp_path}/child"\nwait')
    found = await ask_version(str(hangs), [], ENVIRONMENT)
    assert (found.state, found.reason) == ("broken", f"`{hangs} --version` did not exit in 3 s.")
    child = (tmp_path / "child").read_text().strip()
    await asyncio.to_thread(eventually, lambda: not is_alive(child), "its children are gone")


def is_alive(pid: str) -> bool:
    """Whether the process is running; a zombie is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_the_arguments_are_part_of_the_probe(tmp_path: Path) -> None:
    runner = program(tmp_path / "npx", 'echo "$1" 3.2.1 "$2"')
    found = await ask_version(str(runner), ["some-claude"], ENVIRONMENT)
    assert found.version == "3.2.1"
    assert found.fingerprint == fingerprint_of(str(runner), ["some-claude"])
    assert found.fingerprint != fingerprint_of(str(runner), ["another"])


def test_a_fingerprint_follows_links_and_changes_with_the_file(tmp_path: Path) -> None:
    first, second = claude(tmp_path / "versions/1"), claude(tmp_path / "versions/2")
    link = tmp_path / "claude"
    link.symlink_to(first)
    before = fingerprint_of(str(link), [])
    assert before == fingerprint_of(str(first), [])
    touched(first)
    changed = fingerprint_of(str(link), [])
    link.unlink()
    link.symlink_to(second)
    assert len({before, changed, fingerprint_of(str(link), [])}) == 3
