"""OpenAI's responses: POST /v1/responses, streamed or complete.

Above: server.py. Below: dialect.py, and openai_chat.py for the errors that both share. Only requests with the whole
conversation in `input` are supported. One that refers to an earlier response is not, because nothing is stored here.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from tests.model.conversation import Called, Conversation, Item, Returned, Said, conversation
from tests.model.dialect import Tokens, block_text, halves, new_id, sse
from tests.model.openai_chat import openai_error
from tests.model.tools import Call


class OpenAIResponses:
    name = "openai-responses"

    def speaks(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/responses")

    def streamed(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def conversation(self, body: Any) -> Conversation:
        tools = {tool["name"]: tool.get("parameters") or {} for tool in body.get("tools") or [] if "name" in tool}
        wanted = (body.get("text") or {}).get("format") or {}
        return conversation(items(body.get("input") or []), tools, wanted.get("schema"))

    def answer(self, path: str, body: Any, tokens: Tokens) -> "Response":
        return Response(str(body.get("model")), tokens)

    def error(self, status: int) -> dict[str, Any]:
        return openai_error(status)


def items(given: str | list[Any]) -> Iterator[Item]:
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] == "user":
            content = item["content"]
            for block in [{"text": content}] if isinstance(content, str) else content:
                if "text" in block:
                    yield Said(block["text"])
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            yield Called(item.get("name", kind))
        elif kind.endswith("_call_output"):
            yield Returned(block_text(item.get("output")))


class Response:
    """An answer: items of reasoning, text and function calls, each opened and finished in order."""

    def __init__(self, model: str, tokens: Tokens) -> None:
        self._tokens = tokens
        self._deltas = 0
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._open = ""
        self._base = {"id": new_id("resp_"), "object": "response", "created_at": int(time.time()), "model": model}

    def open(self) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def text(self, delta: str) -> bytes:
        out = b""
        if self._open != "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            out = self._end_item()
            out += self._begin_item("message", {"id": new_id("msg_"), "role": "assistant", "content": []})
            out += self._event("response.content_part.added", **self._place(0), part=part)
            self._output[-1]["content"] = [part]
        self._output[-1]["content"][0]["text"] += delta
        self._deltas += 1
        return out + self._event("response.output_text.delta", **self._place(0), delta=delta)

    def thought(self, delta: str) -> bytes:
        out = b""
        if self._open != "reasoning":
            part = {"type": "summary_text", "text": ""}
            out = self._end_item() + self._begin_item("reasoning", {"id": new_id("rs_"), "summary": []})
            out += self._event("response.reasoning_summary_part.added", **self._place(), summary_index=0, part=part)
            self._output[-1]["summary"] = [part]
        self._output[-1]["summary"][0]["text"] += delta
        self._deltas += 1
        return out + self._event("response.reasoning_summary_text.delta", **self._place(), summary_index=0, delta=delta)

    def call(self, call: Call) -> bytes:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        item = {"id": new_id("fc_"), "call_id": new_id("call_"), "name": call.name, "arguments": ""}
        out = self._end_item() + self._begin_item("function_call", item)
        for part in halves(arguments):
            out += self._event("response.function_call_arguments.delta", **self._place(), delta=part)
        self._output[-1]["arguments"] = arguments
        out += self._event("response.function_call_arguments.done", **self._place(), arguments=arguments)
        return out + self._end_item()

    def fail(self, status: int) -> bytes:
        error = openai_error(status)["error"]
        response = {**self._response("failed"), "error": {"code": error["code"], "message": error["message"]}}
        return self._event("response.failed", response=response)

    def close(self) -> bytes:
        return self._end_item() + self._event("response.completed", response=self._response("completed"))

    def whole(self) -> dict[str, Any]:
        return self._response("completed")

    def _begin_item(self, kind: str, item: dict[str, Any]) -> bytes:
        self._open = kind
        self._output.append({"type": kind, "status": "in_progress", **item})
        return self._event("response.output_item.added", output_index=len(self._output) - 1, item=self._output[-1])

    def _end_item(self) -> bytes:
        if not self._open:
            return b""
        item, out = self._output[-1], b""
        if self._open == "message":
            part = item["content"][0]
            out = self._event("response.output_text.done", **self._place(0), text=part["text"])
            out += self._event("response.content_part.done", **self._place(0), part=part)
        elif self._open == "reasoning":
            part = item["summary"][0]
            done = {**self._place(), "summary_index": 0}
            out = self._event("response.reasoning_summary_text.done", **done, text=part["text"])
            out += self._event("response.reasoning_summary_part.done", **done, part=part)
        item["status"] = "completed"
        self._open = ""
        return out + self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _place(self, part: int | None = None) -> dict[str, Any]:
        place = {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}
        return place if part is None else {**place, "content_index": part}

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return sse({"type": kind, "sequence_number": self._sequence - 1, **fields}, kind)

    def _response(self, status: str) -> dict[str, Any]:
        output = self._deltas + 1 if self._tokens.output is None else self._tokens.output
        usage = {
            "input_tokens": self._tokens.input,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._tokens.input + output,
        }
        done = status == "completed"
        whole = {"status": status, "output": self._output if done else [], "error": None, "incomplete_details": None}
        return {**self._base, **whole, "usage": usage if done else None}
