"""What an agent did that is not content: the facts that drivers and the runner report to the machine.

Content is reported as events (core/events.py). Commands may be refused; these may not: the machine turns each into
events, or ignores it because its launch or turn is no longer the session's.
"""

from typing import Any, Literal

from msgspec import Struct

from perdure.core.events import StopReason


class SessionOpened(Struct, frozen=True):
    """The agent's own session is there. `resumed` says that it is the one that was asked for."""

    native_session_id: str
    resumed: bool
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    config_options: list[dict[str, Any]] | None = None
    capabilities: dict[str, Any] = {}


class ResumeRefused(Struct, frozen=True):
    """The native session can't be had. The held prompt is forgotten; the runner starts over with a new one."""

    reason: str
    reopens: bool = True
    """The same process can open a new session; else it is let go and another one is launched."""


class StartFailed(Struct, frozen=True):
    """No session at all can be had from this process (needs login, wrong protocol version, ...)."""

    code: str
    message: str
    passing: bool = False
    """It says nothing of the next process: a turn that waits for this one may try another, once."""
    detail: str | None = None
    """What the message was made from, in the agent's own words."""


class Told(Struct, frozen=True):
    """The turn's agent is told a conversation that was too long for it. Reported by the runner, not by a driver."""

    turn: int
    digested: tuple[int, ...]
    """Told in short form."""
    left_out: tuple[int, ...]
    tokens: int


class PromptWithdrawn(Struct, frozen=True):
    """The agent no longer waits for this answer."""

    prompt_id: str


class TurnFinished(Struct, frozen=True):
    """The agent's own word that the turn is over. `poisoned`: its native session can't be used again."""

    turn: int
    stop_reason: StopReason
    error_code: str | None = None
    error_message: str | None = None
    poisoned: bool = False
    held: bool = False
    """The turn failed, with nothing said, and the native session holds its message all the same."""
    sent: bool = True
    """The agent was given the message; else its native session does not hold this turn."""
    forgotten: bool = False
    """The agent was given the message, and its native session may not hold it as it was, all the same."""
    cost_usd: float | None = None
    input_bytes: int = 0
    retry_at: float | None = None
    """When it makes sense to try again (a usage limit resets), in seconds since 1970."""
    retry_after_s: float | None = None
    """The same, counted from now."""
    error_detail: str | None = None
    """What the message was made from, in the agent's own words."""
    leaves: bool = False
    """The process ends now and another one takes the next turn."""


class TurnBegun(Struct, frozen=True):
    """The agent began a turn that nobody asked for (a background task ended). Its content has turn 0, and so has its
    TurnFinished: the machine knows which turn that is."""

    message: str


class Noise(Struct, frozen=True):
    """A line that is not understood: broken JSON, a banner, over-long, a kind that is not known here."""

    sample: str
    reason: str
    raw: str = ""
    """As it came, but for its length."""
    told: bool = True
    """Whether people are told: once for each kind."""


class AgentExited(Struct, frozen=True):
    """The process is gone, and everything it wrote has been read. Reported by the runner, not by a driver."""

    how: Literal[
        "exited",
        "signalled",
        "ended",
        "orphaned",
        "expired",
        "spawn_failed",
        "never_started",
        "lost",
        "memory",
        "start_timeout",
        "stuck",
    ]
    """`expired`: its node was cut off from the others for too long. `never_started`: the server died after it had
    recorded the launch and before a keeper ran."""
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    stderr: str = ""
    delivered: bool = True
    """Whether the running turn's prompt may have reached the agent. Only if surely not is the turn tried again."""
    input_bytes: int | None = None
