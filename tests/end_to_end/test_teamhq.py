"""TeamHQ's stream over cuts, crashes and compaction: every event once, each under its own number."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import LiveServer, eventually
from tests.surfaces.http.teamhq_client import TeamHQ, text_of

Json = dict[str, Any]
WORDS = 400


def without_times(events: list[Json]) -> list[Json]:
    return [{key: value for key, value in event.items() if key != "timestamp"} for event in events]


def take(team: TeamHQ, session: str, seen: list[Json], count: int) -> None:
    """`count` more events of the turn, as a browser gets them that was cut off after those it has seen."""
    if seen and seen[-1]["type"] == "waiting_for_input":
        return
    with team.watch(session, last_event_id=str(seen[-1]["id"]) if seen else None) as stream:
        for _, name, data in stream.frames():
            assert name == "session_event"
            seen.append(data)
            count -= 1
            if count == 0 or data["type"] == "waiting_for_input":
                return


@pytest.mark.timeout(300)
def test_a_viewer_that_is_cut_off_and_whose_server_is_killed_sees_every_event_once(
    server: LiveServer, tmp_path: Path
) -> None:
    team = TeamHQ(server, tmp_path / "site")
    session = str(team.start(f"tool Bash ls\nstream {WORDS} 10\ntool Read a\nsay end")["id"])
    seen: list[Json] = []
    for count in (1, 5, 20):
        take(team, session, seen, count)
    server.kill()
    server.restart()
    take(team, session, seen, 20)
    # In the middle of the turn: what is left is read after it was compacted.
    server.wait_idle(session)
    eventually(lambda: any("first_seq" in event for event in server.log(session)), "the turn is compacted")
    server.kill()
    server.restart()
    take(team, session, seen, 10)
    team.turn(session, "say more")
    team.stop(session)
    with team.watch(session, last_event_id=str(seen[-1]["id"])) as stream:
        frames = list(stream.frames())
    assert frames[-1][1] == "session_done" and frames[-1][2]["status"] == "stopped"
    seen += [data for _, name, data in frames if name == "session_event"]
    ids = [event["id"] for event in seen]
    assert ids == sorted(set(ids))
    words = "".join(f"w{number} " for number in range(WORDS))
    assert text_of(seen) == words + "\nendmore"
    assert [event["data"]["tool"] for event in seen if event["type"] == "tool_result"] == ["Bash", "Read"]
    assert without_times(team.events(session)) == without_times(seen)
    server.kill()
    server.restart()
    assert without_times(team.events(session)) == without_times(seen)
