"""One turn in the Claude dialect: advances a performance, and turns each act into lines of stream-json.

Above: claude.py starts turns, advances them, passes answers to them and interrupts them. Below: script.py makes the
acts; claude_message.py and claude_tools.py format them; claude_permissions.py checks permissions.
A turn imitates a chain of model calls: the text and tool calls up to a tool result are one message, and each tool
result starts the next call. A turn ends with one `result` line.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from perdure.rehearsal import claude_lines as lines
from perdure.rehearsal import claude_permissions as permissions
from perdure.rehearsal import claude_tools as tools
from perdure.rehearsal import script
from perdure.rehearsal.claude_faults import GARBAGE, context_overflow, usage_limit
from perdure.rehearsal.claude_ledger import Ending, Ledger, Tokens, tokens_in
from perdure.rehearsal.claude_lines import Line
from perdure.rehearsal.claude_message import Message, Output
from perdure.rehearsal.claude_permissions import Verdict
from perdure.rehearsal.claude_subagent import SubAgent
from perdure.rehearsal.memory import Session
from perdure.rehearsal.script import Act, Performance, Reply

STEP_LIMIT_ACTS = 512
"""How many acts run before the input is checked: an interrupt is noticed within this many."""
PACE_LAG_LIMIT_S = 0.5
"""A paced stream that lags more than this (the client did not read) doesn't catch up in a burst."""


class TurnInput(NamedTuple):
    """The input of a turn. `echo` is sent back with the first block, if the host requested echoes."""

    text: str
    echo: Line | None = None


class Choices:
    """The settings of the process, from flags and control requests. They are lost when the process exits."""

    def __init__(self, model: str, mode: str, rules: dict[str, bool], max_turns: int) -> None:
        self.model, self.mode, self.rules, self.max_turns = model, mode, rules, max_turns


class Host(Output, Protocol):
    """The part of the host that a turn needs."""

    choices: Choices
    ledger: Ledger
    forwards_subagents: bool
    """Whether the host wants the text of sub-agents."""

    @property
    def can_ask(self) -> bool:
        """Whether the host handles permission requests. Whether it still reads them is `listens`."""

    @property
    def listens(self) -> bool: ...

    def flush(self) -> None: ...

    def request(self, request: Line) -> str: ...

    def withdraw(self, request_id: str) -> None: ...

    def answered(self) -> None: ...

    def take_queued(self) -> list[TurnInput]: ...

    def set_mode(self, mode: str) -> None: ...

    def perform(self, text: str) -> Performance: ...


