"""The chat in a terminal, against a real server and the rehearsal agent."""

import re
from collections.abc import Iterator

import pytest

from tests.harness import eventually
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.holding import WAIT_S, HoldingProxy
from tests.surfaces.terminal import Terminal


@pytest.fixture
def chat(server: ServerProcess) -> Iterator[Terminal]:
    with Terminal(server.command("chat"), server.environment, server.folder) as terminal:
        terminal.wait("New session")
        yield terminal


def test_a_conversation_shows_text_tools_and_a_permission_that_is_answered_inline(chat: Terminal) -> None:
    chat.enter("say hello from here")
    chat.wait("You: say hello from here")
    chat.wait("Turn 1,")
    assert len(re.findall("^hello from here", chat.text, re.MULTILINE)) == 1
    chat.enter("permit Deploy")
    chat.wait("Permission:")
    chat.wait("y/a/n>")
    chat.enter("y")
    chat.wait("Allowed.")
    chat.wait("Turn 2,")
    chat.enter("/quit")
    assert chat.wait_end() == 0


@pytest.mark.full
def test_each_tool_is_one_line_and_a_plan_shows_its_progress(chat: Terminal) -> None:
    chat.enter("think deep thoughts\x1b\rplan read; write\x1b\redit notes.txt\x1b\rsay **bold** words")
    chat.wait("Turn 1,")
    lines = chat.text.splitlines()
    assert [line for line in lines if line.startswith("[x]")] == ["[x] read", "[x] write"]
    assert [line for line in lines if line.startswith("> Edited notes.txt +1 -0  ")]
    assert "  deep thoughts" in lines and "bold words" in lines


def test_a_denied_permission_carries_its_reason(chat: Terminal) -> None:
    chat.enter("permit Deploy")
    chat.wait("y/a/n>")
    chat.enter("maybe")
    chat.wait("n denies (a reason may follow)")
    chat.enter("n not on a Friday")
    chat.wait("Denied.")
    chat.wait("Turn 1,")


def test_a_draft_is_kept_while_a_permission_is_answered(server: ServerProcess, chat: Terminal) -> None:
    chat.enter("hang")
    chat.wait("Working")
    chat.type("half a thou")
    chat.wait("> half a thou")
    with server.client() as client:
        client.send("permit Deploy", client.sessions()["sessions"][0]["id"], when_busy="interrupt")
    chat.wait("y/a/n>")
    chat.enter("y")
    chat.wait("Allowed.")
    chat.wait("> half a thou")


@pytest.mark.full
def test_a_yes_sent_as_a_message_does_not_answer_a_later_permission_request(server: ServerProcess) -> None:
    proxy = HoldingProxy(int(server.url.rsplit(":", 1)[1]))
    way = ("--url", proxy.url, "--token", server.token)
    with Terminal(server.command("chat", *way), server.environment, server.folder) as chat, server.client() as client:
        chat.wait("New session")
        chat.enter("say hello")
        chat.wait("Turn 1,")
        session = client.sessions()["sessions"][0]["id"]
        proxy.hold()
        chat.enter("say first")
        assert proxy.held.wait(WAIT_S), chat.text
        chat.enter("yes")
        chat.enter("/help")
        chat.wait("leave; the agent continues")
        client.send("permit Deploy", session)
        chat.wait("y/a/n>")
        proxy.release()
        eventually(lambda: client.explain(session)["queue_length"] == 2, "both messages wait")
        assert len(client.prompts(session)) == 1
        chat.enter("n")
        chat.wait("Denied.")
        chat.wait("You: yes")
    proxy.close()


@pytest.mark.full
def test_a_line_right_after_an_answer_is_a_message(chat: Terminal) -> None:
    chat.enter("permit Deploy")
    chat.wait("y/a/n>")
    chat.type("y\rsay more\r")
    chat.wait("Allowed.")
    chat.wait("You: say more")
    chat.wait("Turn 2,")


def test_a_question_is_answered_by_its_number(chat: Terminal) -> None:
    chat.enter("ask Which one? | red | green")
    chat.wait("2. green")
    chat.wait("answer>")
    chat.enter("2")
    chat.wait("answer: green")
    chat.wait("Turn 1,")


@pytest.mark.full
def test_control_c_interrupts_the_turn_and_twice_at_the_prompt_leaves(chat: Terminal) -> None:
    chat.enter("hang")
    chat.wait("Working")
    chat.type("\x03")
    chat.wait("Interrupted.")
    chat.wait("Idle")
    chat.type("\x03")
    chat.wait("Press Ctrl-C again to leave.")
    # Twice, because the first may arrive after the time limit.
    chat.type("\x03\x03")
    assert chat.wait_end() == 0


@pytest.mark.full
def test_escape_interrupts_the_turn_too(chat: Terminal) -> None:
    chat.enter("hang")
    chat.wait("Working")
    chat.type("\x1b")
    chat.wait("Interrupted.")


def test_a_message_during_a_turn_is_queued_below_the_stream_and_sent_afterwards(
    server: ServerProcess, chat: Terminal
) -> None:
    chat.enter("say first\x1b\rhang")
    chat.wait("\nfirst")
    chat.enter("/queue say second")
    chat.wait("Queued: say second")
    chat.wait("1 queued")
    with server.client() as client:
        client.abort(client.sessions()["sessions"][0]["id"])
    chat.wait("Turn 2,")
    text = chat.text
    assert text.index("\nfirst") < text.index("You: say second") < text.index("\nsecond")
    assert "Queued:" not in text


def test_control_c_withdraws_queued_messages_into_the_input_and_then_interrupts(chat: Terminal) -> None:
    chat.enter("hang")
    chat.wait("Working")
    chat.enter("say second")
    chat.enter("say third")
    chat.wait("2 queued")
    chat.type("\x03")
    chat.wait("> say second\nsay third")
    assert "Queued:" not in chat.text and "Interrupted." not in chat.text
    chat.type("\x1b")
    chat.wait("Interrupted.")
    chat.type("\r")
    chat.wait("Turn 2,")
    assert "You: say second\nsay third" in chat.text


@pytest.mark.full
def test_a_killed_and_restarted_server_loses_neither_text_nor_draft(server: ServerProcess, chat: Terminal) -> None:
    chat.enter("stream 300 10")
    chat.wait("w20 ")
    chat.type("my draft")
    port = int(server.url.rsplit(":", 1)[1])
    server.kill()
    chat.wait("Reconnecting")
    server.start(port)
    chat.wait("Turn 1,")
    words = re.findall(r"\bw\d+\b", chat.text)
    assert words == [f"w{number}" for number in range(300)]
    chat.wait("> my draft")


def test_markdown_of_any_length_appears_once_in_the_scrollback(chat: Terminal) -> None:
    chat.enter("hello\x1b\rwhat can you do")
    chat.wait("Turn 1,")
    assert chat.text.count("plan read; write; check") == 1
    chat.enter("/new")
    chat.wait("starts a new session")
    chat.enter("/help")
    chat.wait("/sessions")
    chat.enter("/nonsense")
    chat.wait("Neither the chat nor rehearsal has a command /nonsense.")


def test_a_chat_continues_the_given_session(server: ServerProcess) -> None:
    session = server.run("send", "say from before").stdout.strip()
    with Terminal(server.command("chat", "last"), server.environment, server.folder) as chat:
        chat.wait("from before")
        chat.wait("Idle")
        chat.enter("recall")
        chat.wait("Turn 2,")
        chat.enter("/status")
        chat.wait(f"{session}: It waits for a message")
