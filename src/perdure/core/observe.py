"""The half of the session state machine that handles facts: an agent's content, the end of its turns, its exit.

session.py explains the machine. Facts are never refused. A fact of an earlier launch, or of a turn that is not
running, is ignored, so an old turn can't affect a newer one.

Above: the runner, which reads facts from drivers; recovery. Below: turns.py, permissions.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.clock import seconds, stamp
from perdure.core.decision import Decision, World, check_target
from perdure.core.permissions import DENY_ALL, answer_again, answer_by_rule
from perdure.core.scope import view
from perdure.core.state import Attached, Session, Turn
from perdure.core.transcript_text import is_framing
from perdure.core.turns import (
    begin_live,
    clean_up,
    close_prompts,
    continue_queue,
    detach,
    finish_turn,
    shortened,
    start_over,
    tool_over,
)

CONTENT = (
    ev.AssistantText,
    ev.AssistantThinking,
    ev.ToolUse,
    ev.ToolUpdate,
    ev.ToolResult,
    ev.Image,
    ev.Plan,
    ev.PendingPrompt,
)
ANY_TIME = (ev.Usage, ev.Config, ev.Title, ev.System)
UNKNOWN_RESET_S = 3600
"""How long a session waits after a usage limit without a known reset time."""
LATEST_RESET_S = 31 * 24 * 3600
"""A reset time further ahead than this is taken for a parsing error."""
SHORTER_TRIES = 3
AGENTS_OWN = 0
"""The turn number that drivers use for work that an agent starts on its own."""

AFTER_A_TURN = ("idle", "accepted", "working", "ended")
"""The phases after a turn: `accepted` or `working` with the next queued message, `ended` in a single-shot session."""

OBSERVED: dict[str, dict[str, tuple[str, ...]]] = {
    # fact: {phase: phases it can lead to}. Other facts, and these facts in other phases, don't change the phase.
    "TurnFinished": {"working": AFTER_A_TURN, "aborting": AFTER_A_TURN},
    "StartFailed": {"working": AFTER_A_TURN, "aborting": AFTER_A_TURN},
    "ResumeRefused": {"working": AFTER_A_TURN, "aborting": AFTER_A_TURN},
    "AgentExited": {"working": AFTER_A_TURN, "aborting": AFTER_A_TURN},
    "TurnBegun": {"idle": ("working",), "accepted": ("working",)},
}


def deltas_only(state: Session, launch_id: str, observations: Sequence[Any]) -> bool:
    """Whether these facts can be stored without a decision: the fast path for streamed text."""
    attached, turn = state.attached, state.turn
    if attached is None or attached.launch_id != launch_id or turn is None or not state.working:
        return False
    number = turn.turn
    for fact in observations:
        if type(fact) not in (ev.AssistantText, ev.AssistantThinking, ev.ToolUpdate) or fact.turn != number:
            return False
    return True


def observe(
    state: Session, launch_id: str, observations: Sequence[Any], world: World, *, pid: int | None = None
) -> Decision:
    """The events that an agent's facts produce; none if another launch has replaced this one."""
    decision = Decision(state, world)
    add_facts(decision, launch_id, observations, pid=pid)
    clean_up(decision)
    return decision


def add_facts(decision: Decision, launch_id: str, observations: Sequence[Any], *, pid: int | None = None) -> None:
    """Like `observe`, but adds to an existing decision."""
    for fact in observations:
        attached = decision.state.attached
        if attached is None or attached.launch_id != launch_id:
            break
        if isinstance(fact, CONTENT):
            _content(decision, fact)
        elif isinstance(fact, ANY_TIME):
            _any_time(decision, fact)
        elif isinstance(fact, ob.SessionOpened):
            _opened(decision, fact, pid)
        else:
            name, before = type(fact).__name__, decision.state.phase
            _HANDLERS[type(fact)](decision, fact)
            targets = (before, *OBSERVED.get(name, {}).get(before, ()))
            check_target(name, before, decision.state.phase, targets)


def _expected(turn: Turn) -> int:
    """The number that drivers use for the running turn."""
    return turn.turn if turn.origin == "person" else AGENTS_OWN


