"""The claude drivers, rule by rule: the command line, opening, sending, speaking, ending."""

import json
from typing import Any

import pytest

from perdure.core.events import (
    AssistantText,
    AssistantThinking,
    Config,
    Plan,
    System,
    ToolResult,
    ToolUpdate,
    ToolUse,
    Usage,
)
from perdure.drivers import DRIVERS
from perdure.drivers.base import (
    CancelTurn,
    CloseSession,
    Noise,
    ResumeRefused,
    SendInput,
    SessionOpened,
    StartFailed,
    StartSession,
    TurnBegun,
    TurnFinished,
)
from perdure.drivers.claude import ClaudeResumeDriver
from tests.drivers.claude_peer import (
    SESSION,
    Peer,
    all_of,
    failed,
    init,
    only,
    piece,
    result,
    start,
    system,
    text,
    tool_result,
    tool_use,
    whole,
)

RESUME = StartSession("/srv/site", native_session_id=SESSION)


@pytest.fixture
def peer() -> Peer:
    return Peer()


def deltas(observations: list[Any]) -> list[tuple[int, str]]:
    return [(one.block, one.delta) for one in observations if isinstance(one, AssistantText)]


# The command line ---------------------------------------------------------------------------------------------------


def line_of(order: StartSession, launch_id: str = "L") -> list[str]:
    return DRIVERS["claude-stream"].command(["claude"], order, launch_id).argv


def test_the_same_order_gives_the_same_flags_and_only_the_session_differs() -> None:
    new = line_of(StartSession("/srv/site", model="opus", mode="plan"))
    again = line_of(StartSession("/srv/site", SESSION, model="opus", mode="plan"))
    assert new[-2:] == ["--session-id", SESSION]
    assert again[-2:] == ["--resume", SESSION]
    assert new[:-2] == again[:-2]
    assert new[-6:-2] == ["--model", "opus", "--permission-mode", "plan"]
    assert line_of(StartSession("/srv/site"), "M")[-1] != SESSION
    for flag in ("-p", "--verbose", "--include-partial-messages", "--permission-prompt-tool"):
        assert flag in new


def test_settings_of_the_project_are_used_only_if_they_are_trusted() -> None:
    def sources(**options: Any) -> str:
        line = line_of(StartSession("/srv/site", options=options))
        return line[line.index("--setting-sources") + 1]

    assert sources() == sources(trust_project_settings="yes") == "user"
    assert sources(trust_project_settings=True) == "user,project,local"


def test_invalid_modes_and_models_are_not_passed_on() -> None:
    line = line_of(StartSession("/srv/site", model="--dangerous", mode="bogus"))
    assert "--dangerous" not in line and "bogus" not in line


def test_a_person_cannot_choose_what_only_the_configuration_may_set() -> None:
    chosen = {"trust_project_settings": True, "extra_args": ["--add-dir", "/"], "skip_permissions": True}
    line = line_of(StartSession("/srv/site", mode="bypassPermissions", config=chosen))
    assert line == line_of(StartSession("/srv/site"))


def test_permissions_are_skipped_only_if_the_project_allows_it() -> None:
    allowed = {"skip_permissions": True}
    assert "bypassPermissions" in line_of(StartSession("/srv/site", options=allowed))
    assert "plan" in line_of(StartSession("/srv/site", mode="plan", options=allowed))


def test_extra_arguments_and_environment_come_from_the_configuration() -> None:
    order = StartSession("/srv/site", options={"extra_args": ["--add-dir", "/srv/lib", 7], "agent_teams": True})
    command = DRIVERS["claude-resume"].command(["claude"], order, "L")
    assert command.argv[-2:] == ["--add-dir", "/srv/lib"]
    assert command.env["CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"] == "1"
    assert command.env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] == "1"


