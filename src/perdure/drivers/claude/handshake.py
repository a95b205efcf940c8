"""From a new process to an open session. A refusal may arrive before or after the reply to the handshake.

Above: the conversation. Below: choosing, turns, the outbox. The command line names the session, so a process can have
only one. The session counts as open when the handshake is answered, because the agent reports the session itself only
after the first input.
"""

from typing import Any

from perdure.core.events import Config
from perdure.drivers import sentences
from perdure.drivers.base import ResumeRefused, SessionOpened, StartFailed, StartSession
from perdure.drivers.claude import content, faults, launching, wire
from perdure.drivers.claude.choosing import Choosing
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.state import State
from perdure.drivers.claude.turns import Turns


class Handshake:
    def __init__(self, state: State, out: Outbox, choosing: Choosing, turns: Turns) -> None:
        self._state = state
        self._out = out
        self._choosing = choosing
        self._turns = turns

    def start(self, order: StartSession) -> None:
        state = self._state
        if state.phase != "unborn":
            self._out.emit(
                StartFailed("one_session", "this process already has a session; another one needs its own process")
            )
            return
        state.phase, state.order = "initializing", order
        state.session_id = order.native_session_id or launching.session_id(state.launch_id)
        state.mode = launching.first_mode(order) or "default"
        self._out.request("initialize", hooks=None, forwardSubagentText=True)

    def initialized(self, response: dict[str, Any], error: str | None) -> None:
        state = self._state
        if state.phase != "initializing" or state.session_id is None:
            return
        if error is not None:
            self._fail("initialize_refused", error)
            return
        state.phase = "open"
        commands = content.commands(response)
        state.commands = [command["name"] for command in commands]
        listed = wire.items(response, "models")
        state.models = [
            name
            for model in listed
            for name in (wire.string(model, "value"), wire.string(model, "resolvedModel"))
            if name
        ]
        state.abilities = _abilities(response)
        self._opened(_models(listed, state.order))
        if commands:
            self._out.emit(Config(config_id="available_commands", value=commands))
        self._choosing.set_wanted()
        self._turns.send_next()

    def refused(self, text: str) -> None:
        """Handle a refusal to open the session, in a `result` line or as plain text."""
        code, gone = faults.start_failure(text)
        if gone and self._resuming:
            self._state.phase = "refused"
            self._state.held.clear()
            self._out.emit(ResumeRefused(sentences.plain(text), reopens=False))
        else:
            self._fail(code, text)

    def overtaken(self, result: dict[str, Any]) -> bool:
        """Return whether this `result` is about the session itself, not the end of a turn."""
        if self._state.phase == "refused":
            return True
        failed = result.get("is_error") is True
        if self._state.phase != "open":
            if failed:
                self.refused(faults.sentence(result))
            else:
                self._out.count("result without a session")
            return True
        if failed and self._resuming and faults.start_failure(faults.sentence(result))[1]:
            self._state.running = None
            self.refused(faults.sentence(result))
            return True
        return False

    def named(self, init: dict[str, Any]) -> None:
        """Handle the agent's report of its session and capabilities, which comes at the start of every turn."""
        state, session_id = self._state, wire.string(init, "session_id")
        if state.phase != "open" or not session_id:
            return
        moved, before = session_id != state.session_id, state.named
        state.session_id, state.named = session_id, True
        abilities = {**state.abilities, **_abilities(init)}
        learnt, state.abilities = abilities != state.abilities, abilities
        if moved and not before:
            # Some versions resume into a copy, with the same history under another id.
            self._opened(None)
        elif moved:
            self._out.tell(
                "native_session_changed", "The agent left its session; the next turn starts with the transcript."
            )
            state.left = True
        elif learnt:
            self._out.emit(SessionOpened(session_id, resumed=self._resuming, capabilities=abilities))

    @property
    def _resuming(self) -> bool:
        return self._state.order is not None and self._state.order.native_session_id is not None

    def _opened(self, models: dict[str, Any] | None) -> None:
        state = self._state
        assert state.session_id is not None
        modes = [{"id": id, "name": name} for id, name in launching.modes(state.order).items()]
        self._out.emit(
            SessionOpened(
                native_session_id=state.session_id,
                resumed=self._resuming,
                models=models,
                modes={"currentModeId": state.mode, "availableModes": modes},
                config_options=_options(modes, state.mode, models) if models is not None else None,
                capabilities=state.abilities,
            )
        )

    def _fail(self, code: str, message: str) -> None:
        self._state.phase = "refused"
        self._state.held.clear()
        sentence, detail = sentences.said(message)
        self._out.emit(StartFailed(code, sentence, detail=detail))


def _options(modes: list[dict[str, Any]], mode: str | None, models: dict[str, Any]) -> list[dict[str, Any]]:
    """Return mode and model in the format of ACP's options, so that all agents list theirs in the same place."""
    listed = [
        {"value": one["modelId"], "name": one["name"], "description": one["description"]}
        for one in models["availableModels"]
    ]
    return [
        _option("mode", mode, [{"value": one["id"], "name": one["name"]} for one in modes]),
        _option("model", models["currentModelId"], listed),
    ]


def _option(config_id: str, current: Any, values: list[dict[str, Any]]) -> dict[str, Any]:
    named = {"id": config_id, "name": config_id.capitalize(), "category": config_id, "type": "select"}
    return {**named, "currentValue": current, "options": values}


def _abilities(said: dict[str, Any]) -> dict[str, Any]:
    """Return the agent's capabilities in a message: some come with the handshake, the rest with the first turn."""
    known: dict[str, Any] = {"can_resume": True}
    if version := wire.string(said, "claude_code_version"):
        known["version"] = version
    features = said.get("capabilities")
    if isinstance(features, list):
        known["features"] = sorted(feature for feature in features if isinstance(feature, str))
    logged_in = _logged_in(wire.part(said, "account"))
    if logged_in is not None:
        known["logged_in"] = logged_in
    return known


def _logged_in(account: dict[str, Any]) -> bool | None:
    """Return whether there is a login or an API key; None if unknown, or if another provider needs neither."""
    if wire.string(account, "apiProvider") != "firstParty":
        return None
    return any(wire.string(account, key) not in ("", "none") for key in ("tokenSource", "apiKeySource", "email"))


def _models(listed: list[dict[str, Any]], order: StartSession | None) -> dict[str, Any] | None:
    """Return the agent's models in the format that all drivers use."""
    available = [
        {
            "modelId": value,
            "name": wire.string(model, "displayName") or value,
            "description": wire.string(model, "description"),
        }
        for model in listed
        if (value := wire.string(model, "value"))
    ]
    if not available:
        return None
    current = (order.model if order is not None else None) or "default"
    return {"currentModelId": current, "availableModels": available, "otherPrefix": launching.MODEL_PREFIX}
