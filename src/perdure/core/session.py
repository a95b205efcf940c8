"""The session machine: which commands are allowed in which phase, and which events each leads to.

The table below is the rule; the diagram in docs/sessions.md is drawn from it. Pure: time, ids and what is known of
agents come in as values. `decide` answers commands (and may refuse), observe.py answers facts (and may not).

    idle      no turn runs; the next message starts one
    working   a turn runs
    aborting  a turn runs and has been asked to stop
    ended     nothing will ever run again
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.answers import config_values, read_answer, title_of
from perdure.core.clock import ms_between
from perdure.core.errors import Refused
from perdure.core.evolve import created, evolve
from perdure.core.permissions import Rule
from perdure.core.resume import AgentFacts, Plan, resolve_resume
from perdure.core.state import Queued, Session, Turn, fork
from perdure.core.view import public_session

ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    # command: {phase: where it may lead}; a phase that is not listed refuses.
    "SubmitMessage": {"idle": ("working",), "working": ("working", "aborting"), "aborting": ("aborting",)},
    "UnqueueMessage": {"working": ("working",), "aborting": ("aborting",)},
    "AbortTurn": {"working": ("aborting",), "aborting": ("aborting",)},
    "EndSession": {"idle": ("ended",), "working": ("ended",), "aborting": ("ended",)},
    "AnswerPrompt": {"working": ("working",)},
    "SetConfig": {"idle": ("idle",), "working": ("working",), "aborting": ("aborting",)},
    "UpdateSession": {"idle": ("idle",), "working": ("working",), "aborting": ("aborting",), "ended": ("ended",)},
    "DetachAgent": {"idle": ("idle",)},
    "ExpireTurnClock": {"working": ("working", "aborting")},
    "PrepareLaunch": {"working": ("working",), "aborting": ("aborting",)},
    "GiveUpTurn": {"working": ("idle", "working"), "aborting": ("idle", "working")},
}


class World(Struct, frozen=True):
    """What the machine can't know by itself, as values."""

    now: str
    facts_of: Callable[[str], AgentFacts]
    rules: tuple[Rule, ...] = ()


class Decision:
    """Events in the making: each is stamped and evolved at once, so that the next decision sees it."""

    def __init__(self, state: Session, world: World) -> None:
        self.state = fork(state)
        self.world = world
        self.events: list[ev.Event] = []
        self.turns: dict[int, Turn] = {}
        """Those whose public record these events change."""

    def emit(self, event: ev.Event) -> None:
        event.at = self.world.now
        event.session_id = self.state.id
        self.events.append(event)
        evolve(self.state, event)
        if isinstance(event, ev.TurnStart | ev.TurnEnd | ev.ContextFallback) and self.state.turn is not None:
            self.turns[self.state.turn.turn] = self.state.turn


def create(command: cmd.CreateSession, world: World) -> Decision:
    """The first event of a session, and the state it leads to."""
    given = {name: getattr(command, name) for name in command.__struct_fields__}
    event = ev.SessionCreated(at=world.now, session_id=command.session_id, session=given)
    event.session = public_session(created(event), 1)
    decision = Decision(created(event), world)
    decision.events.append(event)
    return decision


def decide(state: Session, command: cmd.Command, world: World) -> Decision:
    """The events that a command leads to, or Refused."""
    if state.phase not in ALLOWED[type(command).__name__]:
        raise _refusal(state, command)
    decision = Decision(state, world)
    _HANDLERS[type(command)](decision, command)
    return decision


def _refusal(state: Session, command: cmd.Command) -> Refused:
    if state.phase == "ended":
        return Refused("session_ended", f"The session has ended ({state.status}). Start a new one.", state="ended")
    if isinstance(command, cmd.AnswerPrompt):
        return _no_such_prompt(state, command.prompt_id)
    if isinstance(command, cmd.UnqueueMessage):
        return _no_such_message()
    if state.phase == "idle":
        return Refused("no_turn_active", "No turn is running, so there is nothing to stop.", state=state.state)
    return busy(state)


def busy(state: Session) -> Refused:
    return Refused(
        "turn_active",
        'A turn is running. Wait for it to end, abort it, or send with when_busy "queue" or "interrupt".',
        state="processing",
        turn=state.turn.turn if state.turn else None,
    )


# Messages ---------------------------------------------------------------------------------------------------------


