"""The resources, field by field: what other programs rely on is there, and real answers fit the documented shapes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http.agents import Agent, AgentList
from perdure.surfaces.http.messages import Aborting, Accepted, Queue
from perdure.surfaces.http.projects import Project, ProjectList
from perdure.surfaces.http.prompts import Prompt, Resolved
from perdure.surfaces.http.sessions import Configured, Explanation, Session, SessionList, Turn
from perdure.surfaces.http.transcripts import Transcript
from tests.harness import eventually
from tests.surfaces.http.local import LocalNodes, LocalServer
from tests.surfaces.http.test_access import is_problem

SESSION = [
    "id",
    "project",
    "agent",
    "title",
    "summary",
    "workdir",
    "labels",
    "archived",
    "state",
    "status",
    "attached",
    "created_at",
    "started_at",
    "last_active_at",
    "ended_at",
    "duration_ms",
    "event_count",
    "turn_count",
    "turns",
    "native_session_id",
    "pid",
    "model",
    "mode",
    "models",
    "modes",
    "error",
    "parent",
    "queue_length",
    "pending_prompts",
    "waiting_until",
    "usage",
]
TURN = [
    "turn",
    "run_id",
    "message_id",
    "agent",
    "started_at",
    "ended_at",
    "duration_ms",
    "stop_reason",
    "exit_code",
    "error",
    "usage",
    "cost_usd",
    "context",
    "context_reason",
    "input_bytes",
]
PROMPT = [
    "prompt_id",
    "kind",
    "turn",
    "title",
    "tool_id",
    "input",
    "asked_at",
    "options",
    "questions",
]
AGENT = [
    "name",
    "driver",
    "command",
    "state",
    "reason",
    "version",
    "capabilities",
    "models",
    "modes",
]
PROJECT = [
    "id",
    "name",
    "path",
    "agent",
    "permissions",
    "limits",
    "instructions",
    "kickoff",
    "history_scope",
    "active_session_id",
]
ACCEPTED = [
    "session_id",
    "message_id",
    "run_id",
    "turn",
    "state",
    "seq",
]


def fits(value: Any, shape: Any, names: list[str] | None = None) -> Any:
    """The answer as its documented shape, with at least the contract's fields."""
    assert names is None or set(value) >= set(names), set(names) - set(value)
    return msgspec.convert(value, shape)


# Sessions -----------------------------------------------------------------------------------------------------------


def test_a_session_without_a_message_waits_for_one(server: LocalServer, tmp_path: Path) -> None:
    body = {"workdir": str(tmp_path), "title": "t", "labels": ["a", "b"], "limits": {"turn_timeout_s": 5}, "what": 1}
    answer = server.http.post("/api/sessions", json=body)
    assert answer.status_code == 201
    session = fits(answer.json(), Session, SESSION)
    assert (session.state, session.status, session.turn_count, session.attached) == ("idle", "running", 0, "suspended")
    assert (session.title, session.labels, session.workdir) == ("t", ["a", "b"], str(tmp_path))
    assert (session.limits, session.turns, session.agent) == ({"turn_timeout_s": 5}, [], "rehearsal")
    assert session.created_at.endswith("Z")
    assert fits(server.session(session.id), Session, SESSION) == session


def test_a_session_with_a_message_runs_its_first_turn(server: LocalServer) -> None:
    created = fits(server.post("/api/sessions", {"message": "say hello\nusage 3 4"}, expect=201), Session)
    assert (created.state, created.turn_count, created.title) == ("processing", 1, "say hello")
    done = fits(server.wait_idle(created.id), Session, SESSION)
    assert (done.attached, done.turn_count, done.model) == ("live", 1, done.model)
    assert done.pid and done.native_session_id and done.started_at
    turn = server.session(created.id)["turns"][0]
    assert set(turn) >= set(TURN)
    assert (turn["stop_reason"], turn["exit_code"], turn["error"], turn["context"]) == ("end_turn", None, None, "fresh")
    assert turn["duration_ms"] >= 0 and turn["input_bytes"] > 0
    server.post(f"/api/sessions/{created.id}/stop")


