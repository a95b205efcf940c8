"""The life of a turn: accepted, planned, begun, asked to stop, and finished by one function.

Above: session.py (commands), observe.py (facts) and history.py. Below: decision.py, and resume.py for the plan.
"""

from typing import Any, NamedTuple

import msgspec

from perdure.core import events as ev
from perdure.core import slash_commands
from perdure.core.answers import title_of
from perdure.core.clock import ms_between
from perdure.core.decision import Decision, World
from perdure.core.digest import shortened_words
from perdure.core.errors import Refused
from perdure.core.observations import TranscriptShortened
from perdure.core.resume import ContextPlan, resolve_resume
from perdure.core.scope import cut, missing, view
from perdure.core.state import Queued, Session, Span, WaitsFor

UNANSWERED = ("cancelled", "withdrawn", "discarded", "agent_lost")
"""How a prompt can be closed without an answer."""

TIMED_OUT = {
    "turn_timeout": ("turn_timeout", "was inactive longer than its limit"),
    "turn_limit": ("turn_timeout", "ran longer than its limit"),
    "silence": ("silence", "was silent longer than its limit"),
}
"""The timers that stop a turn: the error code, and what happened. Both limits of a turn have the same code."""


NO_FACTS = WaitsFor("agent", "Waiting for a node that can run the agent.")
FILES = WaitsFor("files", "Waiting until the session's files have been changed.")


def plan_turn(state: Session, agent: str, fresh: bool, world: World) -> ContextPlan:
    """How the next turn of this agent would get its context. Raises Refused if the agent is unknown on this machine."""
    facts = world.facts.get(agent)
    if facts is None:
        raise Refused("agent_unavailable", f"There is no agent {agent!r} here. Choose another agent, or configure it.")
    binding = state.bindings.get(agent)
    earlier = _earlier(state)
    return resolve_resume(
        agent=agent,
        facts=facts,
        fresh=fresh,
        binding=binding,
        context_version=state.context_versions.get(agent, 0),
        poisoned=state.poisoned,
        unpinned=agent in state.unpinned,
        attached=state.attached,
        last_visible_turn=earlier[-1].last if earlier else 0,
        scope=world.scope,
        sole_holder=binding is None or (binding.fingerprint, binding.native_session_id) not in world.issued_twice,
    )


def _earlier(state: Session) -> list[Span]:
    """The visible history without the accepted turn."""
    return cut(state.visible, state.last_turn) if state.phase == "accepted" else state.visible


class _Beginning(NamedTuple):
    """How a turn begins."""

    message: Queued
    agent: str
    plan: ContextPlan
    told: int
    """How many earlier turns the agent receives with the message."""
    slash_command: str


def _beginning(decision: Decision, message: Queued, *, is_retry: bool = False) -> _Beginning:
    """Raises Refused if the message is a slash command that would have to follow a replay."""
    state, world = decision.state, decision.world
    agent = message.agent or state.agent
    plan = plan_turn(state, agent, message.fresh, world)
    told = len(missing(_earlier(state), agent, world.scope, plan.seen))
    command, is_known = _command_in(decision, message)
    if command and told:
        raise _no_command(command, agent, plan.reason, is_known=is_known, is_retry=is_retry)
    return _Beginning(message, agent, plan, told, command if is_known else "")


def start_turn(decision: Decision, message: Queued, *, is_retry: bool = False) -> None:
    """Accept a message and, unless it has to wait, begin its turn in the same step. Raises Refused."""
    state = decision.state
    known = (message.agent or state.agent) in decision.world.facts
    beginning = _beginning(decision, message, is_retry=is_retry) if known else None
    waits_for = _files(state) or decision.world.waits_for or (None if known else NO_FACTS)
    if beginning is not None and waits_for is None:
        _make_way(decision, beginning)
    has_title = bool(state.visible) or (bool(state.title) and state.title_by != "message")
    _accept(decision, message)
    if beginning is not None and waits_for is None:
        _begin(decision, beginning)
    if not has_title:
        decision.emit(ev.Title(title=title_of(message.text), by="message"))
    if waits_for is not None and waits_for.message:
        decision.emit(ev.WaitingToBegin(turn=state.last_turn, code=waits_for.code, message=waits_for.message))