def _belongs(turn: Turn, number: int | None) -> bool:
    """Whether content that a driver reports under this number belongs to the running turn. If a message arrives at the
    moment when the agent starts working on its own, that work becomes part of the message's turn."""
    return number in (turn.turn, AGENTS_OWN) if turn.origin == "person" else number == AGENTS_OWN


def _content(decision: Decision, event: Any) -> None:
    state = decision.state
    if not state.working or state.turn is None or not _belongs(state.turn, event.turn):
        return
    # A copy, because the same facts are decided again if the append fails.
    event = msgspec.structs.replace(event, turn=state.turn.turn)
    if not isinstance(event, ev.PendingPrompt):
        decision.emit(tool_over(state, event) if isinstance(event, ev.ToolResult) else event)
        return
    event.asked_at = decision.world.now
    decision.emit(event)
    if state.phase == "aborting":
        _resolve(decision, event, "server", "cancelled", {"cancel": True})
        return
    by, option = "rule", _ruled(decision, event)
    if option is None and state.single_shot:
        by, option = "server", answer_by_rule([DENY_ALL], event)
    if option is not None:
        outcome = "allowed" if option.kind.startswith("allow") else "denied"
        _resolve(decision, event, by, outcome, {"option_id": option.option_id, "kind": option.kind})
    elif state.single_shot:
        _resolve(decision, event, "server", "cancelled", {"cancel": True})


def _ruled(decision: Decision, prompt: ev.PendingPrompt) -> ev.PromptOption | None:
    state = decision.state
    by_rule = answer_by_rule([*state.permissions, *decision.world.rules], prompt)
    return by_rule or answer_again(state.remembered, prompt)


def _resolve(decision: Decision, prompt: ev.PendingPrompt, by: Any, outcome: Any, answer: dict[str, Any]) -> None:
    decision.emit(
        ev.PromptResolved(
            turn=prompt.turn, prompt_id=prompt.prompt_id, by=by, outcome=outcome, delivered=True, answer=answer
        )
    )


def _any_time(decision: Decision, event: Any) -> None:
    state = decision.state
    running = state.turn if state.working else None
    if event.turn is not None:
        if running is None or not _belongs(running, event.turn):
            return
        event = msgspec.structs.replace(event, turn=running.turn)
    if isinstance(event, ev.Title) and (state.title_by == "person" or _is_ours(state, event.title)):
        return
    decision.emit(event)


def _is_ours(state: Session, title: str) -> bool:
    """Whether an agent's title quotes our framing and not the person's words. Some agents use the start of their first
    input as title, and a replay starts with our own text."""
    turn = state.turn
    replayed = turn is not None and turn.context == "fresh" and bool(_history_of(state, turn))
    return replayed or is_framing(title)


def _opened(decision: Decision, fact: ob.SessionOpened, pid: int | None) -> None:
    attached = decision.state.attached
    assert attached is not None
    told = (fact.models, fact.modes, fact.config_options) != (None, None, None)
    if attached.opened and attached.native_session_id == fact.native_session_id and not told:
        return  # The agent only reported more capabilities; the runner records those.
    decision.emit(
        ev.AgentAttached(
            agent=attached.agent,
            pid=pid,
            native_session_id=fact.native_session_id,
            reason="resumed" if fact.resumed else "started",
            launch_id=attached.launch_id,
            models=fact.models,
            modes=fact.modes,
            config_options=fact.config_options,
        )
    )


def _resume_refused(decision: Decision, fact: ob.ResumeRefused) -> None:
    """Retry the turn once with the full transcript. The refused id is never used again."""
    state = decision.state
    if state.turn is not None and _may_start_over(state):
        if fact.reopens:
            close_prompts(decision, "withdrawn")
        else:
            detach(decision, "resume_refused")
        start_over(decision, ev.ContextFallback(turn=state.turn.turn, reason=fact.reason, poisoned=True))
    else:
        _start_failed(decision, ob.StartFailed("resume_refused", fact.reason))


def _may_start_over(state: Session) -> bool:
    """Whether the running turn may be sent again: only once, and only if no tool has run."""
    turn = state.turn
    sent_once = turn is not None and turn.attempt == 1 and turn.origin == "person"
    return state.phase == "working" and turn is not None and sent_once and not turn.tool_ran


def _history_of(state: Session, turn: Turn) -> list[int]:
    """The earlier turns that this turn's agent receives."""
    return view(state.visible, turn.agent, turn.scope, before=turn.turn)


