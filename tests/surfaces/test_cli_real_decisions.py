"""Permission requests of real agents with a scripted model, in a real terminal."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RealAgent
from tests.continuity.agents import AGENTS, Place, environment
from tests.model.claude_process import environment as claude_environment
from tests.model.server import ModelServer, running
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
WAIT_S = 150.0
APP = (
    'import sys\n\n\ndef main():\n\tif sys.argv:\n\t\treturn 1\n\treturn 0\n\n\nif __name__ == "__main__":\n\tmain()\n'
)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with running() as server:
        yield server


@pytest.fixture
def work(server: ServerProcess) -> Path:
    folder = server.folder / "work"
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    return folder


def add(server: ServerProcess, name: str, driver: str, agent: RealAgent, env: dict[str, str]) -> None:
    shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in {**env, **agent.env}.items())
    server.add_agents(
        f'[agents.{name}]\ndriver = "{driver}"\ncommand = {json.dumps(agent.argv)}\nenv = {{ {shown} }}\n'
    )


def tool(name: str, **given: Any) -> str:
    return f"tool {name} {json.dumps(given)}"


def talk(server: ServerProcess, *arguments: str) -> Terminal:
    return Terminal(server.command("chat", *arguments), server.environment, server.folder)


def test_claude_shows_edits_and_commands_before_and_after(
    server: ServerProcess, real_agent: Callable[[str], RealAgent], model: ModelServer, work: Path
) -> None:
    home = server.folder / "home"
    home.mkdir()
    add(server, "real", "claude", real_agent("claude"), claude_environment(model, home))
    app = str(work / "app.py")
    with talk(server, "--agent", "real", "--workdir", str(work)) as chat:
        chat.wait("New session")
        chat.enter(tool("Read", file_path=app))
        chat.wait("Turn 1,", WAIT_S)
        change = tool("Edit", file_path=app, old_string="\t\treturn 1", new_string="\t\treturn 2\n\t\tpass")
        chat.enter(change)
        chat.wait("y/a/n>", WAIT_S)
        shown = "   5      if sys.argv:\n   6 -        return 1\n   6 +        return 2\n   7 +        pass\n"
        assert "Permission: edit app.py  +2 -1\n" in chat.text and shown in chat.text
        assert "  2 a  Allow all edits in this session\n" in chat.text
        chat.enter("n use a constant")
        chat.wait("Denied: app.py", WAIT_S)
        chat.wait("Turn 2,", WAIT_S)
        assert "use a constant" in chat.text and Path(app).read_text() == APP
        chat.enter(change)
        chat.wait("Permission: edit app.py", WAIT_S)
        chat.wait("y/a/n>")
        chat.enter("y")
        chat.wait("> Edited app.py +2 -1", WAIT_S)
        # With tabs, which the agent's own patch lacks.
        chat.wait("  6 +        return 2\n  7 +        pass\n  8      return 0\n", WAIT_S)
        chat.wait("Turn 3,", WAIT_S)
        chat.enter(tool("Write", file_path=app, content=APP.replace("0", "3")))
        chat.wait("Permission: edit app.py  +2 -3\n", WAIT_S)
        chat.wait("y/a/n>")
        chat.enter("n")
        chat.wait("Turn 4,", WAIT_S)
        chat.enter(tool("Bash", command="touch made\nfor i in $(seq 40); do\n\techo line $i\ndone"))
        chat.wait("  touch made\n  for i in $(seq 40); do\n      echo line $i\n  done\n", WAIT_S)
        chat.wait("y/n>", WAIT_S)
        chat.enter("y")
        chat.wait("  line 3\n  ... 34 lines (Ctrl-O shows all) ...\n  line 38\n", WAIT_S)
        chat.wait("Turn 5,", WAIT_S)
        chat.type("\x0f")
        chat.wait("  line 20\n")


def test_always_says_what_claude_would_allow(
    server: ServerProcess, real_agent: Callable[[str], RealAgent], model: ModelServer, work: Path
) -> None:
    home = server.folder / "home"
    home.mkdir()
    add(server, "real", "claude", real_agent("claude"), claude_environment(model, home))
    with talk(server, "--agent", "real", "--workdir", str(work)) as chat:
        chat.wait("New session")
        chat.enter("bash touch made")
        chat.wait("  2 a  Allow for this session: Bash(touch", WAIT_S)


def test_codex_shows_the_change_of_a_patch(
    server: ServerProcess, real_agent: Callable[[str], RealAgent], model: ModelServer, work: Path
) -> None:
    codex = AGENTS["codex"]
    home = server.folder / "home"
    home.mkdir()
    add(server, "real", "acp", real_agent("codex"), environment(codex, Place(model.url, home, work)))
    session = server.create(agent="real", workdir=str(work), mode=codex.asking_mode)
    patch = (
        "*** Begin Patch\n*** Update File: app.py\n@@\n-\treturn 0\n+\treturn 9\n*** Add File: new.txt\n+hello\n"
        "*** End Patch\n"
    )
    with talk(server, session) as chat:
        chat.wait("Idle")
        chat.enter(tool("exec_command", cmd=f"apply_patch <<'EOF'\n{patch}EOF\n"))
        chat.wait("y/a/n>", WAIT_S)
        assert "Permission: edit 2 files  +2 -1\n  app.py  +1 -1\n" in chat.text
        assert "   7 -    return 0\n   7 +    return 9\n" in chat.text and "  new.txt  +1 -0\n  1 +hello\n" in chat.text
        assert "  2 a  Yes, and don't ask again for these files\n" in chat.text
        chat.enter("y")
        chat.wait("> Edited app.py and 1 more +2 -1", WAIT_S)
        chat.wait("Turn 1,", WAIT_S)
    assert (work / "app.py").read_text() == APP.replace("0", "9") and (work / "new.txt").read_text() == "hello\n"
