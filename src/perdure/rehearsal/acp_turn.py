"""One turn in ACP: advances a performance, and turns each act into an update or a request.

Above: acp.py starts turns, advances them, passes replies to them and cancels them. Below: script.py makes the acts.
It decides nothing about sessions. A turn ends with exactly one reply to session/prompt.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Protocol

from perdure.rehearsal import script
from perdure.rehearsal.edits import Edit
from perdure.rehearsal.memory import Session, timestamp
from perdure.rehearsal.script import Act, Performance, Reply

STEP_LIMIT_ACTS = 512
"""How many acts run before the input is checked: a cancel is noticed within this many."""
PACE_LAG_LIMIT_S = 0.5
"""A paced stream that lags more than this (the client did not read) doesn't catch up in a burst."""
CONTEXT_SIZE_TOKENS = 200_000
INTERNAL_ERROR = -32603

_GARBAGE = (
    b"this is not JSON\n",
    b'{"jsonrpc":"2.0","method":"session/upda\n',
    b"\xff\xfe\x80 these bytes are not UTF-8 \xc3\x28\n",
    b"\n",
    b"null\n",
    b'["a","list"]\n',
    b'{"jsonrpc":"2.0"}\n',
    b'{"jsonrpc":"2.0","id":"nobody-asked","result":{}}\n',
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":7,"update":"no object"}}\n',
    b'{"jsonrpc":"2.0","method":"session/update","params":"no object"}\n',
)

_OPTIONS = (
    ("allow_once", "Allow once"),
    ("allow_always", "Always allow"),
    ("reject_once", "Deny"),
    ("reject_always", "Always deny"),
)


class Peer(Protocol):
    """The part of the client that a turn needs."""

    can_ask: bool

    def write(self, data: bytes) -> None: ...

    def flush(self) -> None: ...

    def update(self, session_id: str, update: dict[str, Any]) -> None: ...

    def request(self, method: str, params: dict[str, Any], turn: "Turn") -> int: ...

    def withdraw(self, number: int) -> None: ...

    def reply(self, request_id: Any, result: dict[str, Any]) -> None: ...

    def fail(self, request_id: Any, code: int, message: str, data: dict[str, Any] | None = None) -> None: ...


