"""Tools, their results, and the output of sub-agents.

Above: the conversation; asking, which may see a tool first. Below: tools.py, speaking and the outbox. The tools of a
sub-agent have the tool that started it as their parent. Its text is progress of that tool, not part of the answer.
"""

from typing import Any

import msgspec

from perdure.core.events import Plan, ToolResult, ToolUpdate, ToolUse
from perdure.drivers.claude import content, tools, wire
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.speaking import Speaking
from perdure.drivers.claude.state import Running, State, Tool

SEEN_MAX = 32
KEPT_EDIT_BYTES = 64 * 1024
TASKS_MAX = 256
NOTICE_MAX_CHARS = 2000
LEFT_OPEN = "left open by the agent"

_SYNTHETIC = "<synthetic>"
_NO_CONTENT = "(no content)"


class Working:
    def __init__(self, state: State, out: Outbox, speaking: Speaking) -> None:
        self._state = state
        self._out = out
        self._speaking = speaking

    def said(self, running: Running, line: dict[str, Any]) -> None:
        """Handle a whole `assistant` line: one or more blocks of a message."""
        if self._repeated(running, line):
            return
        message, parent = wire.part(line, "message"), wire.string(line, "parent_tool_use_id") or None
        message_id = wire.string(message, "id")
        synthetic = message.get("model") == _SYNTHETIC
        for block in wire.items(message, "content"):
            kind = wire.string(block, "type")
            text = wire.string(block, "thinking" if kind == "thinking" else "text")
            if kind.endswith("tool_use"):
                if parent is None:
                    self._speaking.message(running, message_id)
                self.use(running, wire.string(block, "id"), wire.string(block, "name"), block.get("input"), parent)
            elif kind not in ("text", "thinking") or not text:
                continue
            elif parent is not None:
                self._progress(running, parent, kind, text)
            elif synthetic and wire.string(line, "error"):
                # It comes again as the turn's error, and must not appear as an answer.
                self._speaking.message(running, message_id)
                running.fault, running.fault_text = wire.string(line, "error"), text
            elif not (synthetic and text == _NO_CONTENT):
                self._speaking.whole(running, message_id, kind == "thinking", text)

    def use(self, running: Running, tool_id: str, name: str, given: Any, parent: str | None) -> None:
        """Report a tool call, once, however often the agent mentions it."""
        if not tool_id or tool_id in running.tools:
            return
        name = name or "tool"
        running.tools[tool_id] = tool = Tool(name)
        if parent is not None and name in tools.EDITING and len(msgspec.json.encode(given)) <= KEPT_EDIT_BYTES:
            tool.edit = given
        self._out.emit(
            ToolUse(
                turn=running.turn,
                tool_id=tool_id,
                name=name,
                kind=tools.kind(name),
                title=tools.title(name, given),
                input=given,
                parent_tool_id=parent,
            )
        )
        if name == "TodoWrite":
            self._out.emit(Plan(turn=running.turn, entries=content.plan_entries(given)))

    def came_back(self, running: Running, line: dict[str, Any]) -> None:
        """Handle a `user` line: results of tools. Its texts are echoes and notes to the model, not a person's words."""
        if self._repeated(running, line):
            return
        detail = line.get("tool_use_result")
        for block in wire.items(wire.part(line, "message"), "content"):
            if wire.string(block, "type").endswith("tool_result"):
                self._result(running, block, detail)

    def close(self, running: Running) -> None:
        """Mark the tools that are still open as failed, at the end of the turn."""
        for tool_id, tool in running.tools.items():
            if tool.open:
                self._out.emit(
                    ToolResult(turn=running.turn, tool_id=tool_id, status="failed", content=LEFT_OPEN, is_error=True)
                )

    def task_started(self, line: dict[str, Any]) -> None:
        task_id, tasks = wire.string(line, "task_id"), self._state.tasks
        if task_id and len(tasks) < TASKS_MAX:
            tasks[task_id] = wire.string(line, "tool_use_id")

    def task_ended(self, line: dict[str, Any]) -> None:
        self._state.tasks.pop(wire.string(line, "task_id"), None)
        told = [self._state.notice, wire.string(line, "summary")]
        self._state.notice = "\n".join(filter(None, told))[:NOTICE_MAX_CHARS]

    def _result(self, running: Running, block: dict[str, Any], detail: Any) -> None:
        tool_id = wire.string(block, "tool_use_id")
        tool = running.tools.get(tool_id)
        if tool is None or not tool.open:
            self._out.count("late tool result")
            return
        failed = block.get("is_error") is True
        text = tools.result_text(block, detail)
        changed = tools.diff(detail) or (tools.asked_change(tool.name, tool.edit, text) if not failed else None)
        for shown in content.images(block.get("content"), running.turn, tool_id):
            self._out.emit(shown)
        tool.open, tool.edit = False, None
        self._out.emit(
            ToolResult(
                turn=running.turn,
                tool_id=tool_id,
                status="failed" if failed else "completed",
                content=text,
                diff=changed,
                locations=tools.locations(detail),
                is_error=failed,
            )
        )

    def _progress(self, running: Running, parent: str, kind: str, text: str) -> None:
        tool = running.tools.get(parent)
        if kind == "text" and tool is not None and tool.open:
            self._out.emit(ToolUpdate(turn=running.turn, tool_id=parent, content=text))

    def _repeated(self, running: Running, line: dict[str, Any]) -> bool:
        uuid = wire.string(line, "uuid")
        if uuid in running.seen:
            self._out.count("repeated entry")
            return True
        if uuid:
            running.seen = [*running.seen, uuid][-SEEN_MAX:]
        return False
