"""What an agent reported about itself: its capabilities, models and modes, and whether it is logged in.

Above: the agents, which store it; the facts, which update it. Below: the facts that drivers report. A login problem
never blocks a start, because only a start can show that the user has logged in since.
"""

from typing import Any

import msgspec

from perdure.core.events import Config
from perdure.core.observations import SessionOpened, StartFailed, TurnFinished
from perdure.core.slash_commands import REPORTED_AS as COMMANDS

NOT_LOGGED_IN = "Nobody is logged in: start `claude` in a terminal and enter /login, or give it a key in its env."
"""Stored as the message of an agent that gave none, so it must not change. People never see it: registry.py shows the
advice for their agent instead."""

COMMAND_FIELDS = ("name", "description", "input")
COMMANDS_MAX = 500


class Abilities(msgspec.Struct, kw_only=True):
    """What an agent reported at its last start and since then."""

    can_resume: bool = True
    version: str | None = None
    capabilities: dict[str, Any] = {}
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    context_sizes: dict[str, int] = {}
    """The context windows of its models in tokens, as far as it has reported them."""
    commands: list[dict[str, Any]] | None = None
    """The slash commands that it last offered; None until it has ended a turn or listed commands."""
    login_problem: str | None = None
    """Its message when it needed a login; None once it works."""
    refused_at_start: bool = False
    """Whether it needed a login before any turn. If so, a session that opens proves that it is logged in."""

    def after(self, fact: SessionOpened | StartFailed | TurnFinished | Config) -> "Abilities":
        """The abilities after this fact: an opened session, a failed start, an ended turn, or a list of commands."""
        if isinstance(fact, Config):
            return self._named(fact)
        if isinstance(fact, SessionOpened):
            return self._opened(fact)
        if isinstance(fact, StartFailed):
            # Other failures say nothing about the login.
            return self._refused(fact.message, True) if fact.code == "needs_login" else self
        if fact.error_code == "needs_login":
            return self._refused(fact.error_message, False)
        if fact.error_code is not None or fact.stop_reason == "cancelled":
            return self
        # Agents list their commands before a turn ends. One that has listed none has none.
        commands = self.commands or []
        return msgspec.structs.replace(self, login_problem=None, refused_at_start=False, commands=commands)

    def _named(self, fact: Config) -> "Abilities":
        """Store the slash commands that it offers. Limits fields and count, as some agents send a lot of text."""
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
