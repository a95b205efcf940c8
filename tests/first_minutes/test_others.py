"""The first minutes with other agents: see a change, deny it, allow it; leave and return."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.continuity.agents import AGENTS
from tests.first_minutes.desk import GREETING, Desk

pytestmark = [pytest.mark.full, pytest.mark.needs("tmux", "git"), pytest.mark.timeout(900)]
NAMES = ("codex", "opencode", "gemini", "qwen")
AGENTS_PARAMS = [pytest.param(name, marks=[] if AGENTS[name].in_ci else pytest.mark.slow) for name in NAMES]


def edit(agent: str, file: str, new: str) -> list[str]:
    """The model's script that changes one line of the greeting."""
    old, new = '        print("hello", name)', f'        print("{new}", name)'
    if agent == "codex":
        patch = f"*** Begin Patch\n*** Update File: {file}\n@@\n-{old}\n+{new}\n*** End Patch\n"
        return [tool("exec_command", cmd=f"apply_patch <<'EOF'\n{patch}EOF\n")]
    names = {
        "opencode": ("edit", "filePath", "oldString", "newString"),
        "gemini": ("replace", "file_path", "old_string", "new_string"),
        "qwen": ("edit", "file_path", "old_string", "new_string"),
    }
    name, path, before, after = names[agent]
    more = {"instruction": "Greet"} if agent == "gemini" else {}
    return [f"read {file}", tool(name, **{path: file, before: old, after: new, **more})]


def tool(name: str, **given: Any) -> str:
    return f"tool {name} {json.dumps(given)}"


@pytest.mark.parametrize("agent", AGENTS_PARAMS)
def test_the_first_minutes(agent: str, make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(agent)
    tmux, file = desk.tmux, str(desk.file)
    tmux.enter(f"perdure chat --agent {agent}")
    tmux.wait(f"New session {agent}")
    tmux.wait(f"Perdure: {agent}, its default model, in ~/shop", "New session. /help lists")
    tmux.keep("start")
    tmux.enter_lines(*edit(agent, file, "good morning"), "say That was the greeting.")
    tmux.wait("y/a/n>")
    tmux.wait(
        "Permission: edit greeting.py  +1 -1\n  1  def greet(name):\n  2      if name:\n",
        '  3 -        print("hello", name)\n  3 +        print("good morning", name)\n',
    )
    tmux.keep("change")
    tmux.enter("n say good evening instead")
    # The protocol has no field for a reason, so the chat puts it into the input. Some agents then end the turn.
    tmux.wait(lambda screen: f"\nIdle {agent}" in screen and "\n> say good evening instead" in screen)
    tmux.wait(
        "Denied. Reason: say good evening instead\n", "Denied: greeting.py\n", "The agent did not receive your reason"
    )
    tmux.keep("denied")
    assert desk.file.read_text() == GREETING
    tmux.press("Enter")
    tmux.wait("Turn 2,")
    tmux.enter_lines(*edit(agent, file, "good evening"), "say That was the greeting.")
    tmux.wait("y/a/n>")
    tmux.enter("y")
    tmux.wait("Turn 3,")
    tmux.wait("Allowed.\n> Edited greeting.py +1 -1", "\nThat was the greeting.\n")
    tmux.keep("allowed")
    assert desk.file.read_text() == GREETING.replace("hello", "good evening")
    tmux.press("C-d")
    screen = tmux.wait_shell()
    tmux.keep("left")
    [session] = re.findall(r"To come back: perdure chat (\S+)\n", screen)
    tmux.clear()
    tmux.enter(f"perdure chat {session}")
    tmux.wait(lambda screen: f"\nIdle {agent}" in screen and "Turn 3," in screen)
    tmux.keep("back")
    assert f"Session {session}. /help lists keys and commands." in tmux.everything
    tmux.enter("say Welcome back.")
    tmux.wait("Turn 4,")
    tmux.wait("\nYou: say Welcome back.\n", "\nWelcome back.\n")
    tmux.keep("end")
