"""Real conversations with `claude`, turned into scenarios for our side.

Above: test_claude_captures.py. Below: fixtures/claude, a file per process: {"dir": ">" to the agent | "<" from it,
"line": ...}, first all lines of one direction and then all of the other, as another client recorded them (paths were
replaced). The code infers from the replies when each line of that client was sent, and replaces it by the equivalent
order. `python -m tests.drivers.claude_captures` rewrites the expected observations; review them before you commit.
"""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from perdure.core.events import AssistantText, AssistantThinking, Config, Event, PendingPrompt, ToolUse, type_of
from perdure.drivers.base import (
    CancelTurn,
    Noise,
    Observation,
    SendAnswer,
    SendConfig,
    SendInput,
    SessionOpened,
    StartSession,
    TurnFinished,
)
from perdure.drivers.claude import ClaudeResumeDriver, ClaudeStreamDriver
from perdure.drivers.claude.launching import session_id
from tests.conformance.drivers import LAUNCH_ID, Move, Scenario, joined, make

FIXTURES = Path(__file__).parent / "fixtures" / "claude"
EXPECTED = FIXTURES / "expected.txt"
BETWEEN_TURNS = {
    "control_response",
    "command_lifecycle",
    "conversation_reset",
    "task_started",
    "task_updated",
    "task_progress",
    "task_notification",
    "background_tasks_changed",
}
RESUMES = (
    *("63-", "64-", "65-", "66-", "67-", "68-", "74b-", "92-", "93-", "94-", "95-", "96-", "98b-", "98c-", "98d-"),
    *("146-", "148-", "149-", "160-", "161-", "162-", "164-"),
)
SHOWN_CHARS = 100
RECORDED_IN = re.compile(r"/srv/(?!site\b)\w+")
"""Folders in the recordings; our tests use /srv/site."""

Json = dict[str, Any]


def names() -> list[str]:
    return sorted(path.name.removesuffix(".ndjson.gz") for path in FIXTURES.glob("*.gz"))


@cache
def recorded(name: str) -> tuple[list[str], list[str]]:
    """Return the lines sent to the agent, and those received from it."""
    with gzip.open(FIXTURES / f"{name}.ndjson.gz", "rt", encoding="utf-8", newline="\n") as file:
        rows = [json.loads(line) for line in file]
    there, back = ([row["line"] for row in rows if row["dir"] == direction] for direction in "><")
    return there, back


def as_json(line: str) -> Json:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def greeting() -> Json:
    """Return an answer to the handshake, for captures whose client didn't make one."""
    lines = map(as_json, recorded("11-stream-init-before-user")[1])
    response = next(line["response"]["response"] for line in lines if line.get("type") == "control_response")
    assert isinstance(response, dict)
    return response


