"""The transcript: Perdure's own history of a session, and what a fresh turn is told of it.

The agent's native session is only a cache of this. Verbatim here; how it is written as text is transcript_text.py.
"""

from collections.abc import Iterable
from typing import Any

from perdure.core import events as ev
from perdure.core.transcript_text import Entry, wrap
from perdure.core.view import TurnView

CUT_OFF = {
    "cancelled": "this answer was interrupted by the user",
    "failed": "this answer broke off when the turn failed",
    "timed_out": "this answer was stopped because it took too long",
}


class History:
    """The turns of a session, folded from its events in order. Feed it all events; ask for turns."""

    def __init__(self) -> None:
        self.views: dict[int, TurnView] = {}
        self.agents: dict[int, str] = {}
        self.stop_reasons: dict[int, str] = {}

    def fold(self, event: ev.Event) -> None:
        if event.turn is None:
            return
        view = self.views.get(event.turn)
        if view is None:
            view = self.views[event.turn] = TurnView(event.turn, live_chars=None)
        view.fold(event)
        if isinstance(event, ev.TurnStart):
            self.agents[event.turn] = event.agent
        elif isinstance(event, ev.TurnEnd):
            self.stop_reasons[event.turn] = event.stop_reason

    def entries(self, turns: Iterable[int]) -> list[Entry]:
        """What was said, as a transcript tells it: each user message, and each answer with its tools as one line."""
        found: list[Entry] = []
        for turn in turns:
            view = self.views.get(turn)
            if view is None or view.message is None:
                continue
            agent = self.agents.get(turn, "")
            found.append(Entry("user", turn, agent, view.message["text"]))
            said = answer_text(view)
            note = CUT_OFF.get(self.stop_reasons.get(turn, ""), "")
            if said or note:
                found.append(Entry("assistant", turn, agent, said, note))
        return found


def answer_text(view: TurnView) -> str:
    """The answer with each tool as a line of its own, so that the reader knows what was done."""
    pieces: list[str] = []
    for part in view.show():
        if part["type"] == "text":
            pieces.append(part["text"])
        elif part["type"] == "tool":
            pieces.append(f"\n[tool {part['name']}: {part['title'] or part['name']} ({part['status']})]\n")
    return "".join(pieces).strip("\n")


def compose(context: str, history: History | None, turns: Iterable[int], message: str, instructions: str = "") -> str:
    """What is sent to the agent: the message alone where it holds the context, else all of the conversation.
    Instructions go with each message, so that they are never lost with a context. A command of the agent's own must
    stay at the beginning: nothing is put before it."""
    note = "" if message.startswith("/") else instructions
    if context != "fresh" or history is None:
        assert context != "fresh" or not list(turns), "a fresh turn is told the turns before it"
        return wrap([], message, note=note) if note else message
    entries = history.entries(turns)
    return wrap(entries, message, note=note) if entries or note else message


def markdown(title: str, history: History, turns: Iterable[int]) -> str:
    """A transcript for people."""
    lines = [f"# {title or 'Session'}", ""]
    for turn in turns:
        view = history.views.get(turn)
        if view is None or view.message is None:
            continue
        lines += [
            f"## {turn}. You",
            "",
            view.message["text"],
            "",
            f"## {turn}. {history.agents.get(turn, 'Agent')}",
            "",
        ]
        lines += [_part_markdown(part) for part in view.show()]
    return "\n".join(lines).rstrip() + "\n"


def _part_markdown(part: dict[str, Any]) -> str:
    kind = part["type"]
    if kind == "text":
        return f"{part['text']}\n"
    if kind == "thinking":
        return "".join(f"> {line}\n" for line in part["text"].splitlines())
    if kind == "tool":
        return f"- `{part['name']}` {part['title']} ({part['status']})\n"
    if kind == "plan":
        return "".join(f"- [{'x' if e['status'] == 'completed' else ' '}] {e['content']}\n" for e in part["entries"])
    if kind == "error":
        return f"**Error:** {part['message']}\n"
    return ""
