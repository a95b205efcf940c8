"""Google's Gemini API: POST /v1beta/models/NAME:streamGenerateContent (or :generateContent).

Above: server.py. Below: dialect.py. As with the real API, each streamed piece is a separate response with one part, and
a function call is never split.
"""

from collections.abc import Iterator
from typing import Any

from tests.model.conversation import Called, Conversation, Item, Returned, Said, conversation
from tests.model.dialect import Tokens, new_id, sse
from tests.model.tools import Call

STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}


def gemini_error(status: int) -> dict[str, Any]:
    return {
        "error": {"code": status, "message": f"Scripted error {status}", "status": STATUSES.get(status, "UNAVAILABLE")}
    }


class Gemini:
    name = "gemini"

    def speaks(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith((":streamGenerateContent", ":generateContent"))

    def streamed(self, path: str, body: Any) -> bool:
        return path.endswith(":streamGenerateContent")

    def conversation(self, body: Any) -> Conversation:
        declared = [function for tool in body.get("tools") or [] for function in tool.get("functionDeclarations") or []]
        tools = {function["name"]: _schema(function) for function in declared}
        wanted = body.get("generationConfig") or {}
        form = wanted.get("responseJsonSchema") or wanted.get("responseSchema")
        return conversation(items(body.get("contents") or []), tools, form)

    def answer(self, path: str, body: Any, tokens: Tokens) -> "Candidate":
        return Candidate(path.rsplit("/", 1)[-1].partition(":")[0], tokens)

    def error(self, status: int) -> dict[str, Any]:
        return gemini_error(status)


def _schema(function: dict[str, Any]) -> Any:
    return function.get("parametersJsonSchema") or function.get("parameters") or {}


def items(contents: list[Any]) -> Iterator[Item]:
    for content in contents:
        for part in content.get("parts") or []:
            if "functionCall" in part:
                yield Called(part["functionCall"]["name"])
            elif "functionResponse" in part:
                response = part["functionResponse"].get("response") or {}
                yield Returned(str(response.get("output") or response.get("error") or response))
            elif "text" in part and content.get("role", "user") == "user":
                yield Said(part["text"])


class Candidate:
    """An answer: parts, one after another."""

    def __init__(self, model: str, tokens: Tokens) -> None:
        self._model = model
        self._tokens = tokens
        self._deltas = 0
        self._parts: list[dict[str, Any]] = []
        self._id = new_id("")

    def open(self) -> bytes:
        return b""

    def text(self, delta: str) -> bytes:
        return self._part({"text": delta})

    def thought(self, delta: str) -> bytes:
        return self._part({"text": delta, "thought": True})

    def call(self, call: Call) -> bytes:
        return self._part({"functionCall": {"id": new_id(""), "name": call.name, "args": call.arguments}})

    def fail(self, status: int) -> bytes:
        return sse(gemini_error(status))

    def close(self) -> bytes:
        return sse(self._response([{"text": ""}], "STOP"))

    def whole(self) -> dict[str, Any]:
        return self._response(self._parts, "STOP")

    def _part(self, part: dict[str, Any]) -> bytes:
        self._deltas += 1
        last = self._parts[-1] if self._parts else {}
        if "text" in part and "text" in last and last.get("thought") == part.get("thought"):
            last["text"] += part["text"]
        else:
            self._parts.append(dict(part))
        return sse(self._response([part]))

    def _response(self, parts: list[dict[str, Any]], finish: str = "") -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        output = self._deltas + 1 if self._tokens.output is None else self._tokens.output
        usage = {"promptTokenCount": self._tokens.input, "candidatesTokenCount": output}
        usage["totalTokenCount"] = self._tokens.input + output
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": self._model,
            "responseId": self._id,
        }
