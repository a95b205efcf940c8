"""Model, mode and other settings: requesting them, and handling confirmations, refusals and changes by the agent.

Above: the conversation and the handshake. Below: settings.py and the outbox. Trusts what the agent lists afterwards
rather than its "ok": several agents answer ok to values that don't exist.
"""

from typing import Any

from perdure.core.events import Config, System
from perdure.drivers import jsonrpc
from perdure.drivers.acp import settings
from perdure.drivers.acp.outbox import Outbox
from perdure.drivers.acp.state import Sent, State

METHODS = ("session/set_config_option", "session/set_mode", "session/set_model")


class Choosing:
    def __init__(self, state: State, out: Outbox) -> None:
        self._state = state
        self._out = out

    def set(self, config_id: str, value: Any) -> None:
        """Request a value that the agent lists. Before the session is open, keep the request for later."""
        state = self._state
        if state.phase != "open" or state.session_id is None:
            state.wanted.append((config_id, value))
            return
        setting = settings.find(state.settings, config_id)
        if setting is None:
            self._refuse(config_id, value, "the agent has no such setting")
        elif not setting.allows(value):
            self._refuse(config_id, value, "the agent doesn't list this value")
        else:
            method, params = settings.request_for(setting, state.session_id, value)
            self._out.request(method, params, config_id=setting.config_id, value=value)

    def set_wanted(self) -> None:
        """Request the stored settings that differ from the current ones. The session is open now."""
        wanted, self._state.wanted = self._state.wanted, []
        for config_id, value in wanted:
            setting = settings.find(self._state.settings, config_id)
            if setting is None or setting.current != value:
                self.set(config_id, value)

    def replied(self, sent: Sent, result: dict[str, Any], failure: jsonrpc.Failure | None) -> None:
        if failure is not None:
            self._refuse(sent.config_id, sent.value, failure.sentence)
            return
        options = settings.options_in(result)
        changed = self._take(options)
        setting = settings.find(self._state.settings, sent.config_id)
        if setting is None:
            # The agent accepted the value, but no longer lists the option.
            self._out.emit(Config(turn=self._turn, config_id=sent.config_id, value=sent.value))
            return
        if not options:
            setting.current = sent.value
        for told in [setting, *(other for other in changed if other.config_id != setting.config_id)]:
            self._tell(told, options)

    def options_updated(self, update: dict[str, Any]) -> None:
        options = settings.options_in(update)
        for setting in self._take(options):
            self._tell(setting, options)

    def mode_updated(self, update: dict[str, Any]) -> None:
        current = update.get("currentModeId")
        mode = settings.find(self._state.settings, "mode")
        if mode is None:
            self._out.emit(Config(turn=self._turn, config_id="mode", value=current))
        elif mode.current != current:
            mode.current = current
            self._tell(mode, [])

    def commands_updated(self, update: dict[str, Any]) -> None:
        value = update.get("availableCommands")
        self._out.emit(Config(turn=self._turn, config_id="available_commands", value=value))

    def _take(self, options: settings.ConfigOptions) -> list[settings.Setting]:
        if not options:
            return []
        self._state.settings, changed = settings.updated(self._state.settings, options)
        return changed

    def _tell(self, setting: settings.Setting, options: settings.ConfigOptions) -> None:
        event = Config(turn=self._turn, config_id=setting.config_id, value=setting.current, options=options or None)
        self._out.emit(event)

    def _refuse(self, config_id: str, value: Any, reason: str) -> None:
        message = f"{config_id} was not set to {value!r}: {reason}"
        self._out.emit(System(turn=self._turn, code="config_refused", message=message))
        setting = settings.find(self._state.settings, config_id)
        current = setting.current if setting is not None else None
        self._out.emit(Config(turn=self._turn, config_id=config_id, value=current, refused=True))

    @property
    def _turn(self) -> int | None:
        running = self._state.running
        return running.turn if running is not None else None
