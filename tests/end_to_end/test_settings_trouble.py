"""Partly invalid settings: the server starts if it can, and both the server and the doctor say what to do."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import NO_LIMITS, LiveServer

PROJECTS = """
[projects.sound]
path = "{here}"

[projects.moved]
path = "{here}/not-there"

[projects.misspelt]
path = "{here}"
agent = "cluade"
"""


def doctor(server: LiveServer) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "perdure", "--data", str(server.data), "doctor"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=server.start_environment)


@pytest.mark.smoke
def test_a_project_with_a_missing_path_or_an_unknown_agent_is_reported_and_stops_nothing(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    server = make_server(NO_LIMITS + PROJECTS.format(here=tmp_path))
    assert server.turn(server.create(project="sound"), "say one")["stop_reason"] == "end_turn"
    said = server.errors.read_text()
    found = doctor(server)
    assert found.returncode == 1
    for told in (said, found.stdout):
        assert f"project moved: its path {str(tmp_path / 'not-there')!r} is not a directory" in told
        assert "project misspelt: There is no agent 'cluade'" in told
        assert "project sound" not in told


def test_a_project_created_over_the_api_is_checked_too(make_server: Callable[..., LiveServer], tmp_path: Path) -> None:
    server = make_server(f"{NO_LIMITS}[agents.left]\ndriver = 'acp'\ncommand = ['none']\n")
    for name, fields in (("sound", {}), ("gone", {}), ("inside", {}), ("alone", {"agent": "left"})):
        (tmp_path / name).mkdir()
        server.post("/api/projects", {"name": name, "path": str(tmp_path / name), **fields}, expect=201)
    server.stop()
    (tmp_path / "gone").rmdir()
    (tmp_path / "inside").rmdir()
    (tmp_path / "inside").symlink_to(server.data)
    (server.data / "perdure.toml").write_text(NO_LIMITS)
    before = doctor(server).stdout
    server.start()
    for told in (before, server.errors.read_text(), doctor(server).stdout):
        missing = f"project gone: its path {str(tmp_path / 'gone')!r} is not a directory. Create it, or set another"
        assert f"{missing} with PATCH /api/projects/gone. Until then, no session can start in the project." in told
        assert f"project inside: its path {str(tmp_path / 'inside')!r} is in Perdure's data directory" in told
        assert "project alone: There is no agent 'left'" in told
        assert "Choose another on the page, or with PATCH /api/projects/alone." in told
        assert "project sound" not in told and "perdure.toml. Until" not in told
    # The warning is correct.
    assert {"alone", "gone", "inside"} < {project["id"] for project in server.get("/api/projects")["projects"]}
    for project, status in (("gone", 400), ("inside", 400), ("alone", 404)):
        server.post("/api/sessions", {"project": project}, expect=status)
    server.create(project="alone", agent="rehearsal")


def test_the_doctor_says_what_is_wrong_with_a_broken_configuration(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", "[server]\nslotz = 3\n")
    found = doctor(server)
    assert found.returncode == 1
    assert "slotz" in found.stdout and "docs/settings.md" in found.stdout
    (server.data / "perdure.toml").write_text("[server\n")
    assert "is not valid TOML" in doctor(server).stdout
    (server.data / "perdure.toml").write_text("[server]\nagent = 'nobody'\n")
    assert "The setting server.agent is not valid. There is no agent 'nobody'" in doctor(server).stdout
    (server.data / "perdure.toml").write_text("[server]\ndisk_floor_mb = 900000000\n")
    assert "problem   free space" in doctor(server).stdout
    (server.data / "perdure.toml").unlink()
    problems = [line for line in doctor(server).stdout.split("\n") if line.startswith("problem")]
    assert not any("perdure.toml" in line or "settings" in line for line in problems)
