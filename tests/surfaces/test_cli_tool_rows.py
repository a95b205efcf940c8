"""What a user sees before and after a decision, for every agent."""

from typing import Any

import msgspec
import pytest

from perdure.core.events import PendingPrompt
from perdure.drivers.acp import AcpDriver
from perdure.surfaces.cli import tool_rows, wording
from perdure.surfaces.cli.narration import Asked, Details, Line, Narrator, Piece
from perdure.surfaces.cli.prompts import NotUnderstood, choices, explained, mark, option_for, permission_for
from perdure.surfaces.cli.rows import lay_out
from tests.conformance.drivers import play
from tests.drivers import captures
from tests.surfaces.test_cli_narration import AT, event, message, tell

Json = dict[str, Any]
AGENTS = ("claude", "codex", "copilot", "gemini", "hermes", "opencode", "vibe")
ASKING = [name for name in captures.names() if "perm" in name and name.split("-")[0] in AGENTS]


def prompts_of(name: str) -> list[Json]:
    found: list[Json] = []
    for session in captures.plays(name):
        run = play(AcpDriver(), session.moves)
        found += [msgspec.to_builtins(one) for one in run.observations if isinstance(one, PendingPrompt)]
    return [prompt for prompt in found if prompt["kind"] == "permission"]


def text_of(prompt: Json, workdir: str = "") -> str:
    return "\n".join(lay_out(tool_rows.about(prompt, workdir), None, colour=False))


def offered(prompt: Json, columns: int | None = None) -> list[str]:
    return lay_out(choices(prompt), columns, colour=False)


def prompt(**fields: Any) -> Json:
    options = [
        {"option_id": "allow_once", "name": "Allow", "kind": "allow_once"},
        {"option_id": "allow_always", "name": "Allow for this session", "kind": "allow_always"},
        {"option_id": "reject_once", "name": "Deny", "kind": "reject_once"},
    ]
    return {"kind": "permission", "title": "t", "prompt_id": "p", "options": options, "questions": [], **fields}


@pytest.mark.parametrize("name", ASKING)
def test_every_request_of_an_agent_shows_its_change_or_its_command(name: str) -> None:
    asked = prompts_of(name)
    assert asked
    for one in asked:
        text = text_of(one)
        if one["tool_kind"] == "edit":
            assert text.startswith("Permission: ") and ".txt  +" in text.split("\n")[0], (one, text)
            assert "+hello" in text or "+goodbye" in text, (one, text)
        elif one["tool_kind"] == "execute":
            assert text.startswith("Permission: run") and "\n  touch " in text, (one, text)


@pytest.mark.parametrize("name", ASKING)
def test_y_and_n_work_for_every_request_of_an_agent(name: str) -> None:
    for one in prompts_of(name):
        kinds = {option["option_id"]: option["kind"] for option in one["options"]}
        assert kinds[permission_for(one, "y")["option_id"]] == "allow_once"
        denied = permission_for(one, "n not now")
        assert kinds[denied["option_id"]] == "reject_once" and denied["reason"] == "not now"
        for number, option in enumerate(one["options"], 1):
            assert permission_for(one, str(number)) == {"option_id": option["option_id"]}
        always = [option for option in one["options"] if option["kind"] == "allow_always"]
        if len(always) == 1:
            assert permission_for(one, "a") == {"option_id": always[0]["option_id"]}
        else:
            with pytest.raises(NotUnderstood) as error:
                permission_for(one, "a")
            assert all(option["name"] in str(error.value) for option in always)
            assert "y allows" in str(error.value) and "n denies" in str(error.value)


def test_always_says_what_it_covers() -> None:
    one = prompt(covers=["Bash(touch *)"])
    assert offered(one)[1] == "  2 a  Allow for this session: Bash(touch *)"
    assert offered(one, 40)[1:3] == ["  2 a  Allow for this session:", "       Bash(touch *)"]
    assert explained(one) == "y allows, a allows always (Bash(touch *)), n denies (a reason may follow)."
    assert mark(one) == "y/a/n> "
    vibe = next(one for one in prompts_of("vibe-perm") if one["tool_kind"] == "execute")
    assert "  3    Always allow: touch *" in offered(vibe)
    codex = next(one for one in prompts_of("codex-perm"))
    assert "  2 a  Yes, and don't ask again for commands that start with `touch ok1.txt`" in offered(codex)


