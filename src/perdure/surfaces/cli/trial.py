"""Testing an agent: a real start, a handshake and optionally a turn, in a session that is erased afterwards.

Above: `perdure agents test`. Below: the client; and if no running server has the agent, a temporary server, which ends
with the test. All permission requests are denied.
"""

import os
import select
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from perdure.surfaces.cli.output import duration
from perdure.surfaces.cli.reach import Failure, read_token
from perdure.surfaces.client import Address, Client
from perdure.surfaces.short_text import one_line, safe
from perdure.surfaces.stream import EventStream

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 5.0
SHOWN_NAMES = 8

Json = dict[str, Any]


class Trial:
    """Tests one agent. `result` is the JSON result; progress for people goes to `say`."""

    def __init__(self, client: Client, agent: Json, say: Callable[[str], None], timeout_s: float) -> None:
        self._client = client
        self._agent = agent
        self._say = say
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self.result: Json = {"agent": agent["name"], "ok": False, "handshake_ms": None, "turn": None, "error": None}

    def run(self, text: str | None) -> bool:
        name = self._agent["name"]
        self._say(f"{name}: {self._agent['driver']}, {shlex.join(self._agent['command'])}")
        if self._agent["state"] not in ("ready", "needs_login"):
            return self._failed(f"{self._agent['state'].replace('_', ' ')}. {self._agent['reason']}")
        self._say("starting ...")
        began = time.monotonic()
        session_id = self._client.create_session(agent=name, title=f"Trial of {name}", warm=True)["id"]
        try:
            if not _has_process_per_turn(self._agent["driver"]):
                if not self._opened(session_id, began):
                    return False
            elif text is None:
                self._say("This agent starts a process for each turn; use --turn to test one.")
            if text is not None and not self._turned(session_id, text):
                return False
            self.result["ok"] = True
            self._say("ok")
            return True
        finally:
            self._client.erase(session_id)

    def _failed(self, reason: str) -> bool:
        self.result["error"] = reason
        self._say(f"failed: {reason}")
        return False

    def _opened(self, session_id: str, began: float) -> bool:
        with self._watched(session_id, 0) as stream:
            for event in stream:
                if event.type == "agent_attached":
                    took_ms = (time.monotonic() - began) * 1000
                    return self._told(session_id, took_ms)
                if event.type == "error":
                    return self._failed(_error(event.data))
                if event.type == "session_end":
                    break
        return self._failed(f"the agent did not open a session within {self._timeout_s:g} s.")

    def _told(self, session_id: str, took_ms: float) -> bool:
        """Report what the agent said about itself when it opened the session."""
        known, session = self._client.agent(self._agent["name"]), self._client.session(session_id)
        modes = [mode["id"] for mode in (session["modes"] or {}).get("availableModes", [])]
        models = [model["modelId"] for model in (session["models"] or {}).get("availableModels", [])]
        self.result |= {"handshake_ms": round(took_ms), "version": known["version"], "modes": modes, "models": models}
        self._say(f"session opened in {duration(took_ms)}")
        for what, found in (("version", [known["version"] or "not reported"]), ("modes", modes), ("models", models)):
            if found:
                more = f" and {len(found) - SHOWN_NAMES} more" if len(found) > SHOWN_NAMES else ""
                self._say(f"  {what}: {', '.join(map(safe, found[:SHOWN_NAMES]))}{more}")
        if known["state"] == "needs_login":
            self._say(f"  login: {safe(known['reason'] or '')}")
        return True

    def _turned(self, session_id: str, text: str) -> bool:
        sent = self._client.send(text, session_id)
        self._say(f"turn: {one_line(text, 60)}")
        said, error, began = "", "", time.monotonic()
        with self._watched(session_id, max(0, int(sent["seq"]) - 1)) as stream:
            for event in stream:
                if event.type == "assistant_text":
                    said += event.data["delta"]
                elif event.type == "pending_prompt":
                    self._deny(session_id, event.data)
                elif event.type == "error":
                    error = _error(event.data)
                elif event.type == "turn_end":
                    return self._ended(event.data["stop_reason"], said, error, began)
                elif event.type == "session_end":
                    break
        return self._failed(f"the turn did not end within {self._timeout_s:g} s.")

    def _ended(self, stop_reason: str, said: str, error: str, began: float) -> bool:
        took_ms = (time.monotonic() - began) * 1000
        self.result["turn"] = {"stop_reason": stop_reason, "text": said, "duration_ms": round(took_ms)}
        for line in safe(said).splitlines():
            self._say(f"  {line}")
        if stop_reason != "end_turn":
            return self._failed(error or f"the turn ended with {stop_reason}.")
        self._say(f"turn ended in {duration(took_ms)}")
        return True

    def _deny(self, session_id: str, prompt: Json) -> None:
        self._say(f"  denied: {one_line(prompt['title'], 80)}")
        refusing = [option["option_id"] for option in prompt["options"] if option["kind"] == "reject_once"]
        answer: Json = {"option_id": refusing[0]} if refusing else {"cancel": True}
        self._client.answer(session_id, prompt["prompt_id"], answer)

    @contextmanager
    def _watched(self, session_id: str, position: int) -> Iterator[EventStream]:
        """The session's events, until the timeout."""
        stream = self._client.events(session_id, position)
        timer = threading.Timer(max(0.0, self._deadline - time.monotonic()), stream.close)
        timer.start()
        try:
            yield stream
        finally:
            timer.cancel()
            stream.close()


def _has_process_per_turn(driver: str) -> bool:
    """Whether the driver starts no process before the first message. A newer server may have unknown drivers."""
    from perdure.drivers import DRIVERS

    return driver in DRIVERS and DRIVERS[driver].process_per_turn


def _error(event: Json) -> str:
    detail = safe(event.get("detail") or "").strip()
    return safe(event["message"]) + (f"\n{detail}" if detail else "")


@contextmanager
def own_server(config: str) -> Iterator[Client]:
    """A temporary server with this configuration."""
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        (data / "perdure.toml").write_text(config, encoding="utf-8")
        argv = [sys.executable, "-m", "perdure", "serve", "--port", "0", "--data", str(data), "--stop-agents"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}
        with (Path(folder) / "errors").open("wb") as errors:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        try:
            url = _listening(process, Path(folder) / "errors")
            with Client(Address(url, read_token(data))) as client:
                yield client
        finally:
            _end(process)


def _listening(process: "subprocess.Popen[bytes]", errors: Path) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    line = process.stdout.readline().decode() if ready else ""
    if "listening on" not in line:
        said = errors.read_text("utf-8", "replace").strip()
        raise Failure(f"Could not start a temporary server. {said}")
    return line.split()[-1]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        click.echo("perdure: The temporary server did not stop in time. Killing it.", err=True)
        process.kill()
        process.wait(KILL_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()
