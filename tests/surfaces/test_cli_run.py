"""`perdure run` and the client's `run`, against a real server and the rehearsal agent."""

import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from perdure.surfaces import cli
from tests.surfaces.conftest import COMMAND_LIMIT_S, ServerProcess


def test_a_run_writes_the_answer_and_nothing_else_to_stdout(server: ServerProcess) -> None:
    done = server.run("run", "say the answer")
    assert (done.returncode, done.stdout) == (0, "the answer\n")
    session = json.loads(server.run("show", "--json", "last").stdout)
    assert (session["state"], session["status"]) == ("ended", "completed")


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_stdin_is_the_prompt_if_none_is_given(server: ServerProcess, arguments: tuple[str, ...]) -> None:
    done = server.run("run", *arguments, stdin="think hm\nedit notes.txt\nsay piped\n")
    assert (done.returncode, done.stdout) == (0, "piped\n")
    assert "> Edited notes.txt" in done.stderr


def test_a_failed_run_exits_1_and_keeps_its_output(server: ServerProcess) -> None:
    done = server.run("run", stdin="say partly\ncrash 3\n")
    assert done.returncode == 1
    assert "partly" in done.stdout and "The turn failed" in done.stderr


def test_json_is_the_run_as_one_document(server: ServerProcess) -> None:
    done = server.run("run", "--json", "say the answer")
    run = json.loads(done.stdout)
    assert (done.returncode, run["status"], run["text"]) == (0, "completed", "the answer")
    failed = server.run("run", "--json", "crash")
    assert (failed.returncode, json.loads(failed.stdout)["status"]) == (1, "failed")


def test_agent_project_workdir_model_and_mode_are_applied(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    options = ["--agent", "rehearsal", "--model", "rehearsal-2", "--mode", "auto"]
    assert server.run("run", *options, "--workdir", "site", "edit a.txt").returncode == 0
    shown = json.loads(server.run("show", "--json", "last").stdout)
    assert (shown["agent"], shown["model"], shown["mode"]) == ("rehearsal", "rehearsal-2", "auto")
    assert shown["workdir"] == str(folder) and (folder / "a.txt").exists()
    assert server.run("projects", "add", str(folder)).returncode == 0
    assert server.run("run", "--project", "site", "say hi").stdout == "hi\n"
    assert json.loads(server.run("show", "--json", "last").stdout)["project"] == "site"


@pytest.mark.full
def test_a_run_and_a_message_record_the_parent_session_that_starts_them(server: ServerProcess) -> None:
    parent = server.run("send", "--new", "--wait", "--json", "say one").stdout
    session = json.loads(parent.split("\n")[0])["session_id"]
    assert server.run("run", "--parent", session[:-2], "say two").stdout == "two\n"
    child = json.loads(server.run("show", "--json", "last").stdout)
    assert child["parent"] == session
    assert server.run("send", "--parent", session, "say three").returncode == 0
    assert f"  parent: {session}" in server.run("show", "last").stdout
    refused = server.run("run", "--parent", "s_none", "say four")
    assert refused.returncode == 1 and "There is no session 's_none'" in refused.stderr


def test_tools_that_are_not_allowed_are_denied_and_reported(server: ServerProcess) -> None:
    denied = server.run("run", "permit Deploy")
    assert denied.returncode == 0 and "perdure answer" not in denied.stderr
    session = json.loads(server.run("sessions", "--json").stdout)["sessions"][0]["id"]
    assert '"outcome":"denied"' in server.run("export", session).stdout
    server.run("run", "--allow", "Read:/tmp/*", "--allow", "Deploy", "permit Deploy")
    assert '"outcome":"allowed"' in server.run("export", "last").stdout
    rules = json.loads(server.run("show", "--json", "last").stdout)["permissions"]
    assert [(rule["tool"], rule["pattern"]) for rule in rules] == [("Read", "/tmp/*"), ("Deploy", "*")]


def test_a_run_with_a_time_limit_is_stopped(server: ServerProcess) -> None:
    done = server.run("run", "--timeout", "0.2", "hang")
    assert done.returncode == 1
    turn = json.loads(server.run("show", "--json", "last").stdout)["turns"][0]
    assert turn["stop_reason"] == "timed_out"


def test_the_same_message_id_is_one_run(server: ServerProcess) -> None:
    for _ in range(2):
        assert server.run("run", "--message-id", "once", "say once").stdout == "once\n"
    assert len(json.loads(server.run("sessions", "--json").stdout)["sessions"]) == 1


def test_an_invalid_run_is_a_usage_error_or_refused(server: ServerProcess) -> None:
    assert server.run("run", stdin=" \n").returncode == 2
    assert server.run("run", "--timeout", "-1", "say hi").returncode == 2
    unknown = server.run("run", "--agent", "nobody", "say hi")
    assert unknown.returncode == 1 and "(not_found)" in unknown.stderr


def test_without_a_server_the_exit_code_is_3(tmp_path: Path) -> None:
    assert cli.main(["--data", str(tmp_path), "run", "say hi"]) == 3


def test_ctrl_c_leaves_the_run_running_and_says_how_to_stop_it(server: ServerProcess) -> None:
    running = subprocess.Popen(
        server.command("run", "-"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=server.environment, cwd=server.folder,
    )  # fmt: skip
    assert running.stdin is not None and running.stdout is not None
    running.stdin.write("say begun\nhang\n")
    running.stdin.close()
    running.stdin = None
    assert running.stdout.read(5) == "begun"
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=COMMAND_LIMIT_S)
    session = json.loads(server.run("sessions", "--json").stdout)["sessions"][0]
    assert running.returncode == 130 and f"perdure --data {server.data} abort {session['id']}" in errors
    assert session["state"] == "processing"


@pytest.mark.full
def test_a_run_of_the_client_survives_a_killed_server(server: ServerProcess) -> None:
    with server.client(patience_s=COMMAND_LIMIT_S) as client:
        found: list[object] = []
        begun = client.begin_run("sleep 2\nsay survived", message_id="sleeper")
        next(event for event in client.events(begun["session_id"], 0) if event.type == "agent_attached")
        waiting = threading.Thread(
            target=lambda: found.append(client.run("sleep 2\nsay survived", message_id="sleeper"))
        )
        waiting.start()
        server.kill()
        server.start()
        waiting.join(COMMAND_LIMIT_S)
    assert [run["text"] for run in found if isinstance(run, dict)] == ["survived"]
