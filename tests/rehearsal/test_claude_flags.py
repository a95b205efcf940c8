"""The command line of the Claude dialect: which arguments it accepts, and its errors for others."""

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from perdure.rehearsal.claude_flags import BadFlags, Flags, check, parse
from tests.rehearsal.claude_client import STREAMS, command, environment
from tests.rehearsal.listener import WAIT_LIMIT_S

VALID = Flags(print_mode=True)
INPUT_CHOICES = "Allowed choices are text, stream-json."


def run(
    tmp_path: Path, *flags: str, typed: bytes = b"", cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[bytes]:
    workdir = cwd or tmp_path / "work"
    workdir.mkdir(exist_ok=True)
    return subprocess.run(
        command(*flags),
        input=typed,
        capture_output=True,
        cwd=workdir,
        env=environment(tmp_path / "memory", **more),
        timeout=WAIT_LIMIT_S,
    )


def test_the_agent_prints_its_version(tmp_path: Path) -> None:
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, b"2.1.197 (Claude Code rehearsal)\n")


def test_flags_are_accepted_in_every_spelling() -> None:
    words = ["-p", "--output-format=stream-json", "--verbose", "--allowedTools", "Read,Write", "Edit", "--model", "m"]
    words += ["-r", "--fork-session"]
    flags = parse([*words, "--append-system-prompt", "--looks-like-a-flag", "--max-turns", "3", "do it"])
    assert flags.print_mode and flags.verbose and flags.fork
    assert flags.output_format == "stream-json"
    assert flags.allowed_tools == ("Read", "Write", "Edit")
    assert (flags.model, flags.resume, flags.max_turns, flags.prompt) == ("m", "", 3, "do it")
    assert parse(["-p", "--", "--verbose"]).prompt == "--verbose"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--no-such-flag", "error: unknown option '--no-such-flag'"),
        ("--verbose=yes", "error: unknown option '--verbose=yes'"),
        ("--model", "error: option '--model <model>' argument missing"),
        ("--input-format xml", "error: option '--input-format <format>' argument 'xml' is invalid. " + INPUT_CHOICES),
        (
            "--max-turns none",
            "error: option '--max-turns <turns>' argument 'none' is invalid. Must be a positive number.",
        ),
    ],
)
def test_arguments_that_the_real_one_rejects_are_refused(words: str, message: str) -> None:
    with pytest.raises(BadFlags) as refused:
        parse(words.split())
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(), "Error: the rehearsal agent has no interactive mode. Use --print."),
        (
            VALID._replace(output_format="stream-json"),
            "Error: When using --print, --output-format=stream-json requires --verbose",
        ),
        (VALID._replace(input_format="stream-json"), "--input-format=stream-json requires"),
        (VALID._replace(session_id="x"), "Error: Invalid session ID. Must be a valid UUID."),
        (
            VALID._replace(session_id="x", resume="y"),
            "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.",
        ),
        (VALID._replace(prompt_tool="mcp__x"), "mcp__x (passed via --permission-prompt-tool) not found"),
        (VALID._replace(resume=""), "Error: --resume requires a valid session ID"),
        (VALID._replace(replay=True), "Error: --replay-user-messages requires"),
        (VALID._replace(partial=True), "Error: --include-partial-messages requires"),
    ],
)
def test_the_rules_of_the_command_line_are_enforced(flags: Flags, message: str) -> None:
    with pytest.raises(BadFlags, match=message.replace("(", r"\(").replace(")", r"\)")):
        check(flags, False, False, {})


def test_root_may_skip_permissions_in_a_sandbox_only() -> None:
    for flags in (VALID._replace(skip_permissions=True), VALID._replace(permission_mode="bypassPermissions")):
        with pytest.raises(BadFlags, match="cannot be used with root/sudo privileges"):
            check(flags, False, True, {})
        check(flags, False, True, {"IS_SANDBOX": "1"})
        check(flags, False, False, {})


def test_a_refusal_is_one_line_on_stderr_and_exit_code_1(tmp_path: Path) -> None:
    done = run(tmp_path, "-p", "--no-such-flag", "say x")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"error: unknown option '--no-such-flag'\n")


