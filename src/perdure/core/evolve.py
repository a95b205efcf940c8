"""How each event changes the session's state. Total: it never fails, and reads nothing but the state and the event.

`evolve` changes the state in place. Callers that need the old state fork it first (state.py).

Above: decision.py, which applies each event that it emits. Below: state.py, scope.py, queue.py.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core import events as ev
from perdure.core import queue
from perdure.core.clock import ms_between
from perdure.core.permissions import Rule, remembered
from perdure.core.scope import cut, turns_of
from perdure.core.state import Attached, Binding, FileOperation, Queued, Session, Span, Turn, WaitsFor

RESOLVED_PROMPTS_KEPT = 100
POISONED_KEPT = 100
REMEMBERED_KEPT = 200
CHOICES = ("model", "mode", "config", "models", "modes", "config_options", "commands")
TOTALS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd")


def evolve(state: Session, event: ev.Event) -> None:
    change = CHANGES.get(type(event))
    if change is not None:
        change(state, event)


def created(event: ev.SessionCreated) -> Session:
    """The initial state, from the first event."""
    given = event.session
    return Session(
        id=event.session_id,
        project=given["project"],
        agent=given["agent"],
        workdir=given["workdir"],
        created_at=event.at,
        last_active_at=event.at,
        title=given.get("title", ""),
        title_by="person" if given.get("title") else "",
        labels=list(given.get("labels", [])),
        parent=given.get("parent"),
        forked_from=given.get("forked_from"),
        worktree=given.get("worktree"),
        limits=dict(given.get("limits", {})),
        permissions=msgspec.convert(msgspec.to_builtins(given.get("permissions", ())), list[Rule]),
        single_shot=given.get("single_shot", False),
        model=given.get("model"),
        mode=given.get("mode"),
        config=dict(given.get("config", {})),
        choices=dict(given.get("choices", {})),
        imported_at=given.get("imported_at", ""),
    )


def _active(state: Session, event: ev.Event) -> None:
    """Messages, prompts, answers, ends of turns and changes to the history are activity. Events of the process and the
    end of the session are not: lists must not be reordered when a server stops."""
    # Copied history is older than the session, so `created_at` is the minimum. Don't take the maximum with the previous
    # value: after a clock is set back by hours, the session would not move in lists whatever happens in it.
    state.last_active_at = max(state.created_at, event.at)


def _user_message(state: Session, event: ev.UserMessage) -> None:
    _active(state, event)
    number = event.turn or 0
    state.phase = "accepted"
    state.accepted = Queued(
        message_id=event.message_id,
        text=event.text,
        agent=event.agent,
        fresh=event.fresh,
        attachments=event.attachments,
    )
    state.waits_for = None
    _add_turn(state, number, event.agent)
    state.turn = Turn(
        turn=number,
        run_id=f"{state.id}.{number}",
        message_id=event.message_id,
        agent=event.agent,
        started_at=event.at,
        origin=event.origin,
    )


def _add_turn(state: Session, number: int, agent: str) -> None:
    state.last_turn = number
    state.turn_count += 1
    state.error = None
    span = state.visible[-1] if state.visible else None
    if span is not None and span.last == number - 1 and span.agent == agent and span.answered:
        span.last = number
    else:
        state.visible.append(Span(number, number, agent))


def _waiting_to_begin(state: Session, event: ev.WaitingToBegin) -> None:
    state.waits_for = WaitsFor(event.code, event.message)


def _turn_start(state: Session, event: ev.TurnStart) -> None:
    number = event.turn or 0
    state.phase = "working"
    state.accepted = state.waits_for = None
    if event.agent != state.agent and not event.taken_over:
        _switch_agent(state, event.agent)
    state.started_at = state.started_at or max(state.created_at, event.at)
    if state.turn is None or state.turn.turn != number:
        # Imported turns may have no message.
        _add_turn(state, number, event.agent)
    state.turn = Turn(
        turn=number,
        run_id=event.run_id,
        message_id=event.message_id,
        agent=event.agent,
        started_at=event.at,
        context=event.context,
        context_reason=event.context_reason,
        native_session_id=event.native_session_id,
        model=None if event.taken_over else state.model,
        catch_up=event.catch_up,
        replayed=event.replayed,
        slash_command=event.slash_command,
        scope=event.scope,
        seen=event.seen,
        origin=event.origin,
    )
    _mark_used(state)


def _switch_agent(state: Session, agent: str) -> None:
    """Save the choices made for the old agent, and restore those made for the new one earlier in this session."""
    state.choices[state.agent] = {name: getattr(state, name) for name in CHOICES}
    chosen = {**dict.fromkeys(CHOICES), "config": {}, "commands": [], **state.choices.pop(agent, {})}
    for name, value in chosen.items():
        setattr(state, name, value)
    state.agent = agent


def _mark_used(state: Session) -> None:
    """Mark the native session as unconfirmed: until the agent reports the end of the turn, it may hold half a turn."""
    assert state.turn is not None
    binding = state.bindings.get(state.turn.agent)
    if binding is not None and binding.native_session_id == state.turn.native_session_id:
        state.turn.trusted = binding.confirmed
        binding.confirmed = False
    if state.attached is not None and state.attached.opened:
        state.attached.used = True
        _bind(state, state.attached)


def _bind(state: Session, attached: Attached) -> None:
    """Bind the native session as soon as its id is known. It is confirmed when the agent reports the end of a turn."""
    if attached.native_session_id is None:
        return
    binding = state.bindings.get(attached.agent)
    if binding is None or binding.native_session_id != attached.native_session_id:
        state.bindings[attached.agent] = Binding(
            native_session_id=attached.native_session_id,
            workdir_id=attached.workdir_id,
            fingerprint=attached.fingerprint,
            context_version=state.context_versions.get(attached.agent, 0),
            first_turn=state.turn.turn if state.turn else 0,
            scope=state.turn.scope if state.turn else "all",
        )
        state.unpinned = [name for name in state.unpinned if name != attached.agent]


def _turn_end(state: Session, event: ev.TurnEnd) -> None:
    turn = state.turn
    if turn is None:
        return
    turn.ended_at = event.at
    turn.duration_ms = event.duration_ms
    turn.stop_reason = event.stop_reason
    turn.exit_code = event.exit_code
    turn.input_bytes = event.input_bytes
    turn.model = event.model or turn.model
    turn.open_tools, turn.verdicts, turn.commands = [], {}, {}
    if event.usage is not None:
        turn.usage = event.usage
    if event.cost_usd is not None:
        turn.cost_usd = event.cost_usd
    for key in TOTALS:
        value = (turn.usage or {}).get(key)
        if value is not None:
            state.usage[key] = state.usage.get(key, 0) + value
    if event.poisoned:
        _poison(state, turn.agent)
    if event.stop_reason == "failed":
        _unanswered(state, turn)
    attached = state.attached
    if event.confirmed and attached is not None and attached.opened and attached.agent == turn.agent:
        binding = state.bindings.get(turn.agent)
        # A turn that the agent started itself can't confirm a native session that may already lack something.
        if binding is not None and binding.native_session_id == attached.native_session_id and turn.trusted:
            binding.confirmed = True
            binding.last_turn = turn.turn
    if event.confirmed and event.stop_reason != "failed":
        state.waits = 0
        if turn.shortened:
            state.shortened[turn.agent] = turn.shortened
    if state.phase != "ended":
        state.phase = "idle"
    state.accepted = state.waits_for = None
    state.abort_reason = None
    state.abort_requested_at = None
    _active(state, event)


def _unanswered(state: Session, turn: Turn) -> None:
    """Mark a failed turn as unanswered. With scope `agent`, it doesn't separate earlier turns from later ones."""
    span = state.visible[-1] if state.visible else None
    if span is not None and span.last == turn.turn and span.answered:
        if span.first == turn.turn:
            state.visible.pop()
        else:
            span.last -= 1
        state.visible.append(Span(turn.turn, turn.turn, turn.agent, False))


