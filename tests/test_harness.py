"""What the tests rely on: shared servers are empty, warm commands work like others, the fast run covers every kind."""

import itertools
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import sizes, warm
from tests.conftest import ROOT, WHOLE_SYSTEM, has_sizes, kind_left_out, long_ones_first, why_left_out
from tests.harness import NO_LIMITS, LiveServer, SharedServers, marked_processes, none_left
from tests.isolation import AGENT_PROGRAMS, path_without

AGENT = '[agents.mine]\ndriver = "acp"\ncommand = ["sh", "-c", "true"]\n'
# These files test behaviour of real agents only, so none of their tests can be in the fast run.
REAL_ONLY = {
    "end_to_end/test_real_agents.py",
    "end_to_end/test_reviewing_real_agents.py",
    "end_to_end/claude/test_configuration.py",
    "end_to_end/claude/test_images.py",
    "end_to_end/claude/test_mcp.py",
    "end_to_end/claude/test_replay.py",
    "end_to_end/claude/test_slash_commands.py",
    "end_to_end/claude/test_teams.py",
}


def test_a_returned_server_has_nothing_left_of_the_test(servers: SharedServers, tmp_path: Path) -> None:
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        data, before = server.data, server.get("/api/agents")
        server.add_agents(AGENT)
        server.post("/api/projects", {"name": "site", "path": str(tmp_path)}, expect=201)
        ended, running = server.create(project="site"), server.create()
        server.turn(ended, "usage 10 20\nsay kept nowhere")
        server.post(f"/api/sessions/{ended}/stop", expect=200)
        server.send(running, "hang")
        assert "mine" in [agent["name"] for agent in server.get("/api/agents")["agents"]]
        server.kill()
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        assert server.data == data
        assert server.get("/api/sessions?limit=1000")["sessions"] == []
        assert server.get("/api/projects")["projects"] == []
        assert server.get("/api/usage")["usage"] == []
        assert [agent["name"] for agent in server.get("/api/agents")["agents"]] == [
            agent["name"] for agent in before["agents"]
        ]
        assert not marked_processes(data)


def test_two_concurrent_borrowers_get_a_server_each(servers: SharedServers) -> None:
    with servers.borrowed(LiveServer, NO_LIMITS) as first, servers.borrowed(LiveServer, NO_LIMITS) as second:
        assert first.url != second.url


def test_a_server_that_can_not_be_emptied_is_not_lent_again(servers: SharedServers) -> None:
    class Stubborn(LiveServer):
        def clear(self) -> None:
            raise AssertionError("a process is left")

    first = servers.borrow(Stubborn, NO_LIMITS)
    first.send(first.create(), "hang")
    with pytest.raises(AssertionError, match="a process is left"):
        servers.give_back(first)
    none_left(first.data)
    second = servers.borrow(Stubborn, NO_LIMITS)
    assert second.data != first.data
    second.destroy()


def test_a_warm_command_has_its_own_streams_environment_directory_and_exit_code(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERDURE_DATA": "here"}
    done = warm.run(["sessions"], stdin="", env=environment, cwd=tmp_path, timeout_s=30)
    assert (done.returncode, done.stdout) == (3, "")
    assert str(tmp_path / "here") in done.stderr
    asked = warm.run(["--version"], stdin="", env=environment, cwd=tmp_path, timeout_s=30)
    assert (asked.returncode, asked.stderr) == (0, "") and asked.stdout.startswith("perdure ")


@pytest.mark.full
def test_a_warm_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(["serve", "--port", "0", "--data", "data"], stdin="", env=dict(os.environ), cwd=tmp_path, timeout_s=2)


def test_no_coding_agent_of_this_machine_is_found_by_a_test(servers: SharedServers) -> None:
    assert not [program for program in AGENT_PROGRAMS if shutil.which(program)]
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        ready = {agent["name"] for agent in server.get("/api/agents")["agents"] if agent["state"] == "ready"}
        assert ready == {"rehearsal", "rehearsal-stream", "rehearsal-resume"}


def test_a_directory_of_the_path_keeps_all_but_the_agents_in_it(tmp_path: Path) -> None:
    programs, other = tmp_path / "bin", tmp_path / "other"
    for place in (programs, other):
        place.mkdir()
    for name in ("claude", "tool"):
        (programs / name).write_text("#!/bin/sh\necho $0\n")
        (programs / name).chmod(0o755)
    path = path_without({"claude"}, f"{other}:{programs}:{tmp_path / 'none'}", tmp_path)
    assert shutil.which("claude", path=path) is None
    assert os.path.realpath(str(shutil.which("tool", path=path))) == str(programs / "tool")
    assert path.split(":")[0] == str(other) and path.split(":")[2] == str(tmp_path / "none")


def test_a_generated_test_is_shorter_in_the_fast_run_and_its_length_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sizes.FAST, raising=False)
    assert sizes.size("KILLS_OF_NOBODY", 30, fast=3) == 30
    monkeypatch.setenv(sizes.FAST, "1")
    assert sizes.size("KILLS_OF_NOBODY", 30, fast=3) == 3
    monkeypatch.setenv("PERDURE_TEST_KILLS_OF_NOBODY", "200")
    assert sizes.size("KILLS_OF_NOBODY", 30, fast=3) == 200


def test_the_fast_run_says_why_it_skips_the_unit_tests_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = runpy.run_path(str(ROOT / "run"))["page_tests_lack"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Node is not installed" in lack()
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v18.19.0\n")
        (tmp_path / name).chmod(0o755)
    assert lack() == "the page needs Node 20.19 or newer; this is v18.19.0"


def test_every_kind_of_end_to_end_test_has_one_in_the_fast_run() -> None:
    tests = ROOT / "tests"
    files = [path for folder in WHOLE_SYSTEM for path in (tests / folder).rglob("test_*.py")]
    without = {
        str(path.relative_to(tests)) for path in files if "pytest.mark.smoke" not in path.read_text(encoding="utf-8")
    }
    assert {name for name in without if not name.startswith("continuity/")} == REAL_ONLY


def test_a_test_that_is_smaller_in_the_fast_run_is_also_in_the_rest_of_a_full_run() -> None:
    """`has_sizes` looks into test modules, so no other module may decide on a size."""
    tests = ROOT / "tests"
    imports = re.compile(r"^(from tests\.sizes import|from tests import .*\bsizes\b)", re.MULTILINE)
    users = {path for path in tests.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))}
    others = {str(path.relative_to(tests)) for path in users if not path.name.startswith("test_")}
    # The second one is run by tests that have sizes themselves.
    assert others == {"conftest.py", "runtime/git/killed_finish.py"}


def test_every_test_is_in_one_of_the_two_runs_of_ci(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        runs = [only for only in ("parts", "rest") if why_left_out(item, only) is None]
        assert runs and (len(runs) == 1 or has_sizes(item)), item.nodeid


def test_each_workers_part_begins_with_its_long_tests_and_no_test_is_lost(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    ordered = long_ones_first(items, 3)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    parts = [ordered[len(items) * number // 3 : len(items) * (number + 1) // 3] for number in range(3)]
    for part in parts:
        short = [kind_left_out(item) is None for item in part]
        # At the boundaries, parts may differ by one or two tests of a kind.
        assert sum(before > after for before, after in itertools.pairwise(short)) <= 1
