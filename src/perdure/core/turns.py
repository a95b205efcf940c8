"""The life of a turn: planned, started, asked to stop, ended in one way only. Both halves of the machine use it.

Above: session.py (commands) and observe.py (facts). Below: decision.py.
"""

from typing import Any

import msgspec

from perdure.core import events as ev
from perdure.core import slash_commands
from perdure.core.answers import title_of
from perdure.core.clock import ms_between
from perdure.core.decision import Decision, World
from perdure.core.digest import shortened_words
from perdure.core.errors import Refused
from perdure.core.observations import Told
from perdure.core.resume import Plan, resolve_resume
from perdure.core.scope import missing, view
from perdure.core.slots import SLOTS_FULL
from perdure.core.state import Queued, Session

UNANSWERED = ("cancelled", "withdrawn", "discarded", "agent_lost")
"""Ways in which a prompt is closed without a person's word."""

TIMED_OUT = {
    "turn_timeout": ("turn_timeout", "showed no sign of life for longer than its limit"),
    "turn_limit": ("turn_timeout", "ran longer than its limit"),
    "silence": ("silence", "was silent longer than its limit"),
}
"""The clocks that stop a turn: the code of its error, and what happened. Both limits of a turn have the same code."""


def plan_turn(state: Session, agent: str, fresh: bool, world: World) -> Plan:
    binding = state.bindings.get(agent)
    return resolve_resume(
        agent=agent,
        facts=world.facts_of(agent),
        fresh=fresh,
        binding=binding,
        epoch=state.epochs.get(agent, 0),
        poisoned=state.poisoned,
        unpinned=agent in state.unpinned,
        attached=state.attached,
        last_visible_turn=state.visible[-1].last if state.visible else 0,
        scope=world.scope,
        sole_holder=binding is None or (binding.fingerprint, binding.native_session_id) not in world.given_twice,
    )


def start_turn(decision: Decision, message: Queued, *, is_retry: bool = False) -> None:
    """One message becomes a turn: planned, and a process that can't serve it is detached. Refused, if it is a slash
    command and the agent would get it behind a replay."""
    state = decision.state
    agent = message.agent or state.agent
    plan = plan_turn(state, agent, message.fresh, decision.world)
    told = len(missing(state.visible, agent, decision.world.scope, plan.seen))
    command, is_known = _command_in(decision, message)
    if command and told:
        raise _no_command(command, agent, plan.reason, is_known=is_known, is_retry=is_retry)
    attached = state.attached
    if attached is not None and plan.context != "live":
        # A process that has not been used yet can serve a fresh turn; one that holds another context can't.
        if attached.agent != agent or attached.used or attached.resuming or plan.context == "resumed":
            detach(decision, "agent_switched" if attached.agent != agent else plan.reason)
    if state.waiting_until is not None:
        decision.emit(ev.WaitingUntil(until=None, reason="message"))
    number = state.last_turn + 1
    held = plan.context != "fresh"
    first = not state.visible and (not state.title or state.title_by == "message")
    decision.emit(_said(message, number, agent))
    decision.emit(
        ev.TurnStart(
            turn=number,
            run_id=f"{state.id}.{number}",
            message_id=message.message_id,
            agent=agent,
            context=plan.context,
            context_reason=plan.reason,
            native_session_id=plan.native_session_id,
            scope=decision.world.scope,
            seen=plan.seen,
            catch_up=told if held else 0,
            replayed=0 if held else told,
            slash_command=command if is_known else "",
        )
    )
    if first:
        decision.emit(ev.Title(title=title_of(message.text), by="message"))


def _said(message: Queued, turn: int, agent: str) -> ev.UserMessage:
    return ev.UserMessage(
        turn=turn,
        message_id=message.message_id,
        text=message.text,
        agent=agent,
        attachments=list(message.attachments),
    )


def start_waiting(decision: Decision, message: Queued) -> bool:
    """The same for a message whose sender is no longer there to be refused: its turn fails with the reason, and False
    is returned. Neither the agent's process nor its own session is touched."""
    state = decision.state
    try:
        start_turn(decision, message)
        return True
    except Refused as refusal:
        agent, number = message.agent or state.agent, state.last_turn + 1
        if state.attached is not None and state.attached.agent != agent:
            detach(decision, "agent_switched")
        if state.waiting_until is not None:
            decision.emit(ev.WaitingUntil(until=None, reason="message"))
        said = _said(message, number, agent)
        decision.emit(said)
        decision.emit(
            ev.TurnStart(
                turn=number,
                run_id=f"{state.id}.{number}",
                message_id=said.message_id,
                agent=agent,
                context="fresh",
                context_reason=refusal.facts["context_reason"],
                slash_command=refusal.facts["slash_command"],
            )
        )
        finish_turn(decision, "failed", error=ev.Error(code=slash_commands.REFUSED, message=refusal.detail))
        return False