def test_mcp_servers_come_from_the_configuration() -> None:
    servers = {
        "files": {"command": ["mcp-files", "--root", "."], "env": {"KEY": "${FILES_KEY}"}},
        "web": {"url": "https://mcp.example/", "transport": "sse"},
    }
    order = StartSession("/srv/site", options={"mcp_servers": servers})
    command = DRIVERS["claude-stream"].command(["claude"], order, "L")
    assert command.argv[command.argv.index("--mcp-config") + 1] == "{launch}/mcp.json"
    assert not any("FILES_KEY" in part for part in command.argv)
    assert json.loads(command.files["mcp.json"])["mcpServers"] == {
        "files": {"type": "stdio", "command": "mcp-files", "args": ["--root", "."], "env": {"KEY": "${FILES_KEY}"}},
        "web": {"type": "sse", "url": "https://mcp.example/", "headers": {}},
    }
    assert "--mcp-config" not in line_of(StartSession("/srv/site", options={"mcp_servers": {}}))


def test_a_new_process_gets_the_permissions_granted_for_the_session() -> None:
    line = line_of(StartSession("/srv/site", options={"granted": ["Bash(touch x)", "Edit"]}))
    at = line.index("--allowedTools")
    assert line[at + 1 : at + 3] == ["Bash(touch x)", "Edit"]


# Opening ------------------------------------------------------------------------------------------------------------


def test_the_session_is_open_when_the_handshake_is_answered(peer: Peer) -> None:
    peer.order(StartSession("/srv/site"))
    assert [message["request"]["subtype"] for message in peer.sent] == ["initialize"]
    peer.order(SendInput(1, "m1", "hello"))
    assert peer.sent == []
    models = [{"value": "default", "displayName": "Default", "resolvedModel": "claude-opus-5"}]
    seen = peer.replies("initialize", {"models": models, "commands": [{"name": "init"}, {"name": "clear"}]})
    opened = only(SessionOpened, seen)
    assert (opened.native_session_id, opened.resumed) == (SESSION, False)
    assert opened.models is not None and opened.models["availableModels"][0]["modelId"] == "default"
    assert only(Config, seen).value == [{"name": "init", "description": ""}]
    (sent,) = peer.sent
    assert sent["message"] == {"role": "user", "content": "hello"}
    assert sent["uuid"]


def test_a_resumed_session_has_the_requested_id(peer: Peer) -> None:
    assert only(SessionOpened, peer.open(RESUME)).resumed


def test_resuming_a_lost_session_is_refused_and_its_prompt_dropped(peer: Peer) -> None:
    peer.order(RESUME)
    peer.order(SendInput(1, "m1", "hello"))
    seen = peer.says(failed("", subtype="error_during_execution", errors=["No conversation found with session ID: x"]))
    refused = only(ResumeRefused, seen)
    assert refused.reason.startswith("No conversation found") and not refused.reopens
    assert peer.replies("initialize") == [] and peer.sent == []


def test_resuming_a_session_lost_after_the_handshake_is_refused_too(peer: Peer) -> None:
    peer.open(RESUME)
    peer.order(SendInput(1, "m1", "hello"))
    assert [type(one) for one in peer.says(failed("No conversation found with session ID: x"))] == [ResumeRefused]


def test_an_id_that_is_in_use_fails_the_start(peer: Peer) -> None:
    peer.order(StartSession("/srv/site"))
    failure = only(StartFailed, peer.lines(b"Error: Session ID 1-2-3 is already in use."))
    assert failure.code == "session_in_use"


def test_a_refused_handshake_fails_the_start(peer: Peer) -> None:
    peer.order(StartSession("/srv/site"))
    assert only(StartFailed, peer.replies("initialize", error="too old")).message == "too old"


def test_a_process_has_one_session(peer: Peer) -> None:
    peer.open()
    assert only(StartFailed, peer.order(StartSession("/srv/site"))).code == "one_session"


def test_a_resume_that_continues_in_a_copy_uses_the_copy(peer: Peer) -> None:
    peer.open(RESUME)
    peer.send_input()
    opened = only(SessionOpened, peer.says(init("copy", claude_code_version="2.0.1")))
    assert (opened.native_session_id, opened.resumed) == ("copy", True)
    assert opened.capabilities == {"can_resume": True, "version": "2.0.1"}