def plan_turn(state: Session, agent: str, fresh: bool, world: World) -> Plan:
    return resolve_resume(
        agent=agent,
        facts=world.facts_of(agent),
        fresh=fresh,
        binding=state.bindings.get(agent),
        epoch=state.epochs.get(agent, 0),
        poisoned=state.poisoned,
        attached=state.attached,
        last_visible_turn=state.visible[-1][1] if state.visible else 0,
    )


def start_turn(decision: Decision, message: Queued) -> None:
    """One message becomes a turn: planned, with the process that can't serve it let go."""
    state = decision.state
    agent = message.agent or state.agent
    plan = plan_turn(state, agent, message.fresh, decision.world)
    attached = state.attached
    if attached is not None and plan.context != "live":
        # A process that has not been used yet can serve a fresh turn; one that holds another context can't.
        if attached.agent != agent or attached.used or plan.context == "resumed":
            detach(decision, "agent_switched" if attached.agent != agent else plan.reason)
    number = state.last_turn + 1
    first = not state.visible and not state.title
    decision.emit(
        ev.UserMessage(
            turn=number,
            message_id=message.message_id,
            text=message.text,
            agent=agent,
            attachments=list(message.attachments),
        )
    )
    decision.emit(
        ev.TurnStart(
            turn=number,
            run_id=f"{state.id}.{number}",
            message_id=message.message_id,
            agent=agent,
            context=plan.context,
            context_reason=plan.reason,
            native_session_id=plan.native_session_id,
        )
    )
    if first:
        decision.emit(ev.Title(title=title_of(message.text), by="message"))


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
    if state.abort_reason in ("turn_timeout", "silence"):
        stop_reason, error = "timed_out", _timed_out(state.abort_reason)
    elif state.phase == "aborting":
        stop_reason, error = "cancelled", None
    close_prompts(decision, prompts)
    for tool_id in list(turn.open_tools):
        decision.emit(
            ev.ToolResult(turn=turn.turn, tool_id=tool_id, status="failed", is_error=True, content="(did not finish)")
        )
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
            input_bytes=input_bytes,
            confirmed=confirmed,
            poisoned=poisoned,
        )
    )


def _timed_out(reason: str) -> ev.Error:
    what = "ran longer than its limit" if reason == "turn_timeout" else "was silent longer than its limit"
    return ev.Error(
        code=reason, message=f"The turn {what} and was stopped. What was said is kept; send a message to go on."
    )


def continue_queue(decision: Decision) -> None:
    """After a turn's end: the next waiting message, or an invitation."""
    state = decision.state
    if state.phase != "idle":
        return
    if state.queue:
        message = state.queue[0]
        decision.emit(ev.MessageUnqueued(message_id=message.message_id, text=message.text, reason="sent"))
        start_turn(decision, message)
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


def _submit(decision: Decision, command: cmd.SubmitMessage) -> None:
    state = decision.state
    message = Queued(
        message_id=command.message_id,
        text=command.text,
        agent=command.agent,
        fresh=command.fresh,
        attachments=list(command.attachments),
    )
    if state.phase == "idle":
        start_turn(decision, message)
        return
    if command.when_busy == "reject":
        raise busy(state)
    first = command.when_busy == "interrupt"
    decision.emit(
        ev.MessageQueued(
            message_id=message.message_id,
            text=message.text,
            agent=message.agent,
            fresh=message.fresh,
            first=first,
            attachments=message.attachments,
        )
    )
    if first:
        abort(decision, "interrupt")


def _unqueue(decision: Decision, command: cmd.UnqueueMessage) -> None:
    for queued in decision.state.queue:
        if queued.message_id == command.message_id:
            decision.emit(ev.MessageUnqueued(message_id=queued.message_id, text=queued.text))
            return
    raise _no_such_message()


def _no_such_message() -> Refused:
    return Refused("not_found", "No such message is waiting; it may have been sent already.")


# Ending things ------------------------------------------------------------------------------------------------------


def abort(decision: Decision, reason: Any) -> None:
    """Ask the running turn to stop. Open prompts are answered first: some agents wait for that."""
    state = decision.state
    if state.phase == "working":
        close_prompts(decision, "cancelled")
        decision.emit(ev.AbortRequested(turn=state.turn.turn if state.turn else None, reason=reason))


def _abort(decision: Decision, command: cmd.AbortTurn) -> None:
    abort(decision, command.reason)


