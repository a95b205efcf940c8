"""`perdure directories`, and the branch and changes in the header of a chat."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal

pytestmark = pytest.mark.needs("git")

GIT_S = 30.0


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository on the branch `trunk` without commits and with one new file."""
    folder = tmp_path / "site"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=folder, check=True, timeout=GIT_S)
    (folder / "a.txt").write_text("one\n")
    return folder


def test_projects_and_recent_directories_are_listed_with_branch_and_changes(
    server: ServerProcess, repository: Path, tmp_path: Path
) -> None:
    assert "No session has worked in a directory yet" in server.run("directories").stderr
    (tmp_path / "plain").mkdir()
    server.run("send", "--wait", "say hi", cwd=tmp_path / "plain")
    server.run("projects", "add", str(repository), "--name", "Site")
    server.run("send", "--wait", "say hi", cwd=repository)
    heading, project, recent = server.run("directories").stdout.splitlines()
    assert heading.split() == ["DIRECTORY", "BRANCH", "CHANGES", "PROJECT", "SESSIONS", "LAST", "ACTIVE"]
    assert project.split()[:6] == [str(repository), "trunk", "1", "file", "Site", "1"]
    assert recent.split()[:2] == [str(tmp_path / "plain"), "1"]
    commit = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", "first"]
    for command in (["git", "add", "."], commit, ["git", "checkout", "-q", "--detach"]):
        subprocess.run(command, cwd=repository, check=True, timeout=GIT_S)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, timeout=GIT_S, capture_output=True)
    assert f"  detached at {head.stdout.decode()[:10]}  none " in server.run("directories").stdout
    found = json.loads(server.run("directories", "--json").stdout)
    assert [entry["path"] for entry in found["recent"]] == [str(repository), str(tmp_path / "plain")]


def test_directories_that_start_with_a_path_are_listed(server: ServerProcess, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    for prefix, cwd in ((f"{tmp_path}/s", tmp_path), ("s", tmp_path), ("../s", repository)):
        done = server.run("directories", prefix, cwd=cwd)
        assert done.stdout == f"{tmp_path}/site/  (git)\n{tmp_path}/sources/\n", prefix
    assert (
        server.run("directories", f"{tmp_path}/s", "--limit", "1").stderr == "There are more. Give more of the path.\n"
    )
    assert server.run("directories", f"{tmp_path}/x").stderr == "No directory starts with this path.\n"
    refused = server.run("directories", f"{tmp_path}/none/")
    assert (refused.returncode, "There is no directory" in refused.stderr) == (1, True)
    assert server.run("directories", str(server.data) + "/").returncode == 1
    assert json.loads(server.run("directories", "--json", "s", cwd=tmp_path).stdout)["path"] == str(tmp_path)
    for prefix, cwd in (("..", repository), (".", tmp_path)):
        assert server.run("directories", prefix, cwd=cwd).stdout.endswith(f"{tmp_path}/sources/\n"), prefix


def test_the_name_of_a_directory_can_not_fake_another(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "sub\nother").mkdir()
    assert server.run("directories", f"{tmp_path}/s").stdout == f'"{tmp_path}/sub\\nother/"\n'


@pytest.mark.full
def test_the_header_of_a_chat_shows_branch_and_changes(server: ServerProcess, repository: Path, tmp_path: Path) -> None:
    def header() -> str:
        environment = {**server.environment, "HOME": str(tmp_path)}
        with Terminal(server.command("chat"), environment, repository) as chat:
            return chat.wait("/help lists keys and commands.").splitlines()[0].partition(", in ")[2]

    assert header() == "~/site, on trunk, 1 changed file"
    (repository / "b.txt").write_text("two\n")
    server.run("projects", "add", str(repository), "--name", "Site")
    assert header() == "~/site (project Site), on trunk, 2 changed files"
