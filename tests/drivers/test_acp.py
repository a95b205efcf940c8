"""The acp driver, rule by rule: opening, sending, streaming, cancelling, ending."""

import json
from typing import Any

import pytest

from perdure.core.events import (
    AssistantText,
    AssistantThinking,
    Config,
    Plan,
    System,
    Title,
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
    PromptWithdrawn,
    ResumeRefused,
    SendConfig,
    SendInput,
    SessionOpened,
    StartFailed,
    StartSession,
    TurnFinished,
)
from tests.drivers.acp_peer import SESSION, Peer, all_of, only, text, thought, tool_call, tool_update, update

RESUME = StartSession("/srv/site", native_session_id=SESSION)
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}]}
MODELS = {"currentModelId": "small", "availableModels": [{"modelId": "small"}, {"modelId": "large"}]}


def option(id: str, current: Any, *values: str, category: str | None = None) -> dict[str, Any]:
    choices = [{"value": value, "name": value.title()} for value in values]
    return {"id": id, "name": id, "category": category, "type": "select", "currentValue": current, "options": choices}


@pytest.fixture
def peer() -> Peer:
    return Peer()


# Opening ------------------------------------------------------------------------------------------------------------


def test_the_command_is_started_as_it_is_configured() -> None:
    command = DRIVERS["acp"].command(["agent", "--acp"], StartSession("/srv/site"), "l")
    assert (command.argv, command.env, command.files) == (["agent", "--acp"], {}, {})


def test_initialize_offers_version_1_and_only_supported_capabilities(peer: Peer) -> None:
    peer.order(StartSession("/srv/site"))
    (message,) = peer.sent
    assert message["method"] == "initialize"
    assert message["params"]["protocolVersion"] == 1
    assert message["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "elicitation": {"form": {}},
        "_meta": {"subagent-transcript": True},
    }


@pytest.mark.parametrize("version", [2, 99, "1", None, True])
def test_another_protocol_version_is_refused(peer: Peer, version: Any) -> None:
    peer.order(StartSession("/srv/site"))
    failed = only(StartFailed, peer.replies("initialize", {"protocolVersion": version}))
    assert failed.code == "protocol"
    assert peer.sent == []


def test_a_new_session_is_requested_with_an_empty_list_of_servers(peer: Peer) -> None:
    peer.initialize(StartSession("/srv/site"))
    assert peer.sent[0]["method"] == "session/new"
    assert peer.sent[0]["params"] == {"cwd": "/srv/site", "mcpServers": []}
    opened = only(SessionOpened, peer.replies("session/new", {"sessionId": SESSION, "modes": MODES}))
    assert (opened.native_session_id, opened.resumed, opened.modes) == (SESSION, False, MODES)


def test_a_session_gets_the_configured_mcp_servers_that_its_agent_supports(peer: Peer) -> None:
    servers = {
        "files": {"command": ["mcp-files", "--root", "."], "env": {"KEY": "k"}},
        "web": {"url": "https://mcp.example/", "headers": {"X-Key": "k"}},
        "old": {"url": "https://old.example/", "transport": "sse"},
    }
    order = StartSession("/srv/site", options={"mcp_servers": servers})
    (told,) = peer.initialize(order, mcpCapabilities={"http": True, "sse": False})
    assert peer.sent[0]["params"]["mcpServers"] == [
        {"name": "files", "command": "mcp-files", "args": ["--root", "."], "env": [{"name": "KEY", "value": "k"}]},
        {
            "type": "http",
            "name": "web",
            "url": "https://mcp.example/",
            "headers": [{"name": "X-Key", "value": "k"}],
        },
    ]
    assert isinstance(told, System) and told.code == "mcp_server_left_out" and "old" in told.message


