"""A program made for Open Design: each guard of its resume rule, questions, a lost connection and a cancel, against the
settings of docs/open-design.md. A run that is not resumed is told everything: both halves are looked at each time."""

from collections.abc import Callable

import pytest

from tests.harness import LiveServer
from tests.seeds.open_design_client import Chat

Serve = Callable[..., LiveServer]


def chat_of(server: LiveServer) -> Chat:
    return Chat(server.url, server.token, "design")


@pytest.mark.smoke
def test_a_follow_up_is_resumed_and_sends_the_new_message_alone(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    first = chat.ask("say " + "a long first answer " * 200)
    assert (first["status"], first["sessionResumed"]) == ("completed", False)
    second = chat.finished(chat.send("stream 200 5\nrecall"), lose_connection=True)
    assert second["sessionResumed"] is True and second["input_bytes"] < first["input_bytes"]
    assert "a long first answer" in chat.said(second)


def test_a_fresh_start_is_told_everything(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    fresh = chat.ask("recall", force_fresh_session=True)
    assert fresh["sessionResumed"] is False and "say one" in chat.said(fresh)
    assert chat.ask("say three")["sessionResumed"] is True


def test_another_agent_begins_with_what_it_may_see_and_the_first_one_goes_on_with_its_own(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    other = chat.ask("say two", agent="codex")
    assert other["sessionResumed"] is False
    # Scoped to the agent: what follows the last answer of another one.
    back = chat.ask("recall", agent="claude")
    assert "say two" not in chat.said(back)


def test_an_edited_and_a_retried_turn_are_not_resumed(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    chat.ask("say two")
    chat.edit(1, "say won")
    edited = chat.ask("recall")
    assert edited["sessionResumed"] is False
    assert "say won" in chat.said(edited) and "say one" not in chat.said(edited)
    again = chat.retry(2)
    assert again["sessionResumed"] is False
    assert chat.ask("say on")["sessionResumed"] is True


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


def test_an_agent_that_refuses_its_old_session_is_told_everything_in_the_same_run(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one\nreject-resume")
    run = chat.ask("recall")
    assert (run["status"], run["sessionResumed"]) == ("completed", False)
    assert "say one" in chat.said(run)


def test_a_cancelled_run_keeps_what_was_said(serve: Serve) -> None:
    chat = chat_of(serve("open-design.md"))
    chat.ask("say one")
    run_id = chat.send("say half of it\nhang")
    chat.cancel()
    run = chat.finished(run_id)
    assert run["status"] == "cancelled"
    assert chat.ask("say on")["status"] == "completed"
