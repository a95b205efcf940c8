"""Edits of Claude Code: the proposed change and the actual change."""

from typing import Any

import pytest

from perdure.core.events import ToolResult
from tests.drivers.claude_peer import Peer, only, tool_result, tool_use, whole


@pytest.fixture
def peer() -> Peer:
    peer = Peer()
    peer.send_input()
    return peer


@pytest.mark.parametrize(
    ("tool", "given", "change"),
    [
        ("Write", {"content": "x\n"}, [{"old_text": None, "new_text": "x\n"}]),
        ("Edit", {"old_string": "a", "new_string": "b"}, [{"old_text": "a", "new_text": "b"}]),
        (
            "Edit",
            {"old_string": "a", "new_string": "b", "replace_all": True},
            [{"old_text": "a", "new_text": "b", "replace_all": True}],
        ),
        (
            "MultiEdit",
            {"edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": ""}, "odd"]},
            [{"old_text": "a", "new_text": "b"}, {"old_text": "c", "new_text": ""}],
        ),
        ("NotebookEdit", {"new_source": "x"}, None),
    ],
)
def test_a_permission_request_for_an_edit_carries_its_change(peer: Peer, tool: str, given: Any, change: Any) -> None:
    prompt = peer.asked(tool, {"file_path": "/srv/a", **given})
    assert prompt.diff == (change and [{"path": "/srv/a", **entry} for entry in change])
    assert prompt.tool_kind == "edit"


@pytest.mark.parametrize(
    "given",
    [
        {"oldString": "\tb", "newString": "\tc", "replaceAll": False},
        {"content": "a\n\tc\n", "type": "update"},
    ],
)
def test_the_diff_of_an_edit_keeps_its_tabs(peer: Peer, given: Any) -> None:
    peer.says(whole("a", tool_use("t1", "Edit", file_path="/srv/site/a.py")))
    patch = [{"oldStart": 1, "newStart": 1, "lines": [" a", "-  b", "+  c"]}]
    detail = {"filePath": "/srv/site/a.py", "originalFile": "a\n\tb\n", "structuredPatch": patch, **given}
    done = only(ToolResult, peer.says(tool_result("t1", "ok", detail)))
    assert done.diff == [{"path": "/srv/site/a.py", "old_text": "a\n\tb\n", "new_text": "a\n\tc\n", "line": 1}]
