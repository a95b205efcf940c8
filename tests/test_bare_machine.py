"""A checkout on Debian and Ubuntu with only python3, in a root file system made with debootstrap.

PERDURE_TEST_NETWORK=1 ./run test --slow tests/test_bare_machine.py
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

SET_UP_S = 900.0
COMMAND_S = 60.0


class Release(NamedTuple):
    suite: str
    mirror: str
    keyring: str
    script: str
    """The debootstrap script to use, because an older debootstrap does not know newer names."""


RELEASES = {
    "debian": Release("bookworm", "http://deb.debian.org/debian", "debian-archive-keyring.gpg", "sid"),
    "ubuntu": Release("noble", "http://archive.ubuntu.com/ubuntu", "ubuntu-archive-keyring.gpg", "gutsy"),
}


class BareRoot:
    """Runs commands in that root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def argv(self, *argv: str) -> list[str]:
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home", "LANG=C.UTF-8"]
        return ["chroot", str(self.folder), *clean, *argv]

    def run(self, *argv: str, timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*argv), capture_output=True, text=True, timeout=timeout_s)

    @contextlib.contextmanager
    def started(self, *argv: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(self.argv(*argv), stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(COMMAND_S)


@pytest.fixture(params=RELEASES)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BareRoot]:
    release = RELEASES[request.param]
    keyring = Path(os.environ.get("PERDURE_TEST_KEYRINGS", "/usr/share/keyrings"), release.keyring)
    if not keyring.exists():
        pytest.skip(f"needs {keyring}")
    folder = tmp_path / "root"
    made = ["debootstrap", "--variant=minbase", f"--keyring={keyring}", "--include=python3,ca-certificates"]
    subprocess.run([*made, release.suite, str(folder), release.mirror, release.script], check=True, timeout=SET_UP_S)
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    if certificates := os.environ.get("PIP_CERT"):
        # Trust what this machine trusts, in the pip.conf of the root, like an administrator would do.
        shutil.copy(certificates, folder / "etc" / "organisation.crt")
        (folder / "etc" / "pip.conf").write_text("[global]\ncert = /etc/organisation.crt\n")
    checkout = folder / "opt" / "perdure"
    checkout.mkdir()
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=COMMAND_S)
    packed = subprocess.run(["tar", "c", "--null", "-T", "-"], cwd=ROOT, input=files.stdout, capture_output=True)
    subprocess.run(["tar", "x"], cwd=checkout, input=packed.stdout, check=True, timeout=COMMAND_S)
    subprocess.run(["mount", "-t", "proc", "proc", str(folder / "proc")], check=True, timeout=COMMAND_S)
    try:
        yield BareRoot(folder)
    finally:
        subprocess.run(["umount", str(folder / "proc")], check=True, timeout=COMMAND_S)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(3 * SET_UP_S)
@pytest.mark.needs("linux", "root", "network", "debootstrap", "git")
def test_a_checkout_sets_itself_up_with_python3_alone(bare: BareRoot) -> None:
    assert "No module named 'ensurepip'" in bare.run("python3", "-c", "import ensurepip").stderr
    alone = subprocess.run(
        ["unshare", "--net", *bare.argv("/opt/perdure/run", "perdure", "--version")],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    assert alone.returncode == 1
    assert "can't be reached" in alone.stderr and "apt install python3-venv" in alone.stderr

    shown = bare.run("/opt/perdure/run", "perdure", "--version", timeout_s=SET_UP_S)
    assert (shown.returncode, shown.stdout[:8]) == (0, "perdure "), shown.stderr
    with bare.started("/opt/perdure/run", "serve", "--port", "0") as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("perdure: listening on http://")
        send = ("send", "--new", "--wait", "--scratch", "--agent", "rehearsal", "say it works")
        answered = bare.run("/opt/perdure/run", "perdure", *send)
        assert (answered.returncode, answered.stdout) == (0, "it works\n"), answered.stderr
