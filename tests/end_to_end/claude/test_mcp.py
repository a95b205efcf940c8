"""The real Claude Code, with `perdure mcp` in its configuration, delegates to a session of the same server."""

import json
from typing import Any

import pytest

from tests.end_to_end.claude.columns import REAL, TURN_WAIT_S, Stage
from tests.harness import SOURCE, eventually
from tests.surfaces.mcp_client import command

pytestmark = [pytest.mark.timeout(240), pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)]


def delegating(stage: Stage) -> str:
    """A session whose Claude has the tools, and may use them without asking."""
    # The server's data directory, as the stage will create it.
    program = ["/usr/bin/env", f"PYTHONPATH={SOURCE}", *command(stage.home.parent / "data")]
    project = (
        'permissions = [{ tool = "mcp__perdure__*", action = "allow" }]\n'
        "[projects.here.options.mcp_servers.perdure]\n"
        f"command = {json.dumps(program)}\n"
    )
    # Otherwise the tools are hidden until they are searched for.
    return stage.serve(project=project, env={"ENABLE_TOOL_SEARCH": "false"}).session(project="here")


def call(name: str, **arguments: Any) -> str:
    """A message that makes the scripted model call a tool and then repeat its result."""
    return f"tool mcp__perdure__agent_session_{name} {json.dumps(arguments)}\nresult"


def answered(stage: Stage, session: str, turn: Any) -> Any:
    """The tool's result as the model saw it."""
    said = stage.server.text(session, turn["turn"])
    assert said.startswith("The tool said: "), (said, turn)
    return json.loads(said.removeprefix("The tool said: "))


def test_it_starts_prompts_lists_and_closes_a_session_of_another_agent(stage: Stage) -> None:
    parent = delegating(stage)

    def ask(name: str, **arguments: Any) -> Any:
        return answered(stage, parent, stage.turn(parent, call(name, **arguments)))

    child = ask("start", agent="rehearsal", title="Delegated")["session_id"]
    made = stage.server.session(child)
    assert (made["title"], made["parent"]) == ("Delegated", parent)
    run = ask("prompt", session_id=child, prompt="say hello from the child")
    assert run["status"] == "completed"
    assert run["output"][0]["parts"][0]["content"] == "hello from the child"
    listed = {entry["session_id"]: entry for entry in ask("list")["sessions"]}
    assert (listed[child]["turn_count"], listed[parent]["state"]) == (1, "processing")
    assert ask("close", session_id=child)["status"] == "closed"
    refused = stage.turn(parent, call("prompt", session_id=child, prompt="say more"))
    assert "The session has ended" in stage.server.text(parent, refused["turn"])
    tools = [part for part in refused["parts"] if part["type"] == "tool"]
    assert refused["stop_reason"] == "end_turn" and tools[0]["is_error"]


def test_it_is_notified_that_the_child_waits_for_a_person(stage: Stage) -> None:
    parent = delegating(stage)
    child = stage.server.create(agent="rehearsal")
    prompt = call("prompt", session_id=child, prompt="permit Deploy", message_id="mine")
    waiting = answered(stage, parent, stage.turn(parent, prompt))
    assert waiting["status"] == "awaiting" and f"perdure answer {child}" in waiting["next_step"]
    stage.answer(child, option_id="allow_once")
    assert answered(stage, parent, stage.turn(parent, prompt))["status"] == "completed"


def test_the_childs_answer_arrives_even_if_the_server_is_killed_meanwhile(stage: Stage) -> None:
    parent = delegating(stage)
    child = stage.server.create(agent="rehearsal")
    stage.server.send(parent, call("prompt", session_id=child, prompt="stream 60 50\nsay the end"))
    eventually(lambda: stage.events(child, "assistant_text"), "the child's first output", TURN_WAIT_S)
    stage.server.kill()
    stage.server.restart()
    stage.idle(parent)
    run = answered(stage, parent, stage.at(parent, 1))
    said = "".join(part["content"] for part in run["output"][0]["parts"])
    assert run["status"] == "completed" and said.endswith("the end")
    assert said.split()[:60] == [f"w{number}" for number in range(60)]
    assert stage.server.session(child)["turn_count"] == 1