def test_a_native_session_that_the_agent_leaves_later_is_not_reused(peer: Peer) -> None:
    peer.send_input()
    peer.says(init(), result())
    peer.send_input(turn=2)
    seen = peer.says(init("other"), result())
    assert only(TurnFinished, seen).poisoned
    assert "native_session_changed" in [one.code for one in all_of(System, seen)]


# Prompting ----------------------------------------------------------------------------------------------------------


def test_one_prompt_is_in_flight_and_the_next_follows_its_end(peer: Peer) -> None:
    peer.send_input()
    peer.order(SendInput(2, "m2", "second"))
    assert peer.sent == []
    assert only(TurnFinished, peer.says(result())).turn == 1
    assert [message["message"]["content"] for message in peer.sent] == ["second"]


def test_a_message_has_another_uuid_in_another_process() -> None:
    uuids = set()
    for launch in "AB":
        conversation = DRIVERS["claude-stream"].begin(launch)
        conversation.perform(StartSession("/srv/site"))
        request = f"{launch}-r0"
        reply = {"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": {}}}
        conversation.receive([json.dumps(reply).encode()])
        uuids.add(json.loads(conversation.perform(SendInput(1, "m1", "go")).lines[0])["uuid"])
    assert len(uuids) == 2


def test_images_are_sent_and_other_files_mentioned(peer: Peer) -> None:
    peer.open()
    image = {"media_type": "image/png", "data": "aGk="}
    peer.order(SendInput(1, "m1", "look", (image, {"path": "/srv/site/a.pdf"}, {"name": "nowhere"})))
    blocks = peer.sent[0]["message"]["content"]
    assert blocks[0] == {"type": "image", "source": {"type": "base64", **image}}
    assert blocks[1] == {"type": "text", "text": "look\n[Attached: /srv/site/a.pdf]"}


def test_text_that_starts_with_a_slash_is_a_command_only_if_the_agent_lists_it(peer: Peer) -> None:
    peer.open(commands=[{"name": "compact"}, {"name": "clear"}])
    peer.order(SendInput(1, "m1", "/compact now"))
    assert peer.sent[0]["message"]["content"] == "/compact now"
    peer.says(result())
    peer.order(SendInput(2, "m2", "/etc is full"))
    content = peer.sent[0]["message"]["content"]
    assert content.endswith("/etc is full") and not content.lstrip().startswith("/")
    peer.says(result())
    refused = only(TurnFinished, peer.order(SendInput(3, "m3", " /clear")))
    assert (refused.turn, refused.stop_reason, refused.error_code) == (3, "failed", "command_refused")
    picture = {"mime_type": "image/png", "data": "aGk="}
    alone = only(TurnFinished, peer.order(SendInput(4, "m4", "/compact", (picture,))))
    assert alone.error_code == "command_refused" and not refused.sent and not alone.sent
    assert peer.sent == []


def test_an_empty_prompt_fails_immediately(peer: Peer) -> None:
    peer.open()
    assert only(TurnFinished, peer.order(SendInput(1, "m1", ""))).error_code == "empty_prompt"


def test_half_an_emoji_reaches_the_agent_as_json() -> None:
    from perdure.drivers.claude import wire

    assert json.loads(wire.line({"text": "a\ud83d"})) == {"text": "a\ud83d"}


# Speaking -----------------------------------------------------------------------------------------------------------


