"""Agents that an agent starts: they appear inside the tool that started them, and can be messaged again.

The pinned version has no TeamCreate and no separate team: "the session has a single implicit team", as its `Agent` tool
says. A teammate is an `Agent` with a name, which works in the background. `SendMessage` sends it a message, and its
answer arrives as a turn that the agent starts. The same tools exist without the setting for agent teams, which older
versions need.
"""

import json
import re
from typing import Any

import pytest

from tests.end_to_end.claude.columns import REAL, Column, Stage
from tests.harness import eventually, no_holes

pytestmark = pytest.mark.timeout(240)

TEAMS = "\n[agents.{name}.options]\nagent_teams = true\n"
LETS_ALL_RUN = 'permissions = [ { tool = "Bash", action = "allow" } ]'


def only(*columns: Column) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("column", columns, ids=lambda column: column.name)


def teamed(stage: Stage) -> str:
    options = TEAMS.format(name=stage.column.name)
    return stage.serve(agent=options, project=LETS_ALL_RUN).session(project="here")


def mate(name: str, prompt: str, **more: Any) -> str:
    given = {"description": f"the work of {name}", "prompt": prompt, "name": name, **more}
    return f"tool Agent {json.dumps(given)}"


def told(name: str, message: str) -> str:
    return f"tool SendMessage {json.dumps({'to': name, 'message': message, 'summary': 'more work'})}"


def uses(stage: Stage, session: str, name: str) -> list[Any]:
    return [event for event in stage.events(session, "tool_use") if event["name"] == name]


def reported(stage: Stage, session: str, pattern: str) -> Any:
    """The turn that the agent started because of this report, once it is over."""

    def fits(event: Any) -> bool:
        # Simultaneous reports start one turn.
        lines = event["text"].split("\n")
        return event["origin"] == "agent" and any(re.fullmatch(pattern, line) for line in lines)

    began = stage.until(session, "user_message", fits)
    stage.until(session, "turn_end", lambda event: event["turn"] == began["turn"])
    return stage.at(session, began["turn"])


def turn_when_free(stage: Stage, session: str, text: str) -> Any:
    """A turn, even if the agent starts turns of its own just before."""

    def sent() -> Any:
        stage.idle(session)
        answer = stage.server.http.post(f"/api/sessions/{session}/messages", json={"text": text})
        assert answer.status_code in (202, 409), answer.text
        return answer.json() if answer.status_code == 202 else None

    number = eventually(sent, "the message is accepted", 60)["turn"]
    stage.until(session, "turn_end", lambda event: event["turn"] == number)
    return stage.at(session, number)


@only(*REAL)
def test_the_setting_reaches_the_program_and_it_offers_agents_and_messages_between_them(stage: Stage) -> None:
    session = teamed(stage)
    message = "bash echo teams=$CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS\nresult"
    stage.turn(session, message)
    assert "teams=1" in stage.server.text(session, 1)
    first = stage.model.log.asked[0]
    assert "Agent" in first.conversation.tools and "TeamCreate" not in first.conversation.tools
    # It is not listed: the model looks it up by name.
    stage.turn(session, 'tool ToolSearch {"query": "select:SendMessage", "max_results": 1}\nsay found')
    assert "SendMessage" in stage.model.log.asked[-1].conversation.tools


@only(*REAL)
def test_a_sub_agents_work_is_shown_inside_the_tool_that_started_it(stage: Stage) -> None:
    session = teamed(stage)
    work = "bash touch made-by-the-mate && echo from-the-mate\nsay the mate is done"
    message = f"{mate('ann', work, run_in_background=False)}\nresult"
    assert stage.turn(session, message)["stop_reason"] == "end_turn"
    (outer,) = uses(stage, session, "Agent")
    (inner,) = uses(stage, session, "Bash")
    assert (outer["parent_tool_id"], inner["parent_tool_id"]) == (None, outer["tool_id"])
    results = {event["tool_id"]: event for event in stage.events(session, "tool_result")}
    assert "from-the-mate" in results[inner["tool_id"]]["content"]
    assert "the mate is done" in results[outer["tool_id"]]["content"]
    said = [event["content"] for event in stage.events(session, "tool_update") if event["tool_id"] == outer["tool_id"]]
    assert "the mate is done" in said
    # The teammate's text is not the answer, and its tool asked for permission like any other.
    assert stage.server.text(session, 1).startswith("The tool said: ")
    assert [event["by"] for event in stage.events(session, "prompt_resolved")] == ["rule"]
    assert (stage.workdir / "made-by-the-mate").exists()
    assert stage.recalled(session) == [message]
    no_holes(stage.server.log(session))


@only(*(column for column in REAL if column.streams))
def test_teammates_work_in_the_background_report_and_can_be_messaged_again(stage: Stage) -> None:
    session = teamed(stage)
    wait = "bash touch {name}-waits; for i in $(seq 600); do [ -e go ] && break; sleep 0.05; done\nsay {name} is done"
    both_wait = "bash for i in $(seq 600); do [ -e ann-waits ] && [ -e bob-waits ] && break; sleep 0.05; done"
    team = [mate(name, wait.format(name=name)) for name in ("ann", "bob")]
    assert stage.turn(session, "\n".join([*team, both_wait, "say the team is at work"]))["stop_reason"] == "end_turn"
    assert stage.server.text(session, 1).endswith("the team is at work")
    mates = uses(stage, session, "Agent")
    assert [event["input"]["name"] for event in mates] == ["ann", "bob"]
    parents = [event["parent_tool_id"] for event in uses(stage, session, "Bash")]
    assert sorted(filter(None, parents)) == sorted(event["tool_id"] for event in mates) and parents.count(None) == 1
    # The user can continue while the team works.
    stage.turn(session, "say meanwhile")
    assert stage.server.text(session, 2) == "meanwhile" and stage.running_tasks(session) == 2
    (stage.workdir / "go").touch()
    assert reported(stage, session, "(ann|bob) is done")["stop_reason"] == "end_turn"
    stage.server.wait(session, lambda found: not stage.running_tasks(session) and found["state"] == "idle", 60)
    assert turn_when_free(stage, session, f"{told('ann', 'say ann once more')}\nsay told")["stop_reason"] == "end_turn"
    (sent,) = uses(stage, session, "SendMessage")
    results = {event["tool_id"]: event for event in stage.events(session, "tool_result")}
    assert json.loads(results[sent["tool_id"]]["content"])["success"] is True
    assert reported(stage, session, "ann once more")["stop_reason"] == "end_turn"
    assert len(stage.events(session, "agent_launched")) == 1
    assert not stage.events(session, "error")
    mine = [event["text"] for event in stage.events(session, "user_message") if event["origin"] == "person"]
    assert stage.recalled(session) == mine
    no_holes(stage.server.log(session))