def _files(state: Session) -> WaitsFor | None:
    """What a turn must wait for if the session's files are being changed."""
    return FILES if state.file_operation is not None else None


def _accept(decision: Decision, message: Queued) -> None:
    state = decision.state
    if state.waiting_until is not None:
        decision.emit(ev.WaitingUntil(until=None, reason="message"))
    decision.emit(
        ev.UserMessage(
            turn=state.last_turn + 1,
            message_id=message.message_id,
            text=message.text,
            agent=message.agent or state.agent,
            attachments=list(message.attachments),
            fresh=message.fresh,
        )
    )


def _make_way(decision: Decision, beginning: _Beginning) -> None:
    """Detach a process that can't serve the turn."""
    attached, plan = decision.state.attached, beginning.plan
    if attached is not None and plan.context != "live":
        # An unused process can serve a fresh turn; one that already holds a context can't.
        switched = attached.agent != beginning.agent
        if switched or attached.used or attached.resuming or plan.context == "resumed":
            detach(decision, "agent_switched" if switched else plan.reason)


def _begin(decision: Decision, beginning: _Beginning) -> None:
    state, plan = decision.state, beginning.plan
    held = plan.context != "fresh"
    decision.emit(
        ev.TurnStart(
            turn=state.last_turn,
            run_id=f"{state.id}.{state.last_turn}",
            message_id=beginning.message.message_id,
            agent=beginning.agent,
            context=plan.context,
            context_reason=plan.reason,
            native_session_id=plan.native_session_id,
            scope=decision.world.scope,
            seen=plan.seen,
            catch_up=beginning.told if held else 0,
            replayed=0 if held else beginning.told,
            slash_command=beginning.slash_command,
        )
    )


def begin_turn(decision: Decision) -> None:
    """Begin the accepted turn, or record what it waits for. If the message can't be sent, the turn fails with the
    reason, because its sender already has a response. The turn's agent keeps its process and native session then."""
    state = decision.state
    waits_for = _files(state) or decision.world.waits_for
    message = state.accepted
    assert message is not None
    if waits_for is not None:
        if waits_for.message and waits_for != state.waits_for:
            decision.emit(ev.WaitingToBegin(turn=state.last_turn, code=waits_for.code, message=waits_for.message))
        return
    try:
        beginning = _beginning(decision, message)
    except Refused as refusal:
        _fail_accepted(decision, refusal)
        continue_queue(decision)
    else:
        _make_way(decision, beginning)
        _begin(decision, beginning)


def begin_live(decision: Decision) -> None:
    """The agent started working on its own before the accepted turn began. The turn joins that work, even without a
    free slot."""
    message = decision.state.accepted
    if message is None or (message.agent or decision.state.agent) not in decision.world.facts:
        return
    try:
        beginning = _beginning(decision, message)
    except Refused:
        return  # begin_turn reports the refusal later
    if beginning.plan.context == "live":
        _begin(decision, beginning)


def _fail_accepted(decision: Decision, refusal: Refused) -> None:
    state = decision.state
    agent = state.turn.agent if state.turn is not None else state.agent
    if state.attached is not None and state.attached.agent != agent:
        detach(decision, "agent_switched")
    code = refusal.code
    if "slash_command" in refusal.facts and state.accepted is not None:
        code = slash_commands.REFUSED
        decision.emit(
            ev.TurnStart(
                turn=state.last_turn,
                run_id=f"{state.id}.{state.last_turn}",
                message_id=state.accepted.message_id,
                agent=agent,
                context="fresh",
                context_reason=refusal.facts["context_reason"],
                slash_command=refusal.facts["slash_command"],
            )
        )
    finish_turn(decision, "failed", error=ev.Error(code=code, message=refusal.detail))


