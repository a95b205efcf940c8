"""Facts: what drivers and the runner report about an agent, other than content.

Content is reported as events (events.py). Unlike commands, facts are never refused: the machine turns each into events,
or ignores it if it belongs to an earlier launch or turn.

Above: drivers and the runner. Below: observe.py handles them; docs/sessions.md lists those that change the phase.
"""

from typing import Any, Literal

from msgspec import Struct

from perdure.core.events import StopReason


class SessionOpened(Struct, frozen=True):
    """The native session is open. `resumed`: it is the one that was requested, not a new one."""

    native_session_id: str
    resumed: bool
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    config_options: list[dict[str, Any]] | None = None
    capabilities: dict[str, Any] = {}


class ResumeRefused(Struct, frozen=True):
    """The agent can't resume its native session. The driver drops the input that it held back, and the runner starts
    over with a new native session."""

    reason: str
    reopens: bool = True
    """The same process can open a new session. Otherwise it is detached and another one is launched."""


class StartFailed(Struct, frozen=True):
    """The process can't open any session (needs login, wrong protocol version, ...)."""

    code: str
    message: str
    passing: bool = False
    """Temporary: the turn that waits for this process may try another one, once."""
    detail: str | None = None
    """The agent's own text, from which the message was made."""


class TranscriptShortened(Struct, frozen=True):
    """The conversation was too long and was shortened for the turn's agent. Reported by the runner, not by a driver."""

    turn: int
    digested: tuple[int, ...]
    """Turns in short form."""
    left_out: tuple[int, ...]
    tokens: int


class PromptWithdrawn(Struct, frozen=True):
    """The agent no longer waits for this answer."""

    prompt_id: str


class TurnFinished(Struct, frozen=True):
    """The agent reports the end of the turn. `poisoned`: its native session can't be used again."""

    turn: int
    stop_reason: StopReason
    error_code: str | None = None
    error_message: str | None = None
    poisoned: bool = False
    held: bool = False
    """The turn failed without output, but the native session holds its message nevertheless."""
    sent: bool = True
    """The agent received the message. Otherwise its native session does not hold this turn."""
    forgotten: bool = False
    """The agent received the message, but its native session may not hold it unchanged."""
    cost_usd: float | None = None
    input_bytes: int = 0
    retry_at: float | None = None
    """When to try again (a usage limit resets), in seconds since 1970."""
    retry_after_s: float | None = None
    """The same, in seconds from now."""
    error_detail: str | None = None
    """The agent's own text, from which the message was made."""
    leaves: bool = False
    """The process exits now; the next turn gets another one."""


class TurnBegun(Struct, frozen=True):
    """The agent started a turn on its own, for example because a background task ended. Its content and its
    TurnFinished have turn 0, which the machine maps to the right turn."""

    message: str


class Noise(Struct, frozen=True):
    """A line that the driver does not understand: broken JSON, a banner, an overlong line, an unknown kind."""

    sample: str
    reason: str
    raw: str = ""
    """The line as received, cut if it is long."""
    told: bool = True
    """Whether to notify people: once for each kind."""


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
    """`expired`: its node was cut off from the database for too long. `never_started`: the server crashed after it
    recorded the launch and before a keeper ran."""
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    stderr: str = ""
    delivered: bool = True
    """Whether the running turn's input may have reached the agent. The turn is retried only if it certainly did not."""
    fallback: str | None = None
    """The driver to use from now on if the process did not respond, as its driver names it."""
    input_bytes: int | None = None