def test_resume_is_preferred_to_load(peer: Peer) -> None:
    peer.initialize(RESUME, loadSession=True, sessionCapabilities={"resume": {}})
    assert peer.sent[0]["method"] == "session/resume"
    peer.order(SendInput(1, "m1", "go on"))
    opened = only(SessionOpened, peer.replies("session/resume", {}))
    assert opened.resumed
    assert [message["method"] for message in peer.sent] == ["session/prompt"]


def test_after_a_load_the_prompt_waits_until_the_replay_is_over(peer: Peer) -> None:
    peer.initialize(RESUME, loadSession=True)
    peer.order(SendInput(1, "m1", "go on"))
    assert peer.updates(text("old"), tool_call("t0", title="old")) == []
    assert peer.replies("session/load", {"modes": MODES}) == []
    assert [message["method"] for message in peer.sent] == ["_perdure/settled"]
    assert peer.updates(text("still old"), {"sessionUpdate": "user_message_chunk", "content": {}}) == []
    assert only(SessionOpened, peer.fails("_perdure/settled", -32601, "Method not found")).modes == MODES
    assert [message["method"] for message in peer.sent] == ["session/prompt"]
    assert only(AssistantText, peer.updates(text("new"))).delta == "new"


def test_a_resume_is_refused_without_asking_an_agent_that_cannot_resume(peer: Peer) -> None:
    assert only(ResumeRefused, peer.initialize(RESUME)).reason
    assert peer.sent == []


def test_a_refused_resume_drops_the_prompt_and_the_same_process_opens_a_new_session(peer: Peer) -> None:
    peer.initialize(RESUME, loadSession=True)
    peer.order(SendInput(1, "m1", "with little context"))
    refused = only(ResumeRefused, peer.fails("session/load", -32002, "Resource not found", {"details": "gone"}))
    assert "Resource not found: gone" in refused.reason
    peer.order(StartSession("/srv/site"))
    assert [message["method"] for message in peer.sent] == ["session/new"]
    peer.order(SendInput(1, "m1", "with the transcript"))
    peer.replies("session/new", {"sessionId": "another"})
    (sent,) = peer.sent
    assert sent["params"]["prompt"] == [{"type": "text", "text": "with the transcript"}]
    assert sent["params"]["sessionId"] == "another"


def test_a_resume_that_opens_another_session_is_refused(peer: Peer) -> None:
    peer.initialize(RESUME, sessionCapabilities={"resume": {}})
    assert only(ResumeRefused, peer.replies("session/resume", {"sessionId": "another"}))