class Turn:
    def __init__(
        self,
        peer: Peer,
        request_id: Any,
        session: Session,
        performance: Performance,
        config: dict[str, str],
        rules: dict[str, bool],
    ) -> None:
        self.request_id = request_id
        self.due: float | None = time.monotonic()
        """When to continue; None while it waits for a reply or a cancel."""
        self.ended = False
        self._peer = peer
        self._session = session
        self._performance = performance
        self._config = config
        self._rules = rules
        self._reply: Reply = None
        self._asked: script.Permit | script.Ask | None = None
        self._asked_number: int | None = None
        self._open_tools: dict[str, dict[str, Any]] = {}
        """By id: the extra fields of each update of the tool."""
        self._said: list[str] = []
        self._usage: script.Usage | None = None
        chunk = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%s,"update":{"sessionUpdate":"%s",'
        chunk += '"content":{"type":"text","text":'
        identity = json.dumps(session.session_id)
        self._say_start = chunk % (identity, "agent_message_chunk")
        self._think_start = chunk % (identity, "agent_thought_chunk")
        self._acts: dict[type, Callable[[Any], None]] = {
            script.Say: self._say,
            script.Think: self._think,
            script.ShowPlan: self._plan,
            script.ToolStart: self._tool_start,
            script.ToolRun: self._tool_run,
            script.ToolEnd: self._tool_end,
            script.Report: self._report,
            script.Permit: self._permit,
            script.Ask: self._ask,
            script.Wait: self._wait,
            script.Crash: self._crash,
            script.Garbage: self._garbage,
            script.Big: self._big,
            script.Stderr: self._stderr,
            script.Usage: self._report_usage,
            script.Limit: self._limit,
            script.RejectResume: lambda _: session.reject_next_resume(),
            script.Poison: lambda _: session.poison(),
        }

    # Called by acp.py -----------------------------------------------------------------------------------------

    def step(self, now: float) -> None:
        """Continue until the turn has to wait, ends, or has run STEP_LIMIT_ACTS acts."""
        for _ in range(STEP_LIMIT_ACTS):
            if self.ended or self.due is None or self.due > now:
                return
            reply, self._reply = self._reply, None
            try:
                act: Act = self._performance.send(reply)
                self._acts[type(act)](act)
            except StopIteration:
                self._end("end_turn")
            except BrokenPipeError:
                raise
            except OSError as error:
                # For example, no `sleep` to spawn, or a full disk: fails this turn, not the process.
                self.ended, self.due = True, None
                self._peer.fail(self.request_id, INTERNAL_ERROR, f"Internal error: {error}")

    def cancel(self) -> None:
        """End the turn immediately. Its answer so far is saved."""
        if self.ended:
            return
        self._performance.close()
        if self._asked_number is not None:
            self._peer.withdraw(self._asked_number)
        # End a sub-agent's tools before the tool that started it.
        for tool_id in reversed(list(self._open_tools)):
            self._tool_end(script.ToolEnd(tool_id, False, "cancelled"))
        self._end("cancelled")

    def answer(self, result: dict[str, Any] | None) -> None:
        """The client's reply to the open question; None if it was an error."""
        asked, self._asked, self._asked_number = self._asked, None, None
        if isinstance(asked, script.Permit):
            self._reply = self._decision(asked.tool.name, result)
        elif asked is not None:
            self._reply = _answer_sentence(asked, result)
        self.due = time.monotonic()

    # Acts -----------------------------------------------------------------------------------------------------

    def _say(self, act: script.Say) -> None:
        self._said.append(act.delta)
        self._peer.write(f"{self._say_start}{quoted(act.delta)}}}}}}}}}\n".encode())

    def _think(self, act: script.Think) -> None:
        self._peer.write(f"{self._think_start}{quoted(act.delta)}}}}}}}}}\n".encode())

    def _big(self, act: script.Big) -> None:
        room = act.size_bytes - len(self._say_start.encode()) - len('""}}}}\n')
        self._say(script.Say("x" * max(room, 0)))

    def _plan(self, act: script.ShowPlan) -> None:
        entries = [{"content": content, "priority": "medium", "status": status} for content, status in act.entries]
        self._update({"sessionUpdate": "plan", "entries": entries})

    def _tool_start(self, act: script.ToolStart) -> None:
        self._open_tools[act.tool_id] = more = _inside(act.parent) if act.parent else {}
        self._update({"sessionUpdate": "tool_call", **_tool_call(act), "content": [], "locations": [], **more})

    def _tool_run(self, act: script.ToolRun) -> None:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": act.tool_id, "status": "in_progress"}
        self._update({**update, **self._open_tools[act.tool_id]})

    def _report(self, act: script.Report) -> None:
        content = {"type": "text", "text": act.text}
        self._update({"sessionUpdate": "agent_message_chunk", "content": content, **_inside(act.tool_id)})

    def _tool_end(self, act: script.ToolEnd) -> None:
        more = self._open_tools.pop(act.tool_id)
        update: dict[str, Any] = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": act.tool_id,
            "status": "completed" if act.ok else "failed",
            "content": [{"type": "content", "content": {"type": "text", "text": act.content}}],
            "rawOutput": {"text": act.content},
        }
        if act.edit is not None:
            update["content"] = [_diff(act.edit)]
            update["locations"] = [{"path": act.edit.path}]
        self._update({**update, **more})

    def _permit(self, act: script.Permit) -> None:
        if act.tool.name in self._rules:
            self._reply = "allowed" if self._rules[act.tool.name] else "denied"
            return
        if self._config["mode"] == "auto":
            self._reply = "allowed"
            return
        options = [{"optionId": kind, "name": name, "kind": kind} for kind, name in _OPTIONS]
        call = _tool_call(act.tool) | ({"content": [_diff(act.tool.edit)]} if act.tool.edit is not None else {})
        self._request("session/request_permission", {"toolCall": call, "options": options}, act)

    def _ask(self, act: script.Ask) -> None:
        if self._peer.can_ask:
            answer: dict[str, Any] = {"type": "string", "title": act.question}
            if act.choices:
                answer["oneOf"] = [{"const": choice, "title": choice} for choice in act.choices]
            schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
            params = {"mode": "form", "message": act.question, "requestedSchema": schema}
            self._request("elicitation/create", params, act)
        elif act.choices:
            tool = {"toolCallId": f"call_{os.urandom(6).hex()}", "title": act.question, "kind": "other"}
            tool |= {"status": "pending", "name": "ask"}
            options = [
                {"optionId": f"choice_{number}", "name": choice, "kind": "allow_once"}
                for number, choice in enumerate(act.choices)
            ]
            options.append({"optionId": "none", "name": "No answer", "kind": "reject_once"})
            self._request("session/request_permission", {"toolCall": tool, "options": options}, act)
        else:
            self._reply = "no answer: this client can't be asked an open question"

    def _wait(self, act: script.Wait) -> None:
        if act.seconds is None or self.due is None:
            self.due = None
            return
        now = time.monotonic()
        kept_up = act.paced and now - self.due < PACE_LAG_LIMIT_S
        self.due = (self.due if kept_up else now) + act.seconds

    def _crash(self, act: script.Crash) -> None:
        self._peer.flush()
        os._exit(act.code)

    def _garbage(self, _: script.Garbage) -> None:
        for line in _GARBAGE:
            self._peer.write(line)

    def _stderr(self, act: script.Stderr) -> None:
        # Writing to stderr blocks if it is not read, so send earlier output first.
        self._peer.flush()
        sys.stderr.write(act.text)
        sys.stderr.flush()

    def _report_usage(self, act: script.Usage) -> None:
        self._usage = act
        used = act.input_tokens + act.output_tokens
        self._update({"sessionUpdate": "usage_update", "used": used, "size": CONTEXT_SIZE_TOKENS})

    def _limit(self, act: script.Limit) -> None:
        message = f"usage limit reached: it resets in {act.seconds:g} seconds"
        resets_at = timestamp(time.time() + act.seconds)
        data = {"code": "usage_limit", "resets_in_s": act.seconds, "resets_at": resets_at}
        self._close("failed")
        self._peer.fail(self.request_id, INTERNAL_ERROR, message, data)

    # Ends and questions -----------------------------------------------------------------------------------------

    def _end(self, stop_reason: str) -> None:
        self._close(stop_reason)
        result: dict[str, Any] = {"stopReason": stop_reason}
        if self._usage is not None:
            tokens = self._usage
            result["usage"] = {
                "inputTokens": tokens.input_tokens,
                "outputTokens": tokens.output_tokens,
                "totalTokens": tokens.input_tokens + tokens.output_tokens,
            }
        self._peer.reply(self.request_id, result)

    def _close(self, stop_reason: str) -> None:
        self.ended, self.due = True, None
        self._session.answered("".join(self._said), stop_reason)

    def _update(self, update: dict[str, Any]) -> None:
        self._peer.update(self._session.session_id, update)

    def _request(self, method: str, params: dict[str, Any], asked: script.Permit | script.Ask) -> None:
        self._asked, self.due = asked, None
        self._asked_number = self._peer.request(method, {"sessionId": self._session.session_id, **params}, self)

    def _decision(self, name: str, result: dict[str, Any] | None) -> script.Decision:
        option = _selected(result)
        if option is None:
            return "denied" if result is None else "cancelled"
        if option in ("allow_always", "reject_always"):
            self._rules[name] = option == "allow_always"
        return "allowed" if option in ("allow_once", "allow_always") else "denied"


