"""The package that users install: its description, its content, and that it works in a clean environment."""

import contextlib
import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

BUILD_S = 120.0
INSTALL_S = 600.0
COMMAND_S = 60.0
# Targets in Markdown, reStructuredText and HTML: links, images, references.
TARGETS = (
    re.compile(r"\]\(\s*<?([^)\s>]+)"),
    re.compile(r"^\s*\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE),
    re.compile(r"(?:href|src)\s*=\s*[\"']([^\"']+)", re.IGNORECASE),
)


def relative_targets(description: str) -> list[str]:
    """Return links and images that only work inside the repository. Anchors are fine."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", description, flags=re.DOTALL)
    found = [target for pattern in TARGETS for target in pattern.findall(prose)]
    return [target for target in found if not re.match(r"https?://|mailto:|#", target)]


@pytest.mark.parametrize(
    "text",
    ["[a](docs/a.md)", "![a](a.png)", "[![a](a.svg)](https://b)", "[a]: ../a.md", '<img src="a.png">', "[a](/a)"],
)
def test_a_relative_link_is_found(text: str) -> None:
    assert len(relative_targets(f"Some words, {text}" if text[-1] == ")" else f"Words\n{text}\n")) == 1
    assert relative_targets("[a](https://a.b/c) [d](#d) `[e](f)` ![g](https://g/h.png)") == []


def test_the_description_has_no_relative_links() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    description = (ROOT / project["readme"]).read_text("utf-8")
    assert relative_targets(description) == []
    assert len(relative_targets((ROOT / "README.md").read_text("utf-8"))) > 10
    # Both start with the same paragraph, and the package has no ./run.
    first, ours = (text.split("\n\n")[1].split() for text in (description, (ROOT / "README.md").read_text("utf-8")))
    assert first == ours
    assert "./run" not in description


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the source distribution, and return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S)
    assert done.returncode == 0, done.stderr
    return folder


def wheel_in(built: Path) -> Path:
    return next(built.glob("perdure-*.whl"))


@pytest.mark.full
def test_the_built_package_has_that_description_and_all_files(built: Path) -> None:
    with zipfile.ZipFile(wheel_in(built)) as wheel:
        names = set(wheel.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        described = email.message_from_bytes(wheel.read(metadata))
    with tarfile.open(next(built.glob("perdure-*.tar.gz"))) as source:
        top = source.getnames()[0].partition("/")[0]
        content = source.extractfile(f"{top}/PKG-INFO")
        assert content is not None
        source_described = email.message_from_bytes(content.read())
        shipped = {name.partition("/")[2] for name in source.getnames()}
    for each in (described, source_described):
        assert each["Description-Content-Type"] == "text/markdown"
        text = each.get_payload()
        assert isinstance(text, str) and text.startswith("# Perdure") and relative_targets(text) == []
    package = ROOT / "src" / "perdure"
    files = subprocess.run(["git", "ls-files", "."], cwd=package, capture_output=True, text=True, timeout=COMMAND_S)
    assert {f"perdure/{name}" for name in files.stdout.split()} <= names
    assert {"run", "get_pip.py", "docs/start.md", "docs/package.md", "tests/test_package.py"} <= shipped


def clean_environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_S)
    return folder / "bin"


@contextlib.contextmanager
def serving(programs: Path, home: Path) -> Iterator[dict[str, str]]:
    """Run `perdure serve` from there. Yields the environment for commands."""
    home.mkdir()
    env = {"HOME": str(home), "PATH": f"{programs}:{os.defpath}"}
    argv = [str(programs / "perdure"), "serve", "--port", "0"]
    with subprocess.Popen(argv, env=env, cwd=home, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("perdure: listening on http://")
            yield env
        finally:
            server.terminate()
            server.wait(COMMAND_S)


def works(programs: Path, home: Path) -> None:
    """Check the command, a server, an answer and the page."""
    perdure = str(programs / "perdure")
    shown = subprocess.run([perdure, "--version"], capture_output=True, text=True, timeout=COMMAND_S)
    assert re.fullmatch(r"perdure \d+\.\d+\.\d+\S*\n", shown.stdout)
    with serving(programs, home) as env:
        send = [perdure, "send", "--new", "--wait", "--agent", "rehearsal", "say it works"]
        done = subprocess.run(send, env=env, cwd=home, capture_output=True, text=True, timeout=COMMAND_S)
        assert (done.returncode, done.stdout) == (0, "it works\n"), done.stderr
        link = subprocess.run([perdure, "login"], env=env, cwd=home, capture_output=True, text=True, timeout=COMMAND_S)
        assert re.search(r"http://127\.0\.0\.1:\d+/\S+", link.stdout)
        stopped = [perdure, "stop", "--all"]
        assert subprocess.run(stopped, env=env, cwd=home, capture_output=True, timeout=COMMAND_S).returncode == 0


needs_ensurepip = pytest.mark.skipif(find_spec("ensurepip") is None, reason="needs ensurepip (python3-venv)")


@pytest.mark.full
@needs_ensurepip
def test_the_wheel_works_in_a_separate_environment(built: Path, tmp_path: Path) -> None:
    """Works without a network: dependencies come from .venv through a .pth file, and only our package is the wheel."""
    programs = clean_environment(tmp_path / "venv")
    pip = [str(programs / "pip"), "--isolated", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel_in(built))], check=True, timeout=INSTALL_S)
    packages = next((tmp_path / "venv").glob("lib/python3.*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    where = [str(programs / "python"), "-c", "import perdure; print(perdure.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, cwd=tmp_path, timeout=COMMAND_S).stdout
    assert Path(found).is_relative_to(packages)
    works(programs, tmp_path / "home")


@pytest.mark.slow
@pytest.mark.timeout(2 * INSTALL_S)
@pytest.mark.needs("network")
@needs_ensurepip
def test_pip_installs_the_wheel_with_all_that_it_needs(built: Path, tmp_path: Path) -> None:
    programs = clean_environment(tmp_path / "venv")
    subprocess.run([str(programs / "pip"), "install", "--quiet", str(wheel_in(built))], check=True, timeout=INSTALL_S)
    works(programs, tmp_path / "home")