def test_an_agent_without_a_login_lists_its_login_methods(peer: Peer) -> None:
    peer.order(StartSession("/srv/site"))
    methods = [{"id": "key", "name": "API key"}, {"id": "oauth"}]
    peer.replies("initialize", {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": methods})
    failed = only(StartFailed, peer.fails("session/new", -32000, "Authentication required"))
    assert failed.code == "needs_login"
    assert "API key, oauth" in failed.message


def test_a_session_that_cannot_be_opened_says_why_and_another_can_be_tried(peer: Peer) -> None:
    peer.initialize(StartSession("/srv/site"))
    failed = only(StartFailed, peer.fails("session/new", -32603, "Internal error", {"details": "no such directory"}))
    assert (failed.code, failed.message) == ("session_refused", "no such directory")
    peer.order(StartSession("/srv/other"))
    assert peer.sent[0]["method"] == "session/new"


def test_updates_before_the_reply_that_names_the_session_are_not_lost(peer: Peer) -> None:
    peer.initialize(StartSession("/srv/site"))
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init"}]}
    assert peer.updates(commands, {"sessionUpdate": "usage_update", "used": 5, "size": 9}) == []
    assert peer.updates(commands, session="another") == []
    observed = peer.replies("session/new", {"sessionId": SESSION})
    assert [type(one) for one in observed] == [SessionOpened, Config, Usage, Noise]
    assert only(Config, observed).config_id == "available_commands"
    assert only(Usage, observed).context_used == 5


# Settings -----------------------------------------------------------------------------------------------------------


def test_settings_are_sent_before_the_prompt_preferably_as_config_options(peer: Peer) -> None:
    wishes = StartSession("/srv/site", mode="plan", model="large", config={"effort": "high"})
    peer.initialize(wishes)
    peer.send_input()
    options = [
        option("how", "default", "default", "plan", category="mode"),
        option("model", "small", "small", "large", category="model"),
        option("effort", "high", "low", "high"),
    ]
    opened = only(
        SessionOpened, peer.replies("session/new", {"sessionId": SESSION, "configOptions": options, "modes": MODES})
    )
    assert [message["method"] for message in peer.sent] == ["session/set_config_option"] * 2 + ["session/prompt"]
    assert peer.sent[0]["params"] == {"sessionId": SESSION, "configId": "how", "value": "plan"}
    assert opened.config_options == options
    assert opened.models == {
        "currentModelId": "small",
        "availableModels": [{"modelId": "small", "name": "Small"}, {"modelId": "large", "name": "Large"}],
    }


def test_modes_and_models_of_older_agents_have_their_own_methods(peer: Peer) -> None:
    peer.open(StartSession("/srv/site", mode="auto", model="large"), {"modes": MODES, "models": MODELS})
    assert [(message["method"], message["params"]) for message in peer.sent] == [
        ("session/set_mode", {"sessionId": SESSION, "modeId": "auto"}),
        ("session/set_model", {"sessionId": SESSION, "modelId": "large"}),
    ]


def test_a_value_that_the_agent_does_not_list_is_not_sent(peer: Peer) -> None:
    peer.initialize(StartSession("/srv/site", mode="yolo"))
    refused = only(System, peer.replies("session/new", {"sessionId": SESSION, "modes": MODES}))
    assert refused.code == "config_refused"
    assert peer.sent == []
    assert only(System, peer.order(SendConfig("volume", 11))).code == "config_refused"


def test_after_a_change_the_agents_own_list_is_reported(peer: Peer) -> None:
    peer.open(result={"configOptions": [option("model", "small", "small", "large", category="model")]})
    assert peer.order(SendConfig("model", "large")) == []
    now = [option("model", "small", "small", "large", category="model")]
    told = only(Config, peer.replies("session/set_config_option", {"configOptions": now}))
    assert (told.config_id, told.value, told.options) == ("model", "small", now)
    peer.order(SendConfig("model", "large"))
    refused = only(System, peer.fails("session/set_config_option", -32602, "not today"))
    assert "not today" in refused.message


def test_options_in_groups_and_boolean_options_are_understood(peer: Peer) -> None:
    grouped = option("model", "a")
    grouped["options"] = [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}, {"value": "b"}]}]
    peer.open(result={"configOptions": [grouped, {"id": "fast", "type": "boolean", "currentValue": False}]})
    peer.order(SendConfig("model", "b"))
    assert peer.sent[0]["params"]["value"] == "b"
    peer.order(SendConfig("fast", True))
    assert peer.sent[0]["params"] == {"sessionId": SESSION, "configId": "fast", "type": "boolean", "value": True}
    assert only(System, peer.order(SendConfig("fast", "true"))).code == "config_refused"


def test_changes_by_the_agent_are_reported_once(peer: Peer) -> None:
    peer.open(result={"modes": MODES})
    changed = {"sessionUpdate": "current_mode_update", "currentModeId": "auto"}
    told = only(Config, peer.updates(changed, changed))
    assert (told.config_id, told.value, told.turn) == ("mode", "auto", None)
    options = {"sessionUpdate": "config_option_update", "configOptions": [option("effort", "low", "low", "high")]}
    assert only(Config, peer.updates(options)).value == "low"
    assert peer.updates(options) == []


