"""pip for an environment without ensurepip: from the indexes in pip's configuration, and only with a matching hash."""

import ast
import base64
import json
import os
import re
import runpy
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import get_pip
from tests.conftest import ROOT
from tests.package_index import PackageIndex, Release, html_page, release, served

pytestmark = pytest.mark.long

LIMIT_S = 60.0
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment without pip."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=LIMIT_S)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def run(bare: Path, home: Path) -> Iterator[Run]:
    """Run get_pip.py like ./run does, with only the environment that the test provides."""

    def started(**environ: str) -> subprocess.CompletedProcess[str]:
        # Ignores /etc/pip.conf of this machine.
        given = {"HOME": str(home), "PATH": os.defpath, "PIP_CONFIG_FILE": os.devnull, **environ}
        argv = [str(bare / "bin" / "python"), str(ROOT / "get_pip.py")]
        return subprocess.run(argv, env=given, capture_output=True, text=True, timeout=LIMIT_S)

    yield started
    (bare / "installed.json").unlink(missing_ok=True)


def installed(bare: Path) -> str | None:
    """Return the installed version."""
    note = bare / "installed.json"
    return str(json.loads(note.read_text())[0]) if note.exists() else None


@pytest.mark.parametrize("speaks_json", [False, True], ids=["html", "json"])
def test_the_newest_release_that_suits_this_python_is_installed(run: Run, bare: Path, speaks_json: bool) -> None:
    releases = [
        release("9.0.3", "py2.py3-none-any.whl", requires_python=">=2.6,!=3.0.*"),
        release("26.2"),
        release("26.10.1"),
        release("26.9"),
        release("27.0b1"),
        release("28.0", yanked=True),
        release("29.0", requires_python=">=3.99"),
        release("30.0", digest=""),
        release("31.0", "py2-none-any.whl", requires_python="<3"),
        Release("pip-32.0.tar.gz", b"a source"),
    ]
    with served(PackageIndex(releases, speaks_json=speaks_json)) as index:
        done = run(PIP_INDEX_URL=index.url)
    assert (done.returncode, done.stderr) == (0, "")
    note = json.loads((bare / "installed.json").read_text())
    assert note[0] == "26.10.1"
    assert note[-1].endswith("/pip-26.10.1-py3-none-any.whl") and {"--no-index", "--no-deps"} < set(note)


@pytest.mark.parametrize("speaks_json", [False, True], ids=["html", "json"])
def test_a_file_that_differs_from_what_the_index_describes_is_not_installed(
    run: Run, bare: Path, speaks_json: bool
) -> None:
    with served(PackageIndex([release("26.1"), release("26.2", digest="0" * 64)], speaks_json=speaks_json)) as index:
        done = run(PIP_INDEX_URL=index.url)
    assert done.returncode == 1
    assert "pip-26.2-py3-none-any.whl is not the file that the index describes: its sha256 differs." in done.stderr
    assert installed(bare) is None


def test_an_index_that_gives_no_hash_is_not_trusted(run: Run, bare: Path) -> None:
    with served(PackageIndex([release("26.1", digest="")])) as index:
        done = run(PIP_INDEX_URL=index.url)
        assert [request.path for request in index.requests] == ["/simple/pip/"]
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{index.url}/pip/: has no pip with a sha256 for this Python",
        "No package index provided pip.",
    ]
    assert installed(bare) is None


@pytest.mark.parametrize(
    "file", ["shared/pip/pip.conf", ".pip/pip.conf", ".config/pip/pip.conf", "elsewhere/pip/pip.conf", "chosen"]
)
def test_pips_configuration_says_where_the_index_is(run: Run, bare: Path, home: Path, file: str) -> None:
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    with served(PackageIndex([release("26.2")])) as index:
        (home / file).write_text(f"[global]\nindex_url = {index.url}\n")
        given = {"XDG_CONFIG_HOME": str(home / "elsewhere")} if file.startswith("elsewhere") else {}
        given["PIP_CONFIG_FILE"] = str(home / file) if file == "chosen" else ""
        # The machine's own file may add options.
        done = run(XDG_CONFIG_DIRS=str(home / "shared"), PIP_EXTRA_INDEX_URL=" ", PIP_FIND_LINKS=" ", **given)
    assert (done.returncode, done.stderr) == (0, "")
    assert installed(bare) == "26.2"


FILES = ["xdg/pip/pip.conf", ".pip/pip.conf", ".config/pip/pip.conf", "venv/pip.conf", "chosen"]


@pytest.mark.parametrize("present", range(1, 2 ** len(FILES), 5))
def test_of_several_files_the_same_one_wins_as_in_pip(tmp_path: Path, present: int) -> None:
    """pip reads the files in the order of FILES. Options for `install` take precedence over global ones."""
    there = [name for number, name in enumerate(FILES) if present >> number & 1]
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"[install]\nindex-url = {name}\n[global]\nindex-url = global\nlog = {name}\n")
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}
    environ |= {"PIP_CONFIG_FILE": str(tmp_path / "chosen")} if "chosen" in there else {}
    options = get_pip.configuration(environ, str(tmp_path / "venv"))
    assert options["index-url"] == options["log"] == there[-1]
    assert get_pip.configuration({**environ, "PIP_LOG": "said"}, "nowhere")["log"] == "said"
    assert get_pip.configuration({"PIP_CONFIG_FILE": os.devnull}, "nowhere").keys() == {"config-file"}


