"""The steps in docs/nodes.md, run literally on this machine: PostgreSQL, two nodes, and nginx in front of them.

Only what would affect the machine itself is replaced: the ports, the home directory and the PostgreSQL server.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests import postgres
from tests.harness import SOURCE, WAIT_S, LiveServer, eventually
from tests.postgres import free_port, run_sql
from tests.surfaces.http.local import LocalStream

pytestmark = [pytest.mark.needs("postgresql", "nginx"), pytest.mark.full]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "nodes.md"
PORTS = ("7433", "7434", "7400")
PASSWORD = "choose-one"


def blocks(language: str = "") -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def block_with(words: str, language: str = "") -> str:
    return next(block for block in blocks(language) if words in block)


class FrontDoor(LiveServer):
    """All nodes as a client sees them: one address."""

    def __init__(self, data: Path, port: int, token: str) -> None:
        super().__init__(data)
        self.given_token = token
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(
            base_url=self.url, headers={"authorization": f"Bearer {token}"}, timeout=WAIT_S, trust_env=False
        )


@pytest.fixture
def ports() -> dict[str, str]:
    return {name: str(free_port()) for name in PORTS}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as ended:
        yield ended


def with_ports(text: str, ports: dict[str, str]) -> str:
    for name, port in ports.items():
        text = re.sub(rf"\b{name}\b", port, text)
    return text


def started(command: str, home: Path, stack: ExitStack) -> "subprocess.Popen[bytes]":
    """Run one of the page's terminals: its exports, then its command."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": SOURCE}
    *exports, line = command.strip().splitlines()
    for export in exports:
        name, _, value = export.removeprefix("export ").partition("=")
        environment[name] = value
    argv = [part.replace("~", str(home), 1) for part in shlex.split(line)]
    assert argv[:2] == ["perdure", "serve"]
    log = stack.enter_context((home / f"{argv[-1]}.log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-m", *argv], env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
    )

    def ended() -> None:
        process.terminate()
        process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()

    stack.callback(ended)
    assert process.stdout is not None
    assert b"listening on" in process.stdout.readline(), (home / f"{argv[-1]}.log").read_text()
    return process


def nginx(folder: Path, configuration: str, stack: ExitStack) -> None:
    """Start nginx with the configuration included like in Debian's nginx.conf."""
    folder.mkdir()
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; {paths}\n{configuration}\n}}\n"
    )
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")])
    stack.callback(process.wait, WAIT_S)
    stack.callback(process.terminate)


def test_the_page_followed_literally_gives_two_nodes_behind_nginx(
    tmp_path: Path, postgres_server: postgres.Shared, ports: dict[str, str], stack: ExitStack
) -> None:
    role, database = f"perdure_{ports['7400']}", f"perdure_{ports['7400']}"
    made = re.search(r"psql -c \"(CREATE ROLE .*?)\"", block_with("CREATE ROLE"))
    assert made is not None and "createdb --owner perdure perdure" in block_with("createdb")
    run_sql(postgres_server, made[1].replace("ROLE perdure", f"ROLE {role}"))
    stack.callback(run_sql, postgres_server, f"DROP ROLE {role}")
    run_sql(postgres_server, f"CREATE DATABASE {database} OWNER {role}")
    stack.callback(postgres.drop_database, postgres_server, database)
    place = postgres_server.url("").rpartition("@")[2].rstrip("/")
    written = f"postgresql://perdure:{PASSWORD}@127.0.0.1/perdure"
    here = f"postgresql://{role}:{PASSWORD}@{place}/{database}"
    for name in ("node-a", "node-b"):
        # Kill what a killed node has left in its keepers.
        stack.callback(LiveServer(tmp_path / name).destroy)
    nodes = [block for block in blocks() if "perdure serve --data" in block]
    assert len(nodes) == 2 and all(written in block for block in nodes)
    a, _ = (started(with_ports(block.replace(written, here), ports), tmp_path, stack) for block in nodes)
    nginx(tmp_path / "nginx", with_ports(block_with("upstream", "nginx"), ports), stack)
    token = (tmp_path / "node-a" / "token").read_text().strip()
    front = FrontDoor(tmp_path / "front", int(ports["7400"]), token)
    stack.callback(front.http.close)

    def answers() -> bool:
        try:
            return front.http.get("/api/ready").is_success
        except httpx2.TransportError:
            return False

    eventually(answers, "nginx answers")
    shown = front.get("/api/nodes")["nodes"]
    assert [node["state"] for node in shown] == ["alive", "alive"]
    session = front.create(agent="rehearsal")
    with LocalStream(front, f"/api/sessions/{session}/events") as viewer:
        front.send(session, "stream 50 5")
        said = "".join(data["delta"] for _, kind, data in viewer.until("turn_end") if kind == "assistant_text")
    assert said == "".join(f"w{number} " for number in range(50))
    a.kill()
    for _ in range(6):
        assert front.session(session)["turn_count"] == 1, "nginx uses the remaining node"
