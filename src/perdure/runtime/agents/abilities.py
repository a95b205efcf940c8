"""What an agent said of itself: what it can do, which models and modes it has, whether it is logged in.

Above: the agents keep it, the facts let it learn. Below: the facts that drivers report. It decides nothing: an agent
that needs a login may be tried, or else nobody would find out that somebody has logged in.
"""

from typing import Any

import msgspec

from perdure.core.events import Config
from perdure.core.observations import SessionOpened, StartFailed, TurnFinished
from perdure.core.slash_commands import REPORTED_AS as COMMANDS
from perdure.runtime.agents.catalogue import CLAUDE

NOT_LOGGED_IN = f"Nobody is logged in: {CLAUDE.login}, or give it a key in its env."

COMMAND_FIELDS = ("name", "description", "input")
COMMANDS_MAX = 500


class Abilities(msgspec.Struct, kw_only=True):
    """What is known since it was last started."""

    can_resume: bool = True
    version: str | None = None
    capabilities: dict[str, Any] = {}
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    context_sizes: dict[str, int] = {}
    """How many tokens its models can hold, as far as it has said."""
    commands: list[dict[str, Any]] | None = None
    """The slash commands that it offered last; None until it has ended a turn or named some."""
    login_problem: str | None = None
    """What it said when it could not work for want of a login; None once it could."""
    refused_at_start: bool = False
    """It said so before any turn, so that a session that opens is proof enough of the contrary."""

    def after(self, fact: SessionOpened | StartFailed | TurnFinished | Config) -> "Abilities":
        """What is known once it has opened a session, or could not, has ended a turn, or has named its commands."""
        if isinstance(fact, Config):
            return self._named(fact)
        if isinstance(fact, SessionOpened):
            return self._opened(fact)
        if isinstance(fact, StartFailed):
            # Any other failure says nothing of a login.
            return self._refused(fact.message, True) if fact.code == "needs_login" else self
        if fact.error_code == "needs_login":
            return self._refused(fact.error_message, False)
        if fact.error_code is not None or fact.stop_reason == "cancelled":
            return self
        # Agents name their commands before they end a turn: one that has named none has none.
        commands = self.commands or []
        return msgspec.structs.replace(self, login_problem=None, refused_at_start=False, commands=commands)

    def _named(self, fact: Config) -> "Abilities":
        """With the slash commands that it offers. Some describe each at great length."""
        if fact.config_id != COMMANDS:
            return self
        found = [command for command in fact.value if isinstance(command, dict)] if isinstance(fact.value, list) else []
        kept = [{key: command[key] for key in COMMAND_FIELDS if key in command} for command in found]
        return msgspec.structs.replace(self, commands=kept[:COMMANDS_MAX])

    def _refused(self, message: str | None, at_start: bool) -> "Abilities":
        return msgspec.structs.replace(self, login_problem=message or NOT_LOGGED_IN, refused_at_start=at_start)

    def _opened(self, fact: SessionOpened) -> "Abilities":
        said = fact.capabilities
        nobody = said.get("logged_in") is False
        before = None if self.refused_at_start else self.login_problem
        return Abilities(
            can_resume=bool(said.get("can_resume", True)),
            version=said.get("version") or self.version,
            capabilities=said,
            models=fact.models or self.models,
            modes=fact.modes or self.modes,
            context_sizes=self.context_sizes,
            commands=self.commands,
            login_problem=NOT_LOGGED_IN if nobody else before,
            refused_at_start=nobody,
        )