class Play:
    """One process, played to our driver as long as both clients do the same."""

    def __init__(self, name: str, driver: ClaudeStreamDriver) -> None:
        there, back = recorded(name)
        self.name = name
        self.conversation = driver.begin(LAUNCH_ID)
        self.moves: list[Move] = []
        self.seen: list[Observation] = []
        self.sent: list[Json] = []
        self.turn = 0
        self.asked: dict[str, PendingPrompt] = {}
        messages = list(map(as_json, there))
        self.inputs = [message for message in messages if message.get("type") == "user"]
        if not self.inputs and len(back) > 2:
            self.inputs = [{"message": {"content": "(given on the command line)"}}]
        self.answers = {
            message["response"].get("request_id"): message["response"]
            for message in messages
            if message.get("type") == "control_response"
        }
        self.controls = {
            message["request_id"]: message["request"]
            for message in messages
            if message.get("type") == "control_request"
        }
        self.back = [self._as_ours(line, back) for line in back]
        self.resumes = name.removeprefix("v325-").startswith(RESUMES)
        self._play()

    def _as_ours(self, line: str, lines: list[str]) -> str:
        """Replace the session id by the one that our driver would have chosen."""
        theirs = next((found["session_id"] for found in map(as_json, lines) if "session_id" in found), None)
        return line.replace(f'"session_id":"{theirs}"', f'"session_id":"{session_id(LAUNCH_ID)}"') if theirs else line

    def _play(self) -> None:
        native = session_id(LAUNCH_ID) if self.resumes else None
        self.move(StartSession("/srv/site", native_session_id=native))
        handshake = next((id for id, request in self.controls.items() if request["subtype"] == "initialize"), None)
        answered = any(f'"{handshake}"' in line for line in self.back)
        if (
            any(as_json(line).get("type") in ("stream_event", "assistant", "system") for line in self.back)
            and not answered
        ):
            self._reply("initialize", {"subtype": "success", "response": greeting()})
        between, skipping = True, False
        for index, line in enumerate(self.back):
            message = as_json(line)
            if between and self._begins(message):
                between = False
                if self.inputs and not self._own(index):
                    skipping = not self._prompt()
            if message.get("type") == "result":
                between = True
                if skipping:
                    skipping = False
                    continue
            if not skipping or message.get("type") == "control_response":
                self._line(message, line)

    def _begins(self, message: Json) -> bool:
        """Return whether this line starts or belongs to a turn."""
        kind = message.get("subtype") if message.get("type") == "system" else message.get("type")
        if (kind == "status" and message.get("status") is None) or message.get("state") == "idle":
            return False
        return kind not in BETWEEN_TURNS and not message.get("isReplay") and not message.get("parent_tool_use_id")

    def _own(self, index: int) -> bool:
        ends = (found for found in map(as_json, self.back[index:]) if found.get("type") == "result")
        return "origin" in next(ends, {})

    def _prompt(self) -> bool:
        """Send the next message. Returns whether our driver sends it too."""
        content = self.inputs.pop(0).get("message", {}).get("content", "")
        attachments: list[Json] = []
        if isinstance(content, list):
            attachments = [block["source"] for block in content if block.get("type") == "image"]
            content = "".join(block.get("text", "") for block in content)
        self.turn += 1
        self.move(SendInput(self.turn, f"m{self.turn}", content or "(empty)", tuple(attachments)))
        refused = [one for one in self.seen if isinstance(one, TurnFinished) and one.turn == self.turn]
        return not refused

    def _line(self, message: Json, line: str) -> None:
        kind = message.get("type")
        if kind == "control_cancel_request":
            self._interrupt_once()
        if kind == "control_response":
            self._response(message["response"])
            return
        self.move(line.encode())
        if kind == "control_request" and message["request_id"] in self.asked:
            self._answer(self.asked[message["request_id"]], self.answers.get(message["request_id"]))

    def _response(self, response: Json) -> None:
        request = self.controls.get(response["request_id"], {})
        match request.get("subtype"):
            case "initialize":
                if any(sent.get("request", {}).get("subtype") == "initialize" for sent in self.sent):
                    self._reply("initialize", response)
            case "interrupt":
                self._interrupt_once()
                self._reply("interrupt", response)
            case "set_model":
                self.move(SendConfig("model", request["model"]))
                self._reply("set_model", response)
            case "set_permission_mode":
                self.move(SendConfig("mode", request["mode"]))
                self._reply("set_permission_mode", response)
            case _:
                self.move(json.dumps({"type": "control_response", "response": response}).encode())

    def _interrupt_once(self) -> None:
        if not any(sent.get("request", {}).get("subtype") == "interrupt" for sent in self.sent):
            self.move(CancelTurn(self.turn))

    def _reply(self, subtype: str, response: Json) -> None:
        """Answer our request with the reply to theirs."""
        for sent in self.sent:
            if sent.get("request", {}).get("subtype") == subtype:
                self.sent.remove(sent)
                body = {**response, "request_id": sent["request_id"]}
                self.move(json.dumps({"type": "control_response", "response": body}).encode())
                return

    def _answer(self, prompt: PendingPrompt, response: Json | None) -> None:
        if response is None:
            return
        given = response.get("response", {})
        answer: Json = {"cancel": True}
        if prompt.kind == "question" and given.get("behavior") == "allow":
            texts = given.get("updatedInput", {}).get("answers", {})
            answer = {"answers": {q.question_id: texts[q.question] for q in prompt.questions if q.question in texts}}
        elif given.get("behavior") == "allow":
            always = "updatedPermissions" in given
            answer = {"option_id": "allow_always" if always else "allow_once", "input": given.get("updatedInput")}
        elif given.get("behavior") == "deny" and prompt.kind == "permission":
            answer = {"option_id": "reject_once", "reason": given["message"], "interrupt": given.get("interrupt")}
        self.move(SendAnswer(prompt.prompt_id, answer))

    def move(self, move: Move) -> None:
        self.moves.append(move)
        step = make(self.conversation, move)
        self.seen += step.observations
        self.sent += map(json.loads, step.lines)
        for prompt in step.observations:
            if isinstance(prompt, PendingPrompt) and isinstance(move, bytes):
                self.asked[json.loads(move)["request_id"]] = prompt