def test_with_two_always_options_a_is_explained_and_y_means_once() -> None:
    """Options as qwen offers them."""
    options = [
        {"option_id": "proceed_always_project", "name": "Always Allow in project", "kind": "allow_always"},
        {"option_id": "proceed_always_user", "name": "Always Allow for user", "kind": "allow_always"},
        {"option_id": "proceed_once", "name": "Allow", "kind": "allow_once"},
        {"option_id": "cancel", "name": "Reject", "kind": "reject_once"},
    ]
    one = prompt(options=options)
    assert permission_for(one, "y") == {"option_id": "proceed_once"}
    assert permission_for(one, "n because") == {"option_id": "cancel", "reason": "because"}
    assert mark(one) == "y/n/number> "
    with pytest.raises(NotUnderstood) as error:
        permission_for(one, "a")
    assert str(error.value) == (
        'a could mean 1 or 2: 1 is "Always Allow in project", 2 is "Always Allow for user", y allows, '
        "n denies (a reason may follow)."
    )
    two = [{"option_id": "auto", "name": "Allow and accept edits", "kind": "allow_once"}, options[2], options[3]]
    assert permission_for(prompt(options=two), "y") == {"option_id": "proceed_once"}


def test_invalid_answers_are_explained_and_a_reason_may_only_follow_a_denial() -> None:
    for text in ("maybe", "y please", "4", "0", "a now", "1 because"):
        with pytest.raises(NotUnderstood, match=r"y allows, .* n denies \(a reason may follow\)\."):
            permission_for(prompt(), text)
    only = prompt(options=[{"option_id": "w", "name": "Always", "kind": "allow_always"}])
    with pytest.raises(NotUnderstood, match="y is not offered"):
        permission_for(only, "y")
    assert permission_for(only, "n") == {"cancel": True}
    with pytest.raises(NotUnderstood, match="--option"):
        option_for(only, "allow")


def test_a_script_is_shown_whole_with_its_directory_if_that_differs() -> None:
    given = {"command": "set -e\nif true; then\n\techo hi\nfi\n", "cwd": "/srv/other", "description": "Says hi"}
    shown = text_of(prompt(tool_kind="execute", input={**given, "timeout": 5}), "/srv/site")
    assert shown == (
        "Permission: run in /srv/other\n  set -e\n  if true; then\n  \techo hi\n  fi\n  timeout: 5\n  Says hi"
    )
    same = text_of(prompt(tool_kind="execute", input={"command": "ls", "cwd": "/srv/site/"}), "/srv/site")
    assert same == "Permission: run\n  ls"
    listed = text_of(prompt(tool_kind="execute", input={"command": ["bash", "-c", "echo a b"]}))
    assert listed == "Permission: run\n  bash -c 'echo a b'"


def test_a_command_cannot_hide_anything() -> None:
    shown = text_of(prompt(tool_kind="execute", input={"command": "echo ok\x1b[2K\r; rm -rf .\u202e"}))
    assert "\x1b" not in shown and "\r" not in shown and "\u202e" not in shown and "; rm -rf ." in shown


def test_other_tools_show_all_of_their_input() -> None:
    shown = text_of(prompt(title="Deploy", input={"name": "site", "steps": 3, "plan": "first\n\nthen"}))
    assert shown == "Permission: Deploy\n  name: site\n  steps: 3\n  plan:\n    first\n\n    then"
    assert text_of(prompt(title="slow", content='{"text":"hello"}')) == 'Permission: slow\n  {"text":"hello"}'
    assert text_of(prompt(title="bare")) == "Permission: bare"


def test_several_files_are_named_with_their_counts() -> None:
    diff = [
        {"path": "/w/a.py", "old_text": "1\n", "new_text": "2\n", "line": 4},
        {"path": "/w/b.py", "old_text": None, "new_text": "x\ny\n"},
    ]
    assert text_of(prompt(diff=diff), "/w") == (
        "Permission: edit 2 files  +3 -1\n  a.py  +1 -1\n  4 -1\n  4 +2\n  b.py  +2 -0\n  1 +x\n  2 +y"
    )


def tool_events(kind: str, over: Json, given: Json | None = None) -> list[Piece]:
    tool: Json = {"tool_id": "t", "name": "T", "kind": kind, "title": "T", "input": given}
    result: Json = {"tool_id": "t", "content": None, "diff": None, "locations": None, "is_error": False, **over}
    narrator = Narrator(lambda turn: [])
    return tell(narrator, message(), event("tool_use", **tool), event("tool_result", **result))


