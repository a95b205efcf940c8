"""A desk for each test, with a scripted model behind real agents. Everything that a desk starts ends with the test."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RealAgent
from tests.first_minutes.desk import Desk
from tests.model.server import running

MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(real_agent: Callable[[str], RealAgent]) -> Iterator[MakeDesk]:
    """`make_desk("claude", "codex")`: these are on PATH; the recording is named after the first."""
    made: list[Desk] = []
    # A short, realistic path: it appears on every screen.
    with tempfile.TemporaryDirectory(prefix="desk-") as folder, running() as model:

        def make(*names: str) -> Desk:
            agents = {name: real_agent(name) for name in names}
            made.append(Desk(Path(folder), model.url, agents, names[0]))
            return made[-1]

        yield make
        for desk in made:
            desk.close()
