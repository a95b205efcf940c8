"""After a crash, codex gets a replay with the output and the changes of tools once, limited in size."""

import json

import pytest

from perdure.core.transcript_text import is_framing
from tests.continuity.agents import AGENTS, Agent
from tests.continuity.scenarios import LONG
from tests.continuity.stage import WAIT_S, Stage
from tests.model.log import all_text

pytestmark = pytest.mark.timeout(900)

# codex does not report all output of a command: it misses what comes in the first moment, before it listens, and on a
# busy machine hundreds of lines in the middle. So only the first and the last line are checked here.
LISTING = "sleep 0.5; for n in $(seq 1 1500); do echo line-$n-; done"
BOUND_BYTES = 9_000


@pytest.fixture
def agent() -> Agent:
    return AGENTS["codex"]


def test_a_replay_has_the_output_of_a_tool_and_the_diff_of_an_edit(stage: Stage, agent: Agent) -> None:
    settings = stage.workdir / "settings.ini"
    settings.write_text("name = perdure\ncolour = red\nsize = 3\n")
    session = stage.session()
    patch = f"*** Begin Patch\n*** Update File: {settings}\n@@\n-colour = red\n+colour = blue\n*** End Patch\n"
    stage.turn(session, f"tool exec_command {json.dumps({'cmd': LISTING})}\nsay listed")
    edit = f"apply_patch <<'END'\n{patch}END\n"
    stage.turn(session, f"tool exec_command {json.dumps({'cmd': edit})}\nsay edited")
    assert "colour = blue" in settings.read_text()
    number = stage.send(session, LONG)
    stage.until_said(session, number, "w3 ")
    stage.kill_agent(session)
    stage.ended(session, number, "failed", "cancelled")
    turn = stage.turn(session, "say and on")
    assert (turn["context"], turn["replayed"]) == ("fresh", 3)
    request = stage.model.log.wait(lambda one: one.conversation.script == "say and on", WAIT_S)
    sent = all_text(request)
    for told in ("| line-1-", "| line-1500-", "| -colour = red", "| +colour = blue", "characters are left out here"):
        assert sent.count(told) == 1, (told, sent[-12_000:])
    listed = [line for line in sent.splitlines() if line.startswith("| line-")]
    assert sum(map(len, listed)) < BOUND_BYTES < len("| line-1000-\n") * 1500
    assert not is_framing(stage.server.session(session)["title"])
