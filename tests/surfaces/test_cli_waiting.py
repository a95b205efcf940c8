"""Messages that wait for a free slot, on the command line and in the chat. Both show what a message is waiting for and
when its turn starts. If the user leaves meanwhile, they say that the message stays accepted."""

import contextlib
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from perdure.surfaces.async_client import AsyncClient
from perdure.surfaces.client import Problem
from perdure.surfaces.stream import Event
from tests.harness import SharedServers, eventually
from tests.surfaces.conftest import CONFIG, ServerProcess
from tests.surfaces.terminal import Terminal

WAITS = "Waiting for a free slot: the server runs 1 turn at a time (slots = 1)."
STAYS = "The message is still waiting; its turn starts when a slot is free."


@pytest.fixture
def full(servers: SharedServers, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose only slot is taken."""
    with servers.borrowed(ServerProcess, CONFIG + "slots = 1\nproject_slots = 0\n") as process:
        process.folder = tmp_path
        process.send(process.create(title="holder"), "hang")
        yield process


def holder(server: ServerProcess) -> str:
    return str(server.get("/api/sessions?state=processing")["sessions"][0]["id"])


def free(server: ServerProcess) -> None:
    server.post(f"/api/sessions/{holder(server)}/abort", expect=202)


def begun(server: ServerProcess, *arguments: str) -> "subprocess.Popen[str]":
    """A command that runs in the background."""
    return subprocess.Popen(
        server.command(*arguments),
        env=server.environment,
        cwd=server.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def accepted(server: ServerProcess) -> str:
    found = eventually(lambda: server.get("/api/sessions?state=accepted")["sessions"], "a message waits")
    return str(found[0]["id"])


def test_send_says_what_a_message_waits_for(full: ServerProcess) -> None:
    sent = full.run("send", "say waited")
    assert (sent.returncode, sent.stderr) == (0, f"{WAITS}\n")
    session = sent.stdout.strip()
    assert full.session(session)["state"] == "accepted"
    as_json = json.loads(full.run("send", "--json", "say other").stdout)
    assert (as_json["state"], as_json["waits_for"]["message"]) == ("accepted", WAITS)
    free(full)
    full.wait_idle(session)
    assert full.text(session, 1) == "waited"


@pytest.mark.parametrize("command", [("send", "--wait"), ("run",)])
def test_a_command_that_waits_shows_why_and_then_the_start_and_the_answer(
    full: ServerProcess, command: tuple[str, ...]
) -> None:
    process = begun(full, *command, "say waited")
    assert process.stderr is not None
    assert process.stderr.readline() == f"{WAITS}\n"
    free(full)
    assert process.stderr.readline() == "The turn has started.\n"
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "waited\n", "")


def test_a_run_with_json_says_on_stderr_what_it_waits_for(full: ServerProcess) -> None:
    process = begun(full, "run", "--json", "say waited")
    assert process.stderr is not None
    assert process.stderr.readline() == f"{WAITS}\n"
    free(full)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["text"]) == (0, "waited")


@pytest.mark.parametrize("command", [("send",), ("send", "--wait"), ("run",), ("run", "--json")])
def test_a_command_may_fail_immediately_instead_of_waiting(full: ServerProcess, command: tuple[str, ...]) -> None:
    refused = full.run(*command, "--when-full", "refuse", "say x")
    assert (refused.returncode, refused.stdout) == (1, "")
    said = " ".join(refused.stderr.split())
    assert said.startswith('perdure: All slots of the server are taken (slots = 1): "holder"')
    assert full.get("/api/sessions?state=accepted")["sessions"] == []


def test_a_retry_waits_or_fails_depending_on_when_full(full: ServerProcess) -> None:
    session = holder(full)
    free(full)
    full.wait_idle(session)
    full.send(full.create(title="another"), "hang")
    assert full.run("retry", session, "--text", "say again", "--when-full", "refuse").returncode == 1
    process = begun(full, "retry", session, "--text", "say again")
    assert accepted(full) == session
    free(full)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "again\n")
    assert WAITS in err and "The turn has started." in err


def test_a_message_aborted_while_it_waits_is_reported_as_cancelled_before_it_started(full: ServerProcess) -> None:
    process = begun(full, "send", "--wait", "say x")
    session = accepted(full)
    aborted = full.run("abort", session)
    assert (aborted.returncode, aborted.stdout) == (0, "Cancelled before it started.\n")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1] == "perdure: Cancelled before it started."


def test_a_waiting_message_is_listed_shown_and_edited(full: ServerProcess) -> None:
    session = full.run("send", "say waited").stdout.strip()
    takes = holder(full)
    [row] = full.run("sessions", "--state", "accepted").stdout.splitlines()[1:]
    assert row.split()[:2] == [session, "waiting"]
    shown = full.run("show", session).stdout
    assert "state: waiting. Its turn waits for a free slot. All slots of the server are taken" in shown
    assert f'"holder" ({takes})' in shown
    assert shown.splitlines()[-1].split()[:3] == ["1", "rehearsal", "waiting"]
    assert f'"holder" ({takes})' in " ".join(full.run("explain", session).stdout.split())
    edited = full.run("edit", session, "1", "say edited").stdout
    assert " ".join(edited.split()) == "Changed the message of turn 1. The turn has not started yet."
    free(full)
    full.wait_idle(session)
    assert full.text(session, 1) == "edited"


def test_a_second_message_is_refused_with_the_reason_and_can_be_queued(full: ServerProcess) -> None:
    session = full.run("send", "say one").stdout.strip()
    refused = full.run("send", session, "say two")
    assert refused.returncode == 1
    assert " ".join(refused.stderr.split()).startswith(
        "perdure: A message is waiting for a slot. Send with --queue to wait"
    )
    assert "A message is waiting for a slot." in full.run("rewind", session, "1").stderr
    queued = full.run("send", session, "--queue", "say two")
    assert (queued.returncode, queued.stderr) == (0, "Queued: another message is waiting for a slot.\n")
    free(full)
    full.wait(session, lambda shown: shown["turn_count"] == 2 and shown["state"] == "idle")
    assert full.text(session, 2) == "two"


def test_a_plain_chat_waits_line_by_line(full: ServerProcess) -> None:
    process = subprocess.Popen(
        full.command("chat"),
        env=full.environment,
        cwd=full.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write("say one\nsay two\n")
    process.stdin.close()
    process.stdin = None
    assert process.stderr.readline() == f"{WAITS}\n"
    free(full)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "one\ntwo\n")


@pytest.mark.full
@pytest.mark.parametrize("command", [("send", "--wait"), ("run",), ("run", "--json")])
def test_leaving_a_command_while_a_message_waits_says_that_it_stays_accepted(
    full: ServerProcess, command: tuple[str, ...]
) -> None:
    arguments = full.command(*command, "say waited")
    with Terminal(arguments, full.environment, full.folder, signals=True) as terminal:
        terminal.wait("Waiting for a free slot")
        session = accepted(full)
        terminal.type("\x03")
        assert terminal.wait_end() == 130
        assert "".join(STAYS.split()) in "".join(terminal.text.split())
    assert full.session(session)["state"] == "accepted"
    free(full)
    full.wait_idle(session)
    assert full.text(session, 1) == "waited"


@contextlib.contextmanager
def waiting_chat(full: ServerProcess) -> Iterator[Terminal]:
    """A chat whose first message finds no slot."""
    with Terminal(full.command("chat"), full.environment, full.folder) as terminal:
        terminal.wait("New session")
        terminal.type("say waited\r")
        yield terminal


@pytest.mark.full
def test_the_chat_shows_what_a_message_waits_for_and_when_it_begins(full: ServerProcess) -> None:
    with waiting_chat(full) as terminal:
        terminal.wait("Waiting for a free slot")
        terminal.wait("Waiting for a slot rehearsal, Esc cancels")
        free(full)
        terminal.wait("The turn has started.")
        terminal.wait("Idle rehearsal")


@pytest.mark.full
def test_escape_in_the_chat_cancels_a_message_that_waits(full: ServerProcess) -> None:
    with waiting_chat(full) as terminal:
        terminal.wait("Waiting for a slot rehearsal, Esc cancels")
        terminal.type("\x1b")
        terminal.wait("Cancelled before it started.")
        terminal.wait("Idle rehearsal")


@pytest.mark.full
def test_leaving_the_chat_while_a_message_waits_says_that_it_stays(full: ServerProcess) -> None:
    with waiting_chat(full) as terminal:
        terminal.wait("Waiting for a slot rehearsal")
        terminal.type("/quit\r")
        assert terminal.wait_end() == 0
        assert "The message is still waiting; its turn starts when a slot is free." in terminal.text


def test_a_waiting_or_early_cancelled_message_can_be_exported_and_imported(
    full: ServerProcess, servers: SharedServers, tmp_path: Path
) -> None:
    cancelled, waiting = (full.run("send", text).stdout.strip() for text in ("say cancelled", "say waiting"))
    full.run("abort", cancelled)
    assert full.run("export", "--folder", str(tmp_path / "out")).returncode == 0
    metadata = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").rglob("*.json")}
    assert (metadata[waiting]["state"], metadata[cancelled]["state"]) == ("processing", "idle")
    with servers.borrowed(ServerProcess, CONFIG) as other:
        other.folder = tmp_path
        done = other.run("import", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        ends = {one: other.session(one)["turns"][0]["stop_reason"] for one in (cancelled, waiting)}
        assert ends == {cancelled: "cancelled", waiting: "failed"}, "the export does not contain what it waited for"
        assert [other.session(one)["state"] for one in (cancelled, waiting)] == ["idle", "idle"]
        assert other.recalled(waiting) == ["say waiting"]


# The Python client ----------------------------------------------------------------------------------------------------


def test_the_client_waits_unless_told_otherwise(full: ServerProcess) -> None:
    with full.client() as client:
        sent = client.send("say waited")
        assert (sent["state"], sent["waits_for"]["code"]) == ("accepted", "slots_full")
        with pytest.raises(Problem, match="slots = 1"):
            client.send("say x", when_full="refuse")
        with pytest.raises(Problem, match="slots = 1"):
            client.send("say x", full.create(), when_full="refuse")
        with pytest.raises(Problem, match="slots = 1"):
            client.begin_run("say x", when_full="refuse")
        free(full)
        kinds = [event.type for event in _until_rest(client.events(sent["session_id"], sent["seq"] - 1))]
        assert kinds[0] == "user_message" and "waiting_to_begin" in kinds
        assert kinds.index("waiting_to_begin") < kinds.index("turn_start")


def _until_rest(stream: Iterable[Event]) -> Iterator[Event]:
    for event in stream:
        yield event
        if event.type == "waiting_for_input":
            return


async def test_the_asynchronous_client_waits_too(full: ServerProcess) -> None:
    async with AsyncClient(full.address) as client:
        with pytest.raises(Problem):
            await client.run("say x", when_full="refuse")
        sent = await client.send("say waited")
        assert sent["state"] == "accepted"
        free(full)
        async for event in client.events(sent["session_id"], sent["seq"] - 1):
            if event.type == "turn_end":
                break
        assert (await client.session(sent["session_id"]))["turns"][0]["context"] == "fresh"