class Turn:
    def __init__(self, host: Host, session: Session, turn_input: TurnInput, todos: list[Line]) -> None:
        """`todos` is the session's current list, which the turn updates."""
        self.due: float | None = time.monotonic()
        """When to continue; None while it waits for an answer or an interrupt."""
        self.ended = False
        self.is_error = False
        self.request_id: str | None = None
        """The id of the open question."""
        self._host = host
        self._session = session
        self._echo = turn_input.echo
        self._began = time.monotonic()
        self._todos = todos
        self._performance = host.perform(turn_input.text)
        self._next: list[str] = []
        self._reply: Reply = None
        self._asked: script.Permit | script.Ask | None = None
        self._use: tools.Use | None = None
        self._subagent: SubAgent | None = None
        self._verdict: Verdict | None = None
        self._denials: list[Line] = []
        self._message: Message | None = None
        self._calls = 0
        self._text = ""
        self._said: list[str] = []
        self._input_tokens = tokens_in(len(turn_input.text))
        self._used = Tokens()
        self._reported: Tokens | None = None
        self._acts: dict[type, Callable[[Any], None]] = {
            script.Say: self._say,
            script.Think: lambda act: self._speaking().think(act.delta),
            script.ShowPlan: self._plan,
            script.ToolStart: self._tool_start,
            script.ToolRun: self._tool_run,
            script.ToolEnd: self._tool_end,
            script.Report: self._report,
            script.Permit: self._permit,
            script.Ask: self._ask,
            script.Wait: self._wait,
            script.Crash: self._crash,
            script.Garbage: lambda _: host.write(GARBAGE),
            script.Big: lambda act: self._say(script.Say("x" * self._speaking().room(act.size_bytes))),
            script.Stderr: self._stderr,
            script.Usage: self._usage,
            script.Limit: lambda act: self._fail(*usage_limit(session.session_id, act.seconds)),
            script.RejectResume: lambda _: session.reject_next_resume(),
            script.Poison: lambda _: session.poison(),
        }
        too_long = session.too_long(turn_input.text)
        session.hear(turn_input.text)
        self._call_model()
        if too_long:
            self._fail(*context_overflow(session.session_id))

    # Called by claude.py --------------------------------------------------------------------------------------

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
                self._go_on()
            except OSError as error:
                # For example, no `sleep` to spawn, or a full disk: fails this turn, not the process.
                self._end(Ending("error_during_execution", True, self._calls, "completed", errors=(str(error),)))

    def answer(self, response: Line) -> None:
        """The host's answer to the open question."""
        self._decided(permissions.read_answer(response))

    def abandon(self) -> None:
        """The host stopped listening. An open question fails, and a turn that waits for an interrupt ends."""
        if self._asked is not None:
            self._decided(permissions.failed(permissions.CLOSED))
        elif self.due is None and not self.ended:
            self.interrupt()

    def withdraw(self) -> None:
        """Withdraw the open question. An interrupt follows."""
        if self.request_id is not None:
            self._host.withdraw(self.request_id)
            self.request_id, self._asked = None, None
            if self._use is not None:
                self._denials.append(self._use.denied)

    def interrupt(self) -> None:
        """End the turn immediately. Its answer so far is saved."""
        if self.ended:
            return
        self._performance.close()
        if self._use is not None:
            self._reject(self._use)
            self._abort("[Request interrupted by user for tool use]", "aborted_tools", "tool_use", self._calls + 2)
        else:
            self._break_off()
            self._abort("[Request interrupted by user]", "aborted_streaming", None, self._calls + 1)

    def preempt(self) -> None:
        """End the turn for a message with priority `now`. The result looks like a normal answer, as in the real one."""
        if self.ended:
            return
        self.withdraw()
        self._performance.close()
        if self._use is not None:
            self._reject(self._use)
        self._break_off()
        self._end(Ending("success", False, self._calls, "aborted_streaming", self._text))

    # Calls and messages ---------------------------------------------------------------------------------------

    def _call_model(self) -> None:
        limit = self._host.choices.max_turns
        if limit and self._calls >= limit:
            errors = (f"Reached maximum number of turns ({limit})",)
            reason = "tool_use" if self._calls else None
            self._end(Ending("error_max_turns", True, self._calls + 1, "max_turns", None, reason, errors=errors))
            return
        self._calls += 1
        if self._host.partial:
            self._host.send(lines.system("status", self._session.session_id, status="requesting"))

    def _speaking(self) -> Message:
        if self._message is None:
            model = self._host.choices.model
            session_id = self._session.session_id
            self._message = Message(self._host, session_id, model, self._input_tokens, self._send_echo)
        return self._message

    def _send_echo(self) -> None:
        if self._echo is not None:
            self._host.send(self._echo)
            self._echo = None

    def _close_message(self, stop_reason: str) -> None:
        if self._message is not None:
            self._message.close(stop_reason)
            self._used = self._used.plus(self._message.used)
            self._text = self._message.last_text
            self._message = None

    def _break_off(self) -> None:
        # The usage of a broken message is not reported: the real one doesn't know it either.
        if self._message is not None:
            self._message.break_off()
            self._text = self._message.last_text
            self._message = None

    # Acts -----------------------------------------------------------------------------------------------------

    def _say(self, act: script.Say) -> None:
        self._said.append(act.delta)
        self._speaking().say(act.delta)

    def _plan(self, act: script.ShowPlan) -> None:
        use = self._start_use(tools.Use(_tool_id(), "TodoWrite", tools.todos(act)))
        self._close_message("tool_use")
        self._finish_use(tools.todos_written(use, list(self._todos)))
        self._todos[:] = use.input["todos"]

    def _tool_start(self, act: script.ToolStart) -> None:
        use = tools.use_of(act)
        if act.parent is not None and self._subagent is not None:
            self._subagent.use_tool(use)
            return
        self._start_use(use)
        if use.name == "Agent":
            host = self._host
            self._subagent = SubAgent(host, self._session.session_id, host.choices.model, use, host.forwards_subagents)

    def _tool_run(self, act: script.ToolRun) -> None:
        self._close_message("tool_use")
        if self._subagent is not None and self._use is not None and self._use.tool_id == tools.native_id(act.tool_id):
            self._subagent.begin()

    def _report(self, act: script.Report) -> None:
        if self._subagent is not None:
            self._subagent.say(act.text)

    def _tool_end(self, act: script.ToolEnd) -> None:
        self._close_message("tool_use")
        use, verdict = self._use, self._verdict
        if use is None:
            return
        if self._subagent is not None and use.tool_id != tools.native_id(act.tool_id):
            self._subagent.tool_ended(act)
        elif self._subagent is not None:
            result, self._subagent = self._subagent.finish(act.content), None
            self._finish_use(result)
        elif verdict is not None and not verdict.allowed:
            self._finish_use(tools.refused(use, verdict.message))
        else:
            self._finish_use(tools.ended(use, act))

    def _permit(self, act: script.Permit) -> None:
        choices, use = self._host.choices, self._use
        if use is None:
            return
        known = permissions.standing(use.name, use.kind, choices.mode, choices.rules)
        if known == "ask" and self._host.can_ask:
            self._ask_host(act, use, permissions.suggestions(use.name, use.kind))
            return
        verdict = Verdict(known == "allowed", permissions.denial(use.name, known), input=use.input)
        if known == "denied_by_mode":
            denied = {"tool_name": use.name, "tool_use_id": use.tool_id, "decision_reason_type": "mode"}
            session_id = self._session.session_id
            self._host.send(lines.system("permission_denied", session_id, **denied, message=verdict.message))
        self._asked = act
        self._decided(verdict)

    def _ask(self, act: script.Ask) -> None:
        use = self._start_use(
            tools.Use(_tool_id(), "AskUserQuestion", permissions.questions(act.question, act.choices))
        )
        if self._host.can_ask:
            self._ask_host(act, use, None)
            return
        self._close_message("tool_use")
        error = permissions.NO_QUESTIONS
        self._finish_use(tools.refused(use, f"<tool_use_error>{error}</tool_use_error>", error))
        self._reply = "no answer: this host can't be asked"

    def _wait(self, act: script.Wait) -> None:
        if act.seconds is None or self.due is None:
            self.due = None
            return
        now = time.monotonic()
        kept_up = act.paced and now - self.due < PACE_LAG_LIMIT_S
        self.due = (self.due if kept_up else now) + act.seconds

    def _crash(self, act: script.Crash) -> None:
        self._host.flush()
        os._exit(act.code)

    def _stderr(self, act: script.Stderr) -> None:
        # Writing to stderr blocks if it is not read, so send earlier output first.
        self._host.flush()
        sys.stderr.write(act.text)
        sys.stderr.flush()

    def _usage(self, act: script.Usage) -> None:
        self._reported = Tokens(act.input_tokens, act.output_tokens)

    # Tools and questions --------------------------------------------------------------------------------------

    def _start_use(self, use: tools.Use) -> tools.Use:
        self._speaking().use_tool(use.tool_id, use.name, use.input)
        self._use, self._verdict = use, None
        return use

    def _finish_use(self, result: tools.Result) -> None:
        self._show(result)
        self._use, self._verdict = None, None
        # Messages that arrived in the meantime become part of this turn, without a separate result.
        for turn_input in self._host.take_queued():
            if turn_input.echo is not None:
                self._host.send(turn_input.echo)
            self._session.hear(turn_input.text)
            self._next.append(turn_input.text)
        self._call_model()

    def _reject(self, use: tools.Use) -> None:
        self._close_message("tool_use")
        self._show(tools.refused(use, permissions.REJECTED, "User rejected tool use"))
        if self._subagent is not None:
            self._subagent.stop()

    def _show(self, result: tools.Result) -> None:
        session_id = self._session.session_id
        self._host.send(lines.user(session_id, [result.block], tool_use_result=result.details))

    def _ask_host(self, act: script.Permit | script.Ask, use: tools.Use, suggestions: list[Line] | None) -> None:
        self._asked, self.due = act, None
        request: Line = {"subtype": "can_use_tool", "tool_name": use.name, "display_name": use.name, "input": use.input}
        if suggestions is not None:
            request["permission_suggestions"] = suggestions
        self.request_id = self._host.request({**request, "tool_use_id": use.tool_id})
        self._close_message("tool_use")
        if not self._host.listens:
            self._decided(permissions.failed(permissions.CLOSED))

    def _decided(self, verdict: Verdict) -> None:
        asked, use = self._asked, self._use
        if asked is None or use is None:
            return
        if self.request_id is not None:
            self._host.answered()
        self._asked, self.request_id, self._verdict, self.due = None, None, verdict, time.monotonic()
        if not verdict.allowed:
            self._denials.append(use.denied)
        for update in verdict.updates:
            mode = permissions.apply(update, self._host.choices.rules)
            if mode is not None:
                self._host.set_mode(mode)
        if verdict.interrupt:
            self.interrupt()
        elif isinstance(asked, script.Permit):
            self._reply = "allowed" if verdict.allowed else "denied"
        elif verdict.allowed:
            found = permissions.answers(verdict.input)
            self._finish_use(tools.answered(use, verdict.input, found))
            self._reply = f"answer: {', '.join(found.values())}" if found else "no answer: empty"
        else:
            self._finish_use(tools.refused(use, verdict.message))
            self._reply = "no answer: declined"

    # Ends -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._next:
            if self._said:
                self._say(script.Say("\n"))
            self._performance = self._host.perform(self._next.pop(0))
            return
        # A model always answers a tool result, even if the answer is empty.
        self._speaking()
        self._close_message("end_turn")
        self._end(Ending("success", False, self._calls, "completed", self._text, "end_turn"))

    def _abort(self, note: str, reason: str, stop_reason: str | None, num_turns: int) -> None:
        self._host.send(lines.user(self._session.session_id, [{"type": "text", "text": note}]))
        errors = (f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop_reason or 'null'}",)
        self._end(Ending("error_during_execution", True, num_turns, reason, None, stop_reason, errors=errors))

    def _fail(self, shown: list[Line], ending: Ending) -> None:
        self._performance.close()
        self._break_off()
        for line in shown:
            self._host.send(line)
        self._end(ending)

    def _end(self, ending: Ending) -> None:
        self.ended, self.due, self.is_error = True, None, ending.is_error
        self._performance.close()
        self._session.answered("".join(self._said), ending.terminal_reason or ending.subtype)
        used = self._reported or self._used
        model, session_id = self._host.choices.model, self._session.session_id
        self._host.send(self._host.ledger.result(session_id, ending, self._began, model, used, self._denials))


def _tool_id() -> str:
    return f"toolu_{os.urandom(10).hex()}"
