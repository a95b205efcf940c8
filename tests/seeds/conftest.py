"""A server with the settings of a docs page, read from the block in the page itself.

Only the project's directory and the agent's program are replaced; the rehearsal agent stands in for the agent. So a
block that does not start a server, or does not give clients what the page promises, fails here.
"""

import contextlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import SOURCE, LiveServer

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REHEARSAL = {"acp": "--acp"}
"""The rehearsal dialect for an agent's driver; Claude's by default."""

Serve = Callable[..., LiveServer]


def block_of(page: str) -> str:
    """The page's only block of settings."""
    [block] = BLOCK.findall((DOCS / page).read_text("utf-8"))
    return str(block)


def here(block: str, folder: Path) -> str:
    """The block, with directories and programs of this machine."""
    config = tomllib.loads(block)
    for name, project in config.get("projects", {}).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        block = block.replace(f'"{project["path"]}"', f'"{folder / name}"')
    projects = config.get("projects", {}).values()
    named = {config["server"]["agent"], *(project["agent"] for project in projects if "agent" in project)}
    for name in named - set(config.get("agents", {})):
        block += f'\n[agents.{name}]\ndriver = "claude"\ncommand = ["{name}"]\n'
    for name, agent in tomllib.loads(block)["agents"].items():
        argv = [sys.executable, "-m", "perdure.rehearsal", REHEARSAL.get(agent["driver"], "--claude")]
        # IS_SANDBOX: as root, Claude Code and its stand-in refuse to run without asking.
        env = {"PYTHONPATH": SOURCE, "PERDURE_REHEARSAL_DIR": str(folder / "rehearsal" / name), "IS_SANDBOX": "1"}
        written = ", ".join(f'{key} = "{value}"' for key, value in env.items())
        command = re.compile(rf"(\[agents\.{re.escape(name)}\][^\[]*?)^command = .*?$", re.MULTILINE | re.DOTALL)
        block, count = command.subn(rf"\g<1>command = {argv!r}\nenv = {{ {written} }}".replace("'", '"'), block)
        assert count == 1, f"agents.{name} has no command on a line of its own"
    return block


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """`serve("teamhq.md")`: a real server with that page's settings, only for this test."""
    with contextlib.ExitStack() as ended:

        def start(page: str, **env: str) -> LiveServer:
            server = LiveServer(tmp_path / "data", here(block_of(page), tmp_path), env)
            ended.callback(server.finish)
            return server.start()

        yield start
