"""Switching a session to another agent, over every surface that sends messages, without losing context."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.surfaces.async_client import AsyncClient
from perdure.surfaces.client import Client, Problem
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.mcp_client import talking, text
from tests.surfaces.terminal import Terminal

FIRST, OTHER = "rehearsal", "rehearsal-stream"
LIMIT_S = 30.0


def begun(client: Client) -> str:
    """A session of the first agent, with two turns."""
    session = str(client.send("say one", agent=FIRST)["session_id"])
    finished(client, session, 1)
    finished(client, session, int(client.send("say two", session)["turn"]))
    return session


def finished(client: Client, session: str, turn: int) -> None:
    stream = client.events(session, 0)
    for event in stream:
        if event.type == "turn_end" and event.turn == turn:
            stream.close()


def went_on(client: Client, session: str, turn: int = 3) -> None:
    """The other agent ran the turn, and knew the conversation so far."""
    shown = client.transcript(session)["turns"][turn - 1]
    said = "".join(part["text"] for part in shown["parts"] if part["type"] == "text")
    recalled = [json.loads(line[2:]) for line in said.split("\n") if line.startswith("- ")]
    assert recalled == ["say one", "say two", "recall"], said
    assert [found["agent"] for found in client.transcript(session)["turns"]] == [FIRST, FIRST, OTHER]
    assert (shown["stop_reason"], shown["context"]) == ("end_turn", "fresh")
    attached = [json.loads(line) for line in client.log(session)]
    assert [event["agent"] for event in attached if event["type"] == "agent_attached"] == [FIRST, OTHER]
    assert client.session(session)["agent"] == OTHER


def test_the_python_client_continues_with_another_agent(server: ServerProcess) -> None:
    with server.client() as client:
        session = begun(client)
        finished(client, session, int(client.send("recall", session, agent=OTHER)["turn"]))
        went_on(client, session)
        with pytest.raises(Problem) as refused:
            client.send("say x", session, agent="nobody")
        assert refused.value.code == "not_found" and client.session(session)["agent"] == OTHER


async def test_the_asynchronous_client_continues_with_another_agent(server: ServerProcess) -> None:
    async with AsyncClient(server.address) as client, asyncio.timeout(LIMIT_S):
        session = str((await client.send("say one", agent=FIRST))["session_id"])
        texts = ["say two", "recall"]
        seen: list[str] = []
        async for event in client.events(session, 0):
            seen.append(event.type)
            if event.type == "waiting_for_input":
                if not texts:
                    break
                await client.send(texts.pop(0), session, agent=None if texts else OTHER)
        assert seen[0] == "session_created" and seen.count("turn_end") == 3
        went_on(client.client, session)


@pytest.mark.full
def test_http_continues_with_another_agent_in_both_endpoints_for_messages(server: ServerProcess) -> None:
    with server.client() as client:
        for path in ("/api/messages", "/api/sessions/{}/messages"):
            session = begun(client)
            with client.connect() as http:
                body = {"text": "recall", "session_id": session, "agent": OTHER}
                answer = http.post(path.format(session), json=body)
            assert answer.status_code == 202
            finished(client, session, answer.json()["turn"])
            went_on(client, session)
            client.stop(session)


def test_a_teamhq_message_continues_with_another_agent(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client, client.connect() as http:
        project = client.add_project(str(tmp_path), name="site", agent=FIRST)["id"]
        path = f"/api/projects/{project}/sessions"
        session = http.post(path, json={"message": "say one"}).json()["id"]
        finished(client, session, 1)
        for turn, body in ((2, {"message": "say two"}), (3, {"message": "recall", "agent": OTHER})):
            assert http.post(f"{path}/{session}/message", json=body).json()["turnNumber"] == turn
            finished(client, session, turn)
        went_on(client, session)


def test_the_command_line_continues_with_another_agent(server: ServerProcess) -> None:
    with server.client() as client:
        session = begun(client)
        sent = server.run("send", "--agent", OTHER, "--wait", session, "recall")
        assert sent.returncode == 0 and '- "say one"' in sent.stdout
        went_on(client, session)
        refused = server.run("send", "--agent", "nobody", session, "say x")
        assert refused.returncode == 1 and "nobody" in refused.stderr


def test_a_plain_chat_starts_with_the_given_agent(server: ServerProcess) -> None:
    with server.client() as client:
        session = begun(client)
        done = server.run("chat", session, "--agent", OTHER, stdin="recall\n")
        assert done.returncode == 0
        went_on(client, session)


def test_a_plain_chat_switches_the_agent_with_a_command(server: ServerProcess) -> None:
    done = server.run("chat", "--agent", FIRST, stdin=f"say one\nsay two\n/agent {OTHER}\nrecall\n")
    assert done.returncode == 0, done.stderr
    with server.client() as client:
        went_on(client, client.sessions()["sessions"][0]["id"])


def test_a_plain_chat_lists_the_available_agents(server: ServerProcess) -> None:
    done = server.run("chat", stdin="/agent nobody\nsay still here\n/agent\n")
    assert done.returncode == 1 and "still here" in done.stdout
    assert done.stderr.count(OTHER) == 2 and "There is no agent 'nobody'" in done.stderr


@pytest.mark.full
def test_a_chat_in_a_terminal_continues_with_another_agent(server: ServerProcess) -> None:
    with server.client() as client:
        session = begun(client)
        with Terminal(server.command("chat", session), server.environment, server.folder) as chat:
            chat.wait("Turn 2,")
            chat.enter(f"/agent {OTHER}")
            chat.wait(f"The next message goes to {OTHER}.")
            chat.enter("recall")
            chat.wait("Turn 3,")
        went_on(client, session)


def test_a_single_run_uses_the_agent_that_it_names(server: ServerProcess) -> None:
    done = server.run("run", "--json", "--agent", OTHER, "say from the other")
    run = json.loads(done.stdout)
    assert (run["agent_name"], run["text"]) == (OTHER, "from the other")


@pytest.mark.full
async def test_a_prompt_over_mcp_continues_with_another_agent(server: ServerProcess) -> None:
    with server.client() as client:
        session = begun(client)
        async with talking(server.data) as caller:
            run: dict[str, Any] = await caller.done("prompt", session_id=session, prompt="recall", agent=OTHER)
            assert (run["agent_name"], run["turn_number"]) == (OTHER, 3) and '- "say one"' in text(run)
            went_on(client, session)
            fresh = await caller.done("prompt", session_id=session, prompt="say anew", fresh=True)
            assert client.transcript(session)["turns"][-1]["context"] == "fresh" and text(fresh) == "anew"
            assert "nobody" in await caller.refused("prompt", session_id=session, prompt="say x", agent="nobody")