@pytest.mark.full
@pytest.mark.skipif(find_spec("pip") is None, reason="needs pip in .venv")
@pytest.mark.parametrize("present", range(0, 2 ** len(FILES), 3))
def test_pip_reads_the_same_files_in_the_same_order(tmp_path: Path, present: int) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": f"{tmp_path / 'xdg'}:{tmp_path / 'other'}", "PATH": os.defpath}
    environ["PIP_CONFIG_FILE"] = str(tmp_path / "chosen")
    for number, name in enumerate(["other/pip/pip.conf", "xdg/pip/pip.conf", *FILES[1:3], "chosen"]):
        if present >> number & 1:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"[global]\ntimeout = {number}\n")
    argv = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    ours = get_pip.configuration(environ, sys.prefix).get("timeout")
    assert re.findall("^global.timeout='(.*)'$", said, re.MULTILINE) == ([] if ours is None else [ours])


def test_without_an_index_pip_comes_from_a_folder_of_wheels(run: Run, bare: Path, tmp_path: Path) -> None:
    one = release("26.2")
    (tmp_path / one.name).write_bytes(one.body)
    assert run(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path)).returncode == 0
    assert installed(bare) == "26.2"
    done = run(PIP_NO_INDEX="yes")
    assert (done.returncode, done.stderr) == (1, "pip's configuration allows no package index.\n")


def test_an_index_in_files_and_one_that_does_not_answer_are_read_with_the_others(
    run: Run, bare: Path, tmp_path: Path
) -> None:
    one = release("26.3")
    page = tmp_path / "simple" / "pip" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../{one.name}#sha256={one.shown_digest}">it</a>')
    (tmp_path / one.name).write_bytes(one.body)
    with served(PackageIndex([release("26.2")])) as index:
        done = run(
            PIP_INDEX_URL=index.url, PIP_EXTRA_INDEX_URL=f"http://localhost:1/simple {page.parent.parent.as_uri()}"
        )
    assert done.returncode == 0 and "Connection refused" in done.stderr
    assert installed(bare) == "26.3"


def test_addresses_without_http_are_skipped(run: Run, bare: Path) -> None:
    class Greeting(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"220 mail.example ready\r\n")

    with (
        socketserver.ThreadingTCPServer(("localhost", 0), Greeting) as mail,
        served(PackageIndex([release("26.2")])) as index,
    ):
        threading.Thread(target=mail.serve_forever, daemon=True).start()
        other = f"http://localhost:{mail.server_address[1]}/simple"
        done = run(PIP_INDEX_URL=other, PIP_EXTRA_INDEX_URL=index.url)
        mail.shutdown()
    assert done.returncode == 0 and "mail.example" in done.stderr and "Traceback" not in done.stderr
    assert installed(bare) == "26.2"


def test_passwords_go_to_their_own_host_only(run: Run, bare: Path, home: Path) -> None:
    releases = [release("26.2")]
    index = PackageIndex(releases)
    index.password = "Basic " + base64.b64encode(b"ann:p@ss").decode()
    with served(PackageIndex(releases)) as store, served(index):
        index.files = f"http://127.0.0.1:{store.port}/files/"
        done = run(PIP_INDEX_URL=index.url.replace("//", "//ann:p%40ss@"))
        assert (done.returncode, done.stderr) == (0, "")
        assert [request.authorization for request in store.requests] == [None]

        (home / ".netrc").write_text("machine localhost login ann password p@ss\n")
        (home / ".netrc").chmod(0o600)
        assert run(PIP_INDEX_URL=index.url).returncode == 0

        refused = run(PIP_INDEX_URL=index.url.replace("//", "//ann:secret@"))
        assert refused.returncode == 1
        assert "HTTP Error 401" in refused.stderr and "secret" not in refused.stderr


def test_the_proxy_is_used_and_an_index_without_encryption_only_where_it_is_trusted(run: Run, bare: Path) -> None:
    far = "http://packages.example/simple"
    with served(PackageIndex([release("26.2")])) as proxy:
        address = f"http://localhost:{proxy.port}"
        refused = run(PIP_INDEX_URL=far, PIP_PROXY=address)
        assert refused.returncode == 1 and "trusted-host" in refused.stderr
        assert not proxy.requests
        for named in ("PIP_PROXY", "http_proxy"):
            proxy.requests.clear()
            assert run(PIP_INDEX_URL=far, PIP_TRUSTED_HOST="packages.example", **{named: address}).returncode == 0
            assert proxy.requests[0].path == far + "/pip/"