def test_a_setting_requested_before_the_session_is_open_is_applied_later(peer: Peer) -> None:
    peer.initialize(StartSession("/srv/site"))
    assert peer.order(SendConfig("mode", "auto")) == []
    peer.replies("session/new", {"sessionId": SESSION, "modes": MODES})
    assert peer.sent[0]["method"] == "session/set_mode"
    told = only(Config, peer.replies("session/set_mode", {}))
    assert (told.config_id, told.value) == ("mode", "auto")


# Prompts ------------------------------------------------------------------------------------------------------------


def test_a_prompt_before_the_session_is_open_is_held(peer: Peer) -> None:
    peer.send_input(text="hello\nthere")
    assert peer.sent == []
    peer.open()
    (message,) = peer.sent
    assert message["params"] == {"sessionId": SESSION, "prompt": [{"type": "text", "text": "hello\nthere"}]}
    finished = only(TurnFinished, peer.ends())
    assert finished.input_bytes == len(json.dumps(message, separators=(",", ":")).encode()) + 1
    assert finished.stop_reason == "end_turn"


def test_attachments_are_links(peer: Peer) -> None:
    peer.open()
    attachments: tuple[dict[str, Any], ...] = (
        {"path": "/srv/site/a b.txt", "mime_type": "text/plain"},
        {"uri": "https://x.test/y", "name": "Y"},
        {},
    )
    peer.order(SendInput(1, "m1", "see", attachments))
    assert peer.sent[0]["params"]["prompt"][1:] == [
        {"type": "resource_link", "uri": "file:///srv/site/a%20b.txt", "name": "a%20b.txt", "mimeType": "text/plain"},
        {"type": "resource_link", "uri": "https://x.test/y", "name": "Y"},
    ]


def test_an_empty_prompt_is_never_sent(peer: Peer) -> None:
    peer.open()
    finished = only(TurnFinished, peer.order(SendInput(1, "m1", "")))
    assert (finished.stop_reason, finished.error_code) == ("failed", "empty_prompt")
    assert peer.sent == []


def test_a_second_prompt_waits_for_the_end_of_the_first(peer: Peer) -> None:
    peer.open()
    peer.send_input(1)
    peer.send_input(2, "then this")
    assert peer.sent == []
    assert only(TurnFinished, peer.ends()).turn == 1
    assert peer.sent[0]["params"]["prompt"][0]["text"] == "then this"
    assert only(AssistantText, peer.updates(text("x"))).turn == 2


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_turns"),
        ("max_turn_requests", "max_turns"),
        ("refusal", "refusal"),
        ("cancelled", "cancelled"),
        ("something new", "end_turn"),
    ],
)
def test_stop_reasons_are_translated(peer: Peer, theirs: str, ours: str) -> None:
    peer.open()
    peer.send_input()
    assert only(TurnFinished, peer.ends(theirs)).stop_reason == ours


@pytest.mark.parametrize(
    ("code", "message", "expected", "poisoned"),
    [
        (-32603, "Internal error: API Error: 400 scripted failure", "agent_error", False),
        (-32603, "API Error: prompt is too long: 210000 tokens > 200000 maximum", "context_too_long", True),
        (400, "This model's maximum context length is 128000 tokens", "context_too_long", True),
        (-32603, "messages.3: `tool_use` ids were found without `tool_result` blocks", "history_corrupt", True),
        (-32602, "Session fc97 not found", "session_lost", True),
        (-32002, "Resource not found", "session_lost", True),
        (-32000, "Authentication required", "needs_login", False),
    ],
)
def test_a_failed_prompt_says_what_it_means_for_the_session(
    peer: Peer, code: int, message: str, expected: str, poisoned: bool
) -> None:
    peer.open()
    peer.send_input()
    finished = only(TurnFinished, peer.fails("session/prompt", code, message, {"details": "the details"}))
    assert (finished.stop_reason, finished.error_code, finished.poisoned) == ("failed", expected, poisoned)
    assert finished.error_message == f"{message.removeprefix('Internal error: ')}: the details"


