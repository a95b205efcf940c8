"""Permission requests and questions of ACP agents: showing, answering and withdrawing them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.events import PendingPrompt, System, ToolUpdate, ToolUse
from perdure.core.permissions import Rule, answer_by_rule
from perdure.drivers.acp.tools import KEPT_DIFF_BYTES
from perdure.drivers.base import CancelTurn, PromptWithdrawn, SendAnswer, TurnFinished
from tests.drivers.acp_peer import OPTIONS, SESSION, Peer, only, tool_call, tool_update

CANCELLED = {"outcome": {"outcome": "cancelled"}}


@pytest.fixture
def peer() -> Peer:
    peer = Peer()
    peer.open()
    peer.send_input()
    return peer


def selected(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def asks(peer: Peer, schema: dict[str, Any], message: str = "Which?", **more: Any) -> PendingPrompt:
    params = {"sessionId": SESSION, "mode": "form", "message": message, "requestedSchema": schema, **more}
    return only(PendingPrompt, peer.says({"id": 5, "method": "elicitation/create", "params": params}))


def answered(peer: Peer, asked: PendingPrompt, **answers: Any) -> Any:
    peer.order(SendAnswer(asked.prompt_id, {"answers": answers}))
    (message,) = peer.sent
    assert (message["id"], message["result"]["action"]) == (5, "accept")
    return message["result"]["content"]


def choices(*names: str) -> list[dict[str, str]]:
    return [{"const": name.lower(), "title": name} for name in names]


def test_a_permission_shows_the_tool_and_the_agents_options_in_its_order(peer: Peer) -> None:
    call = {"toolCallId": "t1", "name": "Bash", "title": "ls -l", "rawInput": {"command": "ls -l"}, "status": "pending"}
    asked = peer.asks_permission(0, call)
    assert (asked.kind, asked.turn, asked.title, asked.tool_id, asked.tool) == ("permission", 1, "ls -l", "t1", "Bash")
    assert asked.input == {"command": "ls -l"}
    assert [(option.option_id, option.kind) for option in asked.options] == [
        ("always", "allow_always"),
        ("yes", "allow_once"),
        ("no", "reject_once"),
    ]
    assert [type(one) for one in peer.seen[-2:]] == [ToolUse, PendingPrompt]
    peer.asks_permission(1, call)
    assert not [one for one in peer.seen if isinstance(one, ToolUpdate)], "known values are not reported again"


def test_a_permission_that_only_names_its_tool_shows_what_is_known_about_it(peer: Peer) -> None:
    peer.updates(tool_call("t1", title="make", kind="execute", rawInput={"command": "make"}))
    asked = peer.asks_permission("abc")
    assert (asked.title, asked.tool, asked.input) == ("make", "execute", {"command": "make"})
    assert not [one for one in peer.seen if isinstance(one, ToolUpdate)]


TEXTS = st.sampled_from(["Read", "Bash", "execute", "tool", "", None, 7])


@given(st.lists(st.fixed_dictionaries({}, optional={"title": TEXTS, "kind": TEXTS, "name": TEXTS}), max_size=3))
def test_a_title_never_becomes_the_name_that_rules_match(messages: list[dict[str, Any]]) -> None:
    peer = Peer()
    peer.open()
    peer.send_input()
    for message in messages:
        peer.updates(tool_update("t1", **message))
    asked = peer.asks_permission(0)
    said = {message.get(key) for message in messages for key in ("name", "kind")} & {"Read", "Bash", "execute", "tool"}
    assert asked.tool in said if said else asked.tool is None
    assert asked.title
    for tool in ("Read", "Bash", "execute", "tool"):
        if tool not in said:
            assert answer_by_rule([Rule(tool, "*", "allow")], asked) is None
    # A deny rule may match the title, though.
    denied = answer_by_rule([Rule(asked.title, "*", "deny"), Rule("*", "*", "allow")], asked)
    assert denied is not None and denied.kind == "reject_once"


def test_prompt_ids_are_the_same_whenever_the_run_is_the_same() -> None:
    found = []
    for _ in range(2):
        peer = Peer("launch")
        peer.open()
        peer.send_input()
        found.append([peer.asks_permission(0).prompt_id, peer.asks_permission(0, {"toolCallId": "t2"}).prompt_id])
    assert found[0] == found[1] == ["launch-1", "launch-2"]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"option_id": "yes"}, selected("yes")),
        ({"option_id": "allow_once"}, selected("yes")),
        ({"option_id": "allow_always"}, selected("always")),
        ({"option_id": "reject_always", "reason": "no"}, selected("no")),
        ({"option_id": "something else"}, selected("no")),
        ({"cancel": True}, CANCELLED),
    ],
)
def test_answers_become_outcomes(peer: Peer, answer: dict[str, Any], result: dict[str, Any]) -> None:
    asked = peer.asks_permission(7)
    assert [type(one) for one in peer.order(SendAnswer(asked.prompt_id, answer))] == [System] * ("reason" in answer)
    assert peer.sent == [{"jsonrpc": "2.0", "id": 7, "result": result}]
    peer.order(SendAnswer(asked.prompt_id, answer))
    assert peer.sent == [], "each request is answered once"


def test_an_answer_never_grants_more_than_the_person_did(peer: Peer) -> None:
    asked = peer.asks_permission(1, options=[OPTIONS[0], OPTIONS[2]])
    peer.order(SendAnswer(asked.prompt_id, {"option_id": "allow_once"}))
    assert peer.sent[0]["result"] == selected("no")
    asked = peer.asks_permission(2, options=[{"optionId": "x", "name": "X", "kind": "brand new"}])
    assert asked.options[0].kind == "reject_once"
    asked = peer.asks_permission(3, options=[OPTIONS[1]])
    peer.order(SendAnswer(asked.prompt_id, {"option_id": "reject_once"}))
    assert peer.sent[0]["result"] == CANCELLED


def test_a_rejection_that_interrupts_also_cancels_the_turn(peer: Peer) -> None:
    asked = peer.asks_permission(1)
    peer.order(SendAnswer(asked.prompt_id, {"option_id": "no", "interrupt": True}))
    assert [message.get("method") for message in peer.sent] == [None, "session/cancel"]


def test_cancelling_the_turn_answers_all_open_requests(peer: Peer) -> None:
    permission = peer.asks_permission(0)
    question = asks(peer, {"properties": {"q": {"type": "string"}}})
    withdrawn = peer.order(CancelTurn(1))
    assert withdrawn == [PromptWithdrawn(permission.prompt_id), PromptWithdrawn(question.prompt_id)]
    assert peer.sent[0]["method"] == "session/cancel"
    assert [message["result"] for message in peer.sent[1:]] == [CANCELLED, {"action": "cancel"}]


def test_the_end_of_the_turn_answers_all_open_requests(peer: Peer) -> None:
    peer.asks_permission(0)
    observed = peer.ends()
    assert only(PromptWithdrawn, observed) and isinstance(observed[-1], TurnFinished)
    assert peer.sent == [{"jsonrpc": "2.0", "id": 0, "result": CANCELLED}]


def test_a_request_that_the_agent_cancels_is_withdrawn(peer: Peer) -> None:
    first, second = peer.asks_permission(8), peer.asks_permission(9)
    cancel = {"method": "$/cancel_request", "params": {"requestId": 9}}
    assert peer.says(cancel, cancel) == [PromptWithdrawn(second.prompt_id)]
    peer.order(SendAnswer(first.prompt_id, {"option_id": "yes"}))
    assert peer.sent[0]["result"] == selected("yes")


def test_a_permission_request_outside_a_turn_is_cancelled(peer: Peer) -> None:
    peer.ends()
    request = {"sessionId": SESSION, "toolCall": {"toolCallId": "t"}, "options": OPTIONS}
    assert peer.says({"id": 0, "method": "session/request_permission", "params": request}) == []
    assert peer.sent == [{"jsonrpc": "2.0", "id": 0, "result": CANCELLED}]


def test_a_choice_is_answered_with_its_value(peer: Peer) -> None:
    asked = asks(
        peer, {"properties": {"colour": {"type": "string", "title": "Colour", "oneOf": choices("Red", "Blue")}}}
    )
    assert (asked.kind, asked.title) == ("question", "Which?")
    (question,) = asked.questions
    assert (question.question, question.header, question.multiple) == ("Which?", "Colour", False)
    assert answered(peer, asked, colour="Blue") == {"colour": "blue"}


def test_a_free_text_answer_goes_into_the_companion_field(peer: Peer) -> None:
    claude = {"q": {"type": "string", "oneOf": choices("Red")}, "q_custom": {"type": "string", "title": "Other"}}
    asked = asks(peer, {"properties": claude})
    assert [question.question_id for question in asked.questions] == ["q"]
    assert answered(peer, asked, q="mauve") == {"q_custom": "mauve"}
    codex = {
        "c": {"type": "string", "oneOf": choices("Red", "None of the above", "Blue")},
        "c_note": {"type": "string"},
    }
    asked = asks(peer, {"properties": codex, "required": ["c"]})
    assert answered(peer, asked, c="mauve") == {"c": "none of the above", "c_note": "mauve"}


def test_several_kinds_of_question_in_one_form(peer: Peer) -> None:
    properties = {
        "tags": {"type": "array", "title": "Tags?", "items": {"anyOf": choices("A", "B", "C")}},
        "size": {"type": "string", "description": "Which size?", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
        "sure": {"type": "boolean", "title": "Sure?"},
        "count": {"type": "integer"},
        "name": {"type": "string", "title": "Your name"},
        "left": {"type": "string"},
    }
    asked = asks(peer, {"properties": properties})
    shown = [(q.question, q.multiple, [choice.label for choice in q.options]) for q in asked.questions]
    assert shown == [
        ("Tags?", True, ["A", "B", "C"]),
        ("Which size?", False, ["Small", "Large"]),
        ("Sure?", False, ["Yes", "No"]),
        ("count", False, []),
        ("Your name", False, []),
        ("left", False, []),
    ]
    content = answered(peer, asked, tags=["A", "c"], size="Large", sure="Yes", count="3", name="Ada")
    assert content == {"tags": ["a", "c"], "size": "l", "sure": True, "count": 3, "name": "Ada"}


def test_a_question_can_be_cancelled_but_not_answered_with_an_option(peer: Peer) -> None:
    asked = asks(peer, {"properties": {"q": {"type": "string"}}})
    peer.order(SendAnswer(asked.prompt_id, {"option_id": "yes"}))
    assert peer.sent == []
    peer.order(SendAnswer(asked.prompt_id, {"cancel": True}))
    assert peer.sent[0]["result"] == {"action": "cancel"}


def test_a_form_that_cannot_be_shown_is_cancelled(peer: Peer) -> None:
    params = {"sessionId": SESSION, "mode": "url", "message": "Log in", "url": "https://x.test"}
    assert peer.says({"id": 1, "method": "elicitation/create", "params": params}) == []
    assert peer.sent[0]["result"] == {"action": "cancel"}


CHANGE = {"type": "diff", "path": "/srv/a.txt", "oldText": "one", "newText": "two"}


@pytest.mark.parametrize("shown_with", ["request", "call", "update"])
def test_a_permission_carries_the_change_that_its_tool_shows(peer: Peer, shown_with: str) -> None:
    """gemini and opencode send the diff with the request; vibe, codex and copilot with the tool call before it."""
    change = {"content": [CHANGE]}
    if shown_with != "request":
        peer.updates(tool_call("t1", kind="edit", **(change if shown_with == "call" else {})))
    if shown_with == "update":
        peer.updates(tool_update("t1", **change))
    call = {"toolCallId": "t1"} | ({"kind": "edit", **change} if shown_with == "request" else {})
    asked = peer.asks_permission(0, call)
    assert asked.diff == [{"path": "/srv/a.txt", "old_text": "one", "new_text": "two"}]
    assert asked.tool_kind == "edit"


def test_a_permission_carries_the_text_that_its_request_shows(peer: Peer) -> None:
    shown = {"type": "content", "content": {"type": "text", "text": '{"steps": 3}'}}
    asked = peer.asks_permission(0, {"toolCallId": "t1", "title": "slow", "kind": "other", "content": [shown]})
    assert (asked.content, asked.tool_kind, asked.diff, asked.input) == ('{"steps": 3}', "other", None, None)


def test_a_reason_that_cannot_be_delivered_is_reported(peer: Peer) -> None:
    asked = peer.asks_permission(0, {"toolCallId": "t1", "title": "ls"})
    seen = peer.order(SendAnswer(asked.prompt_id, {"option_id": "no", "reason": "not now"}))
    assert only(System, seen).code == "reason_not_told" and peer.sent[0]["result"] == selected("no")
    asked = peer.asks_permission(1, {"toolCallId": "t1"})
    assert not peer.order(SendAnswer(asked.prompt_id, {"option_id": "no"}))


@pytest.mark.parametrize(
    "wrong",
    [{"oldText": 7}, {"oldText": ["one"]}, {"newText": None}, {"newText": {}}, {"path": 7}, {"path": None}],
    ids=str,
)
def test_a_change_that_is_not_text_is_not_shown_as_one(peer: Peer, wrong: dict[str, Any]) -> None:
    asked = peer.asks_permission(1, {"toolCallId": "t1", "title": "Write a", "content": [CHANGE | wrong, CHANGE]})
    assert asked.diff == [{"path": "/srv/a.txt", "old_text": "one", "new_text": "two"}]


def test_changes_of_calls_that_never_end_are_kept_only_up_to_a_limit(peer: Peer) -> None:
    """The state is stored with every piece of output, so it must stay small."""
    long = CHANGE | {"newText": "x" * (KEPT_DIFF_BYTES // 3)}
    for number in range(10):
        peer.updates(tool_call(f"t{number}", title="Write a", content=[long]))
    assert len(peer.dump) < 2 * KEPT_DIFF_BYTES
    assert peer.asks_permission(1, {"toolCallId": "t9"}).diff is not None
    assert peer.asks_permission(2, {"toolCallId": "t8"}).diff is not None
    assert peer.asks_permission(3, {"toolCallId": "t0"}).diff is None
