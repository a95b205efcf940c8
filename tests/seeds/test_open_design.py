"""A program made for Open Design: each guard of its resume rule, questions, a lost connection and a cancel, against the
settings of docs/open-design.md. Each test checks whether the run was resumed, and that the agent knows exactly what it
should, from its native session or from the replay."""

import json
import sys
from collections.abc import Callable

import pytest

from tests.harness import LiveServer
from tests.seeds.open_design_client import Chat

Serve = Callable[..., LiveServer]


def chat_of(server: LiveServer) -> Chat:
    return Chat(server.url, server.token, "design")


def recalled(chat: Chat, agent: str | None = None, *, fresh: bool = False) -> tuple[bool, list[str]]:
    """Run one more turn. Returns whether it was resumed, and which earlier messages the agent knows."""
    run = chat.ask("recall", agent=agent, force_fresh_session=fresh)
    lines = [json.loads(line[2:]) for line in chat.said(run).split("\n") if line.startswith("- ")]
    assert run["status"] == "completed" and lines[-1] == "recall"
    return run["sessionResumed"], lines[:-1]


@pytest.mark.smoke
def test_a_follow_up_is_resumed_and_sends_the_new_message_alone(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    first = chat.ask("say " + "a long first answer " * 200)
    assert (first["status"], first["sessionResumed"]) == ("completed", False)
    second = chat.finished(chat.send("stream 200 5\nrecall"), lose_connection=True)
    assert second["sessionResumed"] is True and second["input_bytes"] < first["input_bytes"]
    assert "a long first answer" in chat.said(second)


def test_a_restarted_context_gets_a_full_replay(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    assert recalled(chat, fresh=True) == (False, ["say one"])
    assert recalled(chat) == (True, ["say one", "recall"])


def test_another_agent_gets_its_scope_and_the_first_one_resumes(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    # With scope `agent`: only what follows another agent's last answer.
    assert recalled(chat, "codex") == (False, [])
    assert recalled(chat, "claude") == (True, ["say one"])


def test_an_edited_and_a_retried_turn_are_not_resumed(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    chat.ask("say two")
    chat.edit(1, "say won")
    assert recalled(chat) == (False, ["say won", "say two"])
    again = chat.retry(2)
    assert again["sessionResumed"] is False
    assert recalled(chat) == (True, ["say won", "say two"])


def test_an_edit_of_a_foreign_turn_that_stays_the_boundary_is_resumed(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one", agent="codex")
    chat.ask("say two", agent="claude")
    chat.edit(1, "say won")
    assert recalled(chat) == (True, ["say two"])


def test_a_retry_of_the_foreign_turn_at_the_boundary_is_not_resumed(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    chat.ask("say two", agent="codex")
    chat.ask("say three", agent="claude")
    chat.retry(2)
    # The agent's scope starts after the other agent's answer, which is there again.
    assert recalled(chat, "claude") == (False, [])


def move_the_directory(server: LiveServer) -> None:
    """Replace the project's directory with another one at the same path."""
    directory = server.data.parent / "design"
    directory.rename(server.data.parent / "moved away")
    directory.mkdir()


def replace_claude(server: LiveServer, script: str) -> None:
    """Replace the agent's program."""
    program = server.data.parent / "another-claude"
    program.write_text(f'#!/bin/sh\n{script}\nexec {sys.executable} -m perdure.rehearsal --claude "$@"\n')
    program.chmod(0o700)
    settings = server.data / "perdure.toml"
    before, first = settings.read_text(), f'["{sys.executable}", "-m", "perdure.rehearsal", "--claude"]'
    assert first in before
    settings.write_text(before.replace(first, f'["{program}"]'))
    server.post("/api/agents/reload", expect=200)


def test_a_session_is_not_resumed_in_a_replaced_directory(serve: Serve) -> None:
    server = serve("open-design.md")
    chat = chat_of(server)
    chat.ask("say one")
    move_the_directory(server)
    assert recalled(chat) == (False, ["say one"])


def test_another_program_does_not_resume_the_session_of_the_first(serve: Serve) -> None:
    server = serve("open-design.md")
    chat = chat_of(server)
    chat.ask("say one")
    replace_claude(server, "")
    assert recalled(chat) == (False, ["say one"])
    assert recalled(chat) == (True, ["say one", "recall"])


def test_a_program_that_can_not_resume_gets_a_replay_each_time(serve: Serve) -> None:
    server = serve("open-design.md")
    replace_claude(server, 'case "$*" in *--help*) echo "--output-format and no more"; exit;; esac')
    chat = chat_of(server)
    chat.ask("say one")
    assert recalled(chat) == (False, ["say one"])
    assert recalled(chat) == (False, ["say one", "recall"])


def test_a_question_is_answered_with_the_result_of_its_tool_on_a_resumed_run(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    run_id = chat.send("ask Which colour? | Red | Blue")
    question = chat.question(run_id)
    assert (question["kind"], question["questions"][0]["question"]) == ("question", "Which colour?")
    status, answer = chat.tool_result(run_id, question["tool_id"] or question["prompt_id"], "Blue")
    assert (status, answer["ok"], answer["outcome"]) == (200, True, "answered")
    assert chat.tool_result(run_id, question["tool_id"] or question["prompt_id"], "Red")[0] == 409
    run = chat.finished(run_id)
    assert run["sessionResumed"] is True and "Blue" in chat.said(run)


def test_an_agent_that_refuses_its_old_session_gets_a_replay_in_the_same_run(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one\nreject-resume")
    assert recalled(chat) == (False, ["say one\nreject-resume"])


def test_a_cancelled_run_keeps_its_output(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    run_id = chat.send("say half of it\nhang")
    chat.until_said(run_id, "half of it")
    chat.cancel()
    run = chat.finished(run_id)
    assert (run["status"], chat.said(run)) == ("cancelled", "half of it")
    assert chat.ask("say on")["status"] == "completed"
