"""Real agents change files with their own tools: each turn's changes are exactly what git says, a denied edit is none,
and a rewind restores every file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import RealAgent
from tests.continuity import stage as continuity
from tests.continuity.agents import AGENTS
from tests.end_to_end.claude import columns
from tests.end_to_end.reviewing import answer, make_project, mark_of_hook, patch, paths, recorded
from tests.harness import NO_LIMITS, LiveServer, SharedServers, eventually, no_holes
from tests.model.server import running
from tests.runtime.git.project import Files, Project, git_modes

pytestmark = pytest.mark.timeout(600)

WAIT_S = 180.0
SHELL = (
    r"rm deep/er/gone.txt && mv old.txt kept.txt && printf 'a\000b\377' > new.bin && chmod 644 tool.sh && ln -s . here"
)
IGNORED = (b"build.log",)


class Scripts:
    """What the model is told to do, so that the agent uses its tools to write, edit, and run a command."""

    edit_tool = "Edit"

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, text: str) -> str:
        return f"write {self._root / name} {text}"

    def edit(self, name: str, old: str, new: str) -> str:
        given = {"file_path": str(self._root / name), "old_string": old, "new_string": new}
        return f"read {self._root / name}\ntool {self.edit_tool} {json.dumps(given)}"

    def run(self, command: str) -> str:
        return f"bash {command}"


class CodexScripts(Scripts):
    """It applies patches that look like a command. In its mode that asks, other commands need to be escalated."""

    def write(self, name: str, text: str) -> str:
        return self._patch(f"*** Add File: {name}\n+{text}")

    def edit(self, name: str, old: str, new: str) -> str:
        return self._patch(f"*** Update File: {name}\n@@\n-{old}\n+{new}")

    def run(self, command: str) -> str:
        return self._exec(command, sandbox_permissions="require_escalated", justification="scripted")

    def _patch(self, body: str) -> str:
        return self._exec(f"apply_patch <<'EOF'\n*** Begin Patch\n{body}\n*** End Patch\nEOF")

    @staticmethod
    def _exec(command: str, **more: str) -> str:
        return f"tool exec_command {json.dumps({'cmd': command, **more})}"


class VibeScripts(Scripts):
    edit_tool = "edit"


ACP = {"claude-acp": Scripts, "codex": CodexScripts, "vibe": VibeScripts}


class Scene(NamedTuple):
    server: LiveServer
    project: Project
    scripts: Scripts
    fields: dict[str, Any]
    """Those of its sessions."""


# Each cell takes half a minute, so `--all` runs one mode of claude and one agent over ACP.
MODES = [
    column if column.name == "real-stream" else pytest.param(column, marks=pytest.mark.slow) for column in columns.REAL
]
AGENTS_OVER_ACP = [name if name == "codex" else pytest.param(name, marks=pytest.mark.slow) for name in ACP]


@pytest.fixture(params=MODES, ids=lambda column: getattr(column, "name", None))
def claude(
    request: pytest.FixtureRequest,
    real_agent: Callable[[str], RealAgent],
    make_server: Callable[..., LiveServer],
    servers: SharedServers,
    tmp_path: Path,
) -> Iterator[Scene]:
    column: columns.Column = request.param
    with running() as model, servers.borrowed(LiveServer, NO_LIMITS) as shared:
        made = columns.Stage(column, tmp_path, lambda: shared, make_server, real_agent("claude"), model).serve()
        fields = {"agent": column.name, "workdir": str(made.workdir)}
        yield Scene(shared, make_project(made.workdir), Scripts(made.workdir), fields)


@pytest.fixture(params=AGENTS_OVER_ACP)
def acp(
    request: pytest.FixtureRequest,
    real_agent: Callable[[str], RealAgent],
    servers: SharedServers,
    tmp_path: Path,
) -> Iterator[Scene]:
    agent = AGENTS[request.param]
    with continuity.stage(agent, real_agent(agent.name), servers, tmp_path) as made:
        fields = {"agent": agent.name, "workdir": str(made.workdir)}
        if agent.asking_mode:
            fields["mode"] = agent.asking_mode
        yield Scene(made.server, make_project(made.workdir), ACP[agent.name](made.workdir), fields)


def say(server: LiveServer, session: str, text: str) -> Any:
    """Send a message, allow what the agent asks for unless it is about a file that is to be denied, and wait until the
    turn's changes are recorded."""
    number = server.send(session, text)["turn"]
    answered: set[str] = set()

    def is_over() -> bool:
        for prompt in server.get(f"/api/sessions/{session}/prompts")["prompts"]:
            if prompt["prompt_id"] not in answered:
                wanted = "reject_once" if "denied" in json.dumps(prompt) else "allow_once"
                answer(server, session, prompt, wanted)
                answered.add(prompt["prompt_id"])
        return bool(server.session(session)["state"] == "idle")

    eventually(is_over, lambda: f"turn {number} ends; {server.account(session)}", WAIT_S)
    return recorded(server, session, number)


