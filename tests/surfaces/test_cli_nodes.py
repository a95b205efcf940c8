"""`perdure nodes`: the table of nodes; drain, remove and move."""

import json
from typing import Any

import pytest

from perdure.surfaces.cli.nodes import advice_on, node_table, state_words
from perdure.surfaces.cli.sessions import session_table
from tests.surfaces.conftest import ServerProcess

Json = dict[str, Any]
ALONE: Json = {
    "id": "n1",
    "name": "north",
    "url": "http://10.0.0.1:7433",
    "version": "1.0",
    "state": "alive",
    "draining": False,
    "this": True,
    "started_at": None,
    "last_seen_s": None,
    "sessions": 3,
    "running": 1,
    "slots": 4,
    "labels": [],
    "workdirs": "local",
    "agents": [],
}
SILENT: Json = {**ALONE, "id": "n2", "name": "south", "state": "silent", "this": False, "last_seen_s": 42.3}


# Words --------------------------------------------------------------------------------------------------------------


def test_a_table_omits_empty_columns() -> None:
    headings, rows = node_table([ALONE])
    assert headings == ["name", "state", "sessions", "running", "version", "address"]
    assert rows == [["north", "alive", "3", "1 of 4", "1.0", "http://10.0.0.1:7433"]]
    headings, rows = node_table([{**ALONE, "labels": ["gpu", "eu"], "slots": 0}, {**SILENT, "url": None}])
    assert headings == ["name", "state", "sessions", "running", "version", "address", "labels"]
    assert [row[1] for row in rows] == ["alive, this node", "silent for 42 s"]
    assert [row[3] for row in rows] == ["1", "1 of 4"]
    assert [row[-2:] for row in rows] == [["http://10.0.0.1:7433", "gpu, eu"], ["", ""]]


def test_nodes_with_the_same_name_are_shown_with_their_ids() -> None:
    headings, rows = node_table([ALONE, {**SILENT, "name": "north"}])
    assert headings[:2] == ["name", "id"] and [row[:2] for row in rows] == [["north", "n1"], ["north", "n2"]]


def test_a_state_is_one_word_or_includes_its_duration() -> None:
    assert state_words({**SILENT, "last_seen_s": 7200.0}, 2) == "silent for 2 h"
    assert state_words({**SILENT, "last_seen_s": None}, 2) == "silent"
    assert state_words({**ALONE, "state": "draining"}, 1) == "draining"


def test_sessions_that_wait_for_a_silent_node_are_reported() -> None:
    assert advice_on(ALONE) == ""
    assert advice_on({**SILENT, "sessions": 0}) == ""
    assert advice_on({**SILENT, "workdirs": "shared"}) == "", "another node takes over these sessions"
    assert advice_on(SILENT).startswith("3 sessions are waiting for this node.")
    assert "`perdure nodes move --from south --to NODE`" in advice_on({**SILENT, "state": "dead", "sessions": 1})


def session(node: str | None, name: str | None, **more: Any) -> Json:
    given = {"id": "s_1", "state": "idle", "status": "running", "agent": "claude", "turn_count": 1, "title": "A title"}
    return {**given, "last_active_at": "2026-11-01T00:00:00Z", "node": node, "node_name": name, **more}


@pytest.mark.parametrize("columns", [None, 72, 200])
def test_the_session_table_has_a_node_column_only_with_several_nodes(columns: int | None) -> None:
    for alone in ([session("n1", "north"), session(None, None, id="s_2")], [session("n1", "north")]):
        assert "node" not in session_table(alone, columns)[0]
    some = [session("n1", "north"), session("n2", "south", id="s_2"), session(None, None, id="s_3", title="t" * 100)]
    headings, rows = session_table(some, columns)
    assert headings[3] == "node" and [row[3] for row in rows] == ["north", "south", ""]
    assert all(len(row) == len(headings) for row in rows)


# Against a server ---------------------------------------------------------------------------------------------------


def test_the_only_node_is_listed(server: ServerProcess) -> None:
    done = server.run("nodes")
    assert done.returncode == 0
    heading, row = done.stdout.splitlines()
    assert heading.split() == ["NAME", "STATE", "SESSIONS", "RUNNING", "VERSION", "ADDRESS"]
    assert " alive " in row and row.endswith(server.url)
    assert server.run("nodes", "ls").stdout == done.stdout
    (node,) = json.loads(server.run("nodes", "--json").stdout)["nodes"]
    assert node["this"] and node["url"] == server.url


def test_the_only_node_cannot_be_drained_removed_or_moved_from(server: ServerProcess) -> None:
    with server.client() as client:
        session_id = client.create_session()["id"]
    for words in (
        ["drain", "here"],
        ["resume", "here"],
        ["remove", "here", "--yes"],
        ["move", session_id, "--to", "there"],
        ["move", "--from", "here", "--to", "there"],
    ):
        done = server.run("nodes", *words)
        assert done.returncode == 1 and done.stderr.rstrip().endswith("see docs/nodes.md. (conflict)"), done.stderr


def test_missing_arguments_are_reported_without_a_request(server: ServerProcess) -> None:
    for words, said in (
        (["remove", "here"], "Use --yes"),
        (["move", "--to", "there"], "Give the sessions to move, or --from NODE"),
        (["move", "last", "--from", "here", "--to", "there"], "Give the sessions to move, or --from NODE"),
        (["move", "last"], "--to"),
        (["stop"], "No such command"),
    ):
        done = server.run("nodes", *words)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_command_names_of_other_tools_lead_to_nodes(server: ServerProcess) -> None:
    assert "`perdure nodes`" in server.run("cluster").stderr
    assert "docs/nodes.md" in server.run("nodes", "rm", "here", "--yes").stderr