def test_what_does_not_exist_is_not_found_and_what_does_not_fit_is_refused(server: LocalServer, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for body, status, code in (
        ({"agent": "none"}, 404, "not_found"),
        ({"project": "none"}, 404, "not_found"),
        ({"workdir": "relative"}, 400, "invalid"),
        ({"workdir": str(tmp_path / "none")}, 400, "invalid"),
        ({"workdir": str(file)}, 400, "invalid"),
        ({"workdir": "/\x00"}, 400, "invalid"),
        ({"workdir": "/" + "x" * 4_090}, 400, "invalid"),
        ({"message": " "}, 400, "invalid"),
        ({"labels": ["\x00"]}, 400, "invalid"),
        ({"labels": ["x"] * 51}, 400, "invalid"),
        ({"title": "x" * 501}, 400, "invalid"),
    ):
        assert is_problem(server.http.post("/api/sessions", json=body), status, code), body


def test_an_agent_that_is_not_installed_is_refused_with_what_to_do(make_server: Callable[..., LocalServer]) -> None:
    agents = {
        "ghost": {"driver": "acp", "command": ["no-such-program"]},
        "odd": {"driver": "telepathy", "command": ["sh"]},
        "vendor/model": {"driver": "acp", "command": ["sh"]},
    }
    server = make_server(agents=agents)
    answer = server.http.post("/api/sessions", json={"agent": "ghost"})
    assert is_problem(answer, 503, "agent_unavailable")
    assert "Install it" in answer.json()["detail"]
    session = server.create()
    path = f"/api/sessions/{session}/messages"
    assert is_problem(server.http.post(path, json={"text": "x", "agent": "ghost"}), 503, "agent_unavailable")
    assert is_problem(server.http.post(path, json={"text": "x", "agent": "none"}), 404, "not_found")
    assert server.session(session)["turn_count"] == 0
    listed = fits(server.get("/api/agents"), AgentList)
    assert {agent.name for agent in listed.agents} >= {"ghost", "odd", "rehearsal", "vendor/model"}
    assert listed.default == "rehearsal"
    states = {agent.name: agent.state for agent in listed.agents}
    assert (states["ghost"], states["odd"], states["rehearsal"]) == ("missing", "broken", "ready")
    one = fits(server.get("/api/agents/vendor%2Fmodel"), Agent, AGENT)
    assert one.name == "vendor/model"
    assert is_problem(server.http.get("/api/agents/none"), 404, "not_found")


def test_a_session_is_changed_by_patch(server: LocalServer) -> None:
    session = server.create(labels=["old"])
    path = f"/api/sessions/{session}"
    changes = {"title": "new", "summary": "short", "labels": ["x"], "archived": True}
    answer = server.http.patch(path, json=changes)
    assert answer.status_code == 200
    shown = fits(answer.json(), Session, SESSION)
    assert {name: getattr(shown, name) for name in changes} == changes
    assert server.http.patch(path, json={"unknown": 1}).json()["title"] == "new"
    assert is_problem(server.http.patch(path, json={"archived": "yes"}), 400, "invalid")
    server.post(f"{path}/stop")
    assert server.http.patch(path, json={"archived": False}).json()["archived"] is False


def test_a_session_is_closed_by_delete_and_erased_by_purge(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say xylophone")
    path = f"/api/sessions/{session}"
    closed = fits(server.http.delete(path).json(), Session, SESSION)
    assert (closed.state, closed.status, closed.attached) == ("ended", "completed", "ended")
    assert server.http.delete(path).json()["status"] == "completed"
    assert is_problem(server.http.post(f"{path}/messages", json={"text": "x"}), 409, "session_ended")
    assert server.http.delete(f"{path}?purge=perhaps").status_code == 400
    assert [found["id"] for found in server.get("/api/sessions?q=xylophone")["sessions"]] == [session]
    assert server.http.delete(f"{path}?purge=true").status_code == 200
    for what in ("", "/log", "/events", "/transcript", "/explain", "/queue", "/prompts"):
        assert is_problem(server.http.get(path + what), 404, "not_found")
    assert server.get("/api/sessions?q=xylophone")["sessions"] == []


def test_a_purge_closes_the_streams_of_its_session(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "hang")
    with server.watch(session) as stream:
        frames = stream.frames()
        next(frames)
        assert server.http.delete(f"/api/sessions/{session}?purge=true").status_code == 200
        # On another node the session may be gone before its last event is read.
        assert "session_end" in [frame[1] for frame in frames] or isinstance(server, LocalNodes)


def test_stop_ends_a_session_at_once_and_again_is_harmless(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "hang")
    server.send(session, "say never", when_busy="queue")
    for _ in range(2):
        stopped = fits(server.post(f"/api/sessions/{session}/stop", expect=200), Session, SESSION)
        assert (stopped.state, stopped.status, stopped.queue_length) == ("ended", "stopped", 0)
    assert stopped.turns[0].stop_reason == "cancelled"


# Lists --------------------------------------------------------------------------------------------------------------


def test_a_list_comes_in_pages_newest_activity_first(server: LocalServer) -> None:
    made = [server.create(labels=["paged"]) for _ in range(5)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query: dict[str, str | int] = {"label": "paged", "limit": 2}
        query.update({"cursor": cursor} if cursor else {})
        page = fits(server.http.get("/api/sessions", params=query).json(), SessionList)
        assert len(page.sessions) <= 2
        seen += [session.id for session in page.sessions]
        cursor = page.next_cursor
    assert seen == made[::-1]
    listed = server.get("/api/sessions?label=paged")["sessions"][0]
    assert "turns" not in listed
    assert set(listed) >= set(SESSION) - {"turns"}


def test_a_list_is_filtered_and_searched(server: LocalServer, tmp_path: Path) -> None:
    project = server.post("/api/projects", {"name": "filtered", "path": str(tmp_path)}, expect=201)["id"]
    first = server.create(project=project, title="Zeppelin over town", labels=["l1"])
    second = server.create(title="plain")
    server.turn(second, "say the quokka smiles")
    third = server.create(title="Zeppelin again")
    server.http.patch(f"/api/sessions/{third}", json={"archived": True})
    server.post(f"/api/sessions/{third}/stop")

    def ids(query: str) -> set[str]:
        return {found["id"] for found in server.get(f"/api/sessions?{query}")["sessions"]} & {first, second, third}

    assert ids("q=zeppelin") == {first, third}
    assert ids("q=quokka") == {second}
    assert ids("q=quok") == {second}
    assert ids("q=quokka%20zeppelin") == set()
    hit = server.get("/api/sessions?q=quokka")["sessions"][0]
    assert "quokka" in hit["snippet"]
    assert hit["snippet_turn"] == 1
    assert server.get("/api/sessions?q=zeppelin")["sessions"][0]["snippet_turn"] is None
    assert ids(f"project={project}") == ids("label=l1") == ids(f"workdir={tmp_path}") == {first}
    assert ids("state=ended") == ids("status=stopped") == ids("archived=true") == {third}
    assert ids("archived=false") == {first, second}
    assert ids("agent=rehearsal&state=idle") == {first, second}
    assert ids("parent=none") == ids("agent=none") == set()


# Messages -----------------------------------------------------------------------------------------------------------


def test_a_message_is_accepted_once_however_often_it_is_sent(server: LocalServer) -> None:
    session = server.create()
    path = f"/api/sessions/{session}/messages"
    first = server.http.post(path, json={"text": "hang", "message_id": "m/1"})
    assert first.status_code == 202
    accepted = fits(first.json(), Accepted, ACCEPTED)
    assert (accepted.session_id, accepted.message_id, accepted.turn) == (session, "m/1", 1)
    # With several nodes its owner begins it in a moment.
    assert accepted.state == "processing" or (isinstance(server, LocalNodes) and accepted.state == "accepted")
    again = server.http.post(path, json={"text": "hang", "message_id": "m/1"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert is_problem(server.http.post(path, json={"text": "other", "message_id": "m/1"}), 409, "conflict")
    assert server.session(session)["turn_count"] == 1
    said = next(event for event in server.log(session) if event["seq"] == accepted.seq)
    assert (said["type"], said["message_id"]) == ("user_message", "m/1")
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.one_server
def test_a_busy_session_refuses_queues_or_is_interrupted(server: LocalServer) -> None:
    session = server.create()
    path = f"/api/sessions/{session}"
    server.send(session, "hang")
    refused = server.http.post(f"{path}/messages", json={"text": "say x"})
    assert is_problem(refused, 409, "turn_active")
    assert (refused.json()["state"], refused.json()["turn"]) == ("processing", 1)
    queued = fits(server.send(session, "say two", when_busy="queue", message_id="q1"), Accepted, ACCEPTED)
    assert (queued.turn, queued.run_id, queued.state) == (None, None, "processing")
    waiting = fits(server.get(f"{path}/queue"), Queue)
    assert [(entry.message_id, entry.text) for entry in waiting.queue] == [("q1", "say two")]
    edited = fits(server.http.patch(f"{path}/queue/q1", json={"text": "say three"}).json(), Queue)
    assert [(entry.message_id, entry.text) for entry in edited.queue] == [("q1", "say three")]
    again = server.send(session, "say two", when_busy="queue", message_id="q1")
    assert (again["message_id"], again["turn"]) == ("q1", None)
    assert is_problem(server.http.patch(f"{path}/queue/q1", json={"text": " "}), 400, "invalid")
    assert is_problem(server.http.patch(f"{path}/queue/q2", json={"text": "say no"}), 404, "not_found")
    assert server.http.delete(f"{path}/queue/q1").json() == {"queue": []}
    assert is_problem(server.http.delete(f"{path}/queue/q1"), 404, "not_found")
    server.send(session, "say three", when_busy="interrupt")
    server.wait(session, lambda found: found["turn_count"] == 2 and found["state"] == "idle")
    assert [turn["stop_reason"] for turn in server.transcript(session)] == ["cancelled", "end_turn"]


def test_an_abort_ends_the_turn_and_keeps_the_session(server: LocalServer) -> None:
    session = server.create()
    path = f"/api/sessions/{session}/abort"
    assert is_problem(server.http.post(path), 409, "no_turn_active")
    server.send(session, "say partial\nhang")
    eventually(lambda: server.text(session, 1), "a partial answer")
    answer = server.http.post(path)
    assert answer.status_code == 202
    assert fits(answer.json(), Aborting).turn == 1
    server.wait_idle(session)
    assert server.session(session)["turns"][0]["stop_reason"] == "cancelled"
    assert server.turn(session, "say on")["stop_reason"] == "end_turn"


def test_one_entry_point_creates_or_continues(server: LocalServer) -> None:
    answer = server.http.post("/api/messages", json={"text": "say one", "title": "given", "labels": ["entry"]})
    assert answer.status_code == 202
    created = fits(answer.json(), Accepted, ACCEPTED)
    assert created.turn == 1
    shown = server.wait_idle(created.session_id)
    assert (shown["title"], shown["labels"]) == ("given", ["entry"])
    body = {"text": "say two", "session_id": created.session_id, "forceFreshSession": True}
    second = fits(server.post("/api/messages", body, expect=202), Accepted)
    assert (second.session_id, second.turn) == (created.session_id, 2)
    server.wait_idle(created.session_id)
    assert server.session(created.session_id)["turns"][1]["context"] == "fresh"
    assert is_problem(server.http.post("/api/messages", json={"text": "x", "session_id": "none"}), 404, "not_found")


def test_creating_by_a_message_is_idempotent_even_when_sent_at_once(server: LocalServer) -> None:
    body = {"text": "hang", "message_id": "only-once"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.http.post("/api/messages", json=body), range(8)))
    assert [answer.status_code for answer in answers] == [202] * 8, [answer.text for answer in answers]
    assert all(answer.json() == answers[0].json() for answer in answers)
    session = answers[0].json()["session_id"]
    assert server.session(session)["turn_count"] == 1
    assert [event["type"] for event in server.log(session)].count("session_created") == 1
    assert is_problem(server.http.post("/api/messages", json={**body, "text": "else"}), 409, "conflict")
    server.post(f"/api/sessions/{session}/stop")


def test_a_message_sent_at_once_many_times_is_taken_once(server: LocalServer) -> None:
    session = server.create()
    path = f"/api/sessions/{session}/messages"
    with ThreadPoolExecutor(8) as pool:
        send = pool.map(lambda _: server.http.post(path, json={"text": "hang", "message_id": "once"}), range(8))
        answers = list(send)
    assert [answer.status_code for answer in answers] == [202] * 8, [answer.text for answer in answers]
    assert all(answer.json() == answers[0].json() for answer in answers)
    server.post(f"/api/sessions/{session}/stop")


# Prompts, settings, reading -----------------------------------------------------------------------------------------


def test_a_permission_prompt_is_answered_once(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "permit Deploy")
    shown = server.prompt(session)
    prompt = fits(shown, Prompt, PROMPT)
    assert (prompt.kind, prompt.turn, prompt.questions) == ("permission", 1, [])
    assert {"option_id", "name", "kind"} <= set(prompt.options[0])
    path = f"/api/sessions/{session}/prompts/{prompt.prompt_id}"
    bad: list[dict[str, Any]] = [{}, {"option_id": "none"}, {"answers": {}}, {"option_id": 1}]
    for body in bad:
        assert is_problem(server.http.post(path, json=body), 400, "invalid"), body
    assert is_problem(
        server.http.post(f"/api/sessions/{session}/prompts/none", json={"cancel": True}), 404, "not_found"
    )
    allow = next(option["option_id"] for option in prompt.options if option["kind"] == "allow_once")
    answer = server.http.post(path, json={"option_id": allow})
    assert answer.status_code == 200
    assert (fits(answer.json(), Resolved).outcome, answer.json()["by"]) == ("allowed", "person")
    assert is_problem(server.http.post(path, json={"option_id": allow}), 409, "prompt_resolved")
    server.wait_idle(session)
    assert server.get(f"/api/sessions/{session}/prompts") == {"prompts": []}


def test_a_question_is_answered_by_label_or_text(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "ask Which one? | A | B")
    prompt = fits(server.prompt(session), Prompt, PROMPT)
    assert prompt.kind == "question"
    question = prompt.questions[0]
    assert {"question_id", "question", "header", "multiple", "options"} <= set(question)
    path = f"/api/sessions/{session}/prompts/{prompt.prompt_id}"
    answer = server.http.post(path, json={"answers": {question["question_id"]: "B"}})
    assert (answer.status_code, answer.json()["outcome"]) == (200, "answered")
    server.wait_idle(session)
    assert "B" in server.text(session, 1)


def test_settings_of_the_agent_are_set(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say hello")
    options = server.session(session)["config_options"]
    option = next(option for option in options if option.get("options"))
    value = option["options"][-1]["value"]
    answer = server.http.post(f"/api/sessions/{session}/config", json={"config_id": option["id"], "value": value})
    assert answer.status_code == 200
    assert fits(answer.json(), Configured).status == "ok"
    assert is_problem(server.http.post(f"/api/sessions/{session}/config", json={"value": 1}), 400, "invalid")
    server.post(f"/api/sessions/{session}/stop")
    ended = server.http.post(f"/api/sessions/{session}/config", json={"config_id": option["id"], "value": value})
    assert is_problem(ended, 409, "session_ended")


def test_a_transcript_as_json_and_as_markdown(server: LocalServer) -> None:
    session = server.create(title="My talk")
    server.turn(session, "say first answer")
    server.turn(session, "think hm\nsay second answer")
    shown = server.get(f"/api/sessions/{session}/transcript")
    fits(shown, Transcript)
    assert [turn["turn"] for turn in shown["turns"]] == [1, 2]
    for turn in shown["turns"]:
        assert set(turn) >= {*TURN, "message", "parts"}
        fits(turn, Turn)
    later = server.get(f"/api/sessions/{session}/transcript?from_turn=2")["turns"]
    assert later == shown["turns"][1:]
    assert server.get(f"/api/sessions/{session}/transcript?from_turn=9")["turns"] == []
    answer = server.http.get(f"/api/sessions/{session}/transcript?format=markdown")
    assert answer.headers["content-type"].startswith("text/markdown")
    assert "My talk" in answer.text and "first answer" in answer.text
    tail = server.http.get(f"/api/sessions/{session}/transcript?format=markdown&from_turn=2").text
    assert "first answer" not in tail and "second answer" in tail


def test_a_session_explains_itself(server: LocalServer) -> None:
    session = server.create()
    path = f"/api/sessions/{session}/explain"
    assert "waits for a message" in fits(server.get(path), Explanation).why
    server.send(session, "say x\npermit Deploy")
    server.prompt(session)
    shown = fits(server.get(path), Explanation)
    assert (shown.state, len(shown.prompts), shown.next_timer) == ("processing", 1, None)
    # Only the node on which its agent runs can see the processes.
    assert shown.last_event and (shown.processes or isinstance(server, LocalNodes))
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    assert fits(server.get(path), Explanation).next_timer
    server.post(f"/api/sessions/{session}/stop")
    assert fits(server.get(path), Explanation).why == "It ended as stopped."


# Projects -----------------------------------------------------------------------------------------------------------


def test_projects_are_made_changed_used_and_removed(make_server: Callable[..., LocalServer], tmp_path: Path) -> None:
    fixed = {"fixed": {"path": str(tmp_path)}}
    server = make_server(projects=fixed)
    rule = {"tool": "Bash", "pattern": "git *", "action": "allow"}
    body = {
        "name": "My Site",
        "path": str(tmp_path),
        "agent": "rehearsal",
        "permissions": [rule],
        "kickoff": "{message}",
    }
    answer = server.http.post("/api/projects", json={**body, "limits": {"turn_timeout_s": 9}})
    assert answer.status_code == 201
    project = fits(answer.json(), Project, PROJECT)
    assert (project.id, project.name, project.active_session_id) == ("my-site", "My Site", None)
    assert (project.permissions, project.limits, project.history_scope) == ([rule], {"turn_timeout_s": 9}, "all")
    path = f"/api/projects/{project.id}"
    assert server.get(path) == answer.json()
    assert server.get("/api/projects/My%20Site")["id"] == project.id
    again = server.post("/api/projects", body, expect=201)
    assert again["id"] == "my-site-2"
    session = server.create(project=project.id)
    assert (server.session(session)["project"], server.get(path)["active_session_id"]) == (project.id, session)
    server.post(f"/api/sessions/{session}/stop")
    assert server.get(path)["active_session_id"] is None
    changed = server.http.patch(path, json={"agent": None, "instructions": "be kind", "history_scope": "agent"}).json()
    assert fits(changed, Project, PROJECT).agent is None
    assert (changed["instructions"], changed["history_scope"], changed["name"]) == ("be kind", "agent", "My Site")
    assert [entry.id for entry in fits(server.get("/api/projects"), ProjectList).projects] == [
        "fixed",
        "my-site",
        "my-site-2",
    ]
    for bad, status in (
        ({"agent": "none"}, 404),
        ({"path": "relative"}, 400),
        ({"path": str(tmp_path / "none")}, 400),
        ({"name": None}, 400),
        ({"permissions": [{"tool": "x", "action": "maybe"}]}, 400),
    ):
        assert server.http.patch(path, json=bad).status_code == status, bad
    assert server.http.post("/api/projects", json={**body, "agent": "none"}).status_code == 404
    assert server.http.post("/api/projects", json={"name": "x"}).status_code == 400
    assert server.http.post("/api/sessions", json={"project": "my-site", "workdir": "/"}).status_code == 400
    assert server.http.delete(path).status_code == 204
    assert is_problem(server.http.get(path), 404, "not_found")
    assert is_problem(server.http.delete("/api/projects/fixed"), 409, "conflict")
    assert is_problem(server.http.patch("/api/projects/fixed", json={"name": "x"}), 409, "conflict")
    assert server.session(session)["project"] == project.id
