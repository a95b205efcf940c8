"""Everything that one conversation with `claude` remembers: the value behind `dump()`.

Above: the parts of the conversation change it. Below: nothing. It is stored with every batch of output, so it holds
what the next line needs and no more: of shown text only its length and checksum, of finished tools only their names.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.drivers.base import SendPrompt, StartSession

Phase = Literal["unborn", "initializing", "open", "refused"]
OWN_TURN = 0
"""The turn of what the agent does that nobody asked for."""


class Sent(Struct, omit_defaults=True):
    """A control request of ours that has no reply yet."""

    subtype: str
    config_id: str = ""
    value: Any = None


class Asked(Struct, omit_defaults=True):
    """A control request of the agent's that a person has to answer."""

    request_id: str
    input: Any = None
    """Sent back unchanged, unless the person changes it: an allowance without it fails."""
    always: list[dict[str, Any]] = []
    """The rules that "always" stands for."""
    questions: dict[str, str] = {}
    """The agent's own words for each question that was put."""


class Block(Struct, omit_defaults=True):
    """What was shown of a block, to know it again when it comes whole."""

    thinking: bool
    number: int
    chars: int = 0
    checksum: int = 0
    blank: bool = True
    whole: bool = False
    half: int = 0
    """Half an emoji that the last piece ended with: it waits for the other half."""


class Tool(Struct, omit_defaults=True):
    name: str
    open: bool = True
    edit: Any = None
    """What a sub-agent's edit was given, while it is open: its result does not say what it changed."""


class Running(Struct, omit_defaults=True):
    """The prompt in flight, or what the agent does by itself (turn 0)."""

    turn: int
    input_bytes: int = 0
    cancelled: bool = False
    said: bool = False
    """Some text of the answer was shown."""
    block: int = -1
    message_id: str = ""
    blocks: dict[int, Block] = {}
    """Of the message that is streaming, by index."""
    tools: dict[str, Tool] = {}
    judged: list[str] = []
    """Tools whose permission a person or an event has already told of."""
    seen: list[str] = []
    """The newest entries, by their uuid."""
    fault: str = ""
    fault_text: str = ""
    """An error that came as a message; it is the turn's end that says whether it counts."""
    context_used: int | None = None
    uuid: str = ""
    """The prompt's, as the agent knows it."""
    unseen: bool = False
    """The agent was given the prompt and has shown nothing of it."""
    heard: bool = False
    """The agent has said that it has the prompt."""
    merged: dict[str, Any] | None = None
    """The end of a turn of the agent's own, into which the prompt may have been taken."""


class State(Struct, omit_defaults=True):
    launch_id: str
    leaves: bool = False
    phase: Phase = "unborn"
    next_id: int = 0
    asked_count: int = 0
    order: StartSession | None = None
    session_id: str | None = None
    named: bool = False
    """The agent has said itself which session this is."""
    left: bool = False
    """It left that session for another one, and no turn has ended since."""
    abilities: dict[str, Any] = {}
    """What it told of itself: its version, its features, whether it is logged in."""
    receipts: bool = False
    """It says of each message when it has it."""
    commands: list[str] = []
    models: list[str] = []
    model: str | None = None
    """As the agent last named it."""
    model_set: bool = False
    mode: str | None = None
    sent: dict[str, Sent] = {}
    held: list[SendPrompt] = []
    wanted: list[tuple[str, Any]] = []
    """Settings that were asked for before the session was open."""
    running: Running | None = None
    asked: dict[str, Asked] = {}
    tasks: dict[str, str] = {}
    """What runs beside the conversation: task id to tool id."""
    tasks_told: int = 0
    notice: str = ""
    """Why the agent may go on by itself."""
    cost_usd: float = 0.0
    """The process's running total."""
    limit_resets_at: int | None = None
    strange: dict[str, int] = {}
    """What was not understood, counted by kind."""


# JSON and not MessagePack: agents may send integers of any size.
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[State] = msgspec.json.Decoder(State)


def dump(state: State) -> bytes:
    return _encoder.encode(state)


def restore(body: bytes) -> State:
    return _decoder.decode(body)
