"""Directories to choose from: completion of a path, recent directories and projects, and their git repositories."""

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.verbs.directories import MOST_LOOKUPS
from perdure.surfaces.http.directories import Directory, DirectoryList
from tests.sizes import size
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem
from tests.surfaces.http.test_contract import fits

ANSWER_S = 5.0
"""More than the server's deadlines, for a busy machine."""
SOON_S = 0.05
GIT_S = 30.0
# All characters of a file name but NUL and /, and lone surrogates, which stand for bytes that are not UTF-8.
NAMES = st.text(st.characters(exclude_characters="\0/"), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..") and len(os.fsencode(name.encode("utf-8", "replace"))) <= 255
)


def listed(server: LocalServer, path: Path | str, **params: Any) -> DirectoryList:
    answer = server.http.get("/api/directories", params={"path": str(path), "recent": "false", **params})
    assert answer.status_code == 200, answer.text
    found: DirectoryList = fits(answer.json(), DirectoryList)
    return found


def names(server: LocalServer, path: Path | str, **params: Any) -> list[str]:
    return [entry.name for entry in listed(server, path, **params).entries]


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=GIT_S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository on the branch `trunk`, with one commit and nothing changed."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "a.txt").write_text("one\n")
    (folder / "src" / "b.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


# Completion -----------------------------------------------------------------------------------------------------------


def test_a_path_is_completed_with_directories_that_start_with_it(server: LocalServer, tmp_path: Path) -> None:
    for name in ("site", "Site-2", "sources", "docs", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "sitemap.xml").write_text("")
    found = listed(server, tmp_path / "s")
    assert (found.path, found.parent, found.truncated) == (str(tmp_path), str(tmp_path.parent), False)
    assert [entry.name for entry in found.entries] == ["site", "sources", "Site-2"], "the same case comes first"
    assert found.entries[0].path == str(tmp_path / "site")
    assert names(server, f"{tmp_path}/") == ["docs", "site", "Site-2", "sources"]
    assert names(server, f"{tmp_path}/.") == [".hidden"]
    assert names(server, f"{tmp_path}/.h") == [".hidden"]
    assert names(server, f"{tmp_path}//x/../s") == ["site", "sources", "Site-2"]
    assert listed(server, "/").parent is None
    assert (found.recent, found.projects) == ([], [])


def test_the_number_of_entries_is_limited(server: LocalServer, tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"{number:03}").mkdir()
    found = listed(server, f"{tmp_path}/", limit=3)
    assert ([entry.name for entry in found.entries], found.truncated) == (["000", "001", "002"], True)
    assert len(names(server, f"{tmp_path}/")) == 50
    every = listed(server, f"{tmp_path}/", limit=120)
    assert (len(every.entries), every.truncated) == (120, False)
    for limit in ("0", "201", "many"):
        answer = server.http.get("/api/directories", params={"path": f"{tmp_path}/", "limit": limit})
        assert is_problem(answer, 400, "invalid"), limit


def test_without_a_path_the_home_directory_is_listed(server: LocalServer) -> None:
    home = os.path.normpath(os.path.expanduser("~"))
    for params in ({}, {"path": "~"}, {"path": "~/"}):
        answer = fits(server.http.get("/api/directories", params=params).json(), DirectoryList)
        assert answer.path in (home, os.path.dirname(home)), params
    assert fits(server.get("/api/directories"), DirectoryList).path == home


def test_repositories_are_marked(server: LocalServer, tmp_path: Path) -> None:
    for name in ("plain", "cloned/.git", "worktree"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "worktree" / ".git").write_text("gitdir: elsewhere\n")
    marks = {entry.name: entry.repository for entry in listed(server, f"{tmp_path}/").entries}
    assert marks == {"cloned": True, "plain": False, "worktree": True}


def test_links_to_directories_are_followed_and_others_left_out(server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "real" / "inside").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    for name, target in (("link", "real"), ("to-file", "file"), ("dangling", "none"), ("loop", "loop"), ("up", "..")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "real" / "around").symlink_to("..")
    assert names(server, f"{tmp_path}/") == ["link", "real", "up"]
    found = listed(server, f"{tmp_path}/link/in")
    assert [entry.path for entry in found.entries] == [str(tmp_path / "link" / "inside")]
    deep = f"{tmp_path}/real" + "/around/real" * 20
    assert names(server, f"{deep}/") == ["around", "inside"]
    assert is_problem(server.http.get("/api/directories", params={"path": f"{tmp_path}/loop/"}), 400, "invalid")


def test_many_links_to_files_hide_no_directory(server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for number in range(30):
        (tmp_path / f"a{number}").symlink_to("file")
    (tmp_path / "b").mkdir()
    assert names(server, f"{tmp_path}/", limit=50) == ["b"]
    few = listed(server, f"{tmp_path}/", limit=5)
    assert ([entry.name for entry in few.entries], few.truncated) == ([], True), "it says that there may be more"


@pytest.mark.parametrize("path", ["", "relative", "./here", "~other", "C:\\site", "/a\0b"])
def test_a_path_that_is_not_absolute_is_refused(server: LocalServer, path: str) -> None:
    assert is_problem(server.http.get("/api/directories", params={"path": path}), 400, "invalid")


def test_a_missing_directory_a_file_and_a_path_that_is_too_long_are_refused(
    server: LocalServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none" / "x", tmp_path / "file" / "x"):
        missing = server.http.get("/api/directories", params={"path": str(path)})
        assert is_problem(missing, 404, "not_found")
        assert str(path.parent) in missing.json()["error"]
    for long in (f"/{'a' * 5_000}/", "/x" * 3_000 + "/"):
        answer = server.http.get("/api/directories", params={"path": long})
        assert answer.status_code in (400, 404)
    assert names(server, f"{tmp_path}/{'a' * 5_000}") == []


@pytest.mark.needs("not-root")
def test_a_closed_directory_is_refused_with_the_reason(server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    answer = server.http.get("/api/directories", params={"path": f"{tmp_path}/closed/"})
    assert is_problem(answer, 400, "invalid") and "Permission denied" in answer.json()["error"]
    assert names(server, f"{tmp_path}/") == ["closed"]


def test_the_data_directory_is_neither_listed_nor_offered(server: LocalServer, tmp_path: Path) -> None:
    for path in (f"{server.data}/", f"{server.data}/launches/", f"{server.data}/workspaces/"):
        answer = server.http.get("/api/directories", params={"path": path})
        assert is_problem(answer, 400, "invalid") and "data directory" in answer.json()["error"], path
    (tmp_path / "link").symlink_to(server.data)
    assert is_problem(server.http.get("/api/directories", params={"path": f"{tmp_path}/link/"}), 400, "invalid")
    assert names(server, f"{tmp_path}/") == []
    assert server.data.name not in names(server, f"{server.data.parent}/")
    workspace = server.session(server.create())["workdir"]
    os.mkdir(f"{workspace}/inside")
    assert names(server, f"{workspace}/") == ["inside"]


@given(st.lists(NAMES, max_size=12, unique=True), st.data())
def test_any_name_can_be_listed_and_completed(server: LocalServer, given_names: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in given_names:
            os.makedirs(os.path.join(folder, os.fsdecode(name.encode("utf-8", "surrogatepass"))), exist_ok=True)
        os.mkdir(os.path.join(folder.encode(), b"broken-\xff"))
        exist = {name for name in os.listdir(folder) if _is_text(name)}
        found = listed(server, f"{folder}/")
        assert {entry.name for entry in found.entries} == {name for name in exist if not name.startswith(".")}
        assert not found.truncated
        for name in exist:
            end = data.draw(st.integers(1, len(name)))
            assert name in names(server, f"{folder}/{name[:end]}")


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


# Deadlines ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_directory_with_very_many_entries_is_listed_in_bounded_time_and_blocks_nobody(
    server: LocalServer, tmp_path: Path
) -> None:
    count = size("DIRECTORY_ENTRIES", 100_000, fast=3_000)
    for number in range(count):
        os.mkdir(tmp_path / f"{number:06}")

    def look() -> tuple[DirectoryList, float]:
        begun = time.monotonic()
        return listed(server, f"{tmp_path}/"), time.monotonic() - begun

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        waited_s = []
        while not looking.done():
            begun = time.monotonic()
            server.http.get("/api/health").raise_for_status()
            waited_s.append(time.monotonic() - begun)
        found, took_s = looking.result()
    assert len(found.entries) == 50 and found.truncated
    assert took_s < ANSWER_S
    assert max(waited_s, default=0) < ANSWER_S / 2
    last = names(server, f"{tmp_path}/{count - 1:06}")
    assert last in ([f"{count - 1:06}"], []), "found, unless the time did not suffice"


@pytest.fixture
def hanging(server: LocalServer) -> Iterator[None]:
    """Every place for look-ups is taken by one that hangs, like one on a network that is down."""
    release = threading.Event()

    async def hang() -> None:
        lookups = server.server.sessions.directories.lookups
        hung = (lookups.run(release.wait, SOON_S) for _ in range(MOST_LOOKUPS))
        results = await asyncio.gather(*hung, return_exceptions=True)
        assert all(isinstance(result, TimeoutError) for result in results)

    server.run(hang())
    yield
    release.set()


@pytest.mark.usefixtures("hanging")
def test_file_systems_that_hang_delay_no_answer(server: LocalServer, repository: Path) -> None:
    session = server.create(workdir=str(repository))
    begun = time.monotonic()
    answer = fits(server.http.get("/api/directories", params={"path": f"{repository.parent}/"}).json(), DirectoryList)
    assert (answer.entries, answer.truncated, answer.recent) == ([], True, [])
    assert time.monotonic() - begun < ANSWER_S
    seen = server.http.get("/api/directory", params={"path": str(repository)})
    assert is_problem(seen, 503, "unavailable") and "did not answer in time" in seen.json()["error"]
    assert server.turn(session, "say not affected")["stop_reason"] == "end_turn"


# Recent directories, projects and git ---------------------------------------------------------------------------------


def test_recent_directories_are_listed_with_the_number_of_their_sessions(
    server: LocalServer, repository: Path, tmp_path: Path
) -> None:
    for name in ("plain", "gone"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("plain")
    for folder in (repository, tmp_path / "gone", repository, tmp_path / "plain", tmp_path / "link"):
        server.turn(server.create(workdir=str(folder)), "say hi")
    server.create()
    (tmp_path / "gone").rmdir()
    (repository / "b.txt").write_text("new\n")
    found = fits(server.get("/api/directories"), DirectoryList)
    mine = [one for one in found.recent if one.path.startswith(str(tmp_path))]
    assert [(one.path, one.sessions) for one in mine] == [(str(tmp_path / "plain"), 2), (str(repository), 2)]
    assert [(one.branch, one.dirty, one.repository) for one in mine] == [(None, None, False), ("trunk", 1, True)]
    assert found.recent == sorted(found.recent, key=lambda one: one.last_active_at, reverse=True)
    assert not [one for one in found.recent if "/workspaces/" in one.path]


def test_a_worktree_counts_for_the_directory_that_it_was_made_from(server: LocalServer, repository: Path) -> None:
    for folder in (repository, repository / "src"):
        server.create(workdir=str(folder), workspace="worktree")
    server.create(workdir=str(repository))
    recent = fits(server.get("/api/directories"), DirectoryList).recent
    mine = {one.path: one.sessions for one in recent if one.path.startswith(str(repository))}
    assert mine == {str(repository): 2, str(repository / "src"): 1}


def test_projects_are_listed_with_their_branch(server: LocalServer, repository: Path) -> None:
    project = server.post("/api/projects", {"name": "Site", "path": str(repository / "src")}, expect=201)["id"]
    (repository / "a.txt").write_text("two\n")
    shown = [one for one in fits(server.get("/api/directories"), DirectoryList).projects if one.id == project]
    assert [(one.name, one.path, one.branch, one.dirty) for one in shown] == [
        ("Site", str(repository / "src"), "trunk", 1)
    ]
    server.http.delete(f"/api/projects/{project}").raise_for_status()


def test_the_git_state_of_a_directory_is_described(server: LocalServer, repository: Path, tmp_path: Path) -> None:
    def described(path: Path) -> Any:
        return fits(server.http.get("/api/directory", params={"path": str(path)}).json(), Directory).git

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, timeout=GIT_S)
    for path in (repository, repository / "src"):
        state = described(path)
        assert (state.root, state.branch, state.head) == (str(repository), "trunk", head.stdout.strip())
        assert (state.detached, state.dirty, state.in_progress, state.reason) == (False, 0, None, None)
    (repository / "a.txt").write_text("two\n")
    (repository / "new.txt").write_text("new\n")
    assert described(repository).dirty == 2
    git(repository, "stash", "-q", "-u")
    git(repository, "checkout", "-q", "--detach")
    assert (described(repository).branch, described(repository).detached) == (None, True)
    assert described(tmp_path) is None
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q", "-b", "main")
    assert (described(tmp_path / "empty").branch, described(tmp_path / "empty").head) == ("main", None)
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    state = described(tmp_path / "bare.git")
    assert state is None or state.reason, "a bare repository has no work tree"