def check_queued(decision: Decision, message: Queued) -> None:
    """Refuse a slash command with a restarted context: it can't be sent, however the running turn ends."""
    command, is_known = _command_in(decision, message)
    if command and message.fresh:
        raise _no_command(command, message.agent or decision.state.agent, "fresh_requested", is_known=is_known)


def _no_command(command: str, agent: str, reason: str, *, is_known: bool, is_retry: bool = False) -> Refused:
    sentence = slash_commands.sentence(command, agent, is_known=is_known, is_retry=is_retry)
    return Refused("conflict", sentence, slash_command=command, context_reason=reason)


def _command_in(decision: Decision, message: Queued) -> tuple[str, bool]:
    """The slash command that a message calls, and whether the agent's commands are known."""
    agent = message.agent or decision.state.agent
    commands = slash_commands.known(decision.state, agent, decision.world.facts.get(agent))
    return slash_commands.called(message.text, commands), commands is not None


def start_over(decision: Decision, fallback: ev.ContextFallback) -> None:
    """Send the running turn's message again, after a replay of the conversation. A slash command can't follow a replay,
    so its turn fails instead."""
    state, turn = decision.state, decision.state.turn
    assert turn is not None
    if (
        state.phase == "working"
        and turn.slash_command
        and view(state.visible, turn.agent, turn.scope, before=turn.turn)
    ):
        message = slash_commands.sentence(turn.slash_command, turn.agent)
        # Otherwise an attached process would wait for the replay, which is never sent.
        detach(decision, slash_commands.REFUSED)
        error = ev.Error(code=slash_commands.REFUSED, message=message, detail=fallback.reason)
        finish_turn(decision, "failed", error=error, poisoned=fallback.poisoned)
        continue_queue(decision)
    else:
        decision.emit(fallback)


def detach(decision: Decision, reason: str) -> None:
    """Detach the process. Its open prompts can no longer be answered."""
    attached = decision.state.attached
    if attached is not None:
        close_prompts(decision, "agent_lost")
        decision.emit(
            ev.AgentDetached(
                agent=attached.agent,
                pid=attached.pid,
                native_session_id=attached.native_session_id,
                reason=reason,
                launch_id=attached.launch_id,
            )
        )


def finish_turn(
    decision: Decision,
    stop_reason: ev.StopReason,
    *,
    exit_code: int | None = None,
    error: ev.Error | None = None,
    confirmed: bool = False,
    poisoned: bool = False,
    cost_usd: float | None = None,
    input_bytes: int | None = None,
    prompts: str = "withdrawn",
) -> None:
    """End the turn, and close its prompts and tools. Every turn ends here. If the turn was asked to stop, the reason
    for that determines its stop reason, whatever the agent reports."""
    state, turn = decision.state, decision.state.turn
    assert turn is not None and state.busy
    began = turn.context is not None
    if state.abort_reason in TIMED_OUT:
        stop_reason, error = "timed_out", _timed_out(state.abort_reason)
    elif state.phase == "aborting":
        stop_reason, error = "cancelled", None
    close_prompts(decision, prompts)
    for tool_id in list(turn.open_tools):
        # Without content, the tool's output so far is preserved.
        over = ev.ToolResult(turn=turn.turn, tool_id=tool_id, status="failed", is_error=True, outcome="interrupted")
        decision.emit(tool_over(state, over))
    if error is not None:
        error.turn = turn.turn
        decision.emit(error)
    decision.emit(
        ev.TurnEnd(
            turn=turn.turn,
            stop_reason=stop_reason,
            exit_code=exit_code,
            duration_ms=ms_between(turn.started_at, decision.world.now) if began else 0,
            usage=turn.usage,
            cost_usd=cost_usd if cost_usd is not None else turn.cost_usd,
            model=state.model or (state.models or {}).get("currentModelId"),
            input_bytes=input_bytes,
            confirmed=confirmed,
            poisoned=poisoned,
        )
    )


