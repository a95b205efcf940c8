"""Changes to files that people request: restore, discard, undo, commit, merge, and removing a session's worktree.

Above: session.py. Below: history.py, for a rewind, retry or edit that takes effect together with restored files. The
machine records the request and its result; the node that has the directory does the work in between
(runtime/review/operations.py). Meanwhile no message begins a turn and the history can't change, so an agent doesn't
meet files that are half restored, and a server that is killed in between leaves a request that the next one completes.
"""

from typing import Any

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.core.errors import Refused
from perdure.core.history import check_history, edit_message, retry_turn, rewind
from perdure.core.state import Session

_THEN: dict[str, type[cmd.EditMessage | cmd.Rewind | cmd.RetryTurn]] = {
    "edit": cmd.EditMessage,
    "rewind": cmd.Rewind,
    "retry": cmd.RetryTurn,
}


def then_of(command: cmd.EditMessage | cmd.Rewind | cmd.RetryTurn) -> dict[str, Any]:
    """A change to the history as a value that an event can carry."""
    change = next(name for name, kind in _THEN.items() if kind is type(command))
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(command))
    return {"change": change, **fields}


def history_command(then: dict[str, Any]) -> cmd.EditMessage | cmd.Rewind | cmd.RetryTurn:
    return msgspec.convert(then, _THEN[then["change"]])


def files_busy(state: Session) -> Refused:
    """Why the files can't be changed while a turn is accepted or running."""
    what = "A message is waiting to begin" if state.phase == "accepted" else "A turn is running"
    sentence = f"{what}. Wait for it to end, or abort it, before you change its files."
    return Refused("turn_active", sentence, state=state.state, turn=state.turn.turn if state.turn else None)


def request_files(decision: Decision, command: cmd.RequestFiles) -> None:
    state = decision.state
    if state.file_operation is not None:
        raise Refused("conflict", "Another change to the session's files is running. Try again in a moment.")
    if command.then is not None:
        if state.phase == "ended":
            raise Refused("session_ended", f"The session has ended ({state.status}). Start a new one.", state="ended")
        change = history_command(command.then)
        check_history(decision, change.turn, change.revision)
    decision.emit(
        ev.FilesRequested(
            operation_id=command.operation_id, action=command.action, details=command.details, then=command.then
        )
    )


def finish_files(decision: Decision, command: cmd.FinishFiles) -> None:
    """Record the result, and change the history if that was requested and the files are done."""
    operation = decision.state.file_operation
    if operation is None or operation.operation_id != command.operation_id:
        return
    if operation.then is not None and command.outcome == "done" and decision.state.phase != "idle":
        # The session has ended meanwhile, or its agent has started to work on its own.
        message = f"{command.message} The conversation is unchanged, because the session was no longer idle."
        command = msgspec.structs.replace(command, outcome="failed", code="conflict", message=message)
    decision.emit(
        ev.FilesChanged(
            operation_id=operation.operation_id,
            action=operation.action,
            outcome=command.outcome,
            message=command.message,
            code=command.code,
            for_turn=command.for_turn,
            files=list(command.files),
            file_count=command.file_count,
            commit=command.commit,
            undoable=command.undoable,
        )
    )
    if operation.then is None or command.outcome != "done":
        return
    change = history_command(operation.then)
    if isinstance(change, cmd.EditMessage):
        edit_message(decision, change)
    elif isinstance(change, cmd.Rewind):
        rewind(decision, change)
    else:
        retry_turn(decision, change)


def refuse_while_rewinding(state: Session) -> None:
    """Refuse to begin a turn while the history is about to change: the message would follow turns that its sender no
    longer sees."""
    if state.file_operation is not None and state.file_operation.then is not None:
        raise Refused("conflict", "The session is being rewound together with its files. Try again in a moment.")
