"""The client side of Claude Code's own protocol, stream-json on stdin and stdout, as pure functions on values.

Above: the runner, through drivers/base.py. Below: jsonrpc.py, only to parse untrusted JSON; this is not JSON-RPC.

probing         which programs can be used
launching       the command line, always the same except for the session
conversation    takes orders and lines, and dispatches them
handshake       initialize, and a refused resume
turns           the input in flight, turns that the agent starts on its own, and how each ends
speaking        text that arrives twice, in pieces and whole, and is shown once
working         tools, their results and sub-agents
asking          requests of the agent to people, and the answers
choosing        model and mode
outbox          the result of a step
state           the complete stored state; the rest are functions on values (content, faults, tools, wire)

Two drivers share all of it. `claude-stream` uses one process for many turns. `claude-resume` ends the process after
each turn, and the next process resumes the session. Not supported, on purpose: hooks and in-process tools, which
nothing here offers, and login (users do that themselves).
"""

from typing import ClassVar

from perdure.drivers.base import Driver, LaunchCommand, StartSession
from perdure.drivers.claude import launching, state
from perdure.drivers.claude.conversation import ClaudeConversation
from perdure.drivers.claude.probing import ClaudeProbe

__all__ = ["ClaudeConversation", "ClaudeResumeDriver", "ClaudeStreamDriver"]


class ClaudeStreamDriver(Driver):
    """One process for many turns. It is prewarmed, because its start takes a second. Some versions are known to ignore
    input; the session then continues with one process per turn."""

    name = "claude-stream"
    family = "claude"
    prewarms = True
    fallback: ClassVar[str | None] = "claude-resume"
    delivers_reasons = True
    is_preferred = True
    login_hint = "start `claude` in a terminal and enter /login"
    probe = ClaudeProbe()

    def command(self, argv: list[str], order: StartSession, launch_id: str) -> LaunchCommand:
        return launching.command(argv, order, launch_id)

    def begin(self, launch_id: str) -> ClaudeConversation:
        return ClaudeConversation(state.State(launch_id=launch_id, leaves=self.process_per_turn))

    def restore(self, dump: bytes) -> ClaudeConversation:
        return ClaudeConversation(state.restore(dump))


class ClaudeResumeDriver(ClaudeStreamDriver):
    """One process per turn. It saves the session and exits when its stdin is closed."""

    name = "claude-resume"
    process_per_turn = True
    prewarms = False
    fallback = None
