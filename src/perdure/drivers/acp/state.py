"""The complete state of one ACP conversation, as stored by `dump()`.

Above: the parts of the conversation change it. Below: nothing. It is stored with each batch of output that changes it,
so it has only what later lines need: only the ids from the agent's lists, and only the fact that finished tools ended.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.core.events import PromptOption
from perdure.drivers.acp.forms import Field
from perdure.drivers.acp.settings import Setting
from perdure.drivers.acp.tools import Tool
from perdure.drivers.base import SendInput, StartSession
from perdure.drivers.jsonrpc import Id

Phase = Literal["unborn", "initializing", "ready", "opening", "open"]


class Sent(Struct, omit_defaults=True):
    """A request that we sent and that has no reply yet."""

    method: str
    config_id: str = ""
    value: Any = None


class Asked(Struct, omit_defaults=True):
    """A request from the agent that a person has to answer."""

    id: Id
    kind: Literal["permission", "question"]
    options: list[PromptOption] = []
    fields: list[Field] = []


class Running(Struct, omit_defaults=True):
    """The input in flight."""

    turn: int
    input_bytes: int
    cancelled: bool = False
    answered: bool = False
    """Whether a person or a rule has answered a prompt in it. After a rejection, codex cancels the turn itself."""
    cost_before_usd: float | None = None
    usage: dict[str, Any] = {}
    tools: dict[str, Tool] = {}
    block: int = -1
    block_kind: str = ""
    block_message: str | int | None = None
    warned_only: bool = True
    """The agent has sent nothing except warnings, which codex sends before it reads the message."""


IDS_OF_A_MEMBER = 10**9
"""Size of the range of request ids for each session in a shared process."""


class State(Struct, omit_defaults=True):
    launch_id: str
    phase: Phase = "unborn"
    member: int = 0
    shared: bool = False
    """Whether the process may serve other sessions too. Ignore messages of other sessions."""
    speaks: bool = True
    """Whether to handle messages that belong to no session. In a shared process, one conversation does that."""
    next_id: int = 0
    asked_count: int = 0
    order: StartSession | None = None
    session_id: str | None = None
    capabilities: dict[str, Any] = {}
    agent_name: str = ""
    """The agent's name for itself, for the few rules that apply to one agent only."""
    auth_methods: list[str] = []
    settings: list[Setting] = []
    sent: dict[int, Sent] = {}
    held: list[SendInput] = []
    wanted: list[tuple[str, Any]] = []
    """Settings requested before the session was open."""
    early: list[bytes] = []
    """Updates that came before the reply that opens the session."""
    early_bytes: int = 0
    replayed: bool = False
    """Whether a load has replayed any history, which shows that the agent knows the session."""
    loaded: dict[str, Any] = {}
    """The reply to session/load. The replay may continue after it; the session is open once that has ended."""
    running: Running | None = None
    asked: dict[str, Asked] = {}
    stale_tools: list[str] = []
    """Tools that earlier turns left open. Their late output belongs to no turn."""
    cost_usd: float | None = None
    """The agent's running total for its session; None if its starting value is unknown."""
    strange: dict[str, int] = {}
    """Number of messages that were not understood, by kind."""


# JSON rather than MessagePack, because agents may send integers of any size.
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[State] = msgspec.json.Decoder(State)


def dump(state: State) -> bytes:
    return _encoder.encode(state)


def restore(body: bytes) -> State:
    return _decoder.decode(body)
