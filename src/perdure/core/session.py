"""The session state machine: its theory of operation, and the half that handles commands.

Theory of operation. A session is a log of events, and its state is a fold of that log: `evolve` applies one event to
the state, cannot fail, and is the only code that changes a state. Two functions produce new events:

    decide(state, command, world)            a person, program or timer requests something; may raise Refused
    observe(state, launch_id, facts, world)  an agent process reports something; never refused, but facts of an
                                             earlier launch or turn are ignored

Both are pure. They return a Decision: the new events, and the state after them. The runtime appends these events in one
transaction, provided that no other decisive event has been appended since `state` was read. Otherwise it reads the new
events and decides again, so one command may be decided several times and stored once. Whatever a decision needs to
know (the time, agent facts, permission rules, whether a slot is free) is a value in `world` or in the command.

A handler calls `decision.emit(event)`, which also applies the event, so the next line already sees the new state.
Streamed text changes no state, so the runtime appends it without a decision (`deltas_only` in observe.py).

A session is always in one of five phases:

    idle      no turn is running; the next message starts one
    accepted  a message has its turn number, but the session's owner has not begun the turn; it may wait for a slot
    working   a turn is running
    aborting  a turn is running and has been asked to stop
    ended     the session is over; no turn runs again

Two tables list every phase change: ALLOWED (below) for commands, OBSERVED (observe.py) for facts. A command is refused
in a phase that its row doesn't list. A fact doesn't change the phase unless its row says so. Both functions check each
result against its table (`check_target`), so a wrong change is never stored. The tests check that the tables are
complete (tests/core/test_tables.py) and match the handlers exactly (test_session.py, test_observe.py).
docs/sessions.md is generated from them.

The machine's six files:

    session.py   ALLOWED, `create`, `decide`, and the handlers of most commands
    observe.py   OBSERVED, `observe`, and the handlers of facts
    turns.py     the life of a turn, for both halves: accept, begin, abort, finish, continue with the queue
    history.py   the commands that change the history (edit, rewind, retry), and turns copied from another session
    files.py     changes to files, and changes to the history that wait for them
    evolve.py    what each event changes in the state

and the values they pass around: commands.py, observations.py (facts), events.py, state.py, decision.py (`Decision`,
`World`).

Above: the runtime (running/commands.py, running/runner.py), which makes the World and appends the events.
Below: the five other files. It does no I/O and knows no store.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.answers import check_choice, read_answer
from perdure.core.decision import Decision, World, check_target
from perdure.core.errors import Refused
from perdure.core.evolve import created
from perdure.core.files import files_busy, finish_files, refuse_while_rewinding, request_files
from perdure.core.history import edit_message, retry_turn, rewind
from perdure.core.observe import AFTER_A_TURN
from perdure.core.state import Queued, Session
from perdure.core.turns import (
    abort,
    begin_turn,
    check_queued,
    clean_up,
    continue_queue,
    detach,
    finish_turn,
    shortened,
    start_over,
    start_turn,
)
from perdure.core.view import public_session

QUEUE_MAX = 100
QUEUE_MAX_CHARS = 4_000_000

_STAYS = {phase: (phase,) for phase in ("idle", "accepted", "working", "aborting")}

ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    # command: {phase: phases it can lead to}; refused in a phase that is not listed.
    "SubmitMessage": {
        "idle": ("accepted", "working"),
        "accepted": AFTER_A_TURN,
        "working": ("working", "aborting"),
        "aborting": ("aborting",),
    },
    "EditMessage": {"idle": ("idle",), "accepted": ("accepted",)},
    "Rewind": {"idle": ("idle",)},
    "RetryTurn": {"idle": ("accepted", "working")},
    "EditQueuedMessage": {**_STAYS},
    "UnqueueMessage": {**_STAYS},
    "AbortTurn": {
        "idle": ("idle", "accepted", "working"),
        "accepted": AFTER_A_TURN,
        "working": ("aborting",),
        "aborting": ("aborting",),
    },
    "EndSession": {"idle": ("ended",), "accepted": ("ended",), "working": ("ended",), "aborting": ("ended",)},
    "AnswerPrompt": {"working": ("working",)},
    "SetConfig": {**_STAYS},
    "UpdateSession": {**_STAYS, "ended": ("ended",)},
    "RequestFiles": {"idle": ("idle",), "ended": ("ended",)},
    "FinishFiles": {**_STAYS, "idle": ("idle", "accepted", "working"), "ended": ("ended",)},
    "DetachAgent": {"idle": ("idle",), "accepted": ("accepted",)},
    "ExpireTurnClock": {"working": ("working", "aborting")},
    "PrepareLaunch": {**_STAYS},
    "BeginAnew": {"working": AFTER_A_TURN, "aborting": ("aborting",)},
    "BeginTurn": {"accepted": ("accepted", "working", "idle", "ended")},
    "EndWait": {"idle": ("idle", "accepted", "working")},
    "GiveUpTurn": {"accepted": AFTER_A_TURN, "working": AFTER_A_TURN, "aborting": AFTER_A_TURN},
}


def create(command: cmd.CreateSession, world: World) -> Decision:
    """The first event of a session, and the state after it."""
    given = {name: getattr(command, name) for name in command.__struct_fields__}
    event = ev.SessionCreated(at=world.now, session_id=command.session_id, session=given)
    event.session = public_session(created(event), 1)
    if command.choices:
        event.session["choices"] = command.choices
    if command.imported_at:
        event.session["imported_at"] = command.imported_at
    decision = Decision(created(event), world)
    decision.events.append(event)
    return decision


def decide(state: Session, command: cmd.Command, world: World) -> Decision:
    """The events that a command produces. Raises Refused."""
    name = type(command).__name__
    if state.phase not in ALLOWED[name]:
        raise _refusal(state, command)
    decision = Decision(state, world)
    _HANDLERS[type(command)](decision, command)
    clean_up(decision)
    check_target(name, state.phase, decision.state.phase, ALLOWED[name][state.phase])
    return decision


def _refusal(state: Session, command: cmd.Command) -> Refused:
    if state.phase == "ended":
        return Refused("session_ended", f"The session has ended ({state.status}). Start a new one.", state="ended")
    if isinstance(command, cmd.AnswerPrompt):
        return _no_such_prompt(state, command.prompt_id)
    if isinstance(command, cmd.RequestFiles):
        return files_busy(state)
    if state.phase == "idle":
        return _nothing_to_stop(state)
    return busy(state)


def _nothing_to_stop(state: Session) -> Refused:
    return Refused("no_turn_active", "No turn is running, so there is nothing to stop.", state=state.state)


def busy(state: Session) -> Refused:
    what = "A message is waiting to begin" if state.phase == "accepted" else "A turn is running"
    return Refused(
        "turn_active",
        f'{what}. Wait for it to end, abort it, or send with when_busy "queue" or "interrupt".',
        state=state.state,
        turn=state.turn.turn if state.turn else None,
    )


# Messages ---------------------------------------------------------------------------------------------------------


def _submit(decision: Decision, command: cmd.SubmitMessage) -> None:
    state = decision.state
    message = Queued(
        message_id=command.message_id,
        text=command.text,
        agent=command.agent,
        fresh=command.fresh,
        attachments=list(command.attachments),
    )
    refuse_while_rewinding(state)
    if state.phase == "idle":
        start_turn(decision, message)
        return
    if command.when_busy == "reject":
        raise busy(state)
    if len(state.queue) >= QUEUE_MAX or sum(len(queued.text) for queued in state.queue) > QUEUE_MAX_CHARS:
        raise Refused("queue_full", "Too many messages are queued. Withdraw some, or wait until they are sent.")
    check_queued(decision, message)
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


def _edit_queued(decision: Decision, command: cmd.EditQueuedMessage) -> None:
    queue = decision.state.queue
    found = next((queued for queued in queue if queued.message_id == command.message_id), None)
    if found is None:
        raise _no_such_message()
    if sum(len(queued.text) for queued in queue) - len(found.text) + len(command.text) > QUEUE_MAX_CHARS:
        raise Refused("queue_full", "The queued messages are too long in total. Shorten this one, or withdraw another.")
    check_queued(decision, msgspec.structs.replace(found, text=command.text))
    decision.emit(ev.QueuedMessageEdited(message_id=command.message_id, text=command.text))


def _unqueue(decision: Decision, command: cmd.UnqueueMessage) -> None:
    for queued in decision.state.queue:
        if queued.message_id == command.message_id:
            decision.emit(ev.MessageUnqueued(message_id=queued.message_id, text=queued.text))
            return
    raise _no_such_message()


def _no_such_message() -> Refused:
    return Refused("not_found", "No such message is queued; it may have been sent already.")


# Ending things ------------------------------------------------------------------------------------------------------


def _abort(decision: Decision, command: cmd.AbortTurn) -> None:
    if decision.state.phase != "idle":
        abort(decision, command.reason)
    elif decision.state.waiting_until is not None:
        refuse_while_rewinding(decision.state)
        decision.emit(ev.WaitingUntil(until=None, reason="aborted"))
        if decision.state.queue:
            continue_queue(decision)
    else:
        raise _nothing_to_stop(decision.state)


def _end_wait(decision: Decision, command: cmd.EndWait) -> None:
    state = decision.state
    if state.waiting_until is None:
        return
    # Its timer tries again.
    refuse_while_rewinding(state)
    decision.emit(ev.WaitingUntil(until=None, reason="over"))
    if not state.queue:
        message = Queued(message_id=f"{state.id}.wait.{state.last_turn + 1}", text=command.text)
        start_turn(decision, message)
    else:
        continue_queue(decision)


def _end_session(decision: Decision, command: cmd.EndSession) -> None:
    state = decision.state
    for queued in list(state.queue):
        decision.emit(
            ev.MessageUnqueued(message_id=queued.message_id, text=queued.text, reason="session_ended"),
        )
    if state.busy:
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
    if command.clock != "silence":
        what = f"ran for {limit}" if command.clock == "turn_limit" else f"was inactive for {limit}"
        message = f"The turn {what} and is being stopped."
        decision.emit(ev.System(turn=turn.turn, code="turn_timeout", message=message))
        abort(decision, command.clock)
        return
    what = "It is being stopped." if command.abort else "The turn continues; abort it if it is stuck."
    decision.emit(ev.System(turn=turn.turn, code="silence", message=f"The agent was silent for {limit}. {what}"))
    if command.abort:
        abort(decision, "silence")


def _detach_agent(decision: Decision, command: cmd.DetachAgent) -> None:
    detach(decision, command.reason)


def _prepare_launch(decision: Decision, command: cmd.PrepareLaunch) -> None:
    if decision.state.running_turn != command.turn:
        raise Refused("conflict", "A turn has begun or ended since this launch was planned.")
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
    if command.shortened is not None:
        shortened(decision, command.shortened)


def _begin_anew(decision: Decision, command: cmd.BeginAnew) -> None:
    state = decision.state
    if state.turn is not None and state.turn.context == "resumed" and state.attached is None:
        start_over(decision, ev.ContextFallback(turn=state.turn.turn, reason=command.reason, tried=False))


def _begin_turn(decision: Decision, _: cmd.BeginTurn) -> None:
    begin_turn(decision)


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
    return Refused("not_found", "No such prompt. See the session's prompts for the open ones.")


def _set_config(decision: Decision, command: cmd.SetConfig) -> None:
    check_choice(decision.state, command.config_id, command.value)
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
    cmd.EditMessage: edit_message,
    cmd.Rewind: rewind,
    cmd.RetryTurn: retry_turn,
    cmd.EditQueuedMessage: _edit_queued,
    cmd.UnqueueMessage: _unqueue,
    cmd.AbortTurn: _abort,
    cmd.EndSession: _end_session,
    cmd.AnswerPrompt: _answer_prompt,
    cmd.SetConfig: _set_config,
    cmd.UpdateSession: _update_session,
    cmd.RequestFiles: request_files,
    cmd.FinishFiles: finish_files,
    cmd.DetachAgent: _detach_agent,
    cmd.ExpireTurnClock: _expire_turn_clock,
    cmd.PrepareLaunch: _prepare_launch,
    cmd.GiveUpTurn: _give_up_turn,
    cmd.BeginAnew: _begin_anew,
    cmd.BeginTurn: _begin_turn,
    cmd.EndWait: _end_wait,
}
