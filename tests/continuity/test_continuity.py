"""Whatever is killed in between, a real agent's model receives every message once."""

import pytest

from tests.continuity.scenarios import SCENARIOS, play
from tests.continuity.stage import Stage

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("event", SCENARIOS)
def test_every_message_is_known_once_after(event: str, stage: Stage) -> None:
    verdict = play(stage, event)
    assert verdict.held, verdict
