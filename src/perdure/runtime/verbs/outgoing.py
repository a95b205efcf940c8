"""A message on its way: the command that it becomes, what its sender is told, and the receipt that is kept of that.

Above: the verbs. Below: the machine's decision. Nothing is written here: the log keeps a receipt with the events that
it is about.
"""

from typing import Any, Literal

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.runtime.log.log import digest
from perdure.stores.base import Receipt


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way: to a session, or to a new one."""

    text: str
    message_id: str | None = None
    agent: str | None = None
    fresh: bool = False
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    attachments: tuple[dict[str, Any], ...] = ()


def submission(message: Outgoing, message_id: str) -> cmd.SubmitMessage:
    return cmd.SubmitMessage(
        message_id=message_id,
        text=message.text,
        agent=message.agent,
        fresh=message.fresh,
        when_busy=message.when_busy,
        attachments=message.attachments,
    )


def resubmission(message: Outgoing, message_id: str, rewind: cmd.Rewind) -> cmd.RetryTurn:
    return cmd.RetryTurn(
        turn=rewind.turn,
        revision=rewind.revision,
        message_id=message_id,
        text=message.text,
        agent=message.agent,
        attachments=message.attachments,
    )


class Slip:
    """What a sender is told, and the receipt that is kept of it: known when its message is decided on."""

    def __init__(self, message: Outgoing, message_id: str) -> None:
        self._message = message
        self._message_id = message_id
        self.answer: dict[str, Any] = {}

    def receipt(self, decision: Decision, first: int) -> Receipt:
        self.answer = _answer(decision, self._message_id, first)
        return Receipt(self._message_id, digest(self._message.text), msgspec.json.encode(self.answer))


def _answer(decision: Decision, message_id: str, first: int) -> dict[str, Any]:
    """What a sender is told: where its message stands, and from where to watch."""
    state = decision.state
    answer: dict[str, Any] = {
        "session_id": state.id,
        "message_id": message_id,
        "run_id": None,
        "turn": None,
        "state": state.state,
    }
    for index, event in enumerate(decision.events):
        if isinstance(event, ev.TurnStart) and event.message_id == message_id:
            answer["run_id"], answer["turn"] = event.run_id, event.turn
        if getattr(event, "message_id", None) == message_id and "seq" not in answer:
            answer["seq"] = first + index
    return answer
