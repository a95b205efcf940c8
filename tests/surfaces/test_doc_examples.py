"""The examples in the docs work: the walkthrough with curl, and every Python example."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.surfaces.conftest import COMMAND_LIMIT_S, ROOT, ServerProcess

SHOWN_URL = "http://127.0.0.1:7433"
WALKTHROUGH = ROOT / "docs" / "walkthrough.md"
# Ids differ each time.
IDS = re.compile(r"\b(s|m)_[0-9a-f]+\b")
BETWEEN = "-- next example --"


class Example(NamedTuple):
    page: Path
    line: int
    program: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def examples(language: str) -> list[Example]:
    """Every code block in this language."""
    return [
        Example(page, page.read_text("utf-8")[: block.start()].count("\n") + 1, block[1])
        for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
        for block in re.finditer(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    ]


@pytest.fixture
def at_home(server: ServerProcess) -> ServerProcess:
    """A server whose token is where the docs say. Only its address differs."""
    data = Path(server.environment["HOME"], ".local", "share", "perdure")
    data.parent.mkdir(parents=True)
    data.symlink_to(server.data)
    return server


@pytest.mark.needs("curl", "jq", "bash")
@pytest.mark.full  # it starts a dozen programs
def test_the_walkthrough_prints_what_it_shows(at_home: ServerProcess) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", WALKTHROUGH.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [kind == "sh" for kind, _ in blocks] == [True, False] * (len(blocks) // 2)
    commands, shown = ([text for _, text in blocks[start::2]] for start in (0, 1))
    script = f"\necho '{BETWEEN}'\n".join(commands).replace(SHOWN_URL, at_home.url)
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=at_home.folder,
        env=at_home.environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    given = [IDS.sub(r"\1_ID", part).strip() for part in done.stdout.split(BETWEEN)]
    assert given == [IDS.sub(r"\1_ID", part).strip() for part in shown]
    assert not list(at_home.folder.glob("*.json"))


@pytest.mark.full  # each starts Python and imports the client
@pytest.mark.parametrize("example", examples("python"), ids=lambda example: example.name)
def test_an_example_in_python_runs_as_written(at_home: ServerProcess, example: Example) -> None:
    if example.page.name == "history.md":
        # It changes the latest session.
        with at_home.client() as client:
            sent = client.send("say Use spaces", agent="rehearsal")
            assert any(event.type == "turn_end" for event in client.events(sent["session_id"], sent["seq"]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.program.replace(SHOWN_URL, at_home.url)],
        cwd=at_home.folder,
        env=at_home.environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_docs_have_python_examples() -> None:
    assert len(examples("python")) >= 4
