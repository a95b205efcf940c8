"""The transcript: Perdure's own history of a session, and the input made from it for an agent.

The transcript is authoritative; an agent's native session is only a cache of it.

Above: the runner's orders, and the verbs that export and explain. Below: view.py folds turns, digest.py shortens long
transcripts, transcript_text.py defines the text format.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core import events as ev
from perdure.core import slash_commands
from perdure.core.digest import DEFAULT_TOKENS, Piece, Said, Shortened, note_of, shorten
from perdure.core.tool_text import OUTCOMES, tool_line, tool_result
from perdure.core.transcript_text import Kind, wrap
from perdure.core.view import NOT_SHOWN, SHOWN, TurnView

CUT_OFF = {
    "cancelled": "this answer was interrupted by the user",
    "failed": "this answer broke off when the turn failed",
    "timed_out": "this answer was stopped because it took too long",
}
BY_ITSELF = "not said by the user: the agent went on by itself"
FOLDED: frozenset[type[ev.Event]] = frozenset({*SHOWN, ev.TurnStart, ev.TurnEnd})
NOT_FOLDED = frozenset(NOT_SHOWN) - FOLDED
"""A history has what the views of its turns show, and the agent and end of each turn."""


class History:
    """The turns of a session, folded from its events in order. Without `pictures`, images lose their data: a replay
    doesn't need it, and a long session may have many megabytes of it."""

    def __init__(self, *, pictures: bool = True) -> None:
        self._pictures = pictures
        self.views: dict[int, TurnView] = {}
        self.agents: dict[int, str] = {}
        self.stop_reasons: dict[int, str] = {}
        self.seq = 0
        """The number of the last folded event; set by the caller."""

    def fold(self, event: ev.Event) -> None:
        if event.turn is None or type(event) in NOT_FOLDED:
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
        """The messages of these turns, and the answers with their tools."""
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
    """Says that the message is not from the user, if so, and names its attachments. Their content is not replayed."""
    names = [attachment_name(attachment) for attachment in message["attachments"]]
    notes = [BY_ITSELF] if message.get("origin") == "agent" else []
    return "; ".join([*notes, *([f"attached: {', '.join(names)}"] if names else [])])


def attachment_name(attachment: dict[str, Any]) -> str:
    place = attachment.get("path") or attachment.get("uri") or ""
    name = attachment.get("name") or str(place).rsplit("/", 1)[-1] or "a file"
    return str(name)


def _pieces(view: TurnView) -> Iterator[Piece]:
    """The answer, with a separate line for each tool and question, so that the agent knows what was done."""
    for part in view.show():
        if part["type"] in REPLAYED:
            yield from REPLAYED[part["type"]](part)


def _replayed_questions(part: dict[str, Any]) -> list[Piece]:
    lines = question_lines(part) if part.get("questions") else []
    return [Piece(f"\n[asked: {asked} ({answered})]\n") for asked, answered in lines]


REPLAYED: dict[str, Callable[[dict[str, Any]], list[Piece]]] = {
    "text": lambda part: [Piece(part["text"])],
    "tool": lambda part: [Piece(tool_line(part), True, tool_result(part))],
    "image": lambda part: [Piece(f"\n[image: {image_words(part)}, not replayed]\n")],
    "prompt_resolved": _replayed_questions,
}
"""The parts of a view that are replayed to an agent, by type."""
NOT_REPLAYED = ("thinking", "plan", "error", "system", "context_fallback", "history_shortened")


def image_words(part: dict[str, Any]) -> str:
    return f"{part['mime_type']}, {part['size']:,} bytes"


def question_lines(part: dict[str, Any]) -> list[tuple[str, str]]:
    """Each question of a prompt, with its answer or how it was closed."""
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
"""It deliberately says nothing about earlier tasks: a turn may have been interrupted in the middle of one."""


class AgentInput(Struct, frozen=True):
    """The text to send to an agent, and how its history was shortened."""

    text: str
    shortened: Shortened


def compose(
    context: str,
    history: History | None,
    turns: Sequence[int],
    message: str,
    instructions: str = "",
    limit_tokens: int = DEFAULT_TOKENS,
    commands: Collection[str] = (),
) -> AgentInput:
    """The agent's input: the `turns` that its native session lacks, then the message. In a fresh turn these are all
    turns of its view, otherwise those that it missed. Instructions are added to every message, so they are never lost
    with a context. They are omitted before a slash command, which must be at the very start of the input. `commands`
    are the known names of the agent's commands."""
    assert history is not None or not turns, "turns can't be sent without the history"
    short = shorten(history.said(turns), limit_tokens) if history is not None else Shortened([])
    notes = [instructions, ANTI_ECHO if context == "resumed" else ""]
    notes = [note_of(short), *([] if _is_command(message, commands) else notes)]
    note = "\n\n".join(part for part in notes if part)
    kind: Kind = "transcript" if context == "fresh" else "catch-up"
    if slash_commands.called(message, commands):
        message = message.lstrip()
    return AgentInput(wrap(short.entries, message, note=note, kind=kind), short)


def _is_command(message: str, known: Collection[str]) -> bool:
    # A name with a folder, `/nested/review`, is a command only if the agent reports it.
    return bool(slash_commands.called(message, known) or slash_commands.called(message, None))


def markdown_title(title: str) -> str:
    """The heading of a transcript for people."""
    return f"# {title or 'Session'}\n"


def markdown(history: History, turn: int) -> str:
    """One turn as Markdown; empty if it has no message."""
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
    lines += [MARKDOWN[part["type"]](part) for part in view.show() if part["type"] in MARKDOWN]
    if history.stop_reasons.get(turn) == "cancelled":
        lines.append(f"*({CUT_OFF['cancelled']})*\n")
    return "\n".join(lines).rstrip() + "\n"


def _thinking(part: dict[str, Any]) -> str:
    return "".join(f"> {line}\n" for line in part["text"].splitlines())


def _tool(part: dict[str, Any]) -> str:
    return f"- `{part['name']}` {part['title']} ({OUTCOMES.get(part.get('outcome', ''), part['status'])})\n"


def _plan(part: dict[str, Any]) -> str:
    return "".join(f"- [{'x' if e['status'] == 'completed' else ' '}] {e['content']}\n" for e in part["entries"])


def _questions(part: dict[str, Any]) -> str:
    lines = question_lines(part) if part.get("questions") else []
    return "".join(f"- {asked} *{answered}*\n" for asked, answered in lines)


MARKDOWN: dict[str, Callable[[dict[str, Any]], str]] = {
    "text": lambda part: f"{part['text']}\n",
    "thinking": _thinking,
    "tool": _tool,
    "image": lambda part: f"*(image: {image_words(part)})*\n",
    "plan": _plan,
    "error": lambda part: f"**Error:** {part['message']}\n",
    "prompt_resolved": _questions,
}
"""The parts of a view in a Markdown transcript, by type."""
NOT_IN_MARKDOWN = ("system", "context_fallback", "history_shortened")
