"""The real `claude` program with the scripted model: what a driver can rely on, and that the model is realistic enough.
Skipped if `./run agents` did not install it."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RealAgent
from tests.harness import eventually
from tests.model.claude_process import MODEL, ClaudeProcess, environment
from tests.model.log import common_prefix, user_texts
from tests.model.server import ModelServer

pytestmark = pytest.mark.timeout(180)

ONE_SHOT_S = 90
Start = Callable[..., ClaudeProcess]


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def start(model: ModelServer, real_agent: Callable[[str], RealAgent], tmp_path: Path, workdir: Path) -> Iterator[Start]:
    agent = real_agent("claude")
    made: list[ClaudeProcess] = []

    def make(*flags: str) -> ClaudeProcess:
        made.append(ClaudeProcess(agent, environment(model, tmp_path), workdir, *flags))
        return made[-1]

    yield make
    for process in made:
        process.close()


@pytest.fixture
def claude(start: Start) -> ClaudeProcess:
    return start()


def recalled(result: dict[str, Any]) -> list[str]:
    return [json.loads(line[2:]) for line in result["result"].split("\n") if line.startswith("- ")]


def test_a_single_prompt_is_answered_as_scripted(
    model: ModelServer, real_agent: Callable[[str], RealAgent], tmp_path: Path, workdir: Path
) -> None:
    argv = [*real_agent("claude").argv, "-p", "usage 1234 56\nsay hello from the script", "--model", MODEL]
    done = subprocess.run(
        [*argv, "--output-format", "json"],
        env=environment(model, tmp_path),
        cwd=workdir,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=ONE_SHOT_S,
    )
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert answer["result"] == "hello from the script"
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (1234, 56)
    assert [(request.path, request.query) for request in model.log.asked] == [("/v1/messages", "beta=true")]


def test_three_turns_are_remembered_and_each_request_extends_the_previous_one(
    claude: ClaudeProcess, model: ModelServer
) -> None:
    assert claude.turn("say one\nsay and two")["result"] == "one\nand two"
    claude.turn("think a while\nsay three")
    assert recalled(claude.turn("recall")) == ["say one\nsay and two", "think a while\nsay three", "recall"]
    first, second, third = model.log.asked
    assert common_prefix(first, second).whole
    assert common_prefix(second, third).whole


def test_a_resumed_session_remembers_and_keeps_the_prefix(start: Start, model: ModelServer) -> None:
    before = start()
    session = before.turn("say one")["session_id"]
    before.close()
    after = start("--resume", session)
    assert recalled(after.turn("recall")) == ["say one", "recall"]
    assert common_prefix(*model.log.asked).whole


def test_an_allowed_command_runs_and_its_result_reaches_the_model(claude: ClaudeProcess, workdir: Path) -> None:
    claude.send("say Let me see.\nbash touch made && echo made-it\nresult\nsay done")
    request = claude.asked()
    assert request["request"]["tool_name"] == "Bash"
    assert request["request"]["input"]["command"] == "touch made && echo made-it"
    claude.answer(request, {"behavior": "allow", "updatedInput": request["request"]["input"]})
    assert claude.result()["result"] == "The tool said: made-it\ndone"
    assert (workdir / "made").exists()


def test_a_denied_command_does_not_run_and_the_turn_continues(claude: ClaudeProcess, workdir: Path) -> None:
    claude.send("bash touch made")
    request = claude.asked()
    claude.answer(request, {"behavior": "deny", "message": "The person said no"})
    result = claude.result()
    assert "The person said no" in result["result"]
    assert not result["is_error"]
    assert not (workdir / "made").exists()


def test_a_written_file_exists_and_can_be_read(claude: ClaudeProcess, workdir: Path) -> None:
    path = workdir / "note.txt"
    claude.send(f"write {path} a note\nread {path}")
    request = claude.asked()
    assert request["request"]["tool_name"] == "Write"
    claude.answer(request, {"behavior": "allow", "updatedInput": request["request"]["input"]})
    assert "a note" in claude.result()["result"]
    assert path.read_text() == "a note"


def test_an_answered_question_reaches_the_model(claude: ClaudeProcess) -> None:
    claude.send("ask Which colour? | Red | Blue")
    request = claude.asked()
    assert request["request"]["tool_name"] == "AskUserQuestion"
    questions = request["request"]["input"]["questions"]
    assert [option["label"] for option in questions[0]["options"]] == ["Red", "Blue"]
    answers = {questions[0]["question"]: "Blue"}
    claude.answer(request, {"behavior": "allow", "updatedInput": {"questions": questions, "answers": answers}})
    assert '"Which colour?"="Blue"' in claude.result()["result"]


def test_requests_to_an_overloaded_model_are_retried(claude: ClaudeProcess, model: ModelServer) -> None:
    result = claude.turn("fail 529 1\nsay better now")
    assert result["result"] == "better now"
    assert [request.status for request in model.log.asked] == [529, 200]
    retry = next(event for event in claude.events if event.get("subtype") == "api_retry")
    assert (retry["attempt"], retry["error_status"]) == (1, 529)


def test_an_invalid_request_fails_the_turn_and_not_the_process(claude: ClaudeProcess) -> None:
    failed = claude.turn("fail 400")
    assert failed["is_error"] and failed["api_error_status"] == 400
    assert not claude.turn("say still here")["is_error"]


def test_a_stream_that_is_cut_off_is_requested_again(claude: ClaudeProcess, model: ModelServer) -> None:
    assert claude.turn("say half\ncut\nsay whole")["result"] == "half\nwhole"
    assert model.log.outcomes() == ["cut", "answered"]


def test_an_interrupt_cuts_off_the_answer(claude: ClaudeProcess, model: ModelServer) -> None:
    claude.send("stream 2000 20")
    claude.until(lambda event: event.get("event", {}).get("delta", {}).get("text") == "w3 ")
    claude.interrupt()
    result = claude.result()
    assert result["terminal_reason"] == "aborted_streaming"
    model.log.wait(lambda request: request.outcome == "left")
    assert recalled(claude.turn("recall")) == ["stream 2000 20", "recall"]


def test_an_interrupt_ends_a_stalled_stream(claude: ClaudeProcess, model: ModelServer) -> None:
    claude.send("stall")
    model.log.wait(lambda request: user_texts(request) == ["stall"])
    claude.until(lambda event: event.get("event", {}).get("type") == "message_start")
    claude.interrupt()
    assert claude.result()["is_error"]
    assert claude.turn("say back")["result"] == "back"


def test_a_message_sent_while_a_command_runs_is_the_newest(claude: ClaudeProcess, workdir: Path) -> None:
    # Bounded, because the program would leave it running if this test failed.
    claude.send("bash touch begun; for i in $(seq 400); do [ -e go ] && break; sleep 0.05; done")
    request = claude.asked()
    claude.answer(request, {"behavior": "allow", "updatedInput": request["request"]["input"]})
    eventually((workdir / "begun").exists, "the command runs")
    claude.send("recall")
    claude.until(lambda event: event["type"] == "command_lifecycle" and event["state"] == "queued")
    (workdir / "go").touch()
    assert recalled(claude.result())[-1] == "recall"