def check_queued(decision: Decision, message: Queued) -> None:
    """Refuse what can't be sent however the running turn ends: a slash command with a restarted context."""
    command, is_known = _command_in(decision, message)
    if command and message.fresh:
        raise _no_command(command, message.agent or decision.state.agent, "fresh_requested", is_known=is_known)


def _no_command(command: str, agent: str, reason: str, *, is_known: bool, is_retry: bool = False) -> Refused:
    sentence = slash_commands.sentence(command, agent, is_known=is_known, is_retry=is_retry)
    return Refused("conflict", sentence, slash_command=command, context_reason=reason)


def _command_in(decision: Decision, message: Queued) -> tuple[str, bool]:
    """The agent's slash command that a message calls, and whether it is known to be one."""
    agent = message.agent or decision.state.agent
    commands = slash_commands.known(decision.state, agent, decision.world.facts_of(agent))
    return slash_commands.called(message.text, commands), commands is not None


def start_over(decision: Decision, fallback: ev.ContextFallback) -> None:
    """Send the running turn's message once more, behind a replay of the conversation. A slash command can't be: its
    turn fails instead, and says so."""
    state, turn = decision.state, decision.state.turn
    assert turn is not None
    if (
        state.phase == "working"
        and turn.slash_command
        and view(state.visible, turn.agent, turn.scope, before=turn.turn)
    ):
        message = slash_commands.sentence(turn.slash_command, turn.agent)
        # What is left of its process waits for another order.
        detach(decision, slash_commands.REFUSED)
        error = ev.Error(code=slash_commands.REFUSED, message=message, detail=fallback.reason)
        finish_turn(decision, "failed", error=error, poisoned=fallback.poisoned)
        continue_queue(decision)
    else:
        decision.emit(fallback)


def detach(decision: Decision, reason: str) -> None:
    """Let the process go. What it asked can't be answered any more."""
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
    """The one way a turn ends: nothing of it stays open. If it was asked to stop, it ends as what asked says, whatever
    the agent made of it."""
    state, turn = decision.state, decision.state.turn
    assert turn is not None and state.working
    if state.abort_reason in TIMED_OUT:
        stop_reason, error = "timed_out", _timed_out(state.abort_reason)
    elif state.phase == "aborting":
        stop_reason, error = "cancelled", None
    close_prompts(decision, prompts)
    for tool_id in list(turn.open_tools):
        # No content: what the tool has said so far stays.
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
            duration_ms=ms_between(turn.started_at, decision.world.now),
            usage=turn.usage,
            cost_usd=cost_usd if cost_usd is not None else turn.cost_usd,
            model=state.model or (state.models or {}).get("currentModelId"),
            input_bytes=input_bytes,
            confirmed=confirmed,
            poisoned=poisoned,
        )
    )


def tool_over(state: Session, event: ev.ToolResult) -> ev.ToolResult:
    """The end of a tool, with what the machine knows of it: whether it was denied or interrupted (agents report both as
    a failure), and how long it waited for a person."""
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
        code=code, message=f"The turn {what} and was stopped. What was said is kept; send a message to go on."
    )


def shortened(decision: Decision, told: Told) -> None:
    """Say which part of a long conversation the agent of the running turn is not told as it was."""
    state = decision.state
    if not state.working or state.turn is None or state.turn.turn != told.turn:
        return
    message = f"The conversation is too long for {state.agent} to be told as it is: "
    message += f"{shortened_words(told.digested, told.left_out)}."
    decision.emit(
        ev.HistoryShortened(
            turn=told.turn,
            digested=list(told.digested),
            left_out=list(told.left_out),
            tokens=told.tokens,
            message=message,
        )
    )


def continue_queue(decision: Decision) -> None:
    """After a turn's end: the next waiting message, or an invitation; with neither, a single run is over. A message
    waits on while more turns run than there are slots: a turn whose prompt was answered does not wait for one."""
    state = decision.state
    if state.phase != "idle":
        return
    if state.queue and not decision.world.keeps_slot:
        decision.emit(ev.WaitingUntil(until=decision.world.now, reason=SLOTS_FULL))
        decision.emit(ev.WaitingForInput(turn=state.turn.turn if state.turn else None))
    elif state.queue:
        message = state.queue[0]
        decision.emit(ev.MessageUnqueued(message_id=message.message_id, text=message.text, reason="sent"))
        if not start_waiting(decision, message):
            continue_queue(decision)
    elif state.single_shot:
        detach(decision, "run_over")
        decision.emit(ev.SessionEnd(status="completed", reason="run_over"))
    else:
        decision.emit(ev.WaitingForInput(turn=state.turn.turn if state.turn else None))


def close_prompts(decision: Decision, outcome: str) -> None:
    """Nobody can answer these any more. `cancelled` is still told to the agent, which waits for it."""
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
    """Ask the running turn to stop. Open prompts are answered first: some agents wait for that."""
    state = decision.state
    if state.phase == "working":
        close_prompts(decision, "cancelled")
        decision.emit(ev.AbortRequested(turn=state.turn.turn if state.turn else None, reason=reason))