def tool_over(state: Session, event: ev.ToolResult) -> ev.ToolResult:
    """A tool's result, with what only the machine knows: whether the tool was denied or interrupted (agents report both
    as a failure), and how long it waited for a person."""
    verdict = state.turn.verdicts.get(event.tool_id) if state.turn else None
    outcome = event.outcome
    if verdict is not None and verdict.outcome == "denied":
        outcome = "denied"
    elif event.status == "failed" and (state.phase == "aborting" or (verdict and verdict.outcome in UNANSWERED)):
        outcome = "interrupted"
    return msgspec.structs.replace(event, outcome=outcome, waited_ms=verdict.waited_ms if verdict else 0)


def _timed_out(reason: str) -> ev.Error:
    code, what = TIMED_OUT[reason]
    return ev.Error(
        code=code, message=f"The turn {what} and was stopped. The output so far is saved; send a message to continue."
    )


def shortened(decision: Decision, fact: TranscriptShortened) -> None:
    """Record which turns of a long conversation the running turn's agent receives shortened, or not at all."""
    state = decision.state
    if not state.working or state.turn is None or state.turn.turn != fact.turn:
        return
    message = f"The conversation is too long for {state.agent}: "
    message += f"{shortened_words(fact.digested, fact.left_out)}."
    decision.emit(
        ev.HistoryShortened(
            turn=fact.turn,
            digested=list(fact.digested),
            left_out=list(fact.left_out),
            tokens=fact.tokens,
            message=message,
        )
    )


def continue_queue(decision: Decision) -> None:
    """After a turn: accept the next queued message, or wait for one. A single-shot session ends with its turn."""
    state = decision.state
    if state.phase != "idle":
        return
    if state.queue:
        message = state.queue[0]
        decision.emit(ev.MessageUnqueued(message_id=message.message_id, text=message.text, reason="sent"))
        try:
            start_turn(decision, message)
        except Refused as refusal:
            _accept(decision, message)
            _fail_accepted(decision, refusal)
            continue_queue(decision)
    elif state.single_shot:
        detach(decision, "run_over")
        decision.emit(ev.SessionEnd(status="completed", reason="run_over"))
    else:
        decision.emit(ev.WaitingForInput(turn=state.turn.turn if state.turn else None))


def close_prompts(decision: Decision, outcome: str) -> None:
    """Close all open prompts. Only the outcome `cancelled` is delivered to the agent, which waits for it."""
    by: Any = "agent" if outcome == "withdrawn" else "server"
    for prompt in list(decision.state.prompts.values()):
        decision.emit(
            ev.PromptResolved(
                turn=prompt.turn,
                prompt_id=prompt.prompt_id,
                by=by,
                outcome=outcome,  # type: ignore[arg-type]
                delivered=outcome == "cancelled",
                answer={"cancel": True} if outcome == "cancelled" else None,
            )
        )


def abort(decision: Decision, reason: Any) -> None:
    """Ask the running turn to stop. Open prompts are cancelled first, because some agents wait for their answers. An
    accepted turn has not begun, so it ends immediately."""
    state = decision.state
    if state.phase == "accepted":
        finish_turn(decision, "cancelled")
        continue_queue(decision)
    elif state.phase == "working":
        close_prompts(decision, "cancelled")
        decision.emit(ev.AbortRequested(turn=state.turn.turn if state.turn else None, reason=reason))


def clean_up(decision: Decision) -> None:
    """Have the worktree of an archived session removed, as soon as nothing works in it, and if nothing would be lost.
    Called after every step."""
    state = decision.state
    if state.wants_clean_up and state.file_operation is None and state.phase in ("idle", "ended"):
        operation_id = f"clean_up.{state.id}.{decision.world.now}"
        decision.emit(ev.FilesRequested(operation_id=operation_id, action="clean_up"))
