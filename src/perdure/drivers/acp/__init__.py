"""The client side of the Agent Client Protocol, version 1, as pure functions on values.

Above: the runner, through drivers/base.py. Below: jsonrpc.py for messages.

conversation    takes orders and lines, and dispatches them
handshake       initialize, and open a session: new or resumed
turns           the input in flight, and the agent's work on it
asking          requests of the agent to people, and the answers
choosing        model, mode and other settings
outbox          the result of a step
state           the complete stored state; the rest are functions on values (content, faults, forms, permissions,
                settings, tools)

Each rule that looks odd handles a real agent: agents differ in how they offer settings, replay history, announce tools,
report usage and end a turn. Not supported, on purpose: file and terminal access for agents (none needs it), login
(users do that themselves), and version 2, which some agents switch to if they are offered anything but exactly 1.
"""

from perdure.drivers.acp import state
from perdure.drivers.acp.conversation import AcpConversation
from perdure.drivers.base import Driver, LaunchCommand, SharedConversation, StartSession

__all__ = ["AcpConversation", "AcpDriver"]


class AcpDriver(Driver):
    """Any agent that speaks ACP on its stdin and stdout. A denial in ACP has no field for a reason."""

    name = "acp"
    shares = True

    def command(self, argv: list[str], order: StartSession, launch_id: str) -> LaunchCommand:
        return LaunchCommand(list(argv), {})

    def begin(self, launch_id: str) -> AcpConversation:
        return AcpConversation(state.State(launch_id=launch_id))

    def join(self, other: SharedConversation, member: int) -> AcpConversation:
        known = state.restore(other.dump())
        return AcpConversation(
            state.State(
                launch_id=known.launch_id,
                phase="ready",
                next_id=member * state.IDS_OF_A_MEMBER,
                member=member,
                shared=True,
                speaks=False,
                capabilities=known.capabilities,
                agent_name=known.agent_name,
                auth_methods=known.auth_methods,
            )
        )

    def restore(self, dump: bytes) -> AcpConversation:
        return AcpConversation(state.restore(dump))
