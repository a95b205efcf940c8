"""Changes to the history: edit a message, rewind, retry a turn, copy turns into a new session.

Above: session.py, which allows changes only while no turn runs (an edit also while a turn is accepted); the verbs that
fork and import. Below: scope.py, which determines the native sessions that are out of date afterwards. Nothing is
erased: the log contains every turn, and the state says which are visible.
"""

from collections.abc import Container, Iterable
from typing import Literal

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.answers import title_of
from perdure.core.decision import Decision
from perdure.core.errors import Refused
from perdure.core.observe import CONTENT
from perdure.core.scope import cut, touched, turns_of
from perdure.core.state import Queued
from perdure.core.turns import detach, start_turn

Text = ev.AssistantText | ev.AssistantThinking
_TEXT = (ev.AssistantText, ev.AssistantThinking)
_CONTEXT = (ev.ContextFallback, ev.HistoryShortened)
TOLD = (ev.UserMessage, ev.TurnStart, *_CONTEXT, *CONTENT, ev.PromptResolved, ev.System, ev.Error, ev.TurnEnd)
"""The events of a turn that a new session copies: what people see of it, and nothing about the process behind it."""
READ = (*TOLD, ev.HistoryChanged)
"""The events of a turn that a copy depends on: an edit is copied as the message's new text."""
# fmt: off
NOT_READ: tuple[type[ev.Event], ...] = (
    # About the old session, its queue and its process.
    ev.SessionCreated, ev.SessionUpdated, ev.SessionEnd, ev.Title, ev.Config, ev.WaitingForInput, ev.WaitingUntil,
    ev.MessageQueued, ev.QueuedMessageEdited, ev.MessageUnqueued, ev.AgentLaunched, ev.AgentAttached,
    ev.AgentDetached, ev.DriverFallback, ev.Unrecognised,
    # How the turn came about. Its end has the final figures.
    ev.WaitingToBegin, ev.AbortRequested, ev.Usage,
    # About files: stored beside the log, and copied separately.
    ev.TurnChanges, ev.FilesRequested, ev.FilesChanged,
)
# fmt: on


def edit_message(decision: Decision, command: cmd.EditMessage) -> None:
    """Change the text of a message. The answer stays as it is."""
    check_history(decision, command.turn, command.revision)
    state = decision.state
    bumped = touched(state.visible, state.visible, command.turn, state.bindings)
    first = turns_of(state.visible)[0] == command.turn
    decision.emit(
        ev.HistoryChanged(
            turn=command.turn, change="edit", bumped=bumped, message_id=command.message_id, text=command.text
        )
    )
    _detach_stale_process(decision)
    if first and state.title_by in ("message", "agent"):
        decision.emit(ev.Title(title=title_of(command.text), by="message"))
    else:
        _retitle(decision)


def rewind(decision: Decision, command: cmd.Rewind) -> None:
    _drop(decision, command.turn, "rewind", command.revision)
    decision.emit(ev.WaitingForInput())


def retry_turn(decision: Decision, command: cmd.RetryTurn) -> None:
    """Rewind, then send the message. The new turn always restarts the context."""
    _drop(decision, command.turn, "retry", command.revision)
    message = Queued(
        message_id=command.message_id,
        text=command.text,
        agent=command.agent,
        fresh=True,
        attachments=list(command.attachments),
    )
    start_turn(decision, message, is_retry=True)


def _drop(decision: Decision, turn: int, change: Literal["rewind", "retry"], revision: int | None) -> None:
    check_history(decision, turn, revision)
    state = decision.state
    bumped = touched(state.visible, cut(state.visible, turn), None, state.bindings)
    decision.emit(ev.HistoryChanged(turn=turn, change=change, bumped=bumped))
    _detach_stale_process(decision)
    _retitle(decision)
    if state.waiting_until is not None and not state.queue:
        # The turn that hit the usage limit is gone, and no queued message has to wait for its reset.
        decision.emit(ev.WaitingUntil(until=None, reason="history_changed"))


def _retitle(decision: Decision) -> None:
    """Drop a title chosen by the agent: it may quote text that is no longer part of the conversation."""
    state = decision.state
    if state.title_by == "agent" and state.message_title:
        decision.emit(ev.Title(title=state.message_title, by="message"))


def check_history(decision: Decision, turn: int, revision: int | None) -> None:
    """Refuse a change to the history that is out of date, or that would collide with a change to files."""
    state = decision.state
    if state.file_operation is not None:
        raise Refused("conflict", "The session's files are being changed. Try again in a moment.")
    if revision is not None and revision != state.revision:
        raise Refused(
            "conflict",
            "The history has changed in the meantime. Reload the session and try again.",
            revision=state.revision,
        )
    if turn not in turns_of(state.visible):
        raise Refused("not_found", f"There is no turn {turn} in the visible history.")


def _detach_stale_process(decision: Decision) -> None:
    """Detach a process whose context no longer matches the history."""
    attached = decision.state.attached
    if attached is None or not (attached.used or attached.resuming):
        return
    binding = decision.state.bindings.get(attached.agent)
    if (
        binding is None
        or not binding.confirmed
        or binding.context_version != decision.state.context_versions.get(attached.agent, 0)
    ):
        detach(decision, "history_changed")


class Gathered:
    """Events of finished turns, with the deltas of each text block joined into one event."""

    def __init__(self) -> None:
        self._events: list[ev.Event] = []
        self._pieces: list[str] = []

    def add(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            before = self._events[-1] if self._events else None
            if isinstance(event, _TEXT) and isinstance(before, _TEXT) and _same_block(before, event):
                self._pieces.append(event.delta)
                before.at = event.at
                continue
            self._close()
            if isinstance(event, _TEXT):
                event = msgspec.structs.replace(event)
                self._pieces.append(event.delta)
            self._events.append(event)

    def all(self) -> list[ev.Event]:
        self._close()
        return self._events

    def _close(self) -> None:
        last = self._events[-1] if self._pieces else None
        if isinstance(last, _TEXT):
            last.delta = "".join(self._pieces)
        self._pieces = []


def _same_block(one: Text, other: Text) -> bool:
    return type(one) is type(other) and one.block == other.block and one.turn == other.turn


def take_over(
    decision: Decision, history: Iterable[ev.Event], turns: Container[int | None], *, counted: bool = False
) -> None:
    """Start a new session with these turns of another log, each message with its current text. Run ids are replaced,
    and native sessions dropped. Cost counts only in the session that ran the turns, unless `counted`."""
    state = decision.state
    decision.counted = counted
    joined = Gathered()
    joined.add(event for event in history if event.turn in turns and isinstance(event, READ))
    events = joined.all()
    edited = {event.turn: event.text for event in events if isinstance(event, ev.HistoryChanged)}
    for event in events:
        if not isinstance(event, TOLD):
            continue
        event = msgspec.structs.replace(event)
        if isinstance(event, ev.UserMessage):
            event.text = edited.get(event.turn) or event.text
        elif isinstance(event, ev.TurnStart):
            event.run_id, event.native_session_id, event.seen = f"{state.id}.{event.turn}", None, 0
            event.taken_over = True
        elif isinstance(event, ev.PromptResolved):
            # "Always" applies only to the session in which it was chosen.
            answer = event.answer or {}
            event.answer = {name: answer[name] for name in answer if name in ("answers", "reason")} or None
        elif isinstance(event, ev.TurnEnd):
            event.confirmed = event.poisoned = False
            if not counted:
                event.usage = event.cost_usd = event.input_bytes = None
        decision.adopt(event)
