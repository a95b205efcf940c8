"""`delegate` in both dialects: a sub-agent, reported as the real programs report theirs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rehearsal.claude_client import DRIVEN, Host, Line, kinds
from tests.rehearsal.client import Client
from tests.rehearsal.test_claude_stream import ANSWER, BLOCK, CALL, END, STOP

MESSAGE = "delegate reviewer Look at the notes\nsay done"
ENDLESS = "delegate reviewer hang"
BEGIN = ["system/init", *CALL, *BLOCK, "assistant/tool_use", "system/task_started", *STOP, *END, "user/text"]
TOOL = ["system/task_progress", "assistant/tool_use", "user/tool_result"]
FINISH = ["system/task_updated", "system/task_notification", "user/tool_result"]


@pytest.fixture
def host(tmp_path: Path, workdir: Path) -> Iterator[Host]:
    with Host(tmp_path / "memory", workdir, *DRIVEN) as made:
        yield made


def inner(host: Host) -> list[Line]:
    return [line for line in host.seen if line.get("parent_tool_use_id")]


def test_everything_of_an_acp_sub_agent_has_its_call_as_parent(agent: Client, workdir: Path) -> None:
    (workdir / "old.txt").touch()
    session = agent.open()
    assert agent.send_input(session, MESSAGE)["result"]["stopReason"] == "end_turn"
    started, command, edit = agent.updates("tool_call")
    assert (started["name"], started["kind"], started["title"]) == ("Agent", "think", "Look at the notes")
    assert "_meta" not in started
    meta = {"claudeCode": {"parentToolUseId": started["toolCallId"]}}
    words = [one for one in agent.updates("agent_message_chunk") if "_meta" in one]
    for update in [command, edit, *words]:
        assert update["_meta"] == meta
    ends = [one for one in agent.updates("tool_call_update") if one["status"] != "in_progress"]
    assert [one["toolCallId"] for one in ends] == [one["toolCallId"] for one in (command, edit, started)]
    assert [one.get("_meta") for one in ends] == [meta, meta, None]
    assert ends[0]["rawOutput"]["text"] == "old.txt"
    assert ends[1]["content"][0]["newText"] == (workdir / "reviewer.md").read_text()
    assert ends[2]["rawOutput"]["text"] == words[-1]["content"]["text"]
    # The sub-agent's text is not part of the agent's answer.
    assert '- assistant: "done"' in agent.say(session, "recite")


def test_a_cancelled_acp_sub_agent_ends_its_open_tools_first(agent: Client) -> None:
    session = agent.open()
    request = agent.start(session, ENDLESS)
    agent.receive(lambda message: "parentToolUseId" in str(message) and "tool_call" in str(message))
    agent.notify("session/cancel", sessionId=session)
    assert agent.reply_to(request)["result"]["stopReason"] == "cancelled"
    outer, child = agent.updates("tool_call")[:2]
    ends = [one["toolCallId"] for one in agent.updates("tool_call_update") if one["status"] == "failed"]
    assert ends == [child["toolCallId"], outer["toolCallId"]]


def test_a_claude_sub_agent_writes_the_lines_of_the_real_one(host: Host, workdir: Path) -> None:
    result = host.turn(MESSAGE)
    assert kinds(host.seen) == [*BEGIN, *TOOL, *TOOL, *FINISH, *ANSWER, "result/success"]
    assert (result["result"], result["num_turns"]) == ("done", 2)
    use = host.blocks("tool_use")[0]
    given = use["input"]
    assert (use["name"], given["description"], given["subagent_type"]) == ("Agent", "Look at the notes", "reviewer")
    assert inner(host)[0]["message"]["content"][0]["text"] == given["prompt"]
    for line in inner(host):
        assert line["parent_tool_use_id"] == use["id"]
        assert (line["subagent_type"], line["task_description"]) == ("reviewer", "Look at the notes")
        assert "tool_use_result" not in line
    assert [block["name"] for block in host.blocks("tool_use")] == ["Agent", "Bash", "Write"]
    notes = [line for line in host.seen if line.get("subtype", "").startswith("task_")]
    assert len({note["task_id"] for note in notes}) == 1
    assert [note["last_tool_name"] for note in notes if note["subtype"] == "task_progress"] == ["Bash", "Write"]
    outcome = next(line["tool_use_result"] for line in host.seen if line.get("tool_use_result"))
    assert (outcome["status"], outcome["agentId"], outcome["totalToolUseCount"]) == (
        "completed",
        notes[0]["task_id"],
        2,
    )
    assert (workdir / "reviewer.md").read_text() == "rehearsed 1\n"


def test_a_claude_host_that_requests_it_also_receives_a_sub_agents_text(host: Host) -> None:
    host.control("initialize", forwardSubagentText=True)
    host.turn(MESSAGE)
    said = [line["message"]["content"][0] for line in inner(host) if line["type"] == "assistant"]
    assert [block["type"] for block in said] == ["text", "tool_use", "tool_use", "text"]
    ids = [line["message"]["id"] for line in inner(host) if line["type"] == "assistant"]
    assert ids[0] == ids[1] and len(set(ids)) == 3, "a message for each call of the model"


def test_an_interrupted_claude_sub_agent_is_rejected_and_its_own_tool_left_open(host: Host) -> None:
    host.say(ENDLESS)
    host.until(lambda line: line.get("subtype") == "task_progress")
    host.control("interrupt")
    result = host.result()
    assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "aborted_tools")
    assert kinds(host.seen)[-5:] == ["user/tool_result", *FINISH[:2], "user/text", "result/error_during_execution"]
    assert [block["tool_use_id"] for block in host.blocks("tool_result")] == [host.blocks("tool_use")[0]["id"]]
    assert next(line["status"] for line in host.seen if line.get("subtype") == "task_notification") == "stopped"


def test_a_sub_agent_that_can_not_write_reports_it_and_the_turn_continues(host: Host) -> None:
    assert host.turn("delegate ../out\nsay done")["result"] == "done"
    failed = [block for block in host.blocks("tool_result") if block.get("is_error")]
    assert len(failed) == 1 and "refused" in failed[0]["content"]
    assert "trouble: refused" in host.blocks("tool_result")[-1]["content"][0]["text"]
