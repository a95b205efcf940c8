"""Real agents, as `./run agents` installs them: a missing one is skipped with its reason."""

import json
from pathlib import Path

from tests.conftest import RealAgent, find_agent


def test_an_agent_that_was_never_installed_has_a_reason(tmp_path: Path) -> None:
    assert find_agent("nobody", tmp_path) == "the agent nobody is not installed (./run agents)"


def test_an_agent_that_failed_to_install_passes_its_reason_on(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"reason": "no network"}')
    assert find_agent("broken", tmp_path) == "the agent broken could not be installed: no network"


def test_an_agent_whose_files_are_gone_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text(json.dumps({"argv": [str(tmp_path / "agent")], "env": {}}))
    assert find_agent("gone", tmp_path) == "the agent gone is no longer there (./run agents)"
    (tmp_path / "agent").touch()
    assert find_agent("gone", tmp_path) == RealAgent([str(tmp_path / "agent")], {})
