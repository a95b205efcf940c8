"""The command line of `claude`. Flags and their order are always the same, so that its prompt cache stays valid.

Above: the driver; handshake.py, which needs the session id before the agent reports it. Below: nothing. Values chosen
by users are checked here: unknown modes, and values that look like a flag, are not passed on.
"""

import json
import re
import uuid
from typing import Any

from perdure.drivers.base import LAUNCH_FOLDER, LaunchCommand, StartSession

MODES = {
    "default": "Ask before acting",
    "acceptEdits": "Accept edits",
    "plan": "Plan only",
    "auto": "Decide automatically",
    "dontAsk": "Deny what is not already allowed",
    "bypassPermissions": "Allow everything",
}
MODEL_PREFIX = "claude-"
"""The agent lists only some of its models. Other names that contain this may be valid too."""
SKIPS = "bypassPermissions"
"""The mode without permission requests. Allowed only if the project enables it."""

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
    # Otherwise each process puts the current git status into its system prompt, which invalidates the cache on resume.
    "--settings",
    '{"includeGitInstructions":false}',
]
_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    # By default, even an invalid key is retried ten times, for minutes. With 6 retries it takes half a minute.
    "CLAUDE_CODE_MAX_RETRIES": "6",
}


def command(argv: list[str], order: StartSession, launch_id: str) -> LaunchCommand:
    # A project's own settings can have hooks, which run without a permission request.
    trusted = order.options.get("trust_project_settings") is True
    line = [*argv, *_FLAGS, "--setting-sources", "user,project,local" if trusted else "user"]
    environment = dict(_ENVIRONMENT)
    if not trusted:
        # Without project settings, the directory's CLAUDE.md would be ignored too. Adding the directory includes it.
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
        # It may contain keys, and all users of the machine can read command lines.
        files[_MCP_FILE] = json.dumps({"mcpServers": configured})
        line += ["--mcp-config", LAUNCH_FOLDER + _MCP_FILE]
    extra = order.options.get("extra_args")
    line += [part for part in (extra if isinstance(extra, list) else []) if isinstance(part, str)]
    if order.options.get("agent_teams") is True:
        environment["CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"] = "1"
    return LaunchCommand(line, environment, files)


def _mcp_server(server: dict[str, Any]) -> dict[str, Any]:
    if "url" in server:
        address = {"type": server.get("transport", "http"), "url": server["url"]}
        return {**address, "headers": server.get("headers", {})}
    program, *arguments = server["command"]
    return {"type": "stdio", "command": program, "args": arguments, "env": server.get("env", {})}


def modes(order: StartSession | None) -> dict[str, str]:
    """Return the modes that this session may use, with their names."""
    skips = order is not None and order.options.get("skip_permissions") is True
    return MODES if skips else {mode: name for mode, name in MODES.items() if mode != SKIPS}


def first_mode(order: StartSession) -> str | None:
    """Return the initial mode: the chosen one if it is allowed, else the project's."""
    if order.mode in modes(order):
        return order.mode
    return SKIPS if SKIPS in modes(order) else None


def session_id(launch_id: str) -> str:
    """Return the id of the session that this launch creates, if it creates one."""
    return str(uuid.uuid5(_NAMES, f"session {launch_id}"))


def message_uuid(launch_id: str, message_id: str) -> str:
    """Return a uuid for a message. It depends on the launch, because the agent ignores a message whose uuid is already
    in its session."""
    return str(uuid.uuid5(_NAMES, f"message {launch_id} {message_id}"))


def is_value(text: Any) -> bool:
    """Return whether this can be a model name: not empty, and not a flag."""
    return isinstance(text, str) and _VALUE.fullmatch(text) is not None
