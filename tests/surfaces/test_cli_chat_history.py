"""Changing a conversation from inside the chat, in a terminal, against a real server and the rehearsal agent."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal


@pytest.fixture
def chat(server: ServerProcess) -> Iterator[Terminal]:
    with Terminal(server.command("chat"), server.environment, server.folder) as terminal:
        terminal.wait("New session")
        yield terminal


def talk(chat: Terminal, *texts: str) -> None:
    for number, text in enumerate(texts, 1):
        chat.enter(text)
        chat.wait(f"Turn {number},")
        chat.wait("Idle")


@pytest.mark.full
def test_a_turn_is_retried_with_its_own_text_and_with_another(chat: Terminal) -> None:
    talk(chat, "say one", "say two")
    chat.enter("/retry")
    chat.wait("Retrying turn 2.")
    chat.wait("Turn 3,")
    chat.enter("/retry 1 recall")
    chat.wait("Retrying turn 1. Turn 3 is no longer part of the conversation.")
    chat.wait("Turn 4,")
    chat.enter("/retry recall\x1b\rsay more")
    text = chat.wait("Turn 5,")
    assert re.findall(r"recall \d", text) == ["recall 1", "recall 1"]
    assert text.count("\ntwo") == 2


def test_a_message_is_edited_in_the_input(chat: Terminal) -> None:
    talk(chat, "say one", "say two")
    chat.enter("/edit 1")
    chat.wait("> /edit 1 say one")
    chat.type(" and more\r")
    chat.wait('The message of turn 1 is now "say one and more". The next message replays the')
    chat.wait("The answer stays. /retry 1 replaces it and all later turns.")
    chat.enter("recall")
    chat.wait("Turn 3,")
    assert '"say one and more"' in chat.text.split("You: recall")[1]
    chat.enter("/edit 9 say nine")
    chat.wait("There is no turn 9.")


@pytest.mark.full
def test_turns_are_rewound_and_the_plan_explains_the_next_turn(server: ServerProcess, chat: Terminal) -> None:
    talk(chat, "say one", "say two")
    chat.enter("/plan")
    chat.wait("rehearsal continues in its running process")
    chat.enter("/rewind")
    chat.wait("Give a turn number: /rewind N.")
    chat.enter("/rewind 2")
    chat.wait("Turn 2 is no longer part of the conversation.")
    chat.wait("--rewound")
    chat.enter("/plan")
    chat.wait("because the history has")
    chat.enter("/fresh")
    chat.wait("restarts the agent's context")
    chat.enter("/plan")
    chat.wait("because a context restart was requested.")
    chat.enter("recall")
    chat.wait("Turn 3,")
    turns = json.loads(server.run("show", "--json", "last").stdout)["turns"]
    assert [(turn["turn"], turn["context_reason"]) for turn in turns] == [(1, "first_turn"), (3, "fresh_requested")]


@pytest.mark.full
def test_the_chat_continues_in_a_fork(server: ServerProcess, chat: Terminal) -> None:
    talk(chat, "say one", "say two")
    chat.enter("/fork 1")
    chat.wait("is unchanged.")
    chat.wait("Idle")
    chat.enter("recall")
    chat.wait("recall 2")
    chat.wait(lambda text: text.count("Turn 2,") + text.count("Turn 3,") >= 2)
    counts = [entry["turn_count"] for entry in json.loads(server.run("sessions", "--json").stdout)["sessions"]]
    assert counts == [2, 2]


def test_a_change_that_is_refused_keeps_the_text(chat: Terminal) -> None:
    for command in ("/retry", "/edit", "/rewind 1", "/fork", "/plan"):
        chat.enter(command)
    chat.wait(lambda text: text.count("No session yet.") == 5)
    chat.enter("hang")
    chat.wait("Working")
    chat.enter("/edit 1 say something else")
    chat.wait("(turn_active)")
    chat.wait("> /edit 1 say something else")