def _may_be_told_less(state: Session) -> bool:
    """Whether to retry a turn that was too long for its agent with a shorter history: only if the agent was sent a
    history, and no tool has run."""
    turn = state.turn
    if turn is None or state.phase != "working" or turn.origin != "person" or turn.tool_ran:
        return False
    told_all = turn.context == "fresh" and bool(_history_of(state, turn))
    return told_all and turn.attempt <= SHORTER_TRIES


def _start_failed(decision: Decision, fact: ob.StartFailed) -> None:
    state = decision.state
    error = ev.Error(code=fact.code, message=fact.message, detail=fact.detail)
    detach(decision, fact.code)
    if fact.passing and state.turn is not None and _may_start_over(state):
        start_over(decision, ev.ContextFallback(turn=state.turn.turn, reason=f"{fact.code}: {fact.message}"))
    elif state.working:
        finish_turn(decision, "failed", error=error)
        continue_queue(decision)
    else:
        decision.emit(error)


def _withdrawn(decision: Decision, fact: ob.PromptWithdrawn) -> None:
    prompt = decision.state.prompts.get(fact.prompt_id)
    if prompt is not None:
        decision.emit(
            ev.PromptResolved(
                turn=prompt.turn, prompt_id=prompt.prompt_id, by="agent", outcome="withdrawn", delivered=False
            )
        )


def _turn_finished(decision: Decision, fact: ob.TurnFinished) -> None:
    state = decision.state
    if not state.working or state.turn is None:
        return
    if fact.turn != _expected(state.turn):
        return
    failed = fact.stop_reason == "failed" or fact.error_message is not None
    if fact.error_code == "context_too_long" and _may_be_told_less(state):
        detach(decision, "too_long")
        reason = f"too_long: {fact.error_message or 'it was more than the agent can take'}"
        decision.emit(ev.ContextFallback(turn=state.turn.turn, reason=reason, poisoned=True, shorter=True))
        return
    message = fact.error_message or "The agent gave no reason."
    if fact.poisoned:
        detach(decision, "native_session_poisoned")
    finish_turn(
        decision,
        "failed" if failed else fact.stop_reason,
        error=ev.Error(code=fact.error_code or "agent_error", message=message, detail=fact.error_detail)
        if failed
        else None,
        confirmed=fact.sent and not fact.forgotten and not fact.poisoned and (fact.held or not failed),
        poisoned=fact.poisoned,
        cost_usd=fact.cost_usd,
        input_bytes=fact.input_bytes,
    )
    if fact.leaves:
        detach(decision, "turn_over")
    retry_at: float | None = fact.retry_at
    if retry_at is not None and retry_at - seconds(decision.world.now) > LATEST_RESET_S:
        retry_at = None
    if retry_at is None and (fact.retry_after_s is not None or fact.error_code == "usage_limit"):
        after_s = fact.retry_after_s if fact.retry_after_s is not None else UNKNOWN_RESET_S
        retry_at = seconds(decision.world.now) + after_s
    if failed and retry_at is not None and not state.single_shot:
        # Queued messages would hit the same limit, so they wait until it resets.
        until = retry_at
        decision.emit(ev.WaitingUntil(until=stamp(until), reason=fact.error_code or "limit"))
        decision.emit(ev.WaitingForInput(turn=state.turn.turn))
    else:
        continue_queue(decision)


def _transcript_shortened(decision: Decision, fact: ob.TranscriptShortened) -> None:
    shortened(decision, fact)


def _turn_begun(decision: Decision, fact: ob.TurnBegun) -> None:
    """The agent starts a turn on its own: a turn like any other, but without a message to send."""
    state = decision.state
    if state.attached is None or not state.attached.opened:
        return
    if state.phase == "accepted":
        begin_live(decision)
        return
    if state.phase != "idle":
        return
    number = state.last_turn + 1
    message_id = f"{state.id}.{number}"
    decision.emit(
        ev.UserMessage(turn=number, message_id=message_id, text=fact.message, agent=state.agent, origin="agent")
    )
    decision.emit(
        ev.TurnStart(
            turn=number,
            run_id=message_id,
            message_id=message_id,
            agent=state.agent,
            context="live",
            context_reason="agent_began",
            native_session_id=state.attached.native_session_id,
            origin="agent",
        )
    )


