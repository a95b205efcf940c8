"""The background server that `perdure chat` starts, in real terminals; and stopping it."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.surfaces.cli.background import LOG_KEPT_BYTES
from perdure.surfaces.cli.reach import is_held
from tests.harness import SOURCE, none_left, remove_groups
from tests.surfaces.conftest import COMMAND_LIMIT_S
from tests.surfaces.terminal import Terminal


class Machine:
    """A user's account: a home with a repository, and no server."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / ".local" / "share" / "perdure"
        self.repository = home / "code"
        self.repository.mkdir(parents=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "XDG_"))}
        self.environment = {**kept, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", "HOME": str(home)}
        self.environment["PERDURE_PORT"] = "0"

    def configure(self, settings: str) -> None:
        self.data.mkdir(mode=0o700, parents=True)
        (self.data / "perdure.toml").write_text(settings)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "perdure", *arguments]

    def chat(self, *arguments: str) -> Terminal:
        return Terminal(self.command("chat", "--agent", "rehearsal", *arguments), self.environment, self.repository)

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            input=stdin, capture_output=True, text=True, env=self.environment, cwd=self.repository,
            timeout=COMMAND_LIMIT_S,
        )  # fmt: skip

    @property
    def is_served(self) -> bool:
        return is_held(self.data / "lock")

    def clean(self) -> None:
        if self.is_served:
            self.run("stop", "--all")
            stopped = self.run("serve", "--stop")
            assert stopped.returncode == 0, stopped.stderr
            none_left(self.data)
            remove_groups(self.data)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    yield made
    made.clean()


@pytest.mark.full
def test_a_server_is_started_in_the_background_once(machine: Machine) -> None:
    started = machine.run("serve", "--background")
    pid = json.loads((machine.data / "server.json").read_text())["pid"]
    assert started.returncode == 0 and machine.is_served
    assert f"(pid {pid})." in started.stderr and "Stop it with: perdure serve --stop" in started.stderr
    again = machine.run("serve", "--background")
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("A server is already running: http://127.0.0.1:") and f"(pid {pid})." in again.stderr
    refused = machine.run("serve", "--background", "--port", "1")
    assert (
        refused.returncode == 2 and "--background can only be combined with --data; leave out --port." in refused.stderr
    )


@pytest.mark.full
def test_a_chat_starts_a_server_and_says_so_and_the_server_outlives_it(machine: Machine) -> None:
    with machine.chat() as chat:
        text = chat.wait("New session.")
        pid = json.loads((machine.data / "server.json").read_text())["pid"]
        assert "Started a server in the background: http://127.0.0.1:" in text and f"(pid {pid})." in text
        assert "It keeps running when you leave. Its log: ~/.local/share/perdure/server.log\n" in text
        assert "Stop it with: perdure serve --stop\n" in text
        assert "Perdure: rehearsal, its default model, in ~/code" in text
        chat.enter("edit made-here.txt")
        chat.wait("Turn 1,")
        chat.enter("/quit")
        assert chat.wait_end() == 0
    assert (machine.repository / "made-here.txt").exists()
    assert machine.is_served
    assert (machine.data / "server.log").stat().st_mode & 0o777 == 0o600
    with machine.chat("last") as again:
        text = again.wait("/help lists")
        assert "Started a server" not in text
        assert f"Session {json.loads(machine.run('show', '--json', 'last').stdout)['id']}" in text
    stopped = machine.run("serve", "--stop")
    assert stopped.returncode == 0 and stopped.stdout.startswith("Stopped the server.")
    assert not machine.is_served
    again_stopped = machine.run("serve", "--stop")
    assert again_stopped.returncode == 3 and "No server is running for" in again_stopped.stderr


def server_pid(machine: Machine) -> int:
    return int(json.loads((machine.data / "server.json").read_text())["pid"])


@pytest.mark.full
def test_the_chat_restarts_a_server_that_died_but_not_one_that_was_stopped(machine: Machine) -> None:
    with machine.chat() as chat:
        chat.wait("New session.")
        first = server_pid(machine)
        os.kill(first, signal.SIGKILL)
        chat.wait("The server died and is being restarted")
        chat.enter("say hello")
        chat.wait("Turn 1,")
        second = server_pid(machine)
        assert second != first
        chat.enter("/quit")
        assert chat.wait_end() == 0
    with machine.chat("last") as again:
        again.wait("Idle")
        os.kill(second, signal.SIGKILL)
        again.wait("is being restarted")
        again.wait("Idle")
        assert machine.run("serve", "--stop").returncode == 0
        again.wait("The server has stopped. Start it with `perdure serve`")
        again.wait("Reconnecting")
        again.type("\x04")
        assert again.wait_end() == 0
    assert not machine.is_served


