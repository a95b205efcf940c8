"""Anthropic's Messages API: POST /v1/messages, streamed or complete.

Above: server.py. Below: dialect.py. The events and their order are those of the real API, with a ping after the start
of the first block. It deliberately does not validate requests, because tests look at what the agent sends.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.model.conversation import STEERED, Called, Conversation, Item, Returned, Said, conversation
from tests.model.dialect import Tokens, block_text, halves, new_id, sse
from tests.model.tools import Call

ERRORS = {
    400: ("invalid_request_error", "This request was scripted to be invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}


class Anthropic:
    name = "anthropic"

    def speaks(self, method: str, path: str) -> bool:
        return method == "POST" and path == "/v1/messages"

    def streamed(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def conversation(self, body: Any) -> Conversation:
        tools = {tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or [] if "name" in tool}
        wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        return conversation(items(body.get("messages") or []), tools, wanted.get("schema"))

    def answer(self, path: str, body: Any, tokens: Tokens) -> "Message":
        return Message(str(body.get("model")), tokens)

    def error(self, status: int) -> dict[str, Any]:
        kind, message = ERRORS.get(status, ("api_error", f"Scripted error {status}"))
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": new_id("req_")}


def used_up(resets_at: int) -> dict[str, str]:
    """The headers that tell a subscriber that the usage limit is reached, and until when. Other clients ignore them."""
    unified = {
        "status": "rejected",
        "reset": str(resets_at),
        "representative-claim": "five_hour",
        "5h-status": "rejected",
        "5h-reset": str(resets_at),
        "5h-utilization": "1.0",
        "overage-status": "rejected",
        "overage-disabled-reason": "org_level_disabled",
    }
    return {f"anthropic-ratelimit-unified-{name}": value for name, value in unified.items()}


def items(messages: list[Any]) -> Iterator[Item]:
    for message in messages:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kind = block["type"]
            if kind == "text" and (message["role"] == "user" or steered(message["role"], block["text"])):
                yield Said(block["text"])
            elif kind == "tool_use":
                yield Called(block["name"])
            elif kind == "tool_result":
                yield Returned(block_text(block.get("content")))


def steered(role: str, text: str) -> bool:
    """A message typed while a tool ran arrives with the system role, like much that no user typed."""
    return role == "system" and STEERED in text


class Message:
    """An answer: blocks of text, thinking and tool calls, each opened and closed in order."""

    def __init__(self, model: str, tokens: Tokens) -> None:
        self._model = model
        self._tokens = tokens
        self._id = new_id("msg_")
        self._content: list[dict[str, Any]] = []
        self._open = ""
        self._deltas = 0
        self._stop_reason: str | None = None

    def open(self) -> bytes:
        return _event("message_start", message=self._message(1))

    def text(self, delta: str) -> bytes:
        return self._piece("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": delta})

    def thought(self, delta: str) -> bytes:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return self._piece("thinking", block, {"type": "thinking_delta", "thinking": delta})

    def call(self, call: Call) -> bytes:
        self._stop_reason = "tool_use"
        block = {"type": "tool_use", "id": new_id("toolu_"), "name": call.name, "input": {}}
        out = self._end_block() + self._begin_block("tool_use", block)
        for part in ["", *halves(json.dumps(call.arguments, ensure_ascii=False))]:
            delta = {"type": "input_json_delta", "partial_json": part}
            out += _event("content_block_delta", index=len(self._content) - 1, delta=delta)
        self._content[-1]["input"] = call.arguments
        return out + self._end_block()

    def fail(self, status: int) -> bytes:
        error = Anthropic().error(status)
        return _event("error", error=error["error"], request_id=error["request_id"])

    def close(self) -> bytes:
        self._stop_reason = self._stop_reason or "end_turn"
        out = self._end_block()
        delta = {"stop_reason": self._stop_reason, "stop_sequence": None}
        return out + _event("message_delta", delta=delta, usage=self._usage(self._output())) + _event("message_stop")

    def whole(self) -> dict[str, Any]:
        return self._message(self._output())

    def _piece(self, kind: str, block: dict[str, Any], delta: dict[str, Any]) -> bytes:
        out = b"" if self._open == kind else self._end_block() + self._begin_block(kind, block)
        key = "text" if kind == "text" else "thinking"
        self._content[-1][key] += delta[key]
        self._deltas += 1
        return out + _event("content_block_delta", index=len(self._content) - 1, delta=delta)

    def _begin_block(self, kind: str, block: dict[str, Any]) -> bytes:
        out = _event("content_block_start", index=len(self._content), content_block=block)
        self._content.append(dict(block))
        self._open = kind
        return out if len(self._content) > 1 else out + _event("ping")

    def _end_block(self) -> bytes:
        if not self._open:
            return b""
        index, out = len(self._content) - 1, b""
        if self._open == "thinking":
            signature = self._content[-1]["signature"] = new_id("sig")
            out = _event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": signature})
        self._open = ""
        return out + _event("content_block_stop", index=index)

    def _output(self) -> int:
        return self._deltas + 1 if self._tokens.output is None else self._tokens.output

    def _usage(self, output_tokens: int) -> dict[str, Any]:
        cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return {"input_tokens": self._tokens.input, **cache, "output_tokens": output_tokens}

    def _message(self, output_tokens: int) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._content,
            "stop_reason": self._stop_reason,
            "stop_sequence": None,
            "usage": {**self._usage(output_tokens), "service_tier": "standard"},
        }


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)