def test_a_prompt_on_the_command_line_is_answered_in_each_format(tmp_path: Path) -> None:
    assert run(tmp_path, "-p", "say hello").stdout == b"hello\n"
    result = json.loads(run(tmp_path, "-p", "--output-format", "json", "say hello").stdout)
    assert (result["type"], result["result"], result["is_error"]) == ("result", "hello", False)
    done = run(tmp_path, "-p", "--output-format", "stream-json", "--verbose", "say hello")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["system", "assistant", "result"]


def test_stdin_is_the_prompt_or_is_added_to_it(tmp_path: Path) -> None:
    assert run(tmp_path, "-p", typed=b"say typed\n").stdout == b"typed\n"
    assert run(tmp_path, "-p", "say one", typed=b"say two\n").stdout == b"one\ntwo\n"
    nothing = run(tmp_path, "-p")
    assert nothing.returncode == 1
    assert nothing.stderr.startswith(b"Error: Input must be provided either through stdin or as a prompt argument")


def test_a_failed_turn_gives_exit_code_1(tmp_path: Path) -> None:
    done = run(tmp_path, "-p", "limit 90")
    assert done.returncode == 1
    assert done.stdout.startswith(b"You've hit your session limit")


def test_a_prompt_on_the_command_line_is_ignored_where_messages_are_streamed(tmp_path: Path) -> None:
    done = run(tmp_path, *STREAMS, "say ignored")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_session_id_is_used_once(tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    assert run(tmp_path, "-p", "--session-id", session, "say one").returncode == 0
    again = run(tmp_path, "-p", "--session-id", session, "say two")
    assert (again.returncode, again.stderr) == (1, f"Error: Session ID {session} is already in use.\n".encode())


def test_one_process_per_turn_continues_with_resume(tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    run(tmp_path, "-p", "--session-id", session, "say one")
    assert run(tmp_path, "-p", "--resume", session, "recall").stdout == b'recall 2\n- "say one"\n- "recall"\n'
    assert run(tmp_path, "-p", "--continue", "recall").stdout.startswith(b"recall 3\n")
    forked = json.loads(run(tmp_path, "-p", "--output-format=json", "-r", session, "--fork-session", "recall").stdout)
    assert forked["session_id"] != session
    assert forked["result"].startswith("recall 4\n")
    assert run(tmp_path, "-p", "--resume", session, "recall").stdout.startswith(b"recall 4\n")


def test_a_session_is_not_found_from_another_directory(tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    run(tmp_path, "-p", "--session-id", session, "say one")
    done = run(tmp_path, "-p", "--resume", session, "recall", cwd=tmp_path / "other")
    message = f"No conversation found with session ID: {session}\n".encode()
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", message)


def test_a_directory_by_another_name_is_the_same_directory(tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    run(tmp_path, "-p", "--session-id", session, "say one")
    os.symlink(tmp_path / "work", tmp_path / "link")
    assert run(tmp_path, "-p", "--resume", session, "recall", cwd=tmp_path / "link").returncode == 0


def test_continue_without_an_earlier_session_starts_a_new_one(tmp_path: Path) -> None:
    assert run(tmp_path, "-p", "--continue", "recall").stdout.startswith(b"recall 1\n")


def test_a_session_without_persistence_can_not_be_resumed(tmp_path: Path) -> None:
    done = run(tmp_path, "-p", "--output-format", "json", "--no-session-persistence", "recall")
    result = json.loads(done.stdout)
    assert result["result"].startswith("recall 1\n")
    assert run(tmp_path, "-p", "--resume", result["session_id"], "recall").returncode == 1


def test_a_resume_value_that_is_not_an_id_is_explained(tmp_path: Path) -> None:
    done = run(tmp_path, *STREAMS, "--resume", "garbage")
    result = json.loads(done.stdout)
    assert done.returncode == 1
    assert 'Provided value "garbage" is not a UUID' in result["errors"][0]
    assert done.stderr.decode().strip() == result["errors"][0]
