"""A program made for Diane: many turns with one agent, over streams, cancels, a restart and a close, against the
settings of docs/diane.md."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import LiveServer, eventually
from tests.seeds.diane_client import Failed, Manager, text_of
from tests.seeds.wire import Json

Serve = Callable[..., LiveServer]
AGENT = "opencode"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def manager_of(server: LiveServer) -> Manager:
    return Manager(server.url, server.token)


@pytest.mark.smoke
def test_a_session_is_started_prompted_again_and_again_configured_listed_and_closed(
    serve: Serve, tmp_path: Path
) -> None:
    manager = manager_of(serve("diane.md"))
    session = manager.start_session(AGENT, str(tmp_path), "Auth refactor")
    assert (session["status"], session["turn_count"], session["title"]) == ("active", 0, "Auth refactor")
    assert session["agent_key"] == f"{AGENT}@{tmp_path}"
    assert session["models"]["current_model_id"] and session["models"]["available_models"]
    assert session["modes"]["current_mode_id"] and session["modes"]["available_modes"]

    first = manager.prompt_session(session, "say I've refactored it")
    assert (first["status"], first["turn_number"], text_of(first)) == ("completed", 1, "I've refactored it")
    second = manager.prompt_session(session, "recall")
    assert second["turn_number"] == 2 and second["run_id"] != first["run_id"]
    assert "say I've refactored it" in text_of(second)

    answer = manager.set_session_config(session, "model", "rehearsal-2")
    current = {option["id"]: option["currentValue"] for option in answer["config_options"]}
    assert current["model"] == "rehearsal-2"
    with pytest.raises(Failed) as refused:
        manager.set_session_config(session, "model", "nonsense")
    assert refused.value.status == 400

    [listed] = manager.list_sessions(AGENT, "active")
    assert (listed["session_id"], listed["turn_count"], listed["model_id"]) == (session["session_id"], 2, "rehearsal-2")
    assert manager.list_sessions(AGENT, "idle") == manager.list_sessions(AGENT, "closed") == []
    manager.close_session(session)
    manager.close_session(session)
    assert manager.list_sessions() == []
    [closed] = manager.list_sessions(status="closed")
    assert closed["status"] == manager.get_session(session)["status"] == "closed"
    with pytest.raises(Failed) as refused:
        manager.prompt_session(session, "say more")
    assert refused.value.status == 409


def test_a_prompt_is_streamed_waits_for_a_person_and_ends_with_done(serve: Serve, tmp_path: Path) -> None:
    server = serve("diane.md")
    manager = manager_of(server)
    session = manager.start_session(AGENT, str(tmp_path))
    seen, text = [], ""
    for event, data in manager.stream_prompt(session, "say I'll start\ntool Read auth.go\npermit Deploy\nsay done now"):
        seen.append(event)
        if event == "agent_message_chunk":
            assert data["content"]["type"] == "text"
            text += data["content"]["text"]
        elif event == "tool_call":
            assert data["title"] and data["status"]
        elif event == "pending_prompt":
            # Diane has no request for it: a person answers over the API.
            allow = next(option for option in data["options"] if option["kind"] == "allow_once")
            path = f"/api/sessions/{session['session_id']}/prompts/{data['prompt_id']}"
            server.post(path, {"option_id": allow["option_id"]}, expect=200)
    assert text.startswith("I'll start") and text.endswith("done now")
    assert "tool_call" in seen and "pending_prompt" in seen and seen[-1] == "done"
    assert (data["stop_reason"], data["turn_number"]) == ("end_turn", 1)


def test_a_prompt_is_cancelled_and_the_session_continues(serve: Serve, tmp_path: Path) -> None:
    server = serve("diane.md")
    manager = manager_of(server)
    session = manager.start_session(AGENT, str(tmp_path))

    def has_answered() -> bool:
        return any(event["type"] == "assistant_text" for event in server.log(session["session_id"]))

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(manager.prompt_session, session, "say half\nhang")
        eventually(has_answered, "the agent answers")
        assert manager.cancel(session)["status"] == "cancelled"
        run = running.result()
    assert run["status"] == "cancelled"
    assert manager.cancel(session)["status"] == "active"
    assert text_of(manager.prompt_session(session, "say on")) == "on"


def test_a_client_that_leaves_a_stream_finds_the_answer_and_the_session_comes_back_after_a_restart(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve("diane.md")
    manager = manager_of(server)
    session = manager.start_session(AGENT, str(tmp_path))
    updates = manager.stream_prompt(session, "stream 300 5\nsay the end")
    assert next(updates)[0] == "agent_message_chunk"
    updates.close()
    eventually(lambda: manager.get_session(session)["turn_count"] == 1, "the prompt continues without its client")
    assert server.text(session["session_id"], 1).endswith("the end")
    server.kill()
    server.restart()
    manager = manager_of(server)
    assert session["session_id"] in [entry["session_id"] for entry in manager.list_sessions(AGENT)]
    run = manager.prompt_session(session, "recall")
    assert run["turn_number"] == 2 and "stream 300 5" in text_of(run)


def test_sessions_of_one_directory_share_a_process_which_ends_with_the_last(serve: Serve, tmp_path: Path) -> None:
    server = serve("diane.md")
    manager = manager_of(server)
    first, second = (manager.start_session(AGENT, str(tmp_path)) for _ in range(2))

    def pid(session: Json) -> int:
        return int(server.session(session["session_id"])["pid"])

    for session in (first, second):
        manager.prompt_session(session, f"say {session['session_id']}")
    shared = pid(first)
    assert pid(second) == shared
    manager.close_session(first)
    assert f"say {second['session_id']}" in text_of(manager.prompt_session(second, "recall"))
    assert pid(second) == shared and is_alive(shared)
    manager.close_session(second)
    eventually(lambda: not is_alive(shared), "the process ends with its last session")