def seen(project: Project) -> Files:
    """The files that snapshots have."""
    return {path: file for path, file in git_modes(project.files()).items() if path not in IGNORED}


def kept(project: Project) -> dict[str, Any]:
    """What belongs to the person. The agent itself may refresh the times in the index."""
    private: dict[str, Any] = project.private_parts()
    private["index"] = project.git("ls-files", "--stage")
    return {**private, "build.log": project.read("build.log")}


def check(scene: Scene) -> None:
    server, project, scripts = scene.server, scene.project, scene.scripts
    before = kept(project)
    session = server.create(**scene.fields)
    url = f"/api/sessions/{session}"
    states = [seen(project)]
    turns = [
        scripts.write("new.txt", "written"),
        scripts.edit("numbers.txt", "number 7", "the seventh"),
        scripts.run(SHELL) + "\n" + scripts.write("denied.txt", "never"),
    ]
    expected = [
        {"new.txt": "added"},
        {"numbers.txt": "modified"},
        {
            "deep/er/gone.txt": "deleted",
            "kept.txt": "renamed",
            "new.bin": "added",
            "tool.sh": "modified",
            "here": "added",
        },
    ]
    for number, text in enumerate(turns, 1):
        found = say(server, session, f"{text}\nsay done")
        states.append(seen(project))
        account = server.account(session)
        assert paths(found) == expected[number - 1], account
        ref = f"refs/perdure/{session}/{number}"
        assert project.recorded(f"{ref}^") == states[number - 1]
        assert project.recorded(ref) == states[number]
        assert patch(server, session, f"?turn={number}") == project.git("diff", f"{ref}^", ref), account
        assert found["outside"] == [] and not found["truncated"]
    denied = [event for event in server.log(session) if event["type"] == "prompt_resolved"][-1]
    assert denied["outcome"] == "denied"
    assert "denied.txt" not in [file["path"] for file in server.get(f"{url}/changes")["files"]]
    assert kept(project) == before
    rewound = server.post(f"{url}/rewind", {"turn": 2, "files": "restore"}, expect=200)
    assert rewound["operation"]["outcome"] == "done" and rewound["operation"]["skipped"] == []
    assert seen(project) == states[1]
    assert [one["turn"] for one in server.transcript(session)] == [1]
    found = say(server, session, scripts.run("echo again >> new.txt") + "\nsay again")
    assert paths(found) == {"new.txt": "modified"}
    server.post(f"{url}/rewind", {"turn": 1, "files": "restore"}, expect=200)
    assert seen(project) == states[0]
    assert kept(project) == before
    assert not mark_of_hook(project).exists()
    no_holes(server.log(session))


def test_what_the_real_claude_changes_is_recorded_exactly_and_restored(claude: Scene) -> None:
    check(claude)


def test_what_a_real_agent_changes_over_acp_is_recorded_exactly_and_restored(acp: Scene) -> None:
    check(acp)