def test_text_sent_in_pieces_and_then_whole_is_shown_once(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(start("a"), piece("I "), piece("am."), whole("a", text("I am.")), result(result="I am."))
    assert deltas(seen) == [(0, "I am.")]


def test_only_the_missing_part_of_the_whole_text_is_added(peer: Peer) -> None:
    peer.send_input()
    assert deltas(peer.says(start("a"), piece("I "))) == [(0, "I ")]
    assert deltas(peer.says(whole("a", text("I am.")))) == [(0, "am.")]


def test_thinking_and_text_are_separate_blocks(peer: Peer) -> None:
    peer.send_input()
    thought = {"type": "thinking", "thinking": "Hm."}
    seen = peer.says(start("a"), piece("Hm.", 0, True), whole("a", thought), piece("Yes", 1), whole("a", text("Yes")))
    assert only(AssistantThinking, seen).delta == "Hm."
    assert deltas(seen) == [(1, "Yes")]


def test_a_blank_block_that_is_never_repeated_whole_is_not_reported_as_lost(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(start("a"), piece("\n\n"), whole("a", tool_use("t")), tool_result("t", ""), start("b"))
    assert all_of(System, seen) == []


def test_an_answer_repeated_after_a_broken_stream_is_reported(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(start("a"), piece("Once upon"), whole("b", text("There was")), result())
    assert deltas(seen) == [(0, "Once upon"), (1, "There was")]
    assert only(System, seen).code == "preview_dropped"


def test_an_answer_after_a_broken_stream_with_the_same_start_continues(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(start("a"), piece("Once upon"), whole("b", text("Once upon a time")), result())
    assert "".join(delta for _, delta in deltas(seen)) == "Once upon a time"
    assert all_of(System, seen) == []


def test_a_repeated_entry_is_dropped(peer: Peer) -> None:
    peer.send_input()
    line = whole("a", text("once"), uuid="u1")
    assert deltas(peer.says(line, line)) == [(0, "once")]


def test_an_answer_that_is_only_in_the_result_is_shown(peer: Peer) -> None:
    peer.send_input()
    assert deltas(peer.says(result(result="all there is"))) == [(0, "all there is")]


def test_half_an_emoji_in_a_piece_loses_nothing_else(peer: Peer) -> None:
    peer.send_input()
    seen = peer.lines(json.dumps(start("a")).encode(), json.dumps(piece("hi \ud83d")).encode())
    assert deltas(seen) == [(0, "hi ")]
    assert deltas(peer.lines(json.dumps(piece(" there \ud83d")).encode())) == [(0, "\ufffd there ")]
    assert deltas(peer.says(whole("a", text("hi \ufffd there \ufffd")))) == [(0, "\ufffd")]


def test_the_halves_of_an_emoji_in_two_pieces_are_shown_as_one(peer: Peer) -> None:
    peer.send_input()
    pieces = (piece("\ud83d"), piece("\ude00"), piece(" and \ud83d"), piece("\ude01 too"))
    seen = [peer.lines(json.dumps(line).encode()) for line in (start("a"), *pieces)]
    assert [said for one in seen for _, said in deltas(one)] == ["\U0001f600", " and ", "\U0001f601 too"]
    assert peer.says(whole("a", text("\U0001f600 and \U0001f601 too"))) == []


def test_replayed_and_synthetic_user_lines_are_not_shown(peer: Peer) -> None:
    peer.send_input()
    message = {"role": "user", "content": [text("[Request interrupted by user]")]}
    assert peer.says({"type": "user", "message": message}, {**tool_result("t", "x"), "isReplay": True}) == []


def test_unknown_messages_are_reported_once_per_kind_and_stored_unchanged(peer: Peer) -> None:
    peer.send_input()
    seen = peer.lines(
        b"[SandboxDebug] x", b"[SandboxDebug] y", b'{"type":"novelty"}', b'{"type":"novelty","n":2}', b"[]", b""
    )
    noise = all_of(Noise, seen)
    assert [one.raw for one in noise] == [
        "[SandboxDebug] x",
        "[SandboxDebug] y",
        '{"type":"novelty"}',
        '{"type":"novelty","n":2}',
        "[]",
    ]
    assert [one.reason for one in noise if one.told] == ["not a JSON object", "an unknown type of line"]
    (note,) = all_of(Noise, peer.says({"type": "system", "subtype": "novelty"}))
    assert "novelty" in note.raw and not note.told


# Working ------------------------------------------------------------------------------------------------------------


def test_a_tool_is_reported_with_its_kind_and_subject(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(whole("a", tool_use("t1", command="ls  -l\npwd")), whole("a", tool_use("t2", "mcp__x__y")))
    one, other = all_of(ToolUse, seen)
    assert (one.kind, one.title, one.name) == ("execute", "Bash: ls -l pwd", "Bash")
    assert (other.kind, other.title) == ("other", "mcp__x__y")


def test_an_edit_is_reported_with_its_diff(peer: Peer) -> None:
    peer.send_input()
    peer.says(whole("a", tool_use("t1", "Edit", file_path="/srv/site/a.py")))
    hunk = {"oldStart": 3, "newStart": 3, "lines": [" a", "-b", "+c"]}
    done = only(
        ToolResult, peer.says(tool_result("t1", "ok", {"filePath": "/srv/site/a.py", "structuredPatch": [hunk]}))
    )
    assert done.diff == [{"path": "/srv/site/a.py", "old_text": "a\nb\n", "new_text": "a\nc\n", "line": 3}]
    assert done.locations == [{"path": "/srv/site/a.py"}]


def test_todos_are_a_plan(peer: Peer) -> None:
    peer.send_input()
    todos = [{"content": "Look", "status": "completed"}, {"content": "Leap"}, 3]
    plan = only(Plan, peer.says(whole("a", tool_use("t1", "TodoWrite", todos=todos))))
    assert [(entry.content, entry.status) for entry in plan.entries] == [("Look", "completed"), ("Leap", "pending")]


def test_a_sub_agents_tools_belong_to_its_call_and_its_text_is_not_the_answer(peer: Peer) -> None:
    peer.send_input()
    peer.says(whole("a", tool_use("t1", "Agent", description="sub")))
    seen = peer.says(whole("s", text("I look."), parent="t1"), whole("s", tool_use("t2"), parent="t1"))
    assert deltas(seen) == []
    assert only(ToolUpdate, seen).content == "I look."
    assert only(ToolUse, seen).parent_tool_id == "t1"
    edit = {"file_path": "/a", "old_string": "one", "new_string": "two"}
    peer.says(whole("s", tool_use("t3", "Edit", **edit), parent="t1"))
    seen = peer.says(tool_result("t3", "updated", parent="t1"))
    assert only(ToolResult, seen).diff == [{"path": "/a", "old_text": "one", "new_text": "two"}]
    report, note = text("All is well."), text("agentId: a1 (use SendMessage to continue this agent)")
    seen = peer.says(tool_result("t1", [report, note], {"agentId": "a1", "content": [report]}))
    assert only(ToolResult, seen).content == "All is well."


def test_tools_that_a_turn_leaves_open_are_closed_as_failed(peer: Peer) -> None:
    peer.send_input()
    peer.says(whole("a", tool_use("t1")))
    assert only(ToolResult, peer.says(result())).is_error


# Ending -------------------------------------------------------------------------------------------------------------


def test_usage_is_per_turn_and_cost_is_the_difference_of_totals(peer: Peer) -> None:
    peer.send_input()
    peer.says(result(total_cost_usd=0.5))
    peer.send_input(turn=2)
    usage = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2}
    sizes = {"claude-x": {"contextWindow": 200_000}}
    seen = peer.says(
        start("a", input_tokens=3, output_tokens=1), result(total_cost_usd=0.75, usage=usage, modelUsage=sizes)
    )
    figures = only(Usage, seen)
    assert (figures.input_tokens, figures.output_tokens, figures.cost_usd) == (3, 5, 0.25)
    assert (figures.cache_read_tokens, figures.cache_write_tokens, figures.context_size) == (7, 2, 200_000)
    assert (figures.context_used, only(TurnFinished, seen).cost_usd) == (3, 0.25)


def test_the_cost_since_the_last_result_is_preferred_to_the_total(peer: Peer) -> None:
    peer.open(RESUME)
    peer.send_input()
    since = {"claude-x": {"costUSD": 0.125}}
    seen = peer.says(result(total_cost_usd=9.0, model_usage_since_last_result=since))
    assert only(TurnFinished, seen).cost_usd == 0.125


@pytest.mark.parametrize(
    ("line", "stop_reason", "code", "poisoned"),
    [
        (result(), "end_turn", None, False),
        (result(stop_reason="refusal"), "refusal", None, False),
        (failed("", subtype="error_max_turns", errors=["Reached maximum"]), "max_turns", None, False),
        (failed("", terminal_reason="aborted_tools", errors=["[diagnostic]"]), "cancelled", None, False),
        (result(terminal_reason="aborted_streaming"), "cancelled", None, False),
        (failed("API Error: 400 odd"), "failed", "agent_error", False),
        (failed("Prompt is too long"), "failed", "context_too_long", True),
        (failed("`tool_use` ids were found without `tool_result` blocks"), "failed", "history_corrupt", True),
        (failed("Not logged in · Please run /login"), "failed", "needs_login", False),
        (failed("You've hit your weekly limit · resets 3pm"), "failed", "usage_limit", False),
        (failed("", errors=[]), "failed", "agent_error", False),
    ],
)
def test_the_result_line_determines_how_a_turn_ends(
    peer: Peer, line: dict[str, Any], stop_reason: str, code: str | None, poisoned: bool
) -> None:
    peer.send_input()
    end = only(TurnFinished, peer.says(line))
    assert (end.stop_reason, end.error_code, end.poisoned) == (stop_reason, code, poisoned)
    assert (end.error_message is not None) == (code is not None)


def test_a_usage_limit_says_when_it_ends(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(failed("Claude AI usage limit reached|1767225600"))
    assert only(System, seen).message == "Usage limit reached. It resets at 2026-01-01T00:00:00Z (1767225600)."
    end = only(TurnFinished, seen)
    assert end.error_message == "Claude AI usage limit reached (resets at 2026-01-01T00:00:00Z)"


def test_an_error_sent_as_a_message_is_the_turns_error_and_not_its_answer(peer: Peer) -> None:
    peer.send_input()
    line = whole("e", text("API Error: Overloaded"), error="server_error")
    line["message"]["model"] = "<synthetic>"
    seen = peer.says(line, failed("API Error: Overloaded"))
    assert deltas(seen) == []
    assert only(TurnFinished, seen).error_code == "api_unavailable"


def test_retries_are_reported(peer: Peer) -> None:
    peer.send_input()
    retry = system("api_retry", attempt=2, max_retries=10, retry_delay_ms=1180.5, error_status=529, error="overloaded")
    told = only(System, peer.says(retry))
    assert (told.code, told.turn) == ("api_retry", 1)
    assert "529" in told.message and "Retry 2 of 10" in told.message and "1.2 s" in told.message


def test_cancelling_interrupts_only_a_running_turn_and_can_be_repeated(peer: Peer) -> None:
    peer.open()
    assert peer.order(CancelTurn(1)) == [] and peer.sent == []
    peer.send_input()
    peer.order(CancelTurn(1))
    peer.order(CancelTurn(1))
    assert len(peer.requests("interrupt")) == 2
    peer.replies("interrupt")
    assert only(TurnFinished, peer.says(failed("[diagnostic]"))).stop_reason == "cancelled"


def test_a_waiting_prompt_is_cancelled_immediately(peer: Peer) -> None:
    peer.order(StartSession("/srv/site"))
    peer.order(SendInput(1, "m1", "go"))
    assert peer.order(CancelTurn(1)) == [TurnFinished(1, "cancelled", sent=False)]
    peer.replies("initialize")
    assert peer.sent == []


def test_closing_interrupts_a_running_turn(peer: Peer) -> None:
    peer.send_input()
    peer.order(CloseSession())
    assert [message["request"]["subtype"] for message in peer.sent] == ["interrupt"]


def test_with_a_process_per_turn_the_process_is_released_at_the_end() -> None:
    peer = Peer(ClaudeResumeDriver())
    peer.send_input()
    assert only(TurnFinished, peer.says(result())).leaves


# Turns that the agent starts on its own ------------------------------------------------------------------------------


def test_a_background_task_starts_its_own_turn(peer: Peer) -> None:
    peer.send_input()
    seen = peer.says(system("task_started", task_id="b1", tool_use_id="t1"), result())
    assert only(Config, seen).value == 1
    seen = peer.says(
        system("task_notification", task_id="b1", summary="bg is done"), init(), start("a"), piece("Done.")
    )
    assert [type(one) for one in seen] == [Config, TurnBegun, AssistantText]
    assert only(TurnBegun, seen).message == "bg is done"
    end = only(TurnFinished, peer.says(result(origin={"kind": "task-notification"})))
    assert (end.turn, end.stop_reason) == (0, "end_turn")


def test_tasks_that_end_together_are_all_reported(peer: Peer) -> None:
    peer.send_input()
    peer.says(*(system("task_started", task_id=task, tool_use_id=task) for task in ("b1", "b2")), result())
    ended = (system("task_notification", task_id=task, summary=f"{task} is done") for task in ("b1", "b2"))
    seen = peer.says(*ended, init(), start("a"), piece("Both are done."))
    assert only(TurnBegun, seen).message == "b1 is done\nb2 is done"


def test_with_a_process_per_turn_a_notice_says_that_its_tasks_end_with_it() -> None:
    peer = Peer(ClaudeResumeDriver())
    peer.send_input()
    seen = peer.says(system("task_started", task_id="b1", tool_use_id="t1"), result())
    assert [one.code for one in all_of(System, seen)] == ["background_ended"]


def test_a_prompt_waits_for_the_agents_own_turn(peer: Peer) -> None:
    peer.open()
    peer.says(start("a"), piece("By the way"))
    peer.order(SendInput(1, "m1", "go"))
    assert peer.sent == []
    peer.says(result(origin={"kind": "task-notification"}))
    assert peer.sent[0]["type"] == "user"


def test_the_end_of_the_agents_own_turn_is_not_the_end_of_the_prompts(peer: Peer) -> None:
    peer.send_input()
    own = result(origin={"kind": "task-notification"})
    assert all_of(TurnFinished, peer.says(own)) == []
    assert only(TurnFinished, peer.says(init(), start("a"), piece("yes"), result())).turn == 1


def test_a_prompt_absorbed_into_the_agents_own_turn_ends_with_it(peer: Peer) -> None:
    peer.send_input()
    own = result(origin={"kind": "task-notification"}, total_cost_usd=0.5)
    end = only(TurnFinished, peer.says(own, system("session_state_changed", state="idle")))
    assert (end.turn, end.stop_reason, end.cost_usd) == (1, "end_turn", 0.5)


def test_an_agent_that_is_idle_before_it_has_the_prompt_has_not_ended_the_turn(peer: Peer) -> None:
    receipts, idle = ["msg_lifecycle_v1"], system("session_state_changed", state="idle")
    own = result(origin={"kind": "task-notification"})
    peer.send_input()
    uuid = peer.sent[-1]["uuid"]
    assert all_of(TurnFinished, peer.says(init(capabilities=receipts), own, idle)) == []
    # Only now does it read the input. An input absorbed into the agent's own turn ends with that turn.
    other = {"type": "command_lifecycle", "command_uuid": "another", "state": "queued"}
    assert all_of(TurnFinished, peer.says(other, own, idle)) == []
    heard = {"type": "command_lifecycle", "command_uuid": uuid, "state": "queued"}
    assert only(TurnFinished, peer.says(heard, own, idle)).turn == 1


def test_output_of_a_sub_agent_between_turns_starts_no_turn(peer: Peer) -> None:
    peer.open()
    assert peer.says(whole("s", text("still here"), parent="t1"), tool_result("t2", "x", parent="t1")) == []


def test_the_agents_own_turn_can_be_cancelled_under_any_number(peer: Peer) -> None:
    peer.open()
    peer.says(start("a"))
    peer.order(CancelTurn(7))
    assert [message["request"]["subtype"] for message in peer.sent] == ["interrupt"]
