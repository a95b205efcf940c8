"""Where the next message of a chat goes: its session and agent, and the completions that these offer.

Above: conversation.py, which reads and changes it; completion.py, which shows the completions. Below: the client, and
the folder that a new session would work in. Once there is a session, its data takes precedence over the agent's.
"""

import asyncio
import contextlib
from typing import Any

from perdure.surfaces.cli import chat_commands, config_options
from perdure.surfaces.cli.completion import MOST, Offered, local_files
from perdure.surfaces.cli.situation import Situation
from perdure.surfaces.client import Client, Problem, Unreachable

Json = dict[str, Any]


class Destination:
    def __init__(self, client: Client, workdir: str | None) -> None:
        self._client = client
        self._workdir = workdir
        self.agents: dict[str, Json] = {}
        self._default = ""
        self.sessions: list[Json] = []
        """The sessions that `/sessions` listed last."""
        self.session_id: str | None = None
        self.situation = Situation()
        self.next_agent: str | None = None

    @property
    def agent(self) -> str:
        """The agent that gets the next message, for display."""
        return self.known_agent or "the agent"

    @property
    def known_agent(self) -> str:
        """The agent that gets the next message; empty until the default agent is known."""
        return self.next_agent or self.situation.agent or self._default

    @property
    def commands(self) -> list[Json] | None:
        """The slash commands of the agent that gets the next message; None if unknown."""
        own = self.situation.commands if self.agent == self.situation.agent else None
        known: list[Json] | None = self.agents.get(self.agent, {}).get("commands")
        return own if own is not None else known

    async def refresh(self) -> None:
        with contextlib.suppress(Problem, Unreachable):
            found = await asyncio.to_thread(self._client.agents)
            self.agents = {agent["name"]: agent for agent in found}
            self._default = await asyncio.to_thread(self._client.default_agent)

    # For completion: these may block, so a thread calls them ---------------------------------------------------------

    def slash(self) -> Offered:
        return chat_commands.offered(self.commands, self.agent)

    def values(self, command: str) -> Offered:
        """Completions for the argument of a chat command."""
        name = chat_commands.NAMES.get(command)
        if name == "agent":
            return [(agent, str(known["state"])) for agent, known in self.agents.items()]
        if name == "sessions":
            return [(str(number), one["title"] or "untitled") for number, one in enumerate(self.sessions, 1)]
        if name in ("model", "mode"):
            with contextlib.suppress(Problem, Unreachable):
                session_id = self.session_id
                known = self._client.session(session_id) if session_id else self.agents.get(self.agent, {})
                return [(one.value, one.about or one.name) for one in config_options.values(known, name)]
        return []

    def files(self, written: str) -> list[str]:
        if self.session_id is None:
            return local_files(self._workdir, written) if self._workdir else []
        with contextlib.suppress(Problem, Unreachable):
            return self._client.files(self.session_id, written, limit=MOST)
        return []