def _tool_use(state: Session, event: ev.ToolUse) -> None:
    if state.turn is not None:
        state.turn.begin_tool(event.tool_id, event.at if event.kind == "execute" else None)


def _tool_result(state: Session, event: ev.ToolResult) -> None:
    if state.turn is not None and event.tool_id in state.turn.open_tools:
        state.turn.end_tool(event.tool_id)


def _usage(state: Session, event: ev.Usage) -> None:
    if state.turn is None or not state.working or event.turn != state.turn.turn:
        return
    figures: dict[str, Any] = dict(state.turn.usage or {})
    known = {key: getattr(event, key) for key in (*TOTALS, "context_used", "context_size")}
    figures.update({key: value for key, value in known.items() if value is not None})
    state.turn.usage = figures
    if event.cost_usd is not None:
        state.turn.cost_usd = event.cost_usd


def _pending_prompt(state: Session, event: ev.PendingPrompt) -> None:
    if state.turn is not None and not state.prompts:
        state.turn.paused_since = event.at
    state.prompts[event.prompt_id] = event
    _active(state, event)


def _prompt_resolved(state: Session, event: ev.PromptResolved) -> None:
    prompt = state.prompts.pop(event.prompt_id, None)
    if event.by == "person":
        _active(state, event)
    if prompt is not None and event.by == "person" and event.answer is not None:
        _remember(state, prompt, str(event.answer.get("kind", "")))
    state.resolved_prompts = [*state.resolved_prompts, event.prompt_id][-RESOLVED_PROMPTS_KEPT:]
    turn = state.turn
    if turn is not None and prompt is not None and prompt.tool_id in turn.open_tools:
        turn.judge(prompt.tool_id, event.outcome, ms_between(prompt.at, event.at))
    if turn is not None and not state.prompts and turn.paused_since is not None:
        turn.paused_ms += ms_between(turn.paused_since, event.at)
        turn.paused_since = None


