"""A long conversation in one process: the process is never restarted, only the log grows, and nothing is forgotten."""

import pytest

from tests.end_to_end.claude.columns import STREAMING, Stage
from tests.harness import no_holes

pytestmark = [pytest.mark.timeout(480), pytest.mark.needs("linux")]

TURNS = 100
WARM_TURNS = 20
GROWTH_MAX_MB = 8


@pytest.mark.smoke
@pytest.mark.parametrize("column", STREAMING, ids=lambda column: column.name)
def test_a_hundred_turns_use_one_process_and_constant_server_memory(stage: Stage) -> None:
    session = stage.serve(alone=True).session()
    said, pids, warm_mb = list[str](), set[int](), 0.0
    for number in range(1, TURNS + 1):
        text = f"think {number}\nsay {number} of {TURNS}"
        stage.server.send(session, text)
        pids.add(stage.idle(session)["pid"])
        said.append(text)
        if number == WARM_TURNS:
            warm_mb = stage.server_rss_mb()
    grown_mb = stage.server_rss_mb() - warm_mb
    print(f"{warm_mb:.1f} MB after {WARM_TURNS} turns, {grown_mb:.1f} MB more after {TURNS}")
    turns = stage.server.transcript(session)
    assert [turn["stop_reason"] for turn in turns] == ["end_turn"] * TURNS
    for turn in turns:
        text = "".join(part["text"] for part in turn["parts"] if part["type"] == "text")
        assert text == f"{turn['turn']} of {TURNS}"
    assert len(pids) == 1 and len(stage.events(session, "agent_launched")) == 1
    assert stage.recalled(session) == said
    assert stage.contexts(session) == ["fresh", *["live"] * TURNS]
    assert grown_mb < GROWTH_MAX_MB
    no_holes(stage.server.log(session))
    if stage.column.real:
        assert len(stage.model.log.asked) == TURNS + 1
