"""Editing, rewinding, retrying and forking over HTTP: responses, visible effects and refusals."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.core import events as ev
from perdure.core.observe import observe
from perdure.runtime.agents.registry import import_path
from perdure.runtime.log.pieces import TurnPieces
from perdure.surfaces.http.history import Plan
from perdure.surfaces.http.messages import Accepted
from perdure.surfaces.http.sessions import Session
from tests.runtime.programs import program
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_contract import fits


def said(server: LocalServer, *texts: str, **fields: Any) -> str:
    session = server.create(**fields)
    for text in texts:
        assert server.turn(session, text)["stop_reason"] == "end_turn"
    return session


def message_of(server: LocalServer, session: str, turn: int) -> str:
    return str(next(t for t in server.session(session)["turns"] if t["turn"] == turn)["message_id"])


def edit(server: LocalServer, session: str, turn: int, text: str, **more: Any) -> Any:
    message = message_of(server, session, turn)
    return server.http.patch(f"/api/sessions/{session}/messages/{message}", json={"text": text, **more})


def change(server: LocalServer, session: str) -> Any:
    return [event for event in server.log(session) if event["type"] == "history_changed"][-1]


def test_an_edited_message_is_shown_searched_and_sent_to_the_agent_with_its_new_text(server: LocalServer) -> None:
    session = said(server, "say one", "say oldword")
    answer = edit(server, session, 2, "say newword")
    assert answer.status_code == 200
    fits(answer.json(), Session)
    assert answer.json()["revision"] == 1
    message = server.transcript(session)[1]["message"]
    assert (message["text"], bool(message["edited_at"])) == ("say newword", True)
    assert server.text(session, 2) == "oldword"
    assert server.recalled(session) == ["say one", "say newword"]
    found = [entry["id"] for entry in server.get("/api/sessions?q=newword")["sessions"]]
    assert session in found


def test_a_viewer_receives_the_edit_and_a_snapshot_shows_it(server: LocalServer) -> None:
    session = said(server, "say one")
    with server.watch(session) as viewer:
        first = next(viewer.frames())
        assert first[2]["message"]["text"] == "say one"
        edit(server, session, 1, "say won")
        frames = viewer.until("history_changed")
    event = frames[-1][2]
    assert {key: event[key] for key in ("change", "turn", "bumped", "text")} == {
        "change": "edit",
        "turn": 1,
        "bumped": ["rehearsal"],
        "text": "say won",
    }
    with server.watch(session) as viewer:
        assert next(viewer.frames())[2]["message"]["text"] == "say won"
    server.evict(session)
    with server.watch(session) as viewer:
        assert next(viewer.frames())[2]["message"]["text"] == "say won"


def test_rewound_turns_are_hidden_but_not_deleted(server: LocalServer) -> None:
    session = said(server, "say one", "say hiddenword", "say three")
    rewound = server.post(f"/api/sessions/{session}/rewind", {"turn": 2}, expect=200)
    assert ([turn["turn"] for turn in rewound["turns"]], rewound["turn_count"]) == ([1], 1)
    assert [turn["turn"] for turn in server.transcript(session)] == [1]
    everything = server.get(f"/api/sessions/{session}/transcript?rewound=true")["turns"]
    assert [(turn["turn"], turn["rewound"]) for turn in everything] == [(1, False), (2, True), (3, True)]
    assert everything[1]["message"]["text"] == "say hiddenword"
    assert server.get("/api/sessions?q=hiddenword")["sessions"] == []
    with server.watch(session) as viewer:
        snapshot = next(viewer.frames())[2]
    assert (snapshot["visible_turns"], snapshot["turn"], snapshot["text"]) == ([1], 1, "one")
    server.evict(session)
    assert server.recalled(session) == ["say one"]
    assert [turn["turn"] for turn in server.session(session)["turns"]] == [1, 4]


def test_a_retry_sends_the_same_message_again_with_its_attachments(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one")
    server.turn(session, "say two", attachments=[{"path": "/tmp/notes.txt", "name": "notes.txt"}])
    taken = server.post(f"/api/sessions/{session}/retry", {"turn": 2}, expect=202)
    fits(taken, Accepted)
    server.wait_idle(session)
    [first, again] = server.transcript(session)
    assert (first["turn"], again["turn"], again["message"]["text"]) == (1, 3, "say two")
    assert again["message"]["attachments"][0]["name"] == "notes.txt"
    assert (again["context"], again["run_id"]) == ("fresh", taken["run_id"])
    assert server.text(session, 3) == "two"


def test_a_retry_repeated_with_its_message_id_runs_once(server: LocalServer) -> None:
    session = said(server, "say one")
    body = {"turn": 1, "text": "say other", "message_id": "mine"}
    first = server.post(f"/api/sessions/{session}/retry", body, expect=202)
    assert server.post(f"/api/sessions/{session}/retry", body, expect=202) == first
    server.wait_idle(session)
    assert server.post(f"/api/sessions/{session}/retry", body, expect=202) == first
    assert [turn["turn"] for turn in server.transcript(session)] == [2]


@pytest.mark.one_server
def test_a_transcript_has_the_revision_that_matches_its_text(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = said(server, "say one")
    history = server.server.sessions.history
    message = server.transcript(session)[0]["message"]["message_id"]
    read = TurnPieces._history

    async def read_late(*given: Any) -> Any:
        await history.edit(session, message, "say two")
        return await read(*given)

    monkeypatch.setattr(TurnPieces, "_history", read_late)
    shown = server.get(f"/api/sessions/{session}/transcript")
    assert (shown["revision"], shown["turns"][0]["message"]["text"]) == (0, "say one")
    monkeypatch.undo()
    shown = server.get(f"/api/sessions/{session}/transcript")
    assert (shown["revision"], shown["turns"][0]["message"]["text"]) == (1, "say two")


def test_a_rewound_message_is_not_sent_again_when_its_message_id_is_repeated(server: LocalServer) -> None:
    session = said(server, "say one")
    path = f"/api/sessions/{session}/messages"
    sent = server.post(path, {"text": "say two", "message_id": "mine"}, expect=202)
    server.wait_idle(session)
    server.post(f"/api/sessions/{session}/rewind", {"turn": 2}, expect=200)
    assert server.post(path, {"text": "say two", "message_id": "mine"}, expect=202) == sent
    assert server.session(session)["state"] == "idle"
    assert [turn["turn"] for turn in server.session(session)["turns"]] == [1]
    assert server.post(path, {"text": "say two", "message_id": "another"}, expect=202)["turn"] == 3


def test_a_retry_by_another_agent_switches_to_it(server: LocalServer) -> None:
    session = said(server, "say one", "say two")
    body = {"turn": 2, "agent": "rehearsal-stream", "text": "recall"}
    server.post(f"/api/sessions/{session}/retry", body, expect=202)
    server.wait_idle(session)
    assert server.session(session)["agent"] == "rehearsal-stream"
    assert '"say one"' in server.text(session, 3) and "two" not in server.text(session, 3)


def test_a_fork_has_the_history_and_is_independent(server: LocalServer) -> None:
    session = said(server, "say one", "think hm\ntool Bash out\nsay two", "say three", labels=["a"])
    edit(server, session, 1, "say won")
    made = server.post(f"/api/sessions/{session}/fork", {"turn": 2}, expect=201)
    fits(made, Session)
    forked = made["id"]
    assert made["forked_from"] == {"session_id": session, "turn": 2}
    assert (made["state"], made["turn_count"], made["native_session_id"], made["labels"]) == ("idle", 2, None, ["a"])
    assert made["last_active_at"] >= made["created_at"] > server.session(session)["last_active_at"]
    assert (made["workdir"], made["title"]) == (server.session(session)["workdir"], server.session(session)["title"])
    ours, theirs = server.transcript(session)[:2], server.transcript(forked)
    assert [turn["message"]["text"] for turn in theirs] == ["say won", ours[1]["message"]["text"]]
    assert [[part["type"] for part in turn["parts"]] for turn in theirs] == [
        [part["type"] for part in turn["parts"]] for turn in ours
    ]
    assert server.recalled(forked) == ["say won", "think hm\ntool Bash out\nsay two"]
    server.http.delete(f"/api/sessions/{session}?purge=true")
    assert server.turn(forked, "say on")["stop_reason"] == "end_turn"
    assert forked in [entry["id"] for entry in server.get("/api/sessions?q=two")["sessions"]]


def test_a_fork_is_titled_by_its_first_message_and_not_by_a_title_that_an_agent_chose(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one")

    async def titled(title: str) -> None:
        journal, world = await server.server.log.open(session), server.server.engine.facts.world
        attached = journal.state.attached
        assert attached is not None
        launch, facts = attached.launch_id, [ev.Title(title=title, by="agent")]
        await journal.record(lambda state: observe(state, launch, facts, world(state)))

    server.run(titled("Counting"))
    assert server.session(session)["title"] == "Counting"
    forked = server.post(f"/api/sessions/{session}/fork", expect=201)
    assert forked["title"] == "say one"
    # The same holds for a fork of the fork.
    assert server.post(f"/api/sessions/{forked['id']}/fork", expect=201)["title"] == "say one"


def test_a_fork_keeps_its_sessions_agent_and_model(server: LocalServer) -> None:
    session = said(server, "say one")
    server.turn(session, "say two", agent="rehearsal-stream")
    server.post(f"/api/sessions/{session}/config", {"config_id": "model", "value": "rehearsal-2"}, expect=200)
    forked = server.post(f"/api/sessions/{session}/fork", {"turn": 1}, expect=201)
    assert (forked["agent"], forked["model"], forked["turns"][0]["agent"]) == (
        "rehearsal-stream",
        "rehearsal-2",
        "rehearsal",
    )
    assert forked["turns"][0]["model"] == "rehearsal-1"


def test_a_fork_keeps_the_options_chosen_for_each_of_its_agents(server: LocalServer) -> None:
    session = said(server, "say one")
    for config_id, value in (("model", "rehearsal-2"), ("mode", "auto"), ("effort", "high")):
        server.post(f"/api/sessions/{session}/config", {"config_id": config_id, "value": value}, expect=200)
    forked = server.post(f"/api/sessions/{session}/fork", expect=201)
    assert (forked["model"], forked["mode"], forked["config"]) == ("rehearsal-2", "auto", {"effort": "high"})
    server.turn(forked["id"], "say two")
    assert current_values(server, forked["id"]) == {"mode": "auto", "model": "rehearsal-2", "effort": "high"}
    # Even if another agent is active at that time, or the fork starts with another agent.
    server.turn(session, "say three", agent="rehearsal-stream")
    back = server.post(f"/api/sessions/{session}/fork", {"agent": "rehearsal"}, expect=201)
    assert (back["model"], back["mode"], back["config"]) == ("rehearsal-2", "auto", {"effort": "high"})
    other = server.post(f"/api/sessions/{session}/fork", expect=201)
    assert (other["agent"], other["config"]) == ("rehearsal-stream", {})
    server.turn(other["id"], "say four", agent="rehearsal")
    assert current_values(server, other["id"]) == {"mode": "auto", "model": "rehearsal-2", "effort": "high"}


def current_values(server: LocalServer, session: str) -> dict[str, Any]:
    """The values that the agent itself reports."""
    shown = server.wait(session, lambda found: found["config_options"] is not None)
    return {option["id"]: option["currentValue"] for option in shown["config_options"]}


def test_a_retry_cannot_reuse_the_message_id_that_it_replaces(server: LocalServer) -> None:
    session = said(server, "say one")
    body = {"turn": 1, "message_id": message_of(server, session, 1)}
    assert server.post(f"/api/sessions/{session}/retry", body, expect=409)["code"] == "conflict"


def test_an_ended_session_can_be_forked_but_not_changed(server: LocalServer) -> None:
    session = said(server, "say one")
    server.post(f"/api/sessions/{session}/stop", expect=200)
    assert edit(server, session, 1, "say won").json()["code"] == "session_ended"
    for path, body in (("rewind", {"turn": 1}), ("retry", {"turn": 1}), ("plan", {})):
        assert server.post(f"/api/sessions/{session}/{path}", body, expect=409)["code"] == "session_ended"
    forked = server.post(f"/api/sessions/{session}/fork", expect=201)["id"]
    assert server.recalled(forked) == ["say one"]


def test_history_cannot_be_changed_while_a_turn_runs(server: LocalServer) -> None:
    session = said(server, "say one")
    server.send(session, "say half\nhang")
    server.wait(session, lambda shown: shown["state"] == "processing")
    refused = edit(server, session, 1, "say won")
    assert (refused.status_code, refused.json()["code"], refused.json()["turn"]) == (409, "turn_active", 2)
    for path, body in (("rewind", {"turn": 1}), ("retry", {"turn": 1}), ("plan", {}), ("fork", {"turn": 2})):
        assert server.post(f"/api/sessions/{session}/{path}", body, expect=409)["code"] == "turn_active"
    forked = server.post(f"/api/sessions/{session}/fork", expect=201)
    assert forked["turn_count"] == 1
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)


def edits_at_once(server: LocalServer, session: str, number: int, **fields: Any) -> dict[str, Any]:
    """The responses to two concurrent edits of the first message, by their texts."""
    message = message_of(server, session, 1)
    barrier = threading.Barrier(2)
    answers: dict[str, Any] = {}

    def send(text: str) -> None:
        with server.client(authorization="Bearer test-token-of-the-tests") as client:
            client.get("/api/health")
            barrier.wait(10)
            body = {"text": text, **fields}
            answers[text] = client.patch(f"/api/sessions/{session}/messages/{message}", json=body)

    threads = [threading.Thread(target=send, args=(f"say {name} {number}",)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def test_one_of_two_concurrent_edits_of_the_same_revision_wins_and_the_other_is_refused(server: LocalServer) -> None:
    session = said(server, "say one", "say two")
    for number in range(5):
        answers = edits_at_once(server, session, number, revision=number)
        assert sorted(answer.status_code for answer in answers.values()) == [200, 409]
        [won] = [text for text, answer in answers.items() if answer.status_code == 200]
        [lost] = [answer.json() for answer in answers.values() if answer.status_code == 409]
        assert lost["code"] == "conflict" and "try again" in lost["error"]
        assert server.transcript(session)[0]["message"]["text"] == won
    changes = [event for event in server.log(session) if event["type"] == "history_changed"]
    assert len(changes) == 5
    assert server.session(session)["revision"] == 5


def test_concurrent_edits_without_a_revision_apply_in_order_of_arrival(server: LocalServer) -> None:
    session = said(server, "say one", "say two")
    for number in range(5):
        answers = edits_at_once(server, session, number)
        assert [answer.status_code for answer in answers.values()] == [200, 200]
        changes = [event for event in server.log(session) if event["type"] == "history_changed"]
        assert {event["text"] for event in changes[-2:]} == set(answers)
        assert server.transcript(session)[0]["message"]["text"] == changes[-1]["text"], "the last one holds"
    assert server.session(session)["revision"] == 10


def test_an_edit_for_a_stale_revision_is_refused(server: LocalServer) -> None:
    session = said(server, "say one")
    assert edit(server, session, 1, "say won", revision=0).status_code == 200
    refused = edit(server, session, 1, "say too late", revision=0)
    assert (refused.status_code, refused.json()["code"], refused.json()["revision"]) == (409, "conflict", 1)
    assert edit(server, session, 1, "say in time", revision=1).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("rewind", {"turn": 9}, 404, "not_found"),
        ("rewind", {}, 400, "invalid"),
        ("rewind", {"turn": 0}, 400, "invalid"),
        ("retry", {"turn": 9}, 404, "not_found"),
        ("retry", {"turn": 1, "text": " "}, 400, "invalid"),
        ("retry", {"turn": 1, "agent": "nobody"}, 404, "not_found"),
        ("fork", {"turn": 9}, 404, "not_found"),
        ("fork", {"agent": "nobody"}, 404, "not_found"),
        ("plan", {"agent": "nobody"}, 404, "not_found"),
    ],
)
def test_an_invalid_request_is_explained_and_changes_nothing(
    server: LocalServer, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    session = said(server, "say one")
    before = server.log(session)
    refused = server.post(f"/api/sessions/{session}/{path}", body, expect=status)
    assert refused["code"] == code and refused["error"].endswith(".")
    assert server.log(session) == before


def test_an_unknown_or_rewound_message_cannot_be_edited(server: LocalServer) -> None:
    session = said(server, "say one", "say two")
    message = message_of(server, session, 2)
    server.post(f"/api/sessions/{session}/rewind", {"turn": 2}, expect=200)
    for name in (message, "nobody"):
        answer = server.http.patch(f"/api/sessions/{session}/messages/{name}", json={"text": "x"})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    large = edit(server, session, 1, "x" * 2_000_000)
    assert (large.status_code, large.json()["code"]) == (413, "too_large")


def test_the_plan_describes_the_next_turn_without_side_effects(server: LocalServer) -> None:
    session = said(server, "say one")
    before = server.log(session)
    plan = server.post(f"/api/sessions/{session}/plan", expect=200)
    fits(plan, Plan)
    assert (plan["context"], plan["reason"], plan["turns_told"]) == ("live", "process_holds_context", [])
    assert all(plan["guards"].values())
    fresh = server.post(f"/api/sessions/{session}/plan", {"fresh": True}, expect=200)
    assert (fresh["context"], fresh["reason"], fresh["turns_told"]) == ("fresh", "fresh_requested", [1])
    assert fresh["guards"]["not_asked_fresh"] is False and fresh["bytes"] > 100
    other = server.post(f"/api/sessions/{session}/plan", {"agent": "rehearsal-stream"}, expect=200)
    assert (other["agent"], other["context"], other["reason"]) == ("rehearsal-stream", "fresh", "no_native_session")
    edit(server, session, 1, "say won")
    assert server.post(f"/api/sessions/{session}/plan", expect=200)["reason"] == "history_changed"
    assert server.log(session)[: len(before)] == before
    turn = server.turn(session, "say two")
    assert (turn["context"], turn["context_reason"]) == ("fresh", "history_changed")


def test_the_plan_notices_that_the_program_was_replaced(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    rehearse = f'exec {sys.executable} -m perdure.rehearsal --claude "$@"'
    binary = program(tmp_path / "claude", rehearse)
    env = {"PYTHONPATH": import_path()[0], "PERDURE_REHEARSAL_DIR": str(tmp_path / "memory")}
    agent = {"driver": "claude-resume", "command": [str(binary)], "env": env}
    server = make_server(agents={"mine": agent})
    session = said(server, "say one", agent="mine")
    assert server.post(f"/api/sessions/{session}/plan", expect=200)["context"] == "resumed"
    program(binary, f'case "$*" in *--help*) echo "--output-format and no more"; exit;; esac\n{rehearse}')
    plan = server.post(f"/api/sessions/{session}/plan", expect=200)
    turn = server.turn(session, "recall")
    assert (plan["context"], plan["reason"]) == (turn["context"], turn["context_reason"])
    assert (turn["context"], turn["context_reason"]) == ("fresh", "agent_cannot_resume")


def test_the_plan_for_returning_to_an_agent_uses_its_model_in_the_session(
    make_server: Callable[..., LocalServer],
) -> None:
    command = [sys.executable, "-m", "perdure.rehearsal", "--acp"]
    agent = {"driver": "acp", "command": command, "env": {"PYTHONPATH": import_path()[0]}}
    server = make_server(agents={"small": {**agent, "model_transcript_tokens": {"rehearsal-2": 500}}})
    session = said(server, "say one", agent="small")
    server.post(f"/api/sessions/{session}/config", {"config_id": "model", "value": "rehearsal-2"}, expect=200)
    for number in range(4):
        server.turn(session, f"say {'answer ' * 100}{number}", agent="rehearsal")
    plan = server.post(f"/api/sessions/{session}/plan", {"agent": "small"}, expect=200)
    turn = server.turn(session, "say on", agent="small")
    assert (len(plan["digested"]), len(plan["left_out"])) == (turn["digested"], turn["left_out"])
    assert turn["model"] == "rehearsal-2" and turn["digested"] + turn["left_out"] > 0


def test_attachments_are_named_in_a_replay(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one", attachments=[{"path": "/tmp/notes.txt"}, {"name": "shot.png", "uri": "x:y"}])
    plan = server.post(f"/api/sessions/{session}/plan", {"fresh": True}, expect=200)
    assert plan["turns_told"] == [1]
    page = server.http.get(f"/api/sessions/{session}/transcript?format=markdown").text
    assert "- attached: notes.txt" in page and "- attached: shot.png" in page


def test_a_project_can_exclude_the_turns_of_other_agents(
    make_server: Callable[..., LocalServer], tmp_path: Any
) -> None:
    server = make_server()
    body = {"name": "Apart", "path": str(tmp_path), "history_scope": "agent"}
    project = server.post("/api/projects", body, expect=201)["id"]
    session = server.create(project=project)
    server.turn(session, "say one")
    server.turn(session, "say two", agent="rehearsal-stream")
    assert server.recalled(session) == ["say two"]
    # Its native session continues where it was, and gets nothing of the other agent's turn.
    assert server.recalled(session, agent="rehearsal") == ["say one"]
    assert server.transcript(session)[-1]["context"] == "resumed"
