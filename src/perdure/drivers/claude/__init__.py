"""Claude Code's own protocol, stream-json on stdin and stdout: our half, as values in and values out.

Above: the runner, through drivers/base.py. Below: jsonrpc.py, for JSON from strangers; JSON-RPC itself is not spoken.

launching       the command line, the same each time but for the session
conversation    takes orders and lines, and knows whose business each is
opening         the handshake, and a resume that is refused
turns           the prompt in flight, the turns that the agent begins by itself, and how each ends
speaking        text that comes twice, as pieces and as a whole, and is shown once
working         tools, their results and sub-agents
asking          what the agent asks, and what it is told
choosing        model and mode
outbox          what a step leads to
state           all that is remembered; the rest are functions on values (content, faults, tools, wire)

Two drivers share all of it. `claude-stream` keeps one process for many turns; `claude-resume` lets it go after each,
and the next one resumes the session. Deliberately not here: hooks and in-process tools, which nothing here offers,
and login (a person's business).
"""

from perdure.drivers.base import Command, StartSession
from perdure.drivers.claude import launching, state
from perdure.drivers.claude.conversation import ClaudeConversation

__all__ = ["ClaudeConversation", "ClaudeResumeDriver", "ClaudeStreamDriver"]


class ClaudeStreamDriver:
    """One process for as many turns as it lives."""

    name = "claude-stream"
    process_per_turn = False

    def command(self, argv: list[str], order: StartSession, launch_id: str) -> Command:
        return launching.command(argv, order, launch_id)

    def begin(self, launch_id: str) -> ClaudeConversation:
        return ClaudeConversation(state.State(launch_id=launch_id, leaves=self.process_per_turn))

    def restore(self, dump: bytes) -> ClaudeConversation:
        return ClaudeConversation(state.restore(dump))


class ClaudeResumeDriver(ClaudeStreamDriver):
    """A process per turn: once its stdin is closed it ends by itself, with the session written down."""

    name = "claude-resume"
    process_per_turn = True
