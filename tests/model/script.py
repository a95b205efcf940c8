"""The answer to one request, as acts independent of any API.

Above: server.py takes the acts one by one and lets a dialect write each. Below: verbs.py, conversation.py, tools.py.
The position in a script follows from the conversation: as many calling verbs are done as tools were called since the
user's newest text. Only how often a step has failed can't be derived from it, so the caller counts that.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.model import tools
from tests.model.conversation import Conversation
from tests.model.tools import Call
from tests.model.verbs import Step, parse

BIG_PIECE_BYTES = 65536
GREETING = "I am a scripted model: I obey lines like `say hello`, `bash ls` or `recall`."
QUOTED_RESULT_CHARS = 2000


class Text(NamedTuple):
    delta: str


class Thought(NamedTuple):
    delta: str


class Usage(NamedTuple):
    """Sent before everything else in its answer."""

    input_tokens: int
    output_tokens: int


class Pause(NamedTuple):
    """None: as long as the client stays connected. `opened`: the head of the answer is sent first."""

    seconds: float | None
    opened: bool


class Fail(NamedTuple):
    """An HTTP error, or an error inside the stream if it has started. The answer ends. `resets_in_s`: the
    subscription's usage limit is reached for this long, as reported in the answer's head."""

    status: int
    resets_in_s: float | None = None


class Cut(NamedTuple):
    """The connection is closed in the middle of the stream. The answer ends."""


Act = Text | Thought | Call | Usage | Pause | Fail | Cut
Acts = Iterator[Act]


def perform(conversation: Conversation, met: Callable[[int], int]) -> Acts:
    """The acts of one answer. `met(n)` counts how often step n of this conversation was reached, including this
    time."""
    if conversation.form is not None:
        # The agent asks on its own behalf and only quotes the user, so the text is not an order.
        yield Text(json.dumps(tools.filled_form(conversation.form)))
        return
    steps = parse(conversation.script)
    begin = _after_calls(steps, conversation.calls)
    rest = steps[begin:]
    for step in rest:
        if step.verb == "usage" and step.arguments:
            yield Usage(int(step.arguments[0]), int(step.arguments[1]))
    if not rest:
        yield from _words(_said_by_tool(conversation) if conversation.results else GREETING)
    spoke = False
    for number, step in enumerate(rest, begin):
        spoke_now = ended = False
        for act in _acts(step, conversation, lambda number=number: met(number)):  # type: ignore[misc]
            if isinstance(act, Text) and spoke and not spoke_now:
                yield Text("\n")
            spoke_now = spoke_now or isinstance(act, Text)
            yield act
            ended = ended or isinstance(act, Call | Fail | Cut)
        if ended:
            return
        spoke = spoke or spoke_now


def _after_calls(steps: list[Step], calls: int) -> int:
    begin = 0
    for number, step in enumerate(steps):
        if step.calls and calls:
            calls = max(0, calls - step.calls)
            begin = number + 1
    return len(steps) if calls else begin


def _said_by_tool(conversation: Conversation) -> str:
    return f"The tool said: {conversation.results[-1][:QUOTED_RESULT_CHARS]}" if conversation.results else "No result."


def _acts(step: Step, conversation: Conversation, met: Callable[[], int]) -> Acts:
    if step.arguments is None:
        yield from _words(f"`{step.verb}` was not understood. It is used like this: `{step.usage}`.")
    elif step.verb == "together":
        yield from (_call(part.verb, part.arguments or (), conversation) for part in step.parts)
    elif step.calls:
        yield _call(step.verb, step.arguments, conversation)
    elif step.verb in ("fail", "cut", "limit"):
        yield from _trouble(step.verb, step.arguments, met)
    else:
        yield from _telling(step.verb, step.arguments, conversation)


def _telling(verb: str, arguments: tuple[str, ...], conversation: Conversation) -> Acts:
    match verb:
        case "say":
            yield from _words(arguments[0])
        case "spell":
            # JSON escapes, so that a text can contain what a line can't: line breaks, halves of an emoji.
            yield from (Text(piece) for piece in json.loads(arguments[0]))
        case "think":
            yield from (Thought(piece) for piece in _pieces(arguments[0]))
        case "stream":
            for number in range(int(arguments[0])):
                if number and arguments[1]:
                    yield Pause(int(arguments[1]) / 1000, opened=True)
                yield Text(f"w{number} ")
        case "result":
            yield from _words(_said_by_tool(conversation))
        case "recall":
            yield Text("\n".join(f"- {json.dumps(text, ensure_ascii=False)}" for text in conversation.user_texts))
        case "big":
            left = int(arguments[0])
            while left > 0:
                yield Text("x" * min(left, BIG_PIECE_BYTES))
                left -= BIG_PIECE_BYTES
        case "stall":
            yield Pause(float(arguments[0]) if arguments[0] else None, opened=True)
        case "slow":
            yield Pause(float(arguments[0]), opened=False)
        case "hang":
            yield Pause(None, opened=False)


def _trouble(verb: str, arguments: tuple[str, ...], met: Callable[[], int]) -> Acts:
    """A failure repeats until it has happened TIMES times. By default, `fail` repeats forever and `cut` happens
    once."""
    if verb == "limit":
        yield Fail(429, resets_in_s=float(arguments[0]))
    if verb == "fail" and (not arguments[1] or met() <= int(arguments[1])):
        yield Fail(int(arguments[0]))
    if verb == "cut" and met() <= int(arguments[0] or 1):
        yield Cut()


def _call(verb: str, arguments: tuple[str, ...], conversation: Conversation) -> Call:
    offered = conversation.tools
    if verb == "bash":
        return tools.shell(arguments[0], offered)
    if verb == "write":
        return tools.write_file(arguments[0], arguments[1], offered)
    if verb == "read":
        return tools.read_file(arguments[0], offered)
    if verb == "ask":
        choices = [choice.strip() for choice in arguments[1].split("|") if choice.strip()]
        return tools.question(arguments[0].strip(), choices, offered)
    return Call(arguments[0], json.loads(arguments[1] or "{}"))


def _words(text: str) -> Iterator[Text]:
    return (Text(piece) for piece in _pieces(text))


def _pieces(text: str) -> list[str]:
    """Word by word, or a single word in two halves, so that every answer has several deltas."""
    words: list[str] = re.findall(r"\s*\S+\s*", text) or [text]
    if len(words) == 1 and len(text) > 1:
        middle = len(text) // 2
        words = [text[:middle], text[middle:]]
    return words