def _end_session(decision: Decision, command: cmd.EndSession) -> None:
    state = decision.state
    for queued in list(state.queue):
        decision.emit(
            ev.MessageUnqueued(message_id=queued.message_id, text=queued.text, reason="session_ended"),
        )
    if state.working:
        finish_turn(decision, "cancelled", prompts="discarded")
    detach(decision, command.reason)
    decision.emit(ev.SessionEnd(status=command.status, reason=command.reason))


def _expire_turn_clock(decision: Decision, command: cmd.ExpireTurnClock) -> None:
    turn = decision.state.turn
    if turn is None or turn.turn != command.turn or decision.state.prompts:
        return
    if command.clock == "silence" and turn.open_tools:
        return
    limit = f"{command.limit_s:g} s" if command.limit_s < 120 else f"{command.limit_s / 60:g} min"
    if command.clock == "turn":
        decision.emit(
            ev.System(turn=turn.turn, code="turn_timeout", message=f"The turn ran for {limit} and is being stopped.")
        )
        abort(decision, "turn_timeout")
        return
    what = "It is being stopped." if command.abort else "It goes on; abort it if it is stuck."
    decision.emit(ev.System(turn=turn.turn, code="silence", message=f"The agent was silent for {limit}. {what}"))
    if command.abort:
        abort(decision, "silence")


def _detach_agent(decision: Decision, command: cmd.DetachAgent) -> None:
    detach(decision, command.reason)


def _prepare_launch(decision: Decision, command: cmd.PrepareLaunch) -> None:
    detach(decision, "launched_again")
    decision.emit(
        ev.AgentLaunched(
            launch_id=command.launch_id,
            agent=command.agent,
            driver=command.driver,
            native_session_id=command.native_session_id,
            workdir_id=command.workdir_id,
            fingerprint=command.fingerprint,
        )
    )


def _give_up_turn(decision: Decision, command: cmd.GiveUpTurn) -> None:
    detach(decision, command.code)
    finish_turn(decision, "failed", error=ev.Error(code=command.code, message=command.message))
    continue_queue(decision)


# Prompts, settings --------------------------------------------------------------------------------------------------


def _answer_prompt(decision: Decision, command: cmd.AnswerPrompt) -> None:
    state = decision.state
    prompt = state.prompts.get(command.prompt_id)
    if prompt is None:
        raise _no_such_prompt(state, command.prompt_id)
    outcome, answer = read_answer(prompt, command)
    decision.emit(
        ev.PromptResolved(
            turn=prompt.turn,
            prompt_id=prompt.prompt_id,
            by="person",
            outcome=outcome,
            delivered=state.attached is not None,
            answer=answer,
        )
    )


def _no_such_prompt(state: Session, prompt_id: str) -> Refused:
    if prompt_id in state.resolved_prompts:
        return Refused("prompt_resolved", "This prompt has been answered already, or its turn has ended.")
    return Refused("not_found", "No such prompt. See the session's prompts for those that wait.")


def _set_config(decision: Decision, command: cmd.SetConfig) -> None:
    options = decision.state.config_options
    if options:
        known = {str(option.get("id")): option for option in options}
        if command.config_id not in known:
            raise Refused("invalid", f"config_id must be one of: {', '.join(known)}.")
        values = config_values(known[command.config_id])
        if values and command.value not in values:
            raise Refused("invalid", f"value must be one of: {', '.join(map(str, values))}.")
    decision.emit(ev.Config(config_id=command.config_id, value=command.value, requested=True))


def _update_session(decision: Decision, command: cmd.UpdateSession) -> None:
    if command.title is not None:
        decision.emit(ev.Title(title=command.title, by="person"))
    if command.summary is not None or command.labels is not None or command.archived is not None:
        decision.emit(
            ev.SessionUpdated(
                summary=command.summary,
                labels=list(command.labels) if command.labels is not None else None,
                archived=command.archived,
            )
        )


_HANDLERS: dict[type[Any], Callable[[Decision, Any], None]] = {
    cmd.SubmitMessage: _submit,
    cmd.UnqueueMessage: _unqueue,
    cmd.AbortTurn: _abort,
    cmd.EndSession: _end_session,
    cmd.AnswerPrompt: _answer_prompt,
    cmd.SetConfig: _set_config,
    cmd.UpdateSession: _update_session,
    cmd.DetachAgent: _detach_agent,
    cmd.ExpireTurnClock: _expire_turn_clock,
    cmd.PrepareLaunch: _prepare_launch,
    cmd.GiveUpTurn: _give_up_turn,
}
