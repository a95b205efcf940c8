"""The rehearsal agent's slash commands: only at the beginning of a prompt, as with every real agent."""

from perdure.core.transcript_text import Entry, wrap
from tests.rehearsal.client import Client


def test_it_names_its_commands_once_a_session_is_open(agent: Client) -> None:
    session = agent.open()
    named = agent.receive(lambda message: "availableCommands" in str(message))["params"]
    assert named["sessionId"] == session
    assert [command["name"] for command in named["update"]["availableCommands"]] == ["compact", "status"]


def test_a_command_is_done_only_at_the_beginning_of_a_prompt(agent: Client) -> None:
    session = agent.open()
    assert agent.say(session, "/compact be brief") == "Compacted 1 messages, with a view to: be brief."
    replayed = wrap([Entry("user", 1, "rehearsal", "hello"), Entry("assistant", 1, "rehearsal", "hi")], "/compact")
    assert "Compacted" not in agent.say(session, replayed)
    assert "Compacted" not in agent.say(session, "/compactor")
