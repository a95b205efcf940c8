"""OpenAI's chat completions: POST /v1/chat/completions, streamed or complete. Most agents that accept any model use it.

Above: server.py. Below: dialect.py. Thoughts are sent as `reasoning_content`, which is not part of the original API but
is what agents read.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from tests.model.conversation import Called, Conversation, Item, Returned, Said, conversation
from tests.model.dialect import Tokens, block_text, halves, new_id, sse
from tests.model.tools import Call

ERRORS = {
    400: ("invalid_request_error", "This request was scripted to be invalid."),
    401: ("invalid_api_key", "Incorrect API key provided."),
    429: ("rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", "The server had an error while processing your request."),
}


def openai_error(status: int) -> dict[str, Any]:
    code, message = ERRORS.get(status, ("server_error", f"Scripted error {status}"))
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


class OpenAIChat:
    name = "openai-chat"

    def speaks(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/chat/completions")

    def streamed(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def conversation(self, body: Any) -> Conversation:
        functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
        tools = {function["name"]: function.get("parameters") or {} for function in functions}
        wanted = (body.get("response_format") or {}).get("json_schema") or {}
        return conversation(items(body.get("messages") or []), tools, wanted.get("schema"))

    def answer(self, path: str, body: Any, tokens: Tokens) -> "Completion":
        return Completion(str(body.get("model")), tokens, bool((body.get("stream_options") or {}).get("include_usage")))

    def error(self, status: int) -> dict[str, Any]:
        return openai_error(status)


def items(messages: list[Any]) -> Iterator[Item]:
    for message in messages:
        if message["role"] == "user":
            content = message.get("content")
            for block in [{"text": content}] if isinstance(content, str) else content or []:
                if "text" in block:
                    yield Said(block["text"])
        elif message["role"] == "tool":
            yield Returned(block_text(message.get("content")))
        for call in message.get("tool_calls") or []:
            yield Called(call["function"]["name"])


class Completion:
    """An answer: one message whose content, reasoning and tool calls grow."""

    def __init__(self, model: str, tokens: Tokens, with_usage: bool) -> None:
        self._tokens = tokens
        self._with_usage = with_usage
        self._deltas = 0
        self._text = ""
        self._thoughts = ""
        self._calls: list[dict[str, Any]] = []
        self._base = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": model}

    def open(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, delta: str) -> bytes:
        self._text += delta
        self._deltas += 1
        return self._chunk({"content": delta})

    def thought(self, delta: str) -> bytes:
        self._thoughts += delta
        self._deltas += 1
        return self._chunk({"reasoning_content": delta})

    def call(self, call: Call) -> bytes:
        index, arguments = len(self._calls), json.dumps(call.arguments, ensure_ascii=False)
        made = {"id": new_id("call_"), "type": "function", "function": {"name": call.name, "arguments": arguments}}
        self._calls.append(made)
        named = {**made, "index": index, "function": {"name": call.name, "arguments": ""}}
        out = self._chunk({"tool_calls": [named]})
        for part in halves(arguments):
            out += self._chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        return out

    def fail(self, status: int) -> bytes:
        return sse(openai_error(status))

    def close(self) -> bytes:
        out = self._chunk({}, self._finish())
        if self._with_usage:
            out += sse({**self._base, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
        return out + b"data: [DONE]\n\n"

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._text}
        if self._thoughts:
            message["reasoning_content"] = self._thoughts
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "finish_reason": self._finish()}
        return {**self._base, "object": "chat.completion", "choices": [choice], "usage": self._usage()}

    def _finish(self) -> str:
        return "tool_calls" if self._calls else "stop"

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse({**self._base, "object": "chat.completion.chunk", "choices": [choice]})

    def _usage(self) -> dict[str, Any]:
        output = self._deltas + 1 if self._tokens.output is None else self._tokens.output
        total = self._tokens.input + output
        return {"prompt_tokens": self._tokens.input, "completion_tokens": output, "total_tokens": total}
