"""The lines that the `claude` command writes in stream-json, with the same keys in the same order.

Above: claude.py, claude_turn.py and claude_message.py fill them in. Below: only JSON.
Each function makes one line from its arguments and a random id. When to send a line is decided elsewhere.
"""

import json
import os
import time
import uuid
from collections.abc import Sequence
from typing import Any

from perdure.rehearsal.memory import timestamp
from perdure.rehearsal.slash_commands import COMMANDS

VERSION = "2.1.197"
MODELS = (
    ("default", "rehearsal-1", "Default (recommended)", "Follows your script"),
    ("rehearsal-1", "rehearsal-1", "Rehearsal 1", "Follows your script"),
    ("rehearsal-2", "rehearsal-2", "Rehearsal 2", "The same, under another name"),
)
DEFAULT_MODEL = MODELS[0][1]

Line = dict[str, Any]

_TOOLS = ("Task", "Bash", "Edit", "NotebookEdit", "Read", "TodoWrite", "WebFetch", "WebSearch", "Write")
_PROMPTING_TOOLS = ("AskUserQuestion", "EnterPlanMode", "ExitPlanMode")
_AGENTS = (("general-purpose", "Follows a script."),)


def encode(line: Line) -> bytes:
    """JSON as JavaScript writes it: non-ASCII characters unescaped, except U+2028, U+2029 and lone surrogates."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.encode("utf-8", "backslashreplace") + b"\n"


def new_id() -> str:
    return str(uuid.uuid4())


def request_id() -> str:
    return f"req_{os.urandom(10).hex()}"


def init(session_id: str, workdir: str, model: str, mode: str, prompts: bool) -> Line:
    return {
        "type": "system",
        "subtype": "init",
        "cwd": workdir,
        "session_id": session_id,
        "tools": sorted((*_TOOLS, *_PROMPTING_TOOLS) if prompts else _TOOLS),
        "mcp_servers": [],
        "model": model,
        "permissionMode": mode,
        "slash_commands": [name for name, *_ in COMMANDS],
        "apiKeySource": "none",
        "claude_code_version": VERSION,
        "output_style": "default",
        "agents": [name for name, _ in _AGENTS],
        "skills": [],
        "plugins": [],
        "analytics_disabled": True,
        "product_feedback_disabled": True,
        "uuid": new_id(),
        "fast_mode_state": "off",
    }


def initialized() -> Line:
    """The response to `initialize`."""
    models = [
        {"value": value, "resolvedModel": resolved, "displayName": name, "description": text}
        for value, resolved, name, text in MODELS
    ]
    return {
        "commands": [{"name": name, "description": text, "argumentHint": hint} for name, text, hint in COMMANDS],
        "agents": [{"name": name, "description": text} for name, text in _AGENTS],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": models,
        "account": {"tokenSource": "none", "apiKeySource": "rehearsal", "apiProvider": "firstParty"},
        "pid": os.getpid(),
    }


def system(subtype: str, session_id: str, **fields: Any) -> Line:
    return {"type": "system", "subtype": subtype, **fields, "uuid": new_id(), "session_id": session_id}


def stream_event(session_id: str, event: Line, **fields: Any) -> Line:
    return {
        "type": "stream_event",
        "event": event,
        "session_id": session_id,
        "parent_tool_use_id": None,
        "uuid": new_id(),
        **fields,
    }


def assistant(session_id: str, message: Line, request: str, **fields: Any) -> Line:
    return {
        "type": "assistant",
        "message": message,
        "parent_tool_use_id": None,
        "session_id": session_id,
        "uuid": new_id(),
        **fields,
        "request_id": request,
    }


def synthetic(session_id: str, text: str, error: str) -> Line:
    """A message that the command itself writes in place of the model, when the model can't be called."""
    usage = {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": None,
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": None,
        "iterations": None,
        "speed": None,
    }
    message = {
        "id": new_id(),
        "container": None,
        "model": "<synthetic>",
        "role": "assistant",
        "stop_details": None,
        "stop_reason": "stop_sequence",
        "stop_sequence": "",
        "type": "message",
        "usage": usage,
        "content": [{"type": "text", "text": text}],
        "context_management": None,
    }
    return assistant(session_id, message, request_id(), error=error)


def user(session_id: str, content: Sequence[Line], **fields: Any) -> Line:
    """A tool's result, or a note that becomes part of the conversation."""
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": session_id,
        "uuid": new_id(),
        "timestamp": timestamp(time.time()),
        **fields,
    }


def replay(session_id: str, content: Any, message_uuid: str, at: float | None) -> Line:
    line = {
        "type": "user",
        "message": {"role": "user", "content": content},
        "session_id": session_id,
        "parent_tool_use_id": None,
        "uuid": message_uuid,
    }
    if at is not None:
        line["timestamp"] = timestamp(at)
    return {**line, "isReplay": True}


def control_success(request: Any, response: Line | None = None, **fields: Any) -> Line:
    body: Line = {"subtype": "success", "request_id": request}
    if response is not None:
        body["response"] = response
    return {"type": "control_response", "response": {**body, **fields}}


def control_error(request: Any, error: str) -> Line:
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request, "error": error}}


def rate_limit(session_id: str, resets_at: int) -> Line:
    info = {
        "status": "rejected",
        "resetsAt": resets_at,
        "rateLimitType": "five_hour",
        "overageStatus": "rejected",
        "overageDisabledReason": "org_level_disabled",
        "isUsingOverage": False,
    }
    return {"type": "rate_limit_event", "rate_limit_info": info, "uuid": new_id(), "session_id": session_id}
