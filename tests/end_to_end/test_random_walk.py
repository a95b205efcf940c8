"""Random operations on a live server: after each step, every session is in a legal state."""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end.victims import kill, none_left, zombies
from tests.harness import LiveServer, eventually, no_holes
from tests.sizes import size

STEPS = size("STEPS", 120, fast=25)
SESSIONS = 3
SCRIPTS = (
    "say short",
    "stream 40 5",
    "say half\nhang",
    "permit Deploy\nsay on",
    "ask Which? | red | blue",
    "tool Bash ls\nsleep 0.2\nsay done",
    "spawn 300\nsay done",
    "say half\ncrash",
    "reject-resume",
    "poison",
    "garbage\nsay done",
    "stream 3000",
)
LIMITS: tuple[dict[str, object], ...] = (
    {},
    {"turn_timeout_s": 1, "idle_timeout_s": 1},
    {"silence_s": 1, "on_silence": "abort"},
)
ALLOWED_REFUSALS = {
    "turn_active",
    "no_turn_active",
    "session_ended",
    "prompt_resolved",
    "not_found",
    "conflict",
}


class Walk:
    def __init__(self, server: LiveServer, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.sessions: list[str] = []
        self.sent: dict[str, list[str]] = {}
        self.trace: list[str] = []
        for _ in range(SESSIONS):
            self.open()

    def open(self) -> None:
        session = self.server.create(limits=self.chance.choice(LIMITS))
        self.sessions.append(session)
        self.sent[session] = []

    def step(self) -> None:
        act: Callable[[str], None] = self.chance.choices(
            [self.message, self.abort, self.answer, self.stop, self.kill_agent, self.kill_server, self.look],
            weights=[10, 3, 5, 1, 2, 1, 4],
        )[0]
        session = self.chance.choice(self.sessions)
        self.trace.append(f"{act.__name__} {session}")
        act(session)

    def post(self, path: str, body: dict[str, object]) -> Any:
        answer = self.server.http.post(path, json=body)
        told = answer.json()
        self.trace[-1] += f" {body} -> {answer.status_code} {told.get('code', '')}"
        assert answer.status_code < 300 or (answer.status_code in (404, 409) and told["code"] in ALLOWED_REFUSALS), told
        return told if answer.status_code < 300 else None

    def message(self, session: str) -> None:
        when = self.chance.choice(["reject", "queue", "queue", "interrupt"])
        message_id = f"m-{len(self.trace)}"
        body: dict[str, object] = {"text": self.chance.choice(SCRIPTS), "when_busy": when, "message_id": message_id}
        taken = self.post(f"/api/sessions/{session}/messages", body)
        if taken is not None:
            self.sent[session].append(message_id)
            assert self.post(f"/api/sessions/{session}/messages", body) == taken

    def abort(self, session: str) -> None:
        self.post(f"/api/sessions/{session}/abort", {})

    def answer(self, session: str) -> None:
        for prompt in self.server.get(f"/api/sessions/{session}/prompts")["prompts"]:
            body: dict[str, object] = {"option_id": self.chance.choice(["allow_once", "reject_once"])}
            if prompt["kind"] == "question":
                body = {"answers": {prompt["questions"][0]["question_id"]: "red"}}
            self.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", body)

    def stop(self, session: str) -> None:
        self.post(f"/api/sessions/{session}/stop", {})
        self.sessions.remove(session)
        self.check(session)
        self.open()

    def kill_agent(self, session: str) -> None:
        pid = self.server.session(session)["pid"]
        if pid is not None:
            kill(pid)

    def kill_server(self, _: str) -> None:
        self.server.kill()
        self.server.restart()

    def look(self, session: str) -> None:
        """Let a working session record at least one more event."""
        found = self.server.session(session)
        if found["state"] == "processing" and not found["pending_prompts"]:
            try:
                with self.server.watch(session, str(found["event_count"]), timeout_s=2) as viewer:
                    next(iter(viewer.frames()), None)
            except TimeoutError:
                self.trace[-1] += " (silent)"

    # What must hold ------------------------------------------------------------------------------------------------

    def check(self, session: str) -> None:
        found = self.server.session(session)
        log = self.server.log(session)
        no_holes(log)
        running: int | None = None
        last = 0
        expected = "user_message"
        prompts: dict[str, int] = {}
        ended = False
        for event in log:
            kind, turn = event["type"], event["turn"]
            assert not ended, event
            if kind in ("user_message", "turn_start", "turn_end"):
                assert kind == expected, (expected, event)
            if kind == "user_message":
                assert turn == last + 1
                last, expected = turn, "turn_start"
            elif kind == "turn_start":
                assert running is None and turn == last
                running, expected = turn, "turn_end"
            elif kind == "turn_end":
                assert turn == running and not prompts
                running, expected = None, "user_message"
            elif kind == "waiting_for_input":
                assert running is None and turn == last
            elif kind == "pending_prompt":
                assert turn == running
                prompts[event["prompt_id"]] = turn
            elif kind == "prompt_resolved":
                del prompts[event["prompt_id"]]
            elif kind in ("assistant_text", "assistant_thinking", "tool_use", "tool_result", "plan"):
                assert turn == running, event
            elif kind == "session_end":
                assert running is None and not prompts
                ended = True
        last_seq = log[-1]["seq"]
        if found["event_count"] == last_seq:
            assert found["state"] == ("ended" if ended else "processing" if running else "idle"), (found, log[-3:])
            assert found["pending_prompts"] == len(prompts)
        self.check_messages(session, log)

    def check_messages(self, session: str, log: list[Any]) -> None:
        """Each accepted message is one turn, or is queued, or was withdrawn when the session ended."""
        turned = [event["message_id"] for event in log if event["type"] == "user_message"]
        assert len(turned) == len(set(turned))
        waiting = {event["message_id"] for event in log if event["type"] == "message_queued"}
        for message in self.sent[session]:
            assert message in turned or message in waiting, message

    def settle(self) -> None:
        """Answer and abort until all sessions are idle or ended. By then, all queued messages have run."""
        for session in self.sessions:

            def rested(session: str = session) -> bool:
                self.answer(session)
                found = self.server.session(session)
                if found["state"] == "processing" and not found["pending_prompts"]:
                    self.server.http.post(f"/api/sessions/{session}/abort")
                return bool(found["state"] != "processing" and found["queue_length"] == 0)

            self.trace.append(f"settle {session}")
            eventually(rested, f"session {session} settles", 60)
            self.check(session)
            if self.server.session(session)["state"] == "idle":
                self.trace.append(f"last {session}")
                # Its limits may be shorter than an agent takes to start on a busy machine.
                assert self.server.turn(session, "say last")["stop_reason"] in ("end_turn", "failed", "timed_out")
            self.server.post(f"/api/sessions/{session}/stop", expect=200)
            self.check(session)
        none_left(self.server)
        eventually(lambda: not zombies(self.server), "no zombie is left")


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_no_order_of_events_leaves_an_illegal_state(server: LiveServer) -> None:
    seed = int(os.environ.get("PERDURE_TEST_SEED", random.randrange(2**32)))
    walk = Walk(server, seed)
    try:
        for _ in range(STEPS):
            walk.step()
            for session in walk.sessions:
                walk.check(session)
        walk.settle()
        assert "Traceback" not in server.errors.read_text(), server.log_tail()
    except BaseException:
        print(f"PERDURE_TEST_SEED={seed}; the last steps were:", *walk.trace[-15:], sep="\n  ")
        raise