def test_an_index_that_redirects_to_one_without_encryption_is_not_trusted() -> None:
    class Redirected(get_pip.Downloader):
        def read(self, url: str, limit: int, accept: str = "*/*") -> tuple[bytes, str, str]:
            page = html_page([release("26.2")], "files/")
            return page, "text/html", url.replace("https://index", "http://elsewhere")

    with pytest.raises(get_pip.NoPip, match="unencrypted address"):
        get_pip.wheels_at("https://index.example/simple/pip/", Redirected({}, {}))
    trusting = Redirected({"trusted-host": "elsewhere.example"}, {})
    assert len(get_pip.wheels_at("https://index.example/simple/pip/", trusting)) == 1


@pytest.mark.needs("openssl")
def test_only_certificates_that_pip_trusts_are_trusted(run: Run, bare: Path, tmp_path: Path) -> None:
    key, certificate, both = (tmp_path / name for name in ("key.pem", "certificate.pem", "both.pem"))
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    argv = [*request.split(), "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True, timeout=LIMIT_S)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    with served(PackageIndex([release("26.2")]), str(both)) as index:
        done = run(PIP_INDEX_URL=index.url)
        assert done.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in done.stderr
        for trust in ({"PIP_CERT": str(certificate)}, {"REQUESTS_CA_BUNDLE": str(certificate)}):
            assert run(PIP_INDEX_URL=index.url, **trust).returncode == 0
        assert run(PIP_INDEX_URL=index.url, PIP_TRUSTED_HOST=f"localhost:{index.port}").returncode == 0


@pytest.mark.parametrize(
    ("requires", "suits"),
    [("", True), (">=3.9", True), (">= 3.11", True), (">=3.99", False), ("<3", False), (">=2.7,!=3.0.*,<4", True)],
)
def test_releases_for_other_pythons_are_left_out(requires: str, suits: bool) -> None:
    assert get_pip.suits_this_python(requires) is suits


# With ./run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def without(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return the environment of a Python that lacks a module of its standard library."""

    def lacking(module: str) -> dict[str, str]:
        folder = tmp_path / "lacking"
        folder.mkdir()
        (folder / f"{module}.py").write_text(f"raise ImportError(\"No module named '{module}'\")\n")
        return {"HOME": str(tmp_path), "PATH": os.defpath, "PYTHONPATH": str(folder)}

    return lacking


def test_run_says_what_to_install_if_pip_is_unavailable(
    tmp_path: Path, without: Callable[[str], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(ROOT / "run"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://localhost:{closed.getsockname()[1]}/simple"
        for key, value in {**without("ensurepip"), "PIP_INDEX_URL": nobody, "PIP_CONFIG_FILE": os.devnull}.items():
            monkeypatch.setenv(key, value)
        for key in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(key, raising=False)
        with pytest.raises(script["SetupError"]) as failed:
            script["install_with_pip"](str(tmp_path / "venv"), [], sys.executable)
    assert str(failed.value) == (
        "This Python can't create virtual environments, and pip can't be downloaded. No package index provided pip. "
        "The package index can't be reached, or lacks a package. Check the network, or set HTTPS_PROXY.\n"
        "On Debian and Ubuntu: apt install python3-venv "
        f"(or python3.{sys.version_info.minor}-venv), then run this again."
    )
    assert not (tmp_path / "venv").exists()


@pytest.mark.full
def test_run_sets_up_without_ensurepip(
    tmp_path: Path, without: Callable[[str], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses the pip that this Python ships for ensurepip, served by the index."""
    found = find_spec("ensurepip")
    shipped = list(Path(str(found and found.origin)).parent.glob("_bundled/pip-*.whl"))
    if not shipped:
        pytest.skip("needs a Python that ships pip's wheel")
    script = runpy.run_path(str(ROOT / "run"))
    with served(PackageIndex([Release(shipped[0].name, shipped[0].read_bytes())])) as index:
        for key, value in {**without("ensurepip"), "PIP_INDEX_URL": index.url, "PIP_CONFIG_FILE": os.devnull}.items():
            monkeypatch.setenv(key, value)
        for key in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(key, raising=False)
        # Any package will do; this index has only pip.
        script["install_with_pip"](str(tmp_path / "venv"), ["--force-reinstall", "pip"], sys.executable)
    assert [request.path for request in index.requests].count("/files/" + shipped[0].name) == 2
    python = str(tmp_path / "venv" / "bin" / "python")
    shown = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, text=True, timeout=LIMIT_S)
    assert shown.stdout.startswith(f"pip {shipped[0].name.split('-')[1]} from {tmp_path / 'venv'}")


def test_run_parses_on_an_old_python_so_that_it_can_say_which_one_is_needed() -> None:
    ast.parse((ROOT / "run").read_text("utf-8"), feature_version=(3, 6))


def test_run_reports_an_incomplete_python(without: Callable[[str], dict[str, str]]) -> None:
    argv = [sys.executable, str(ROOT / "run"), "help"]
    done = subprocess.run(argv, env=without("json"), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert done.stderr == (
        "This Python lacks parts of its standard library (No module named 'json'). "
        "Debian and Ubuntu: apt install python3\n"
    )
