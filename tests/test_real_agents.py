"""Real agents, as installed by `./run agents`: tests of a missing one are skipped with the reason."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.runtime.agents.catalogue import CATALOGUE
from tests.conftest import ROOT, RealAgent, find_agent
from tests.continuity.agents import AGENTS, CI_AGENTS


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


def test_every_agent_that_is_measured_can_be_installed_and_those_of_ci_by_default() -> None:
    script = runpy.run_path(str(ROOT / "run"))
    pinned = {**script["NODE_AGENTS"], **script["PYTHON_AGENTS"]}
    assert AGENTS.keys() <= pinned.keys()
    assert set(CI_AGENTS) <= set(script["USUAL_AGENTS"]) <= pinned.keys()


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_measured_is_what_the_catalogue_offers(name: str) -> None:
    script = runpy.run_path(str(ROOT / "run"))
    packages = {**script["NODE_AGENTS"], **script["PYTHON_AGENTS"]}[name]["packages"]
    assert set(packages) & set(CATALOGUE[name].command)


def test_an_unknown_agent_is_named_with_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "run"), "agents", "nobody"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "'nobody'" in done.stderr and "codex" in done.stderr
