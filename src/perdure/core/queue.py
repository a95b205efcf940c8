"""A session's queue: how events add, change and remove waiting messages. Pure.

Above: evolve.py. Below: state.py. session.py decides what may be queued, edited and withdrawn.
"""

from perdure.core import events as ev
from perdure.core.state import Queued, Session


def add(state: Session, event: ev.MessageQueued) -> None:
    queued = Queued(
        message_id=event.message_id,
        text=event.text,
        agent=event.agent,
        fresh=event.fresh,
        attachments=event.attachments,
        queued_at=event.at,
        first=event.first,
    )
    # Interrupting messages go before the others, in order of arrival.
    ahead = sum(waiting.first for waiting in state.queue) if event.first else len(state.queue)
    state.queue.insert(ahead, queued)


def edit(state: Session, event: ev.QueuedMessageEdited) -> None:
    for queued in state.queue:
        if queued.message_id == event.message_id:
            queued.text = event.text


def remove(state: Session, event: ev.MessageUnqueued) -> None:
    state.queue = [queued for queued in state.queue if queued.message_id != event.message_id]
