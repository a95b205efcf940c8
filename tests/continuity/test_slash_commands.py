"""Slash commands of real agents: they reach an agent that holds the conversation, and are never part of a replay."""

import pytest

from tests.continuity.agents import Agent
from tests.continuity.stage import Stage

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]

HARMLESS = ("compact", "context", "status", "help")


def test_a_command_works_and_is_refused_if_the_conversation_is_replayed(stage: Stage, agent: Agent) -> None:
    session = stage.session()
    stage.turn(session, "say one")
    stage.turn(session, "say two")
    listed = [command["name"] for command in stage.server.session(session)["commands"]]
    name = next((name for name in HARMLESS if name in listed), None)
    if name is None:
        pytest.skip(f"{agent.name} lists none of {', '.join(HARMLESS)}: {listed}")
    number = stage.send(session, f"/{name}")
    stage.ended(session, number)
    # The scripted model greets a user who gives it no verb, so it would have done so if it had received the command as
    # text.
    assert "I am a scripted model" not in stage.text(session, number)
    refused = stage.server.post(f"/api/sessions/{session}/messages", {"text": f"/{name}", "fresh": True}, expect=409)
    assert refused["error"].endswith(f"Send an ordinary message first, then send /{name}.")
