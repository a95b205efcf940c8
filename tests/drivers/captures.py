"""Real conversations with ACP agents, turned into scenarios for our side.

Above: test_acp_captures.py. Below: fixtures/acp, one line per message as another client recorded it:
{"t": seconds, "dir": ">" to the agent | "<" from it | "!" a note, "msg": ...}. That client ran several sessions in one
process, and used other ids and methods than our driver. So each session is played separately: its '>' lines become
orders, and the ids in its '<' lines are replaced by those that our driver used for the same request.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.core.events import PendingPrompt
from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import CancelTurn, Order, SendAnswer, SendInput, StartSession
from tests.conformance.drivers import LAUNCH_ID, Move, Scenario, make

FIXTURES = Path(__file__).parent / "fixtures" / "acp"
OPENING = ("session/new", "session/load", "session/resume")

Entry = dict[str, Any]


def names() -> list[str]:
    return sorted(path.name.removesuffix(".ndjson.gz") for path in FIXTURES.glob("*.gz"))


def entries(name: str) -> list[Entry]:
    with gzip.open(FIXTURES / f"{name}.ndjson.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def processes(name: str) -> Iterator[list[Entry]]:
    """Split the capture where a new process was initialized."""
    part: list[Entry] = []
    for entry in entries(name):
        if entry["dir"] == ">" and entry["msg"].get("method") == "initialize":
            if part:
                yield part
            part = []
        part.append(entry)
    yield part


class Play:
    """One session of one process, played to our driver as long as both clients do the same."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.conversation = AcpDriver().begin(LAUNCH_ID)
        self.moves: list[Move] = []
        self.ours: dict[str, int] = {}
        """The ids that our driver used for initialize, opening, prompt and settled."""
        self.theirs: dict[Any, str] = {}
        self.asked: dict[Any, str] = {}
        self.turn = 0
        self.texts: dict[int, str] = {}
        self.replied = 0
        self.requests = 0
        self.busy = False

    def order(self, order: Order) -> None:
        self._move(order)

    def line(self, message: Any) -> None:
        self._move(json.dumps(message).encode())

    def settle(self) -> None:
        """Answer the request that marks the end of the replay, like every agent does."""
        if "_perdure/settled" in self.ours:
            id = self.ours.pop("_perdure/settled")
            self.line({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})

    def _move(self, move: Move) -> None:
        self.moves.append(move)
        step = make(self.conversation, move)
        for line in step.lines:
            message = json.loads(line)
            method = message.get("method")
            if method is not None and "id" in message:
                self.ours["opening" if method in OPENING else method] = message["id"]
        prompts = [event for event in step.observations if isinstance(event, PendingPrompt)]
        if prompts and isinstance(move, bytes):
            self.asked[json.loads(move)["id"]] = prompts[0].prompt_id


def plays(name: str) -> Iterator[Play]:
    """Return every session of a capture that our driver can open too."""
    for process in processes(name):
        replies = {entry["msg"]["id"]: entry["msg"] for entry in process if is_reply(entry)}
        for entry in process:
            message = entry["msg"]
            if entry["dir"] == ">" and message.get("method") in OPENING and "cwd" in message.get("params", {}):
                reply = replies.get(message["id"], {})
                session_id = message["params"].get("sessionId") or reply.get("result", {}).get("sessionId")
                if session_id is not None:
                    yield play_session(process, session_id, message)


def is_reply(entry: Entry) -> bool:
    return (
        entry["dir"] == "<" and isinstance(entry["msg"], dict) and "method" not in entry["msg"] and "id" in entry["msg"]
    )


def play_session(process: list[Entry], session_id: str, opening: Any) -> Play:
    play, open_yet = Play(session_id), False
    params = opening["params"]
    play.order(StartSession(workdir=params["cwd"], native_session_id=params.get("sessionId")))
    initialized = next(entry["msg"] for entry in process if is_reply(entry))
    play.line({**initialized, "id": play.ours["initialize"]})
    for entry in process:
        message = entry["msg"]
        open_yet = open_yet or message is opening
        if not open_yet or entry["dir"] == "!" or not isinstance(message, dict):
            continue
        if entry["dir"] == ">":
            if not to_agent(play, message, opening):
                break
        else:
            from_agent(play, message)
    play.settle()
    return play


def to_agent(play: Play, message: Any, opening: Any) -> bool:
    """Do what the other client did. Returns False if our driver never does that."""
    method, params = message.get("method"), message.get("params", {})
    if method is None:
        answer(play, message)
        return True
    if message is opening:
        play.theirs[message["id"]] = "opening"
        return True
    if params.get("sessionId") != play.session_id:
        return True
    if method == "session/prompt":
        if play.busy or not params["prompt"] or params["prompt"][0].get("type") != "text":
            return False
        play.settle()
        play.turn, play.busy = play.turn + 1, True
        play.theirs[message["id"]] = "session/prompt"
        play.texts[play.turn] = ""
        play.order(SendInput(play.turn, f"m{play.turn}", params["prompt"][0]["text"]))
        return "session/prompt" in play.ours
    if method == "session/cancel":
        play.order(CancelTurn(play.turn))
    return method not in (*OPENING, "session/close", "session/fork")


def answer(play: Play, message: Any) -> None:
    prompt_id = play.asked.get(message.get("id"))
    result = message.get("result")
    if prompt_id is None or not isinstance(result, dict):
        return
    if "action" in result:
        content = result.get("content")
        play.order(SendAnswer(prompt_id, {"answers": content} if content else {"cancel": True}))
    elif result.get("outcome", {}).get("outcome") == "selected":
        play.order(SendAnswer(prompt_id, {"option_id": result["outcome"]["optionId"]}))
    else:
        play.order(SendAnswer(prompt_id, {"cancel": True}))


def from_agent(play: Play, message: Any) -> None:
    method, params = message.get("method"), message.get("params", {})
    if method is None:
        kind = play.theirs.get(message.get("id"))
        if kind is not None and kind in play.ours:
            play.line({**message, "id": play.ours.pop(kind)})
            if kind == "session/prompt":
                play.busy = False
                play.replied += 1
    elif method == "$/cancel_request" or params.get("sessionId") == play.session_id:
        update = params.get("update", {})
        if play.busy and update.get("sessionUpdate") == "agent_message_chunk":
            play.texts[play.turn] += update["content"]["text"]
        play.requests += "id" in message
        play.line(message)


def scenarios() -> list[Scenario]:
    return [
        Scenario(f"{name} {index}", play.moves)
        for name in names()
        for index, play in enumerate(plays(name))
        if play.replied
    ]