def _noise(decision: Decision, fact: ob.Noise) -> None:
    state = decision.state
    turn = state.turn.turn if state.working and state.turn else None
    if fact.told:
        message = f"The agent wrote a line that Perdure does not understand ({fact.reason}): {fact.sample}"
        decision.emit(ev.System(turn=turn, code="agent_noise", message=message))
    if fact.raw:
        decision.emit(ev.Unrecognised(turn=turn, reason=fact.reason, raw=fact.raw))


def _exited(decision: Decision, fact: ob.AgentExited) -> None:
    """The process has exited. A running turn fails, and its output so far stays. It is retried instead if its input
    certainly never reached the agent, or if the process exited while it resumed a native session."""
    state = decision.state
    attached, turn = state.attached, state.turn
    assert attached is not None
    if fact.how == "never_started" and not attached.opened:
        # Nothing has happened yet: the runner launches again with the same plan.
        detach(decision, fact.how)
        return
    if turn is not None and _may_start_over(state):
        resuming = turn.context == "resumed" and not attached.opened
        if fact.how != "spawn_failed" and (resuming or not fact.delivered):
            detach(decision, "exited")
            _other_driver(decision, attached, fact)
            refused = resuming and fact.how == "exited" and fact.signal is None
            reason = f"agent_gone: {exit_words(fact)}"
            start_over(decision, ev.ContextFallback(turn=turn.turn, reason=reason, poisoned=refused))
            return
    if state.working and turn is not None:
        error = ev.Error(
            code="agent_exited",
            message=f"The agent {exit_words(fact)}. Its output so far is saved; send a message to continue.",
            detail=fact.stderr or None,
        )
        detach(decision, exit_reason(fact))
        finish_turn(decision, "failed", exit_code=fact.exit_code, error=error, input_bytes=fact.input_bytes)
        continue_queue(decision)
    else:
        detach(decision, exit_reason(fact))
        if not attached.opened and exit_reason(fact) == "exited":
            # No turn is running, but this explains why the next message takes longer.
            message = f"The agent {exit_words(fact)}. It did not open a session."
            decision.emit(ev.Error(code="agent_exited", message=message, detail=fact.stderr or None))


def _other_driver(decision: Decision, attached: Attached, fact: ob.AgentExited) -> None:
    """Replace the driver of a process that doesn't respond, if there is another. A process that exited would exit with
    the other driver too, so it keeps its driver."""
    if fact.fallback is not None and fact.how in ("stuck", "start_timeout"):
        decision.emit(
            ev.DriverFallback(
                agent=attached.agent, from_driver=attached.driver, to=fact.fallback, reason=exit_words(fact)
            )
        )


EXIT_REASONS = {
    "ended": "ended",
    "orphaned": "orphaned",
    "expired": "orphaned",
    "lost": "keeper_lost",
    "never_started": "keeper_lost",
}


def exit_reason(fact: ob.AgentExited) -> str:
    return EXIT_REASONS.get(fact.how, "exited")


def exit_words(fact: ob.AgentExited) -> str:
    """How the process ended, for people."""
    if fact.how == "spawn_failed":
        return f"could not be started: {fact.error or 'unknown reason'}"
    if fact.how == "memory":
        return "was stopped because it used more memory than its limit"
    if fact.how == "stuck":
        return "accepted the message but did not respond"
    if fact.how == "start_timeout":
        return "was stopped because it did not open its session in time"
    if fact.how in ("lost", "never_started"):
        return f"was lost: {fact.error}" if fact.error else "was lost together with its keeper process"
    if fact.how == "orphaned":
        return "was stopped because no server was connected to it for too long"
    if fact.how == "expired":
        return "was stopped because its node was cut off from the database for too long"
    if fact.signal is not None:
        return f"was killed by signal {fact.signal}"
    return f"exited (exit code {fact.exit_code})"


_HANDLERS: dict[type[Any], Callable[[Decision, Any], None]] = {
    ob.ResumeRefused: _resume_refused,
    ob.StartFailed: _start_failed,
    ob.PromptWithdrawn: _withdrawn,
    ob.TranscriptShortened: _transcript_shortened,
    ob.TurnBegun: _turn_begun,
    ob.TurnFinished: _turn_finished,
    ob.Noise: _noise,
    ob.AgentExited: _exited,
}
