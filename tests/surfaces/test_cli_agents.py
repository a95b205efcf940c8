"""`perdure agents`: list, add to perdure.toml and test, with real agents if they are installed."""

import json
import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.config import load
from perdure.runtime.agents.catalogue import CATALOGUE
from perdure.surfaces.cli import agent_section
from perdure.surfaces.cli.reach import Failure
from tests.conftest import RealAgent
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal

FILE = """\
# My own words stay.
[server]
slots   =   7       # and my layout
[projects.site]
path = "/srv"
"""
TRIAL_LIMIT_S = 150


@pytest.fixture
def alone(tmp_path: Path) -> ServerProcess:
    """Commands on a data directory without a server."""
    return ServerProcess(tmp_path / "data", "")


def tried(server: ServerProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        server.command("agents", "test", *arguments),
        capture_output=True,
        text=True,
        timeout=TRIAL_LIMIT_S,
        env=server.environment,
        cwd=server.folder,
    )


# Listing --------------------------------------------------------------------------------------------------------------


def test_all_also_lists_agents_that_can_be_added(server: ServerProcess) -> None:
    assert "perdure agents add goose" not in server.run("agents").stdout
    listed = server.run("agents", "--all").stdout
    assert "perdure agents add codex" in listed
    shown = json.loads(server.run("agents", "--all", "--json").stdout)
    assert {entry["name"] for entry in shown["catalogue"]} == set(CATALOGUE)


def test_a_long_reason_does_not_truncate_names_and_states(server: ServerProcess) -> None:
    with server.client() as client:
        agents = client.agents()
    with Terminal(server.command("agents", "--all"), server.environment, server.folder) as terminal:
        assert terminal.wait_end() == 0
        rows = [line.split() for line in terminal.text.splitlines()]
        for agent in agents:
            assert [agent["name"], agent["state"], agent["driver"]] in [row[:3] for row in rows]
        assert "…" not in terminal.text


def test_the_sessions_of_one_agent_are_listed_under_it(server: ServerProcess) -> None:
    made = server.run("send", "--new", "--agent", "rehearsal", "--json", "say hello").stdout
    listed = json.loads(server.run("agents", "sessions", "rehearsal", "--json").stdout)
    assert json.loads(made)["session_id"] in [entry["id"] for entry in listed["sessions"]]
    assert json.loads(server.run("agents", "sessions", "rehearsal-stream", "--json").stdout)["sessions"] == []


def test_naming_an_agent_shows_only_that_agent(server: ServerProcess) -> None:
    assert "perdure.rehearsal --acp" in server.run("agents", "rehearsal").stdout
    for words in (["rehearsal", "--json"], ["--json", "rehearsal"], ["show", "rehearsal", "--json"]):
        assert json.loads(server.run("agents", *words).stdout)["state"] == "ready"
    missing = server.run("agents", "nobody")
    assert missing.returncode == 1 and "(not_found)" in missing.stderr
    assert "perdure agents add codex" in server.run("agents", "codex").stderr


# Adding ---------------------------------------------------------------------------------------------------------------


def test_an_agent_is_appended_and_the_rest_of_the_file_is_unchanged(alone: ServerProcess) -> None:
    alone.data.mkdir(mode=0o700)
    file = alone.data / "perdure.toml"
    file.write_text(FILE.rstrip("\n"))
    file.chmod(0o640)
    added = alone.run("agents", "add", "qwen")
    assert added.returncode == 0, added.stderr
    text = file.read_text()
    assert text.startswith(FILE) and file.stat().st_mode & 0o777 == 0o640
    agent = load(file).agents["qwen"]
    assert (agent.driver, agent.mode) == ("acp", "default")
    assert "@qwen-code/qwen-code@" in " ".join(agent.command)
    again = alone.run("agents", "add", "qwen")
    assert again.returncode == 1 and "already" in again.stderr
    assert file.read_text() == text


def test_a_new_file_is_private_and_a_custom_agent_keeps_its_command(alone: ServerProcess) -> None:
    added = alone.run("agents", "add", "my agent", "--command", "my-agent --greet 'good \"day\"'")
    assert added.returncode == 0, added.stderr
    file = alone.data / "perdure.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert load(file).agents["my agent"].command == ["my-agent", "--greet", 'good "day"']
    assert [path.name for path in alone.data.iterdir()] == ["perdure.toml"]


def test_a_running_server_loads_an_added_agent_immediately(server: ServerProcess) -> None:
    added = server.run("agents", "add", "mine", "--command", "sh -c true")
    assert "The server has loaded it" in added.stdout
    assert json.loads(server.run("agents", "mine", "--json").stdout)["command"] == ["sh", "-c", "true"]
    with (server.data / "perdure.toml").open("a") as file:
        file.write("[agents.broken]\n")
    refused = server.run("agents", "add", "codex")
    assert refused.returncode == 1 and "Nothing changed" in refused.stderr
    assert json.loads(server.run("agents", "mine", "--json").stdout)["name"] == "mine"


