"""Everything that one ACP conversation remembers: the value behind `dump()`.

Above: the parts of the conversation change it. Below: nothing. It is stored with each batch of output that changes it,
so it holds what the next line needs and no more: of the agent's lists only the ids, of finished tools only that they
ended.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.core.events import PromptOption
from perdure.drivers.acp.forms import Field
from perdure.drivers.acp.settings import Setting
from perdure.drivers.acp.tools import Tool
from perdure.drivers.base import SendPrompt, StartSession
from perdure.drivers.jsonrpc import Id

Phase = Literal["unborn", "initializing", "ready", "opening", "open"]


class Sent(Struct, omit_defaults=True):
    """A request of ours that has no reply yet."""

    method: str
    config_id: str = ""
    value: Any = None


class Asked(Struct, omit_defaults=True):
    """A request of the agent's that a person has to answer."""

    id: Id
    kind: Literal["permission", "question"]
    options: list[PromptOption] = []
    fields: list[Field] = []


class Running(Struct, omit_defaults=True):
    """The prompt in flight."""

    turn: int
    input_bytes: int
    cancelled: bool = False
    answered: bool = False
    """A person or a rule has answered something in it: codex cancels a turn itself if that was a refusal."""
    cost_before_usd: float | None = None
    usage: dict[str, Any] = {}
    tools: dict[str, Tool] = {}
    block: int = -1
    block_kind: str = ""
    block_message: str | int | None = None
    warned_only: bool = True
    """It has said nothing yet but warnings, which codex gives before it takes the message in."""


IDS_OF_A_MEMBER = 10**9
"""How many requests each session in a shared process may number."""


class State(Struct, omit_defaults=True):
    launch_id: str
    phase: Phase = "unborn"
    member: int = 0
    shared: bool = False
    """The process serves other sessions too: what is theirs is none of ours."""
    speaks: bool = True
    """What concerns no session is answered and told here; in a shared process by one of them."""
    next_id: int = 0
    asked_count: int = 0
    order: StartSession | None = None
    session_id: str | None = None
    capabilities: dict[str, Any] = {}
    agent_name: str = ""
    """As the agent calls itself, for the few rules that hold for one agent only."""
    auth_methods: list[str] = []
    settings: list[Setting] = []
    sent: dict[int, Sent] = {}
    held: list[SendPrompt] = []
    wanted: list[tuple[str, Any]] = []
    """Settings that were asked for before there was a session."""
    early: list[bytes] = []
    """Updates that came before the reply that opens the session."""
    early_bytes: int = 0
    replayed: bool = False
    """A load has shown something of the session: the agent knows it."""
    loaded: dict[str, Any] = {}
    """The reply to session/load: the replay may still be coming, and the session is open after it."""
    running: Running | None = None
    asked: dict[str, Asked] = {}
    stale_tools: list[str] = []
    """Tools that earlier turns left open: what they still say belongs to no turn."""
    cost_usd: float | None = None
    """The agent's running total for its session; None if it isn't known where that began."""
    strange: dict[str, int] = {}
    """What was not understood, counted by kind."""


# JSON and not MessagePack: agents may send integers of any size.
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[State] = msgspec.json.Decoder(State)


def dump(state: State) -> bytes:
    return _encoder.encode(state)


def restore(body: bytes) -> State:
    return _decoder.decode(body)
