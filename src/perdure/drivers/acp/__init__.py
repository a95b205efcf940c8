"""The Agent Client Protocol, version 1: the client's half, as values in and values out.

Above: the runner, through drivers/base.py. Below: jsonrpc.py for envelopes.

conversation    takes orders and lines, and knows whose business each is
opening         initialize, and a session: new or again
turns           the prompt in flight, and what the agent says and does in it
asking          what the agent asks, and what it is told
choosing        model, mode and the like
outbox          what a step leads to
state           all that is remembered; the rest are functions on values (content, faults, forms, permissions,
                settings, tools)

The rules that look odd each answer a real agent: they differ in how they offer settings, replay history, announce
tools, report usage and end a turn. Deliberately not here: file and terminal access for agents (none needs it), login
(a person's business), and version 2, which some agents switch to if they are offered more than exactly 1.
"""

from perdure.drivers.acp import state
from perdure.drivers.acp.conversation import AcpConversation
from perdure.drivers.base import Command, SharedConversation, StartSession

__all__ = ["AcpConversation", "AcpDriver"]


class AcpDriver:
    """Any agent that speaks ACP on its stdin and stdout."""

    name = "acp"
    process_per_turn = False

    def command(self, argv: list[str], order: StartSession, launch_id: str) -> Command:
        return Command(list(argv), {})

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
