"""An agent that issues the same id for every session: no session ever gets another session's conversation."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core.decision import World
from perdure.core.resume import AgentFacts
from perdure.core.session import decide
from perdure.stores.base import Append, IssuedNativeSession
from perdure.stores.sqlite import SqliteStore
from tests.harness import LiveServer
from tests.runtime.logs import opened

AGENT = """
import json, pathlib, sys

memory, said = pathlib.Path(sys.argv[1]), []

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    asked = json.loads(line)
    method, params, result = asked.get("method"), asked.get("params") or {}, {}
    if method == "initialize":
        able = {"sessionCapabilities": {"resume": {}}}
        result = {"protocolVersion": 1, "agentCapabilities": able}
    elif method == "session/new":
        said = []
        result = {"sessionId": "1"}
    elif method == "session/resume":
        said = json.loads(memory.read_text())
    elif method == "session/prompt":
        said.append(params["prompt"][-1]["text"])
        memory.write_text(json.dumps(said))
        content = {"type": "text", "text": json.dumps(said)}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        send(method="session/update", params={"sessionId": params["sessionId"], "update": update})
        result = {"stopReason": "end_turn"}
    if "id" in asked:
        send(id=asked["id"], result=result)
"""


class Place:
    def __init__(self, make_server: Callable[..., LiveServer], folder: Path) -> None:
        program = folder / "agent.py"
        program.write_text(AGENT)
        command = json.dumps([sys.executable, str(program), str(folder / "memory")])
        lines = f'driver = "acp"\ncommand = {command}\n'
        agents = f"[agents.alone]\n{lines}[agents.together]\nshared = true\n{lines}"
        self.server = make_server(f"[server]\nslots = 0\nproject_slots = 0\n{agents}")
        self.workdir = folder / "work"
        self.workdir.mkdir()

    def session(self, agent: str) -> str:
        return self.server.create(agent=agent, workdir=str(self.workdir))

    def say(self, session: str, text: str) -> tuple[Any, str]:
        """The turn, and everything that its agent then remembers."""
        turn = self.server.turn(session, text)
        return turn, self.server.text(session, turn["turn"])

    def end_process(self, session: str) -> None:
        pid = self.server.session(session)["pid"]
        os.kill(pid, 9)
        self.server.wait(session, lambda found: found["pid"] is None)


@pytest.fixture
def place(make_server: Callable[..., LiveServer], tmp_path: Path) -> Place:
    return Place(make_server, tmp_path)


def test_a_session_whose_id_was_issued_twice_gets_a_replay_and_never_resumes_it(place: Place) -> None:
    server, first, second = place.server, place.session("alone"), place.session("alone")
    place.say(first, "red")
    place.end_process(first)
    assert server.post(f"/api/sessions/{first}/plan", {}, expect=200)["guards"]["sole_holder"] is True
    turn, held = place.say(first, "round")
    assert turn["context"] == "resumed" and "red" in held
    place.say(second, "blue")
    # While its process is alive, the session continues in it.
    turn, held = place.say(first, "heavy")
    assert turn["context"] == "live" and "blue" not in held
    server.kill()
    server.restart()
    for session, said, others in ((first, "red", "blue"), (second, "blue", "red")):
        place.end_process(session)
        plan = server.post(f"/api/sessions/{session}/plan", {}, expect=200)
        assert (plan["context"], plan["reason"]) == ("fresh", "native_session_shared")
        assert plan["guards"]["sole_holder"] is False
        turn, held = place.say(session, "and now?")
        assert (turn["context"], turn["context_reason"]) == ("fresh", "native_session_shared")
        assert said in held and others not in held


@pytest.mark.smoke
def test_the_id_is_still_not_resumed_after_the_other_session_was_erased(place: Place) -> None:
    server, first, second = place.server, place.session("alone"), place.session("alone")
    place.say(first, "red")
    place.say(second, "blue")
    server.http.delete(f"/api/sessions/{second}", params={"purge": "true"})
    assert server.http.get(f"/api/sessions/{second}").status_code == 404
    server.kill()
    server.restart()
    place.end_process(first)
    turn, held = place.say(first, "round")
    assert turn["context_reason"] == "native_session_shared"
    assert "red" in held and "blue" not in held


def test_a_turn_planned_before_the_id_was_issued_again_gets_a_replay(place: Place) -> None:
    server, first, second = place.server, place.session("alone"), place.session("alone")
    place.say(first, "red")
    place.end_process(first)
    server.kill()
    asyncio.run(die_after_planning(server.data / "perdure.db", first, second))
    server.restart()
    turn = server.wait_idle(first)["turns"][1]
    assert (turn["context"], turn["context_reason"]) == ("fresh", "native_session_shared")
    assert "red" in server.text(first, 2) and "round" in server.text(first, 2)
    assert "context_fallback" in [event["type"] for event in server.log(first)]


async def die_after_planning(database: Path, first: str, second: str) -> None:
    """Act as a server that plans a turn, issues its agent's id to another session, and then starts nothing."""
    store = SqliteStore(database)
    await store.open()
    log = await opened(store)
    journal = await log.open(first)
    bound = journal.state.bindings["alone"]
    facts = AgentFacts(driver="acp", can_resume=True, workdir_id=bound.workdir_id, fingerprint=bound.fingerprint)
    message = cmd.SubmitMessage(message_id="m", text="round")
    await journal.record(lambda state: decide(state, message, World(log.stamp(), {"alone": facts})))
    assert journal.state.turn is not None and journal.state.turn.context == "resumed"
    issued = [IssuedNativeSession(bound.fingerprint, bound.native_session_id, "alone")]
    await store.append(Append(session_id=second, generation=log.generation, expect=None, issued=issued))
    await store.close()


def test_in_a_shared_process_the_id_of_another_session_is_refused_with_a_message(place: Place) -> None:
    server, first, second = place.server, place.session("together"), place.session("together")
    place.say(first, "red")
    server.send(second, "blue")
    (turn,) = server.wait_idle(second)["turns"]
    assert turn["stop_reason"] == "failed"
    (error,) = [event for event in server.log(second) if event["type"] == "error"]
    assert error["code"] == "native_session_shared" and "shared = false" in error["message"]
    # What the process has under that id belongs to no session any more.
    turn, held = place.say(first, "round")
    assert (turn["context"], turn["context_reason"]) == ("fresh", "native_session_shared")
    assert "red" in held and "blue" not in held
