"""The transcript: Perdure's own history of a session, and what a fresh turn is told of it.

The agent's native session is only a cache of this. How it is written as text is transcript_text.py; what becomes of
one that is too long, digest.py.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core import events as ev
from perdure.core import slash_commands
from perdure.core.digest import DEFAULT_TOKENS, Piece, Said, Shortened, note_of, shorten
from perdure.core.tool_text import OUTCOMES, tool_line, tool_result
from perdure.core.transcript_text import Kind, wrap
from perdure.core.view import TurnView

CUT_OFF = {
    "cancelled": "this answer was interrupted by the user",
    "failed": "this answer broke off when the turn failed",
    "timed_out": "this answer was stopped because it took too long",
}
BY_ITSELF = "not said by the user: the agent went on by itself"


class History:
    """The turns of a session, folded from its events in order. Feed it all events; ask for turns. Without `pictures`
    it holds only that there were some: a replay has no more, and a long session may have many megabytes of them."""

    def __init__(self, *, pictures: bool = True) -> None:
        self._pictures = pictures
        self.views: dict[int, TurnView] = {}
        self.agents: dict[int, str] = {}
        self.stop_reasons: dict[int, str] = {}
        self.seq = 0
        """The number of the last event that was folded; set by who feeds it."""

    def fold(self, event: ev.Event) -> None:
        if event.turn is None:
            return
        view = self.views.get(event.turn)
        if view is None:
            view = self.views[event.turn] = TurnView(event.turn, live_chars=None)
        lean = isinstance(event, ev.Image) and not self._pictures
        view.fold(replace(event, data=None) if lean else event)
        if isinstance(event, ev.TurnStart):
            self.agents[event.turn] = event.agent
        elif isinstance(event, ev.TurnEnd):
            self.stop_reasons[event.turn] = event.stop_reason

    def said(self, turns: Iterable[int]) -> list[Said]:
        """What was said, as a transcript tells it: each user message, and each answer with its tools."""
        found: list[Said] = []
        for turn in turns:
            view = self.views.get(turn)
            if view is None or view.message is None:
                continue
            agent = self.agents.get(turn, "")
            message = (Piece(view.message["text"]),)
            found.append(Said("user", turn, agent, message, message_note(view.message)))
            note = CUT_OFF.get(self.stop_reasons.get(turn, ""), "")
            answer = Said("assistant", turn, agent, tuple(_pieces(view)), note)
            if answer.text or note:
                found.append(answer)
        return found


def message_note(message: dict[str, Any]) -> str:
    """Who did not say it, and the names of what came with it: what was in that is not told again."""
    names = [attachment_name(attachment) for attachment in message["attachments"]]
    notes = [BY_ITSELF] if message.get("origin") == "agent" else []
    return "; ".join([*notes, *([f"attached: {', '.join(names)}"] if names else [])])


def attachment_name(attachment: dict[str, Any]) -> str:
    place = attachment.get("path") or attachment.get("uri") or ""
    name = attachment.get("name") or str(place).rsplit("/", 1)[-1] or "a file"
    return str(name)


def _pieces(view: TurnView) -> Iterator[Piece]:
    """The answer with each tool and each question as a line of its own, so that the reader knows what was done."""
    for part in view.show():
        if part["type"] == "text":
            yield Piece(part["text"])
        elif part["type"] == "tool":
            yield Piece(tool_line(part), True, tool_result(part))
        elif part["type"] == "image":
            yield Piece(f"\n[image: {image_words(part)}, not replayed]\n")
        elif part["type"] == "prompt_resolved" and part.get("questions"):
            yield from (Piece(f"\n[asked: {asked} ({answered})]\n") for asked, answered in question_lines(part))


def image_words(part: dict[str, Any]) -> str:
    return f"{part['mime_type']}, {part['size']:,} bytes"


def question_lines(part: dict[str, Any]) -> list[tuple[str, str]]:
    """Each question of a prompt, and that it is answered, and how."""
    lines = []
    for question in part["questions"]:
        answer = (part.get("answers") or {}).get(question["question_id"])
        words = ", ".join(answer) if isinstance(answer, list) else answer
        lines.append((question["question"], f"already answered: {words}" if words else f"closed: {part['outcome']}"))
    return lines


ANTI_ECHO = (
    "You go on in a session of yours. Whatever you asked in it before is already answered: do not ask it again, and"
    " answer only the new message."
)
"""Nothing is said of what was to be done: a turn may have been interrupted in the middle of it."""


class Prompt(Struct, frozen=True):
    """What an agent is sent, and what of a long history it is not told as it was."""

    text: str
    told: Shortened


def compose(
    context: str,
    history: History | None,
    turns: Sequence[int],
    message: str,
    instructions: str = "",
    limit_tokens: int = DEFAULT_TOKENS,
    commands: Collection[str] = (),
) -> Prompt:
    """What is sent to the agent: the message, and before it the `turns` that its own session does not hold. These are
    all of its view for a fresh one, and what it missed for another. Instructions go with each message, so that they
    are never lost with a context. A command of the agent's own must stay at the beginning: nothing is put before it;
    `commands` are the names of those that are known."""
    assert history is not None or not turns, "an agent is told the turns that it does not hold"
    short = shorten(history.said(turns), limit_tokens) if history is not None else Shortened([])
    notes = [instructions, ANTI_ECHO if context == "resumed" else ""]
    notes = [note_of(short), *([] if _is_command(message, commands) else notes)]
    note = "\n\n".join(part for part in notes if part)
    kind: Kind = "transcript" if context == "fresh" else "catch-up"
    if slash_commands.called(message, commands):
        message = message.lstrip()
    return Prompt(wrap(short.entries, message, note=note, kind=kind), short)


def _is_command(message: str, known: Collection[str]) -> bool:
    # One in a folder, `/nested/review`, is a command only if the agent says so.
    return bool(slash_commands.called(message, known) or slash_commands.called(message, None))


def markdown_title(title: str) -> str:
    """How a transcript for people begins."""
    return f"# {title or 'Session'}\n"


def markdown(history: History, turn: int) -> str:
    """A turn of it; nothing if it has no message."""
    view = history.views.get(turn)
    if view is None or view.message is None:
        return ""
    lines = [
        "",
        f"## {turn}. {'Begun by the agent' if view.message.get('origin') == 'agent' else 'You'}",
        "",
        view.message["text"],
        "",
        *(f"- attached: {attachment_name(attachment)}\n" for attachment in view.message["attachments"]),
        f"## {turn}. {history.agents.get(turn, 'Agent')}",
        "",
    ]
    lines += [_part_markdown(part) for part in view.show()]
    if history.stop_reasons.get(turn) == "cancelled":
        lines.append(f"*({CUT_OFF['cancelled']})*\n")
    return "\n".join(lines).rstrip() + "\n"


def _part_markdown(part: dict[str, Any]) -> str:
    kind = part["type"]
    if kind == "text":
        return f"{part['text']}\n"
    if kind == "thinking":
        return "".join(f"> {line}\n" for line in part["text"].splitlines())
    if kind == "tool":
        return f"- `{part['name']}` {part['title']} ({OUTCOMES.get(part.get('outcome', ''), part['status'])})\n"
    if kind == "image":
        return f"*(image: {image_words(part)})*\n"
    if kind == "plan":
        return "".join(f"- [{'x' if e['status'] == 'completed' else ' '}] {e['content']}\n" for e in part["entries"])
    if kind == "error":
        return f"**Error:** {part['message']}\n"
    if kind == "prompt_resolved" and part.get("questions"):
        return "".join(f"- {asked} *{answered}*\n" for asked, answered in question_lines(part))
    return ""
