"""The rehearsal agent's slash commands: only at the start of an input, as in every real agent."""

from perdure.core.transcript_text import Entry, wrap
from tests.rehearsal.client import Client


def test_the_agent_reports_its_commands_once_a_session_is_open(agent: Client) -> None:
    session = agent.open()
    named = agent.receive(lambda message: "availableCommands" in str(message))["params"]
    assert named["sessionId"] == session
    assert [command["name"] for command in named["update"]["availableCommands"]] == ["compact", "status"]


def test_a_command_runs_only_at_the_start_of_an_input(agent: Client) -> None:
    session = agent.open()
    assert agent.say(session, "/compact be brief") == "Compacted 1 messages, with a view to: be brief."
    replayed = wrap([Entry("user", 1, "rehearsal", "hello"), Entry("assistant", 1, "rehearsal", "hi")], "/compact")
    assert "Compacted" not in agent.say(session, replayed)
    assert "Compacted" not in agent.say(session, "/compactor")