def _tool_call(tool: script.ToolStart) -> dict[str, Any]:
    return {
        "toolCallId": tool.tool_id,
        "name": tool.name,
        "title": tool.title,
        "kind": tool.kind,
        "status": "pending",
        "rawInput": tool.input,
    }


def _diff(edit: Edit) -> dict[str, Any]:
    return {"type": "diff", "path": edit.path, "oldText": edit.old, "newText": edit.new}


def _inside(tool_id: str) -> dict[str, Any]:
    """Marks the text and tools of a sub-agent. ACP doesn't define this; claude-agent-acp uses it."""
    return {"_meta": {"claudeCode": {"parentToolUseId": tool_id}}}


def _selected(result: dict[str, Any] | None) -> str | None:
    outcome = (result or {}).get("outcome")
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    return str(outcome.get("optionId"))


def _answer_sentence(asked: script.Ask, result: dict[str, Any] | None) -> str:
    if result is None:
        return "no answer: the client could not ask"
    if "action" in result:
        content = result.get("content")
        given = content.get("answer") if isinstance(content, dict) else None
        if result["action"] != "accept" or given is None:
            return f"no answer: {'empty' if result['action'] == 'accept' else result['action']}"
        return f"answer: {', '.join(map(str, given)) if isinstance(given, list) else given}"
    option = _selected(result)
    for number, choice in enumerate(asked.choices):
        if option == f"choice_{number}":
            return f"answer: {choice}"
    return f"no answer: {'cancelled' if option is None else 'declined'}"