@pytest.mark.full
def test_the_chat_reports_a_server_that_does_not_restart(machine: Machine) -> None:
    with machine.chat() as chat:
        chat.wait("New session.")
        (machine.data / "perdure.toml").write_text("[broken\n")
        os.kill(server_pid(machine), signal.SIGKILL)
        chat.wait("The server did not restart (exit code ")
        chat.wait("start the server with `perdure serve`.")


@pytest.mark.full
def test_of_two_simultaneous_chats_one_starts_the_server_and_both_use_it(machine: Machine) -> None:
    with machine.chat() as one, machine.chat() as other:
        texts = [one.wait("New session."), other.wait("New session.")]
        assert sorted("Started a server" in text for text in texts) == [False, True]
        one.enter("say from one")
        other.enter("say from the other")
        one.wait("Turn 1,")
        other.wait("Turn 1,")
        assert (machine.data / "server.log").read_text().count("listening on") == 1
    assert len(json.loads(machine.run("sessions", "--json").stdout)["sessions"]) == 2


@pytest.mark.full
def test_a_chat_that_waits_for_the_server_of_another_chat_shows_progress(machine: Machine) -> None:
    machine.data.mkdir(mode=0o700, parents=True)
    with (machine.data / "starting.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with machine.chat() as chat:
            chat.wait("Another chat is starting a server ... 1 s")
            fcntl.flock(lock, fcntl.LOCK_UN)
            chat.wait("New session.")


@pytest.mark.full
def test_a_port_in_use_ends_the_chat_with_the_servers_last_lines(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        machine.environment["PERDURE_PORT"] = str(port)
        with machine.chat() as chat:
            assert chat.wait_end() == 3
            said = " ".join(chat.text.split())
    assert "perdure: The server did not start (exit code 1). Its log, ~/.local/share/perdure/server.log:" in said
    assert f"Port {port} on 127.0.0.1 can't be used: Address already in use." in said
    assert "start the server with `perdure serve`" in said
    assert not machine.is_served


@pytest.mark.full
def test_invalid_settings_end_the_chat_with_the_reason(machine: Machine) -> None:
    machine.configure("[server]\nslots = 'many'\n")
    (machine.data / "server.log").write_text("a line of an earlier server\n")
    with machine.chat() as chat:
        assert chat.wait_end() == 3
        assert "The server did not start" in chat.text and "slots" in chat.text
        assert "earlier server" not in chat.text


@pytest.mark.full
def test_a_long_log_is_rotated(machine: Machine) -> None:
    machine.configure("[server]\nslots = 'many'\n")
    (machine.data / "server.log").write_text("x" * LOG_KEPT_BYTES + "\n")
    with machine.chat() as chat:
        assert chat.wait_end() == 3
    assert (machine.data / "server.log.1").stat().st_size == LOG_KEPT_BYTES + 1
    assert "slots" in (machine.data / "server.log").read_text()


@pytest.mark.full
def test_no_server_is_started_for_a_given_url_for_a_script_or_where_no_session_can_work(machine: Machine) -> None:
    with Terminal(machine.command("chat"), machine.environment, Path("/")) as chat:
        assert chat.wait_end() == 2
        assert "The current directory is /" in chat.text
    with machine.chat("--url", "http://127.0.0.1:9") as chat:
        assert chat.wait_end() == 3
    for arguments in (("chat",), ("send", "say hi"), ("run", "say hi")):
        refused = machine.run(*arguments, stdin="say hi\n")
        assert refused.returncode == 3 and "perdure serve" in refused.stderr
    assert not machine.data.exists()


@pytest.mark.full
def test_stop_never_ends_a_process_that_is_not_the_server(machine: Machine) -> None:
    machine.data.mkdir(mode=0o700, parents=True)
    with (machine.data / "lock").open("w") as lock, subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            note = {"url": "http://127.0.0.1:9", "pid": bystander.pid}
            (machine.data / "server.json").write_text(json.dumps(note))
            refused = machine.run("serve", "--stop")
            assert refused.returncode == 1 and "Stop it there." in refused.stderr
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert machine.run("serve", "--stop", "--port", "1").returncode == 2
