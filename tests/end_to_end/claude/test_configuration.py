"""The configuration of Claude Code reaches the program: environment, MCP servers, hooks, permissions."""

import json
import sys
from pathlib import Path

import pytest

from tests.end_to_end.claude.columns import REAL, Stage

pytestmark = [pytest.mark.timeout(240), pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)]

MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tools = [{"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}]
    replies = {
        "initialize": lambda: {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "greeter", "version": "1"},
        },
        "tools/list": lambda: {"tools": tools},
    }
    make = replies.get(asked["method"])
    answer = {"result": make()} if make else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def test_a_project_has_its_own_environment_and_mcp_servers(stage: Stage) -> None:
    kept = stage.home / "kept-by-the-project"
    program = stage.home / "greeter.py"
    program.write_text(MCP_SERVER)
    options = (
        "[projects.here.options]\n"
        f"env = {{ CLAUDE_CONFIG_DIR = {json.dumps(str(kept))} }}\n"
        "[projects.here.options.mcp_servers.greeter]\n"
        f"command = {json.dumps([sys.executable, str(program)])}\n"
    )
    session = stage.serve(project=options).session(project="here")
    stage.turn(session, "say one")
    stage.turn(session, "say two")
    assert stage.recalled(session) == ["say one", "say two"]
    assert list(kept.glob("projects/*/*.jsonl")) and not (stage.home / ".claude" / "projects").exists()
    # In the list of tools, or named in a reminder as a tool that can be looked up.
    assert "mcp__greeter__greet" in json.dumps(stage.model.log.asked[-1].body)


def test_the_instructions_of_a_project_reach_every_turn(stage: Stage) -> None:
    session = stage.serve(project='instructions = "Speak like a pirate."').session(project="here")
    stage.turn(session, "say one")
    stage.turn(session, "say two")
    newest = stage.model.log.asked[-1].body["messages"][-1]
    assert "Speak like a pirate." in json.dumps(newest)
    assert stage.recalled(session) == ["say one", "say two"]


@pytest.mark.parametrize("trusted", [False, True])
def test_hooks_in_the_working_directory_run_only_if_it_is_trusted(stage: Stage, trusted: bool) -> None:
    marker = stage.home / "the-hook-ran"
    hook = {"type": "command", "command": f"touch {marker}"}
    settings = Path(stage.workdir, ".claude", "settings.json")
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    Path(stage.workdir, "CLAUDE.md").write_text("Answer in the colour magenta.")
    trust = "[projects.here.options]\ntrust_project_settings = true\n" if trusted else ""
    session = stage.serve(project=trust).session(project="here")
    assert stage.turn(session, "say one")["stop_reason"] == "end_turn"
    assert marker.exists() == trusted
    assert "the colour magenta" in json.dumps(stage.model.log.asked[-1].body)


def test_a_tool_runs_without_asking_only_in_a_project_that_skips_permissions(stage: Stage) -> None:
    # As root, the program refuses to skip permissions unless it is told that it runs in a sandbox.
    options = '[projects.here.options]\nskip_permissions = true\nenv = { IS_SANDBOX = "1" }\n'
    session = stage.serve(project=options).session(project="here")
    stage.turn(session, "bash touch made-unasked\nsay done")
    assert (stage.workdir / "made-unasked").exists()
    assert not stage.events(session, "pending_prompt")
    elsewhere = stage.session(mode="bypassPermissions")
    stage.server.send(elsewhere, "bash touch made-elsewhere\nsay done")
    stage.answer(elsewhere, option_id="reject_once")
    stage.idle(elsewhere)
    assert not (stage.workdir / "made-elsewhere").exists()


def test_a_model_and_a_mode_are_set_when_the_response_says_so_and_are_listed(stage: Stage) -> None:
    session = stage.serve().session(project="here")
    stage.turn(session, "say one")
    options = {option["id"]: option for option in stage.server.session(session)["config_options"]}
    assert list(options) == ["mode", "model"] and options["model"]["options"] and options["mode"]["currentValue"]
    path = f"/api/sessions/{session}/config"
    for config_id, value in (("mode", "plan"), ("model", "sonnet")):
        answer = stage.server.post(path, {"config_id": config_id, "value": value}, expect=200)
        assert (answer["value"], answer["applied"]) == (value, stage.column.streams)
    assert stage.server.session(session)["mode"] == "plan"
    for config_id, value in (("mode", "nonsense"), ("model", "nonsense"), ("colour", "red")):
        assert stage.server.http.post(path, json={"config_id": config_id, "value": value}).status_code == 400
    stage.turn(session, "say two")
    assert "sonnet" in stage.model.log.asked[-1].body["model"]
