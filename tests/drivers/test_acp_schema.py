"""Everything that we send conforms to the published schema of the protocol."""

import json
from typing import Any

import pytest

from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import CancelTurn, CloseSession, SendAnswer, SendConfig, SendInput, StartSession
from tests.conformance.drivers import play
from tests.drivers import captures
from tests.drivers.acp_peer import SESSION, Json, Peer

PARAMS = {
    "initialize": "InitializeRequest",
    "session/new": "NewSessionRequest",
    "session/load": "LoadSessionRequest",
    "session/resume": "ResumeSessionRequest",
    "session/prompt": "PromptRequest",
    "session/cancel": "CancelNotification",
    "session/close": "CloseSessionRequest",
    "session/set_mode": "SetSessionModeRequest",
}
OUTSIDE = ("_perdure/settled", "session/set_model")
"""Our own extension, and a method that the schema dropped but agents still have."""


def check(message: Json, asked: dict[Any, str]) -> None:
    """Check a message. `asked` has the agent's requests, by id."""
    method = message.get("method")
    if method is None:
        if "error" in message:
            assert message["error"]["code"] == -32601
        elif asked[message["id"]] == "session/request_permission":
            valid("RequestPermissionResponse", message["result"])
        else:
            answers = {"accept": "AcceptElicitationResponse", "cancel": "CancelElicitationResponse"}
            valid(answers[message["result"]["action"]], message["result"])
    elif method == "session/set_config_option":
        boolean = isinstance(message["params"]["value"], bool)
        kind = "Boolean" if boolean else "Select"
        valid(f"SetSessionConfigOption{kind}Request", message["params"])
    elif method not in OUTSIDE:
        valid(PARAMS[method], message["params"])


def valid(model: str, body: Any) -> None:
    # Imported here, because the import takes a second and every worker would spend it.
    from acp import schema

    found = getattr(schema, model).model_validate(body)
    # The schema drops unknown fields, so a misspelled field shows up as a missing one.
    assert found.model_dump(mode="json", by_alias=True, exclude_unset=True) == body


@pytest.mark.parametrize("name", [name for name in captures.names() if name != "kimi-start"])
def test_messages_to_real_agents_fit_the_schema(name: str) -> None:
    for session in captures.plays(name):
        said = [json.loads(move) for move in session.moves if isinstance(move, bytes)]
        asked = {message["id"]: message["method"] for message in said if "method" in message and "id" in message}
        for line in play(AcpDriver(), session.moves).lines:
            check(json.loads(line), asked)


def test_every_kind_of_message_fits_the_schema() -> None:
    peer = Peer()
    options = [
        {"id": "model", "category": "model", "type": "select", "currentValue": "a", "options": [{"value": "b"}]},
        {"id": "fast", "type": "boolean", "currentValue": False},
    ]
    modes = {"currentModeId": "x", "availableModes": [{"id": "y", "name": "Y"}]}
    peer.open(
        StartSession("/srv/site", model="b", mode="y", config={"fast": True}),
        {"configOptions": options, "modes": modes},
        sessionCapabilities={"close": {}},
    )
    attachments = ({"path": "/srv/site/a.png", "mime_type": "image/png", "size": 3},)
    peer.order(SendInput(1, "m", "look", attachments))
    peer.order(SendAnswer(peer.asks_permission(0).prompt_id, {"option_id": "yes"}))
    form = {"properties": {"a": {"type": "array", "items": {"enum": ["x", "y"]}}, "b": {"type": "integer"}}}
    params = {"sessionId": SESSION, "mode": "form", "message": "?", "requestedSchema": form}
    peer.says({"id": 1, "method": "elicitation/create", "params": params})
    peer.order(SendAnswer("L-2", {"answers": {"a": ["x"], "b": "4"}}))
    peer.order(SendConfig("mode", "y"))
    peer.order(CancelTurn(1))
    peer.order(CloseSession())
    asked = {0: "session/request_permission", 1: "elicitation/create"}
    for message in peer.heard:
        check(message, asked)
    methods = {message["method"] for message in peer.heard if "method" in message}
    assert methods >= {"initialize", "session/new", "session/prompt", "session/set_mode", "session/close"}
