"""The built page in the package matches the sources, and is served without Node."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness import LiveServer

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "ui"
BUILT = ROOT / "src" / "perdure" / "web" / "page"
STALE = "the page's bundle is out of date: run ./run ui and commit what it builds"
BUILD_LIMIT_S = 280
OLDEST_NODE = (20, 19)


def digest(folder: Path) -> str:
    """Computed as in ui/vite.config.ts."""
    found = hashlib.sha256()
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    for path in sorted(str(path) for path in paths if path.parts[0] not in ("node_modules", "test")):
        found.update(path.encode() + b"\0" + (folder / path).read_bytes() + b"\0")
    return found.hexdigest()


def test_the_bundle_was_built_from_these_sources() -> None:
    assert (BUILT / "digest.txt").read_text().strip() == digest(SOURCES), STALE


def test_a_changed_source_changes_the_digest(tmp_path: Path) -> None:
    copy = tmp_path / "ui"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules"))
    assert digest(copy) == digest(SOURCES)
    with (copy / "src" / "main.tsx").open("a") as file:
        file.write("// one more line\n")
    assert digest(copy) != digest(SOURCES)


def test_only_one_module_sends_requests_and_adds_the_key() -> None:
    sends = re.compile(r"(?<![.\w])(?<!async )fetch\(|EventSource\(|XMLHttpRequest|sendBeacon|WebSocket\(")
    folder = SOURCES / "src"
    places = {str(path.relative_to(folder)) for path in folder.rglob("*.ts*") if sends.search(path.read_text("utf-8"))}
    # version.ts fetches a public file.
    assert places == {"wire/ask.ts", "shell/version.ts"}


def test_a_server_without_node_serves_the_page(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    server = LiveServer(tmp_path / "data", env={"PATH": str(empty)}).start()
    try:
        assert "/page/page.js" in server.http.get("/s/anything").text
        assert server.http.get("/page/page.js").content == (BUILT / "page.js").read_bytes()
    finally:
        server.stop()
        server.http.close()


@pytest.fixture
def build_tools() -> None:
    if not (SOURCES / "node_modules").exists():
        pytest.skip("the page's build tools are not installed (./run ui install)")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.strip().removeprefix("v").split(".")[:2])
    if version < OLDEST_NODE:
        pytest.skip(f"the page is built with Node {'.'.join(map(str, OLDEST_NODE))} or newer; this is {said.strip()}")


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.needs("node", "npm")
@pytest.mark.usefixtures("build_tools")
def test_building_the_sources_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run(
        ["npx", "vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir"],
        cwd=SOURCES,
        check=True,
        capture_output=True,
        timeout=BUILD_LIMIT_S,
        env={**os.environ, "NODE_ENV": "production"},
    )
    fresh = {path.name: path.read_bytes() for path in (tmp_path / "built").iterdir()}
    kept = {path.name: path.read_bytes() for path in BUILT.iterdir()}
    assert fresh == kept, STALE


@pytest.mark.full  # `./run test` runs `./run ui test` instead
@pytest.mark.timeout(300)
@pytest.mark.needs("node", "npm")
@pytest.mark.usefixtures("build_tools")
def test_the_unit_tests_of_the_page_pass() -> None:
    done = subprocess.run(
        ["npm", "run", "--silent", "test"], cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_LIMIT_S
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