def details(pieces: list[Piece]) -> list[str]:
    rows = [row for piece in pieces if isinstance(piece, Details) for row in piece.rows]
    return lay_out(rows, None, colour=False)


def test_after_an_edit_its_change_follows_and_after_a_command_its_output() -> None:
    diff = [{"path": "a.py", "old_text": "one\n", "new_text": "two\n", "line": 7}]
    assert details(tool_events("edit", {"status": "completed", "diff": diff})) == ["  7 -one", "  7 +two"]
    printed = "```console\nfirst\n\nlast\n```"
    pieces = tool_events("execute", {"status": "completed", "content": printed}, {"command": "make"})
    assert details(pieces) == ["  first", "", "  last"]
    assert [piece.ends for piece in pieces if isinstance(piece, Details)] == [True]


def test_a_denied_or_failed_edit_does_not_look_done() -> None:
    diff = [{"path": "a.py", "old_text": "one\n", "new_text": "two\n"}]
    denied = tool_events("edit", {"status": "failed", "outcome": "denied", "diff": diff, "content": "no"})
    assert not details(denied) and [p.text for p in denied if isinstance(p, Line)][1:] == ["Denied: a.py"]
    failed = tool_events("edit", {"status": "failed", "content": "String not found"}, {"file_path": "a.py"})
    assert [p.text for p in failed if isinstance(p, Line)][1:] == ["Failed to edit a.py  0.0 s"]
    assert details(failed) == ["  String not found"]
    tagged = tool_events("edit", {"status": "failed", "content": "<tool_use_error>No</tool_use_error>"})
    assert details(tagged) == ["  No"]
    broken = tool_events("execute", {"status": "failed", "content": "Exit code 2"}, {"command": "make"})
    assert [p.text for p in broken if isinstance(p, Line)][1:] == ["Ran make  0.0 s  failed"]
    assert details(broken) == ["  Exit code 2"]


def test_a_prompt_without_a_diff_takes_it_from_its_tool() -> None:
    tool: Json = {"tool_id": "t", "name": "edit", "kind": "edit", "title": "Edit", "input": None}
    diff = [{"path": "/w/a.py", "old_text": "one", "new_text": "two"}]
    asked = {**prompt(), "tool_id": "t"}
    pieces = tell(
        Narrator(lambda turn: [], "/w"),
        message(),
        event("tool_use", **tool),
        event("tool_update", tool_id="t", status="in_progress", diff=diff),
        event("pending_prompt", **asked),
    )
    [shown] = [piece for piece in pieces if isinstance(piece, Asked)]
    assert lay_out(shown.rows, None, colour=False) == ["Permission: edit a.py  +1 -1", "  -one", "  +two"]


def test_an_edit_that_does_not_repeat_its_change_shows_the_requested_one() -> None:
    tool: Json = {"tool_id": "t", "name": "edit", "kind": "edit", "title": "Edit", "input": None}
    diff = [{"path": "a.py", "old_text": "one\n", "new_text": "two\n", "line": 3}]
    narrator = Narrator(lambda turn: [])
    events = [event("tool_use", **tool), event("pending_prompt", **{**prompt(diff=diff), "tool_id": "t"})]
    pieces = tell(narrator, message(), *events, event("tool_result", tool_id="t", status="completed", at=AT))
    assert details(pieces) == ["  3 -one", "  3 +two"]
    assert [piece.text for piece in pieces if isinstance(piece, Line)][1:] == ["Edited a.py +1 -1  0.0 s"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("failed", None), ("failed", "denied"), ("failed", "interrupted"), ("completed", "interrupted")],
)
def test_an_edit_that_was_not_made_is_not_shown_as_a_change(status: str, outcome: str | None) -> None:
    diff = [{"path": "/w/a.txt", "old_text": "one\n", "new_text": "two\n"}]
    tool = {"name": "Edit", "kind": "edit", "title": "Edit a.txt", "content": "no", "diff": diff}
    made = {**tool, "status": "completed"}
    assert wording.tool(made, "/w") == "Edited a.txt +1 -1" and len(tool_rows.outcome(made, "/w")[0]) == 2
    refused = {**tool, "status": status, "outcome": outcome}
    assert "+1" not in wording.tool(refused, "/w")
    assert all(row.style not in ("added", "removed") for row in tool_rows.outcome(refused, "/w")[0])
