"""Stored names that differ from the names in the code: what an earlier version stored must stay readable.

A field or tag that was renamed only in the code has its former name in the store. Without that, a session would lose
its binding at an upgrade, and a launch that is still starting could not be restored.
"""

import msgspec
import pytest

from perdure.core import commands as cmd
from perdure.core.state import dump, restore
from perdure.drivers import DRIVERS
from perdure.drivers.base import SendInput, StartSession
from tests.core.stage import attached

ORDER = b'"order":{"type":"StartSession","workdir":"/srv","native_session_id":null,"model":null,"mode":null}'
HELD = (
    b'{"type":"SendPrompt","turn":1,"message_id":"m1","text":"hello","attachments":[],'
    b'"told":{"turn":1,"digested":[1],"left_out":[2],"tokens":9}}'
)
STARTING = {
    "acp": b'"sent":{"0":{"method":"initialize"}}',
    "claude-stream": b'"session_id":"n","mode":"default","sent":{"L-r0":{"subtype":"initialize"}}',
}


def test_the_context_version_of_a_native_session_is_stored_as_its_epoch() -> None:
    stage = attached()
    stage.do(cmd.EditMessage(turn=1, message_id="m1", text="other"))
    stored = msgspec.json.decode(dump(stage.state))
    assert (stored["bindings"]["alpha"]["epoch"], stored["epochs"]) == (0, {"alpha": 1})
    read = restore(dump(stage.state))
    assert (read.bindings["alpha"].context_version, read.context_versions) == (0, {"alpha": 1})


@pytest.mark.parametrize("driver", STARTING)
def test_an_input_that_an_earlier_version_holds_is_still_held_after_an_upgrade(driver: str) -> None:
    launch = b'{"launch_id":"L","phase":"initializing","next_id":1'
    stored = b",".join([launch, ORDER, STARTING[driver], b'"held":[' + HELD + b"]}"])
    held = msgspec.json.decode(DRIVERS[driver].restore(stored).dump())["held"]
    assert held == [msgspec.json.decode(HELD)]


def test_an_input_is_stored_under_its_former_tag() -> None:
    conversation = DRIVERS["acp"].begin("L")
    conversation.perform(StartSession("/srv"))
    conversation.perform(SendInput(1, "m1", "hello"))
    [held] = msgspec.json.decode(conversation.dump())["held"]
    assert (held["type"], held["told"]) == ("SendPrompt", None)
