"""A sub-agent in the Claude dialect: its lines, between a tool call and the result of that call.

Above: claude_turn.py, whose tool named `Agent` starts it. Below: claude_lines.py and claude_tools.py.
It imitates a foreground sub-agent of the real one: whole blocks instead of deltas, each with `parent_tool_use_id`;
notes about the task; text only for a host that requested it; tool results without the extra details.
"""

import os
import time
from typing import Any

from perdure.rehearsal import claude_lines as lines
from perdure.rehearsal import claude_tools as tools
from perdure.rehearsal.claude_ledger import tokens_in, usage_of
from perdure.rehearsal.claude_lines import Line
from perdure.rehearsal.claude_message import Output, started
from perdure.rehearsal.script import ToolEnd


class SubAgent:
    def __init__(self, output: Output, session_id: str, model: str, use: tools.Use, forwards_text: bool) -> None:
        self._output = output
        self._session_id = session_id
        self._model = model
        self._use = use
        self._forwards_text = forwards_text
        self._task_id = f"a{os.urandom(8).hex()}"
        self._began = time.monotonic()
        self._message: Line | None = None
        self._request_id = ""
        self._open: tools.Use | None = None
        self._used: list[str] = []
        self._characters = len(use.input["prompt"])
        started_note = {"task_type": "local_agent", "prompt": use.input["prompt"]}
        self._note("task_started", **self._described(use.input["description"]), **started_note)

    def begin(self) -> None:
        self._show_user([{"type": "text", "text": self._use.input["prompt"]}])

    def say(self, text: str) -> None:
        self._characters += len(text)
        if self._forwards_text:
            self._show_assistant({"type": "text", "text": text})

    def use_tool(self, use: tools.Use) -> None:
        self._open = use
        self._used.append(use.name)
        described = self._described(f"Running {use.input.get('description', use.name)}")
        self._note("task_progress", **described, usage=self._usage(), last_tool_name=use.name)
        self._show_assistant({"type": "tool_use", "id": use.tool_id, "name": use.name, "input": use.input})

    def tool_ended(self, act: ToolEnd) -> None:
        if self._open is not None:
            self._show_user([tools.ended(self._open, act).block])
        # The next block belongs to another model call.
        self._open, self._message = None, None

    def finish(self, report: str) -> tools.Result:
        """End the sub-agent. Returns the result of the tool that started it."""
        self._end("completed", "completed", usage=self._usage())
        usage, tokens = self._usage(), tokens_in(self._characters)
        content = [{"type": "text", "text": report}]
        note = (
            f"agentId: {self._task_id} (use SendMessage with to: '{self._task_id}', summary: '<5-10 word recap>' to "
            f"continue this agent)\n<usage>subagent_tokens: {tokens}\ntool_uses: {usage['tool_uses']}\n"
            f"duration_ms: {usage['duration_ms']}</usage>"
        )
        shown = [*content, {"type": "text", "text": note}]
        details = {
            "status": "completed",
            "prompt": self._use.input["prompt"],
            "agentId": self._task_id,
            "agentType": self._use.input["subagent_type"],
            "content": content,
            "resolvedModel": self._model,
            "totalDurationMs": usage["duration_ms"],
            "totalTokens": tokens,
            "totalToolUseCount": usage["tool_uses"],
            "usage": usage_of(tokens, 0),
            "toolStats": self._statistics(),
        }
        return tools.Result({"tool_use_id": self._use.tool_id, "type": "tool_result", "content": shown}, details)

    def stop(self) -> None:
        """End an interrupted sub-agent. Its open tool stays open, as in the real one."""
        self._end("killed", "stopped")

    # Lines ----------------------------------------------------------------------------------------------------

    def _end(self, status: str, told: str, **fields: Any) -> None:
        patch = {"status": status, "end_time": int(time.time() * 1000)}
        self._note("task_updated", task_id=self._task_id, patch=patch)
        summary = {"status": told, "output_file": "", "summary": self._use.input["description"]}
        task = {"task_id": self._task_id, "tool_use_id": self._use.tool_id}
        self._note("task_notification", **task, **summary, **fields)

    def _show_assistant(self, block: Line) -> None:
        if self._message is None:
            self._message, self._request_id = started(self._model, tokens_in(self._characters)), lines.request_id()
        message = {**self._message, "content": [block], "context_management": None}
        self._send(lines.assistant(self._session_id, message, self._request_id))

    def _show_user(self, content: list[Line]) -> None:
        self._send(lines.user(self._session_id, content))

    def _send(self, line: Line) -> None:
        given = self._use.input
        more = {"subagent_type": given["subagent_type"], "task_description": given["description"]}
        self._output.send({**line, "parent_tool_use_id": self._use.tool_id, **more})

    def _note(self, subtype: str, **fields: Any) -> None:
        self._output.send(lines.system(subtype, self._session_id, **fields))

    def _described(self, description: str) -> Line:
        task = {"task_id": self._task_id, "tool_use_id": self._use.tool_id, "description": description}
        return {**task, "subagent_type": self._use.input["subagent_type"]}

    def _usage(self) -> Line:
        spent_ms = int((time.monotonic() - self._began) * 1000)
        return {"total_tokens": tokens_in(self._characters), "tool_uses": len(self._used), "duration_ms": spent_ms}

    def _statistics(self) -> Line:
        commands, edits = self._used.count("Bash"), self._used.count("Write")
        return {
            "readCount": 0,
            "searchCount": 0,
            "bashCount": commands,
            "editFileCount": edits,
            "linesAdded": edits,
            "linesRemoved": 0,
            "otherToolCount": len(self._used) - commands - edits,
        }