def _remember(state: Session, prompt: ev.PendingPrompt, kind: str) -> None:
    """ "Always" applies to the whole session, whichever process serves it."""
    rule = remembered(prompt, kind)
    if rule is not None and rule not in state.remembered:
        state.remembered = [*state.remembered, rule][-REMEMBERED_KEPT:]
    if kind == "allow_always":
        granted = state.granted.setdefault(state.agent, [])
        granted += [words for words in prompt.always if words not in granted]
        del granted[:-REMEMBERED_KEPT]


def _message_queued(state: Session, event: ev.MessageQueued) -> None:
    queue.add(state, event)
    _active(state, event)


def _queued_message_edited(state: Session, event: ev.QueuedMessageEdited) -> None:
    queue.edit(state, event)
    _active(state, event)


def _abort_requested(state: Session, event: ev.AbortRequested) -> None:
    state.phase = "aborting"
    state.abort_reason = event.reason
    state.abort_requested_at = event.at


def _session_updated(state: Session, event: ev.SessionUpdated) -> None:
    if event.summary is not None:
        state.summary = event.summary
    if event.labels is not None:
        state.labels = list(event.labels)
    if event.archived is not None:
        state.archived = event.archived
        state.wants_clean_up = event.archived and state.worktree is not None


def _title(state: Session, event: ev.Title) -> None:
    state.title, state.title_by = event.title, event.by
    if event.by == "message":
        state.message_title = event.title


def _config(state: Session, event: ev.Config) -> None:
    if event.options is not None:
        state.config_options = _own(event.options)
    if event.config_id == "available_commands":
        found = event.value if isinstance(event.value, list) else []
        state.commands = [command for command in found if isinstance(command, dict)]
        return
    if event.config_id == "background_tasks":
        state.background_tasks = event.value if isinstance(event.value, int) else 0
        return
    if event.requested:
        state.config[event.config_id] = event.value
    elif event.refused:
        state.config.pop(event.config_id, None)
    elif state.config_options is not None:
        for option in state.config_options:
            if option.get("id") == event.config_id:
                option["currentValue"] = event.value
    if event.config_id == "model":
        if event.requested:
            state.shortened.pop(state.agent, None)
        state.model = None if event.value is None else str(event.value)
    elif event.config_id == "mode":
        state.mode = None if event.value is None else str(event.value)


