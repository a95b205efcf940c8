"""A message to send: its command, the response to its sender, and the stored receipt.

Above: the verbs. Below: the state machine's decision. Nothing is stored here: the log stores a receipt along with the
events of its message.
"""

import hashlib
from typing import Any, Literal

import msgspec

from perdure.core import commands as cmd
from perdure.core.decision import Decision
from perdure.runtime.running.placement import WhenFull
from perdure.stores.base import Kept, Receipt


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send to a session, which may be new."""

    text: str
    message_id: str | None = None
    agent: str | None = None
    fresh: bool = False
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    when_full: WhenFull = "wait"
    attachments: tuple[dict[str, Any], ...] = ()

    @property
    def digest(self) -> str:
        """Identifies the text, to recognise a repeated send."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def command_of(message: Outgoing, message_id: str, retry: cmd.Rewind | None = None) -> cmd.Command:
    """The message's command; with `retry`, it replaces that turn and all after it."""
    if retry is not None:
        return cmd.RetryTurn(
            turn=retry.turn,
            revision=retry.revision,
            message_id=message_id,
            text=message.text,
            agent=message.agent,
            attachments=message.attachments,
        )
    return cmd.SubmitMessage(
        message_id=message_id,
        text=message.text,
        agent=message.agent,
        fresh=message.fresh,
        when_busy=message.when_busy,
        attachments=message.attachments,
    )


class PendingReceipt(msgspec.Struct):
    """The response to a sender and its receipt, before the append assigns the event's sequence number."""

    _message: Outgoing
    message_id: str
    _answer: dict[str, Any] = {}
    _event: int = 0

    def receipt(self, decision: Decision) -> Receipt:
        """The receipt for the decision that accepts the message."""
        state, turn = decision.state, decision.state.turn
        is_queued = not (state.busy and turn is not None and turn.message_id == self.message_id)
        self._answer = {
            "session_id": state.id,
            "message_id": self.message_id,
            "run_id": None if is_queued or turn is None else turn.run_id,
            "turn": None if is_queued or turn is None else turn.turn,
            "state": state.state,
            "waits_for": msgspec.to_builtins(state.waits_for) if not is_queued else None,
        }
        self._event = next(
            index
            for index, event in enumerate(decision.events)
            if getattr(event, "message_id", None) == self.message_id
        )
        answer = msgspec.json.encode(self._answer)
        return Receipt(self.message_id, self._message.digest, answer, event=self._event)

    def answer(self, kept: Kept) -> dict[str, Any]:
        return {**self._answer, "seq": kept.first + self._event}


def replayed(receipt: Receipt) -> dict[str, Any]:
    """The response that the sender of this message got the first time."""
    answer: dict[str, Any] = msgspec.json.decode(receipt.answer)
    return answer if receipt.seq is None else {**answer, "seq": receipt.seq}