@cache
def played(name: str, per_turn: bool = False) -> Play:
    return Play(name, ClaudeResumeDriver() if per_turn else ClaudeStreamDriver())


def scenarios(per_turn: bool = False) -> list[Scenario]:
    return [Scenario(name, played(name, per_turn).moves) for name in names()]


def summary(seen: list[Observation]) -> list[str]:
    """Return the observations, one line each: short enough to read, and exact enough to compare."""
    return [RECORDED_IN.sub("{folder}", f"{_label(one)} {_told(one)}".rstrip()) for one in joined(seen)]


def _label(one: Observation) -> str:
    return type_of(one) if isinstance(one, Event) else type(one).__name__


def _told(one: Observation) -> str:
    if isinstance(one, AssistantText | AssistantThinking):
        return f"{one.turn}/{one.block} {_short(one.delta)}"
    if isinstance(one, TurnFinished):
        cost = f" ${one.cost_usd:.6f}" if one.cost_usd is not None else ""
        flags = "".join(f" {flag}" for flag in ("poisoned", "held", "leaves") if getattr(one, flag)) + " unsent" * (
            not one.sent
        )
        error = f" {one.error_code}: {_short(one.error_message)}" if one.error_code else ""
        return f"{one.turn} {one.stop_reason}{cost}{flags}{error}"
    if isinstance(one, Noise):
        return f"{_short(one.sample)} ({one.reason})" + " quiet" * (not one.told)
    if isinstance(one, SessionOpened):
        features = {"features": len(one.capabilities["features"])} if "features" in one.capabilities else {}
        told = {key: value for key, value in {**one.capabilities, **features}.items() if key != "can_resume"}
        words = [_short(one.native_session_id), "resumed" if one.resumed else "new"]
        return " ".join(words + [f"{key}={value}" for key, value in told.items()])
    if isinstance(one, Config) and one.config_id == "available_commands":
        return f"available_commands {len(one.value)}"
    hidden = {"at", "session_id", "asked_at", "models", "modes", "input", "waited_ms"} - (
        {"input"} if isinstance(one, ToolUse) else set()
    )
    fields = {key: getattr(one, key) for key in one.__struct_fields__ if key not in hidden}
    return " ".join(
        f"{key}={_short(value)}" for key, value in fields.items() if value or (value == 0 and value is not False)
    )


def _short(value: object) -> str:
    text = repr(value).replace(LAUNCH_ID, "L").replace(session_id(LAUNCH_ID), "S")
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)})"


def expected() -> dict[str, list[str]]:
    """Return the reviewed summaries, by capture."""
    found: dict[str, list[str]] = {}
    for line in EXPECTED.read_text(encoding="utf-8").split("\n"):
        if line.startswith("== "):
            lines = found[line[3:]] = []
        elif line:
            lines.append(line)
    return found


def write_expected() -> None:
    parts = [f"== {name}\n" + "".join(f"{line}\n" for line in summary(played(name).seen)) for name in names()]
    EXPECTED.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    write_expected()
