"""Shell completion: commands, options, and values from the server, with a timeout."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.harness import eventually
from tests.surfaces.conftest import COMMAND_LIMIT_S, ServerProcess
from tests.surfaces.reviewing import Reviewed
from tests.surfaces.terminal import Terminal

BLACK_HOLE = "http://10.255.255.1:9"
"""An address that never responds."""
NOTICED_S = 10.0


def completed(server: ServerProcess, *words: str, shell: str = "bash") -> list[str]:
    """The completions of the last word, requested like a completion script does."""
    line = ["perdure", "--data", str(server.data), *words]
    environment = {
        **server.environment,
        "COMP_WORDS": "\n".join(line),
        "COMP_CWORD": str(len(line) - 1) if shell == "bash" else words[-1],
        "_PERDURE_COMPLETE": f"{shell}_complete",
    }
    done = subprocess.run(
        server.command()[:3],
        env=environment,
        cwd=server.folder,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
    )
    assert done.stderr == ""
    return [item.partition(",")[2] for item in done.stdout.splitlines() if item]


def completes(server: ServerProcess, words: list[str], expected: list[str]) -> None:
    """On a busy machine, the server may not answer within the timeout of a completion: retry."""
    found: list[list[str]] = []

    def look() -> bool:
        found.append(completed(server, *words))
        return found[-1] == expected

    eventually(look, lambda: f"{words} completes to {expected}, not {found[-1]}")


@pytest.fixture
def session(server: ServerProcess, tmp_path: Path) -> str:
    made = server.create(title="Known", workdir=str(tmp_path), labels=["release"])
    server.turn(made, "say hello")
    server.post("/api/projects", {"name": "Site", "path": str(tmp_path)}, expect=201)
    server.post("/api/jobs", {"name": "Report", "message": "say hi", "every_s": 3600}, expect=201)
    return made


@pytest.mark.full
def test_commands_and_options_are_completed(server: ServerProcess) -> None:
    assert completed(server, "arch") == ["archive"]
    assert {"chat", "queue", "completion"} <= set(completed(server, ""))
    assert completed(server, "queue", "w") == ["withdraw"]
    assert completed(server, "sessions", "--stat") == ["--state", "--status"]
    assert completed(server, "sessions", "--state", "i") == ["idle"]
    assert completed(server, "jobs", "p") == ["pause", "preview"]
    for command in (["add", "x"], ["edit", "x"]):
        assert completed(server, "jobs", *command, "--overlap", "") == ["wait", "skip", "interrupt"]
        assert completed(server, "jobs", *command, "--message", "") == []


@pytest.mark.full
def test_values_from_the_server_are_completed(server: ServerProcess, session: str) -> None:
    for words, expected in (
        (["show", ""], ["last", session]),
        (["queue", "list", ""], ["last", session]),
        (["archive", session, ""], ["last", session]),
        (["send", ""], ["last", session]),
        (["queue", "s_"], [session]),
        (["send", "last", "s_"], []),
        (["chat", "--agent", "rehearsal-"], ["rehearsal-resume", "rehearsal-stream"]),
        (["send", "--project", ""], ["site"]),
        (["projects", "si"], ["site"]),
        (["sessions", "--label", ""], ["release"]),
        (["model", "last", ""], ["rehearsal-1", "rehearsal-2"]),
        (["config", session, "e"], ["effort"]),
        (["config", session, "mode", ""], ["ask", "auto"]),
        (["rewind", session, ""], ["1"]),
        (["jobs", "re"], ["remove", "resume", "report"]),
        (["jobs", "run", ""], ["report"]),
        (["jobs", "add", "x", "--label", ""], ["release"]),
        (["jobs", "edit", "report", "--session", ""], ["new", "same", "last", session]),
    ):
        completes(server, words, expected)


@pytest.mark.full
@pytest.mark.needs("git")
def test_changed_files_and_operations_are_completed(server: ServerProcess, tmp_path: Path) -> None:
    reviewed = Reviewed(server, tmp_path / "site")
    reviewed.begin("edit a.txt", "edit b.txt")
    for words, expected in (
        (["changes", "last", ""], ["1", "2"]),
        (["changes", "last", "--file", ""], ["a.txt", "b.txt"]),
        (["changes", "last", "2", "--file", ""], ["b.txt"]),
        (["commit", "last", "a"], ["a.txt"]),
        (["commit", "last", "-m", ""], []),
        (["discard", "last", "b"], ["b.txt"]),
        (["discard", "last", "b.txt", "--outside", ""], ["overwrite"]),
        (["discard", "last", "b.txt", "--turn", ""], ["1", "2"]),
        (["restore", "last", "2", ""], ["b.txt"]),
        (["undo", "last", ""], []),
    ):
        completes(server, words, expected)
    done = reviewed.read("restore", "S", "2")
    completes(server, ["undo", "last", ""], [done["operation_id"]])


@pytest.mark.full
def test_without_a_response_nothing_is_completed_and_no_error_shown(server: ServerProcess) -> None:
    server.kill()
    assert completed(server, "show", "") == []
    began = time.monotonic()
    assert completed(server, "--url", BLACK_HOLE, "show", "") == []
    assert time.monotonic() - began < NOTICED_S, "the timeout is a second, not that of a connection"


@pytest.mark.full
@pytest.mark.needs("bash")
def test_the_tab_key_completes_a_session_in_bash(server: ServerProcess, session: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "perdure"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec " + " ".join(server.command()[:3]) + ' "$@"\n')
    program.chmod(0o755)
    environment = {**server.environment, "PS1": "$ ", "PERDURE_DATA": str(server.data), "INPUTRC": "/dev/null"}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    with Terminal(["bash", "--norc", "--noprofile", "-i"], environment, tmp_path) as shell:
        shell.enter('eval "$(perdure completion bash)"; echo rea""dy')
        shell.wait("\nready")
        shell.type(f"perdure renam\t{session[:6]}\t")
        shell.wait(f"perdure rename {session}")
        shell.enter("By the tab key")
        shell.wait(f"Renamed {session} to: By the tab key")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_is_printed(server: ServerProcess, shell: str) -> None:
    done = server.run("completion", shell)
    assert done.returncode == 0 and f"{shell}_complete" in done.stdout and "_PERDURE_COMPLETE" in done.stdout
    assert server.run("completion", "tcsh").returncode == 2
