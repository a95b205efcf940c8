"""The complete state of one conversation with `claude`, as stored by `dump()`.

Above: the parts of the conversation change it. Below: nothing. It is stored with every batch of output, so it has only
what later lines need: only the length and checksum of shown text, and only the names of finished tools.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.drivers.base import SendInput, StartSession

Phase = Literal["unborn", "initializing", "open", "refused"]
OWN_TURN = 0
"""The turn number of work that the agent starts on its own."""


class Sent(Struct, omit_defaults=True):
    """A control request that we sent and that has no reply yet."""

    subtype: str
    config_id: str = ""
    value: Any = None


class Asked(Struct, omit_defaults=True):
    """A control request from the agent that a person has to answer."""

    request_id: str
    input: Any = None
    """Sent back unchanged, unless the person changes it. The agent rejects an approval without it."""
    always: list[dict[str, Any]] = []
    """The rules that "always" adds."""
    questions: dict[str, str] = {}
    """The agent's text of each question, by question id."""


class Block(Struct, omit_defaults=True):
    """The shown part of a block, to recognize the block when it arrives whole."""

    thinking: bool
    number: int
    chars: int = 0
    checksum: int = 0
    blank: bool = True
    whole: bool = False
    half: int = 0
    """A high surrogate at the end of the last piece. It waits for its low surrogate."""


class Tool(Struct, omit_defaults=True):
    name: str
    open: bool = True
    edit: Any = None
    """Input of a sub-agent's edit while it is open, because its result does not say what it changed."""


class Running(Struct, omit_defaults=True):
    """The input in flight, or work that the agent started on its own (turn 0)."""

    turn: int
    input_bytes: int = 0
    cancelled: bool = False
    said: bool = False
    """Whether any text of the answer was shown."""
    block: int = -1
    message_id: str = ""
    blocks: dict[int, Block] = {}
    """Blocks of the streaming message, by index."""
    tools: dict[str, Tool] = {}
    judged: list[str] = []
    """Tools with a permission request, or whose denial was already reported."""
    seen: list[str] = []
    """uuids of the newest entries."""
    fault: str = ""
    fault_text: str = ""
    """An error that came as a message. The end of the turn decides whether it counts."""
    context_used: int | None = None
    uuid: str = ""
    """The uuid of the input."""
    unseen: bool = False
    """Whether the input was sent but the agent has shown no reaction."""
    heard: bool = False
    """Whether the agent has confirmed the input."""
    merged: dict[str, Any] | None = None
    """The result of a turn that the agent started on its own and that may have absorbed the input."""


class State(Struct, omit_defaults=True):
    launch_id: str
    leaves: bool = False
    phase: Phase = "unborn"
    next_id: int = 0
    asked_count: int = 0
    order: StartSession | None = None
    session_id: str | None = None
    named: bool = False
    """Whether the agent has reported its session id."""
    left: bool = False
    """Whether it has left that session for another one, and no turn has ended since."""
    abilities: dict[str, Any] = {}
    """What it has reported: its version, its features, whether it is logged in."""
    receipts: bool = False
    """Whether it confirms each message."""
    commands: list[str] = []
    models: list[str] = []
    model: str | None = None
    """The model that the agent last reported."""
    model_set: bool = False
    mode: str | None = None
    sent: dict[str, Sent] = {}
    held: list[SendInput] = []
    wanted: list[tuple[str, Any]] = []
    """Settings requested before the session was open."""
    running: Running | None = None
    asked: dict[str, Asked] = {}
    tasks: dict[str, str] = {}
    """Background tasks: task id to tool id."""
    tasks_told: int = 0
    notice: str = ""
    """Why the agent may start a turn on its own."""
    cost_usd: float = 0.0
    """Running total of the process."""
    limit_resets_at: int | None = None
    strange: dict[str, int] = {}
    """Number of messages that were not understood, by kind."""


# JSON rather than MessagePack, because agents may send integers of any size.
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[State] = msgspec.json.Decoder(State)


def dump(state: State) -> bytes:
    return _encoder.encode(state)


def restore(body: bytes) -> State:
    return _decoder.decode(body)