# Streams ------------------------------------------------------------------------------------------------------------


def test_a_new_block_begins_with_another_kind_another_message_or_a_tool(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    observed = peer.updates(
        thought("hm"),
        text("a", messageId="1"),
        text("b", messageId="1"),
        text("c", messageId="2"),
        tool_call("t", title="x"),
        text("d", messageId="2"),
        tool_update("t", title="y"),
        text("e", messageId="2"),
        text("f"),
    )
    deltas = [
        (type(one), one.block, one.delta) for one in observed if isinstance(one, AssistantText | AssistantThinking)
    ]
    assert deltas == [
        (AssistantThinking, 0, "hm"),
        (AssistantText, 1, "ab"),
        (AssistantText, 2, "c"),
        (AssistantText, 3, "d"),
        (AssistantText, 3, "e"),
        (AssistantText, 4, "f"),
    ]


def test_text_in_the_same_batch_as_the_end_of_its_turn_comes_before_it(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    observed = peer.says(
        update(text("last ")), update(text("words")), {"id": peer.id_of("session/prompt"), "result": {}}
    )
    assert [type(one) for one in observed] == [AssistantText, TurnFinished]
    assert only(AssistantText, observed).delta == "last words"


def test_content_with_no_prompt_in_flight_is_dropped(peer: Peer) -> None:
    peer.open()
    plan = {"sessionUpdate": "plan", "entries": [{"content": "x"}]}
    assert peer.updates(text("[MODE_UPDATE] auto"), thought("x"), tool_call("t"), tool_update("t"), plan) == []


def test_titles_and_plans_are_reported(peer: Peer) -> None:
    peer.open()
    title = {"sessionUpdate": "session_info_update", "title": "Colours"}
    assert only(Title, peer.updates(title, {"sessionUpdate": "session_info_update", "title": None})).by == "agent"
    peer.send_input()
    entries = [{"content": "paint", "status": "completed", "priority": "high"}, {"content": "dry"}, "?"]
    plan = only(Plan, peer.updates({"sessionUpdate": "plan", "entries": entries}))
    assert [(entry.content, entry.status) for entry in plan.entries] == [("paint", "completed"), ("dry", "pending")]


def test_an_echo_of_the_prompt_is_not_shown(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    assert peer.updates({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "do it"}}) == []


def test_the_cost_of_a_turn_is_what_the_agents_total_grew_by(peer: Peer) -> None:
    peer.open()
    for turn, total, cost in ((1, 0.25, 0.25), (2, 0.75, 0.5)):
        peer.send_input(turn)
        used = {"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": {"amount": total, "currency": "USD"}}
        assert only(Usage, peer.updates(used, used)).cost_usd == pytest.approx(cost)
        observed = peer.ends(usage={"inputTokens": 7, "outputTokens": 2, "cachedReadTokens": 1})
        last = only(Usage, observed)
        assert (last.input_tokens, last.cache_read_tokens, last.context_used) == (7, 1, 10)
        assert only(TurnFinished, observed).cost_usd == pytest.approx(cost)


def test_the_cost_of_the_first_turn_after_a_resume_is_unknown_and_not_the_whole_past(peer: Peer) -> None:
    peer.initialize(RESUME, sessionCapabilities={"resume": {}})
    peer.replies("session/resume", {})
    peer.send_input()
    peer.updates({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 9.0, "currency": "USD"}})
    assert only(TurnFinished, peer.ends()).cost_usd is None


def test_usage_is_found_wherever_agents_report_it(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    qwen = peer.updates(text("", _meta={"usage": {"inputTokens": 120, "outputTokens": 3}}))
    assert (only(Usage, qwen).input_tokens, only(Usage, qwen).output_tokens) == (120, 3)
    gemini = peer.ends(_meta={"quota": {"token_count": {"input_tokens": 130, "output_tokens": 20}}})
    assert only(Usage, gemini).input_tokens == 130


# Tools --------------------------------------------------------------------------------------------------------------


def test_a_tool_is_announced_updated_and_closed_once(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    use = only(
        ToolUse,
        peer.updates(tool_call("t", name="Write", kind="edit", title="Preparing", status="pending", rawInput={})),
    )
    assert (use.name, use.kind, use.title, use.input) == ("Write", "edit", "Preparing", {})
    diff = {"type": "diff", "path": "/srv/a", "oldText": None, "newText": "hi"}
    changed = only(ToolUpdate, peer.updates(tool_update("t", title="Write a", rawInput={"f": 1}, content=[diff])))
    assert changed.diff == [{"path": "/srv/a", "old_text": None, "new_text": "hi"}]
    assert (changed.status, changed.title, changed.input) == ("pending", "Write a", {"f": 1})
    assert peer.updates(tool_update("t", _meta={"x": 1})) == []
    body = [{"type": "content", "content": {"type": "text", "text": "done"}}]
    place = [{"path": "/srv/a", "line": 3, "_meta": {}}]
    end = tool_update("t", status="completed", content=body, locations=place)
    result = only(ToolResult, peer.updates(end, end))
    assert (result.content, result.locations, result.is_error) == ("done", [{"path": "/srv/a", "line": 3}], False)
    assert [type(one) for one in peer.ends()] == [TurnFinished]


def test_the_raw_output_replaces_missing_content(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    first = peer.updates(tool_call("a", kind="read", status="completed", rawOutput={"lines": 2}))
    assert [type(one) for one in first] == [ToolUse, ToolResult]
    assert only(ToolResult, first).content == '{"lines":2}'
    printed = tool_update("b", _meta={"terminal_output_delta": {"data": "out\n"}})
    peer.updates(tool_call("b", status="in_progress"), printed, printed)
    ended = only(ToolResult, peer.updates(tool_update("b", status="failed", rawOutput={"exit_code": 1})))
    assert (ended.content, ended.status, ended.is_error) == ("out\nout\n", "failed", True)


def test_tools_that_the_agent_leaves_open_are_closed_as_failed(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    peer.updates(tool_call("t", title="sleep"))
    result = only(ToolResult, peer.ends())
    assert (result.status, result.is_error, result.content) == ("failed", True, "left open by the agent")


def test_late_output_of_a_tool_is_not_part_of_the_next_turn(peer: Peer) -> None:
    peer.open()
    peer.send_input(1)
    peer.updates(tool_call("t", title="sleep"))
    peer.ends("cancelled")
    peer.send_input(2)
    assert peer.updates(tool_update("t", status="completed")) == []
    assert only(ToolUse, peer.updates(tool_call("t", title="again"))).turn == 2


# Cancelling and closing ---------------------------------------------------------------------------------------------


def test_cancel_is_sent_only_while_a_prompt_is_outstanding(peer: Peer) -> None:
    peer.open()
    assert peer.order(CancelTurn(1)) == [] and peer.sent == []
    peer.send_input()
    for _ in range(2):
        peer.order(CancelTurn(1))
        assert peer.sent == [{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": SESSION}}]
    assert peer.order(CancelTurn(7)) == [] and peer.sent == []
    assert only(TurnFinished, peer.ends("cancelled")).stop_reason == "cancelled"


def test_an_error_after_a_cancel_is_a_cancelled_turn(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    peer.order(CancelTurn(1))
    finished = only(TurnFinished, peer.fails("session/prompt", -32603, "'NoneType' object"))
    assert (finished.stop_reason, finished.error_code) == ("cancelled", None)


def test_a_prompt_that_still_waits_is_cancelled_without_the_agent(peer: Peer) -> None:
    peer.initialize(StartSession("/srv/site"))
    peer.send_input()
    assert only(TurnFinished, peer.order(CancelTurn(1))).stop_reason == "cancelled"
    peer.replies("session/new", {"sessionId": SESSION})
    assert peer.sent == []


def test_closing_interrupts_and_closes_the_session_if_the_agent_supports_it(peer: Peer) -> None:
    peer.open(sessionCapabilities={"close": {}})
    peer.send_input()
    peer.asks_permission(0)
    withdrawn = peer.order(CloseSession())
    assert [type(one) for one in withdrawn] == [PromptWithdrawn]
    assert [message.get("method") for message in peer.sent] == ["session/cancel", None, "session/close"]
    plain = Peer()
    plain.open()
    plain.order(CloseSession())
    assert plain.sent == []


# Unknown and invalid messages ---------------------------------------------------------------------------------------


def test_unknown_messages_are_reported_once_per_kind_and_stored_unchanged(peer: Peer) -> None:
    peer.open()
    kinds = [{"sessionUpdate": kind} for kind in ("state_update", "state_update", "_vendor")]
    noise = all_of(Noise, peer.updates(*kinds))
    assert [one.told for one in noise] == [True, False, True]
    assert json.loads(noise[2].raw)["update"] == {"sessionUpdate": "_vendor"}
    plain, other = all_of(Noise, peer.lines(b"Warning: " + b"x" * 999, b"", b"  ", b"[1]"))
    assert (len(plain.sample), len(plain.raw), other.raw, other.told) == (200, 1008, "[1]", False)
    assert [one.told for one in all_of(Noise, peer.updates(text("x"), text("y"), session="another"))] == [True, False]


def test_only_a_limited_number_of_unknown_messages_is_stored(peer: Peer) -> None:
    peer.open()
    kept = all_of(Noise, peer.lines(*[b"z" * 100_000] * 200))
    assert len(kept) == 100 and {len(one.raw) for one in kept} == {16 * 1024}


def test_unknown_requests_are_answered_and_unknown_notifications_are_not(peer: Peer) -> None:
    peer.open()
    seen = peer.says({"id": "q", "method": "craft/drain", "params": {}}, {"method": "_auth/status_update"})
    assert [one.told for one in all_of(Noise, seen)] == [False, False]
    (reply,) = peer.sent
    assert (reply["id"], reply["error"]["code"]) == ("q", -32601)


def test_request_ids_of_the_agent_may_equal_ours(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    ours = peer.id_of("session/prompt")
    asked = peer.asks_permission(ours)
    assert asked.options
    peer.says({"id": ours, "method": "craft/drain", "params": {}})
    assert only(TurnFinished, peer.ends()).stop_reason == "end_turn"


def test_late_and_unknown_replies_are_ignored(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    assert peer.says({"id": 99, "result": {}}, {"id": None, "error": {"code": -32700}}, {"id": "0", "result": {}}) == []
    peer.ends()
    assert peer.ends() == []


def test_half_an_emoji_does_not_lose_the_rest_of_the_line(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    line = json.dumps({"jsonrpc": "2.0", **update(text("ok \ud83d and on"))}).encode()
    assert only(AssistantText, peer.lines(line)).delta == "ok \ufffd and on"
    broken = json.dumps({"jsonrpc": "2.0", **update(text("caf?"))}).encode().replace(b"?", b"\xe9")
    assert only(AssistantText, peer.lines(broken)).delta == "caf\ufffd"


def test_a_line_of_a_megabyte_is_one_delta(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    assert len(only(AssistantText, peer.updates(text("x" * 1_000_000))).delta) == 1_000_000


def test_a_value_that_is_nested_too_deeply_is_left_out(peer: Peer) -> None:
    peer.open()
    peer.send_input()
    deep = b'{"method":"session/update","params":{"sessionId":"session-1","update":{"sessionUpdate":"tool_call",'
    deep += b'"toolCallId":"t","rawInput":' + b"[" * 300 + b"]" * 300 + b"}}}"
    assert [type(one) for one in peer.lines(deep)] == [Noise]
