"""The table of sessions: room for the title in a narrow terminal, and ids that commands accept."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from perdure.surfaces.cli.output import GAP_COLUMNS, print_table
from perdure.surfaces.cli.sessions import session_table, short_ids
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.terminal import Terminal

STATES = some.sampled_from(["processing", "idle", "ended"])
SESSIONS = some.lists(
    some.fixed_dictionaries(
        {
            # Ids with a common prefix, like those created in the same moment.
            "id": some.text("01", min_size=21, max_size=21).map("s_".__add__),
            "state": STATES,
            "status": some.sampled_from(["running", "completed", "stopped", "timed-out", "failed"]),
            "pending_prompts": some.integers(0, 1),
            "agent": some.sampled_from(["claude", "rehearsal", "an-agent-with-a-long-name"]),
            "created_at": some.just("2026-01-01T00:00:00+00:00"),
            "last_active_at": some.none() | some.just("2026-11-01T00:00:00+00:00"),
            "turn_count": some.integers(0, 9999),
            "title": some.none() | some.text(min_size=1, max_size=120),
        }
    ),
    min_size=1,
    unique_by=lambda session: session["id"],
)


@given(SESSIONS, some.integers(72, 200))
def test_every_row_fits_the_terminal_and_the_title_has_room(sessions: list[dict[str, Any]], columns: int) -> None:
    headings, rows = session_table(sessions, columns)
    widths = [max(len(row[number]) for row in [headings, *rows]) for number in range(len(headings))]
    used = sum(widths) + GAP_COLUMNS * (len(widths) - 1)
    ids = [row[0] for row in rows]
    assert used <= columns or max(map(len, ids)) > 16, "only ids with a long common prefix may be longer"
    for row, session in zip(rows, sessions, strict=True):
        assert session["id"].startswith(row[0])
    assert len(set(ids)) == len(ids)


@given(SESSIONS)
def test_piped_output_has_whole_ids_and_every_column(sessions: list[dict[str, Any]]) -> None:
    headings, rows = session_table(sessions, None)
    assert headings == ["session", "state", "agent", "active", "turns", "title"]
    assert [row[0] for row in rows] == [session["id"] for session in sessions]


def test_short_ids_are_as_long_as_needed_to_be_unique() -> None:
    assert short_ids(["s_0123456789abcdef", "s_9876543210abcdef"]) == ["s_01234567", "s_98765432"]
    assert short_ids(["s_0123456789ab", "s_0123456789ac"]) == ["s_0123456789ab", "s_0123456789ac"]
    assert short_ids(["short"]) == ["short"]


def test_eighty_columns_show_most_of_a_usual_title() -> None:
    title = "Fix the login test that fails at night"
    usual = {"id": "s_" + "0" * 21, "state": "processing", "status": "running", "pending_prompts": 1, "agent": "claude"}
    times = {"created_at": "2026-01-01T00:00:00+00:00", "last_active_at": None, "turn_count": 12}
    _, rows = session_table([{**usual, **times, "title": title}], 80)
    assert rows[0][1] == "asks you" and rows[0][-1] == title


def test_commands_accept_the_ids_in_the_table(server: ServerProcess) -> None:
    session = json.loads(server.run("send", "--json", "say hello").stdout)["session_id"]
    with Terminal(server.command("sessions"), server.environment, server.folder) as terminal:
        assert terminal.wait_end() == 0
        (row,) = (line.split() for line in terminal.text.splitlines() if "rehearsal" in line)
    assert session.startswith(row[0]) and len(row[0]) < len(session)
    assert json.loads(server.run("show", "--json", row[0]).stdout)["id"] == session
    assert server.run("send", "--wait", "--queue", row[0], "say again").stdout == "again\n"


def test_the_error_for_an_ambiguous_id_names_the_sessions_that_match(server: ServerProcess) -> None:
    ids = [json.loads(server.run("send", "--json", "say hi").stdout)["session_id"] for _ in range(2)]
    unclear = server.run("show", "s_")
    assert unclear.returncode == 2 and all(each in unclear.stderr for each in ids)


def test_in_a_narrow_terminal_the_text_of_a_row_is_below_its_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    result = "Restored 12 files to before turn 2. Left 3 files as they were."
    row = ["f_0000001890123456789abcdef", "restore", "12 min ago", "can be undone", result]
    print_table(["operation", "action", "when", "", "result"], [row], "", wrap_last=True)
    assert capsys.readouterr().out.splitlines() == [
        row[0],
        "  restore  12 min ago  can be undone",
        "  Restored 12 files to before turn 2. Left 3 files",
        "  as they were.",
    ]