def _own(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A copy, because current values are updated in it, and an event must never change."""
    return [dict(option) for option in options]


def _agent_launched(state: Session, event: ev.AgentLaunched) -> None:
    state.attached = Attached(
        launch_id=event.launch_id,
        agent=event.agent,
        driver=event.driver,
        workdir_id=event.workdir_id,
        fingerprint=event.fingerprint,
        since=event.at,
        native_session_id=event.native_session_id,
        resuming=event.native_session_id is not None,
    )


def _agent_attached(state: Session, event: ev.AgentAttached) -> None:
    attached = state.attached
    if attached is None or attached.launch_id != event.launch_id:
        return
    binding = state.bindings.get(attached.agent)
    if binding is not None and binding.native_session_id == event.native_session_id != attached.native_session_id:
        # The agent reused the id of an earlier native session, whose content the new one doesn't have.
        del state.bindings[attached.agent]
    attached.pid = event.pid
    attached.native_session_id = event.native_session_id
    attached.opened, attached.opened_at = True, attached.opened_at or event.at
    for key in ("models", "modes", "config_options"):
        value = getattr(event, key)
        if value is not None:
            setattr(state, key, _own(value) if key == "config_options" else value)
    if state.working and state.turn is not None and state.turn.agent == attached.agent:
        attached.used = True
        _bind(state, attached)


def _agent_detached(state: Session, event: ev.AgentDetached) -> None:
    if state.attached is not None and state.attached.launch_id == event.launch_id:
        state.attached = None
        state.background_tasks = 0


def _context_fallback(state: Session, event: ev.ContextFallback) -> None:
    turn = state.turn
    if turn is None:
        return
    turn.attempt += event.tried
    turn.context = "fresh"
    turn.context_reason = event.reason
    turn.native_session_id = None
    turn.seen = turn.catch_up = 0
    if event.poisoned:
        _poison(state, turn.agent)
    if event.shorter:
        turn.shortened = max(turn.shortened, state.shortened.get(turn.agent, 0)) + 1
    if state.attached is not None:
        state.attached.opened, state.attached.opened_at = False, None
        state.attached.native_session_id = None


def _poison(state: Session, agent: str) -> None:
    """Never use this native session again."""
    binding = state.bindings.pop(agent, None)
    if binding is not None:
        state.poisoned = [*state.poisoned, binding.native_session_id][-POISONED_KEPT:]
        state.unpinned = [*(name for name in state.unpinned if name != agent), agent]


def _history_changed(state: Session, event: ev.HistoryChanged) -> None:
    state.revision += 1
    _active(state, event)
    for agent in event.bumped:
        state.context_versions[agent] = state.context_versions.get(agent, 0) + 1
    if event.change == "edit" and state.accepted is not None and event.message_id == state.accepted.message_id:
        state.accepted.text = event.text or ""
    if event.change == "edit" or event.turn is None:
        return
    state.visible = cut(state.visible, event.turn)
    state.turn_count = len(turns_of(state.visible))
    if state.turn is not None and state.turn.turn >= event.turn:
        state.turn = None
        state.error = None


def _history_shortened(state: Session, event: ev.HistoryShortened) -> None:
    if state.turn is not None and state.turn.turn == event.turn:
        state.turn.digested, state.turn.left_out = len(event.digested), len(event.left_out)


def _files_requested(state: Session, event: ev.FilesRequested) -> None:
    state.file_operation = FileOperation(
        operation_id=event.operation_id,
        action=event.action,
        details=event.details,
        then=event.then,
        requested_at=event.at,
    )
    if event.action == "clean_up":
        state.wants_clean_up = False


def _files_changed(state: Session, event: ev.FilesChanged) -> None:
    state.file_operation = None


def _waiting_until(state: Session, event: ev.WaitingUntil) -> None:
    state.waiting_until = event.until
    state.waiting_reason = event.reason if event.until is not None else None
    state.waits += event.until is not None


def _driver_fallback(state: Session, event: ev.DriverFallback) -> None:
    state.drivers[event.agent] = event.to


def _error(state: Session, event: ev.Error) -> None:
    state.error = event.message
    if state.turn is not None and event.turn == state.turn.turn:
        state.turn.error = event.message


def _session_end(state: Session, event: ev.SessionEnd) -> None:
    state.phase = "ended"
    state.status = event.status
    state.ended_at = event.at
    if event.status == "failed" or event.reason.startswith("Server restarted"):
        state.error = event.reason


CHANGES: dict[type[ev.Event], Callable[[Session, Any], None]] = {
    ev.UserMessage: _user_message,
    ev.WaitingToBegin: _waiting_to_begin,
    ev.TurnStart: _turn_start,
    ev.TurnEnd: _turn_end,
    ev.ToolUse: _tool_use,
    ev.ToolResult: _tool_result,
    ev.Usage: _usage,
    ev.PendingPrompt: _pending_prompt,
    ev.PromptResolved: _prompt_resolved,
    ev.MessageQueued: _message_queued,
    ev.QueuedMessageEdited: _queued_message_edited,
    ev.MessageUnqueued: queue.remove,
    ev.AbortRequested: _abort_requested,
    ev.SessionUpdated: _session_updated,
    ev.Title: _title,
    ev.Config: _config,
    ev.AgentLaunched: _agent_launched,
    ev.AgentAttached: _agent_attached,
    ev.AgentDetached: _agent_detached,
    ev.ContextFallback: _context_fallback,
    ev.HistoryChanged: _history_changed,
    ev.HistoryShortened: _history_shortened,
    ev.FilesRequested: _files_requested,
    ev.FilesChanged: _files_changed,
    ev.WaitingUntil: _waiting_until,
    ev.DriverFallback: _driver_fallback,
    ev.Error: _error,
    ev.SessionEnd: _session_end,
}
# fmt: off
NO_CHANGE: tuple[type[ev.Event], ...] = (
    # Content of a turn, for views.
    ev.AssistantText, ev.AssistantThinking, ev.ToolUpdate, ev.Image, ev.Plan, ev.System, ev.Unrecognised,
    # `turn_end` has already made the session idle.
    ev.WaitingForInput,
    # About files.
    ev.TurnChanges,
)
# fmt: on
"""Events that don't change the state. The first event of a session makes it (`created`)."""
