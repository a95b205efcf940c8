"""After a crash, the replay has the output and the changes of tools once, limited in size."""

import json

import pytest

from tests.end_to_end.claude.columns import REAL, TURN_WAIT_S, Stage
from tests.end_to_end.victims import kill, until_said
from tests.model.log import all_text

pytestmark = pytest.mark.timeout(240)

ALLOW_ALL = 'permissions = [{ tool = "*", action = "allow" }]'


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_replay_has_the_output_of_a_tool_and_the_diff_of_an_edit(stage: Stage) -> None:
    settings = stage.workdir / "settings.ini"
    settings.write_text("name = perdure\ncolour = red\nsize = 3\n")
    session = stage.serve(project=ALLOW_ALL).session(project="here")
    edit = {"file_path": str(settings), "old_string": "colour = red", "new_string": "colour = blue"}
    stage.turn(session, "bash for n in $(seq 1 1500); do echo line-$n-; done\nsay listed")
    stage.turn(session, f"read {settings}\ntool Edit {json.dumps(edit)}\nsay edited")
    assert "colour = blue" in settings.read_text()
    number = stage.server.send(session, "stream 3000 20")["turn"]
    until_said(stage.server, session, number, "w3 ")
    kill(stage.server.session(session)["pid"])
    stage.idle(session)
    turn = stage.turn(session, "say and on")
    assert (turn["context"], turn["context_reason"]) == ("fresh", "last_turn_not_confirmed")
    assert turn["replayed"] == 3
    request = stage.model.log.wait(lambda one: one.conversation.script == "say and on", TURN_WAIT_S)
    sent = all_text(request)
    for told in ("| line-1-", "| line-1500-", "| -colour = red", "| +colour = blue", "characters are left out here"):
        assert sent.count(told) == 1, (told, sent[-12_000:])
    assert "line-750-" not in sent
