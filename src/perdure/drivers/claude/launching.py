"""The command line of `claude`: the same flags in the same order every time, so that its prompt cache goes on holding.

Above: the driver; opening.py, which must know the session's id before the agent says it. Below: nothing. Values that a
person chose are checked here: what is not a known mode, or looks like a flag, is not passed on.
"""

import json
import re
import uuid
from typing import Any

from perdure.drivers.base import LAUNCH_FOLDER, Command, StartSession

MODES = {
    "default": "Ask before acting",
    "acceptEdits": "Accept edits",
    "plan": "Plan only",
    "auto": "Decide by itself",
    "dontAsk": "Refuse what is not allowed already",
    "bypassPermissions": "Allow everything",
}
MODEL_PREFIX = "claude-"
"""The agent lists only some of its models: other names with this in them may be good too."""
SKIPS = "bypassPermissions"
"""The mode in which nobody is asked: only where a project says so."""

_NAMES = uuid.UUID("6f1c2a52-7f0e-5c0b-9d55-2c1f4a8f3b60")
_VALUE = re.compile(r"[A-Za-z0-9][\w.:/@\[\]-]*")

_MCP_FILE = "mcp.json"
_FLAGS = [
    "-p",
    "--verbose",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
    # Else each process takes a new picture of the repository into its system prompt, and no cache survives a resume.
    "--settings",
    '{"includeGitInstructions":false}',
]
_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    # Even a wrong key is tried again ten times, for minutes. So it is half a minute.
    "CLAUDE_CODE_MAX_RETRIES": "6",
}


def command(argv: list[str], order: StartSession, launch_id: str) -> Command:
    # A project's own settings can hold hooks, and these run without asking anybody.
    trusted = order.options.get("trust_project_settings") is True
    line = [*argv, *_FLAGS, "--setting-sources", "user,project,local" if trusted else "user"]
    environment = dict(_ENVIRONMENT)
    if not trusted:
        # Without its settings the directory's CLAUDE.md would not be read either; as an added directory it is.
        line += ["--add-dir", order.workdir]
        environment["CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"] = "1"
    if is_value(order.model):
        line += ["--model", str(order.model)]
    mode = first_mode(order)
    if mode is not None:
        line += ["--permission-mode", mode]
    if order.native_session_id is None:
        line += ["--session-id", session_id(launch_id)]
    else:
        line += ["--resume", order.native_session_id]
    granted = order.options.get("granted")
    if isinstance(granted, list) and granted:
        line += ["--allowedTools", *granted]
    files: dict[str, str] = {}
    servers = order.options.get("mcp_servers")
    if isinstance(servers, dict) and servers:
        configured = {name: _mcp_server(server) for name, server in servers.items()}
        # Keys may stand in it, and a command line can be read by everybody on the machine.
        files[_MCP_FILE] = json.dumps({"mcpServers": configured})
        line += ["--mcp-config", LAUNCH_FOLDER + _MCP_FILE]
    extra = order.options.get("extra_args")
    line += [part for part in (extra if isinstance(extra, list) else []) if isinstance(part, str)]
    if order.options.get("agent_teams") is True:
        environment["CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"] = "1"
    return Command(line, environment, files)


def _mcp_server(server: dict[str, Any]) -> dict[str, Any]:
    if "url" in server:
        address = {"type": server.get("transport", "http"), "url": server["url"]}
        return {**address, "headers": server.get("headers", {})}
    program, *arguments = server["command"]
    return {"type": "stdio", "command": program, "args": arguments, "env": server.get("env", {})}


def modes(order: StartSession | None) -> dict[str, str]:
    """The modes that this session may be in, with their names."""
    skips = order is not None and order.options.get("skip_permissions") is True
    return MODES if skips else {mode: name for mode, name in MODES.items() if mode != SKIPS}


def first_mode(order: StartSession) -> str | None:
    """The mode to begin in: the one that was chosen, if it may be, else the one that the project says."""
    if order.mode in modes(order):
        return order.mode
    return SKIPS if SKIPS in modes(order) else None


def session_id(launch_id: str) -> str:
    """The id of the session that this launch makes, if it makes one."""
    return str(uuid.uuid5(_NAMES, f"session {launch_id}"))


def message_uuid(launch_id: str, message_id: str) -> str:
    """The launch is part of it: a message with a uuid that its session holds already is taken for a repetition."""
    return str(uuid.uuid5(_NAMES, f"message {launch_id} {message_id}"))


def is_value(text: Any) -> bool:
    """Whether this can be the name of a model: not empty, and no flag."""
    return isinstance(text, str) and _VALUE.fullmatch(text) is not None