def test_an_agent_outside_the_catalogue_needs_a_command(alone: ServerProcess) -> None:
    unknown = alone.run("agents", "add", "nobody")
    assert unknown.returncode == 1 and "--command" in unknown.stderr
    assert alone.run("agents", "add", "nobody", "--command", "'").returncode == 2
    assert not (alone.data / "perdure.toml").exists()


@pytest.mark.parametrize("text", ['agents = { a = { driver = "acp", command = ["a"] } }\n', "[agents\n"])
def test_a_file_that_cannot_be_extended_is_unchanged(tmp_path: Path, text: str) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text(text)
    with pytest.raises(Failure):
        agent_section.append(file, "mine", agent_section.of_command("mine", ["mine"]))
    assert file.read_text() == text


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("")
    (tmp_path / "perdure.toml").symlink_to(tmp_path / "real.toml")
    agent_section.append(tmp_path / "perdure.toml", "mine", agent_section.of_command("mine", ["mine"]))
    assert (tmp_path / "perdure.toml").is_symlink()
    assert "mine" in load(tmp_path / "real.toml").agents


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_catalogue_agent_yields_a_valid_section(name: str, tmp_path: Path) -> None:
    entry = CATALOGUE[name]
    agent_section.append(tmp_path / "perdure.toml", name, agent_section.of_entry(entry))
    agent = load(tmp_path / "perdure.toml").agents[name]
    assert (agent.driver, agent.env, agent.mode) == (entry.driver, entry.env, entry.mode)
    assert tuple(agent.command) in (entry.command, entry.installed)


# Testing an agent -----------------------------------------------------------------------------------------------------


def test_an_agent_is_tested_through_the_running_server_and_leaves_no_session(server: ServerProcess) -> None:
    done = tried(server, "rehearsal", "--turn", "say hello there\npermit Bash")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "using a temporary server" not in done.stdout
    for words in ("session opened in", "modes: ask, auto", "denied: Run Bash", "  hello there", "\nok\n"):
        assert words in done.stdout
    assert json.loads(server.run("sessions", "--json").stdout)["sessions"] == []


@pytest.mark.parametrize(
    "name", ["rehearsal", *(pytest.param(f"rehearsal-{mode}", marks=pytest.mark.full) for mode in ("stream", "resume"))]
)
def test_without_a_server_an_agent_is_tested_with_a_temporary_one(alone: ServerProcess, name: str) -> None:
    done = tried(alone, name, "--turn", "say yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] and result["turn"]["text"] == "yes"
    assert not alone.data.exists()


@pytest.mark.full
def test_a_failed_test_says_why_and_exits_1(alone: ServerProcess) -> None:
    alone.run("agents", "add", "mute", "--command", "sh -c 'echo no licence >&2; exit 3'")
    mute = tried(alone, "mute")
    assert mute.returncode == 1
    assert "exit code 3" in mute.stdout and "no licence" in mute.stdout
    missing = tried(alone, "claude")
    assert missing.returncode == 1 and "npm install -g @anthropic-ai/claude-code" in missing.stdout
    crashed = tried(alone, "rehearsal", "--turn", "crash 3")
    assert crashed.returncode == 1 and "failed: The agent exited (exit code" in crashed.stdout
    assert tried(alone, "nobody").returncode == 1


@pytest.mark.full
def test_a_test_ends_at_its_timeout(alone: ServerProcess) -> None:
    # The timeout includes the start.
    hangs = tried(alone, "rehearsal", "--turn", "hang", "--timeout", "12")
    assert hangs.returncode == 1 and "did not end within 12 s" in hangs.stdout


OFFLINE: dict[str, dict[str, str]] = {
    "claude": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "CLAUDE_CODE_MAX_RETRIES": "0"},
    "claude-acp": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1"},
    "hermes": {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", sorted(OFFLINE))
def test_a_real_agent_is_tested(name: str, real_agent: Callable[[str], RealAgent], alone: ServerProcess) -> None:
    agent = real_agent(name)
    environment = {"HOME": str(alone.folder), "PATH": os.environ["PATH"], **OFFLINE[name], **agent.env}
    if name == "hermes":
        environment["HERMES_HOME"] = str(alone.folder)
        (alone.folder / "config.yaml").write_text(
            "model:\n  default: none\n  provider: custom\n  base_url: http://127.0.0.1:9/v1\n"
        )
    settings: dict[str, Any] = {"driver": "claude" if name == "claude" else "acp", "command": agent.argv}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in environment.items())
    config = alone.folder / "trial.toml"
    config.write_text("\n".join([f"[agents.{name}]", *lines, f"env = {{ {pairs} }}"]) + "\n")
    assert tomllib.loads(config.read_text())
    done = tried(alone, name, "--config", str(config), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] and result["version"] and result["modes"]
