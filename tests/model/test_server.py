"""The scripted model over real HTTP: each API's frames and errors, and connections that are cut off."""

import gc
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.model.log import common_prefix, user_texts
from tests.model.server import ModelServer, running

TIMEOUT_S = 20.0
PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/scripted:streamGenerateContent?alt=sse",
}


@pytest.fixture
def http(model: ModelServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=model.url, timeout=TIMEOUT_S, trust_env=False) as client:
        yield client


def asking(dialect: str, text: str, stream: bool = True) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    if dialect == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if dialect == "openai-responses":
        return {"model": "scripted", "stream": stream, "input": [{"type": "message", **message}]}
    return {"model": "scripted", "stream": stream, "messages": [message]}


def frames(body: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def ask(http: httpx2.Client, text: str, dialect: str = "anthropic") -> list[Any]:
    answer = http.post(PATHS[dialect], json=asking(dialect, text))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return frames(answer.text)


def test_a_message_is_streamed_as_the_real_api_does(http: httpx2.Client) -> None:
    got = ask(http, "usage 7 9\nthink hm\nsay hello world\nbash ls")
    kinds = [frame["type"] for frame in got]
    assert kinds[:3] == ["message_start", "content_block_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert [frame["content_block"]["type"] for frame in got if frame["type"] == "content_block_start"] == [
        "thinking",
        "text",
        "tool_use",
    ]
    assert kinds.count("content_block_stop") == 3
    deltas = [frame["delta"] for frame in got if frame["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "hello world"
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"command": "ls"}
    assert got[0]["message"]["usage"]["input_tokens"] == 7
    assert got[-2]["delta"]["stop_reason"] == "tool_use" and got[-2]["usage"]["output_tokens"] == 9


def test_a_message_can_be_returned_complete(http: httpx2.Client) -> None:
    got = http.post("/v1/messages", json=asking("anthropic", "think hm\nsay hi", stream=False)).json()
    assert [block["type"] for block in got["content"]] == ["thinking", "text"]
    assert got["content"][1]["text"] == "hi" and got["stop_reason"] == "end_turn"


def test_a_chat_completion_is_streamed_or_complete(http: httpx2.Client) -> None:
    got = ask(http, "say hello world\nbash ls", "openai-chat")
    deltas = [frame["choices"][0]["delta"] for frame in got]
    assert "".join(delta.get("content") or "" for delta in deltas) == "hello world"
    arguments = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert json.loads("".join(arguments)) == {"command": "ls"}
    assert got[-1]["choices"][0]["finish_reason"] == "tool_calls"
    whole = http.post("/v1/chat/completions", json=asking("openai-chat", "usage 3 4\nsay hi", stream=False)).json()
    assert whole["choices"][0]["message"]["content"] == "hi" and whole["usage"]["total_tokens"] == 7


def test_a_response_is_streamed_item_by_item(http: httpx2.Client) -> None:
    got = ask(http, "think hm\nsay hello world\nbash ls", "openai-responses")
    assert [frame["sequence_number"] for frame in got] == list(range(len(got)))
    assert got[0]["type"] == "response.created" and got[-1]["type"] == "response.completed"
    output = got[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert output[1]["content"][0]["text"] == "hello world"
    assert json.loads(output[2]["arguments"]) == {"command": "ls"}
    done = [frame["item"]["type"] for frame in got if frame["type"] == "response.output_item.done"]
    assert done == ["reasoning", "message", "function_call"]


def test_gemini_gets_its_parts(http: httpx2.Client) -> None:
    got = ask(http, "think hm\nsay hello world\nbash ls", "gemini")
    parts = [part for frame in got for part in frame["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) == "hello world"
    assert [part["functionCall"]["args"] for part in parts if "functionCall" in part] == [{"command": "ls"}]
    assert got[-1]["candidates"][0]["finishReason"] == "STOP"
    path = "/v1beta/models/scripted:generateContent"
    whole = http.post(path, json=asking("gemini", "say hello world")).json()
    assert whole["candidates"][0]["content"]["parts"] == [{"text": "hello world"}]


@pytest.mark.parametrize("dialect", PATHS)
def test_every_api_fails_then_answers_and_is_read_the_same_way(
    http: httpx2.Client, model: ModelServer, dialect: str
) -> None:
    script = asking(dialect, "fail 429 1\nsay ok")
    failed = http.post(PATHS[dialect], json=script)
    assert failed.status_code == 429 and "error" in failed.json()
    assert http.post(PATHS[dialect], json=script).status_code == 200
    assert [user_texts(request) for request in model.log.asked] == [["fail 429 1\nsay ok"]] * 2
    assert model.log.outcomes() == ["failed", "answered"]


def test_errors_have_the_apis_format(http: httpx2.Client) -> None:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    kinds |= {500: "api_error", 529: "overloaded_error"}
    for status, kind in kinds.items():
        got = http.post("/v1/messages", json=asking("anthropic", f"fail {status}"))
        assert (got.status_code, got.json()["type"], got.json()["error"]["type"]) == (status, "error", kind)


def test_a_failure_inside_a_stream_is_an_event(http: httpx2.Client) -> None:
    got = ask(http, "say half\nfail 529")
    assert got[-1]["type"] == "error" and got[-1]["error"]["type"] == "overloaded_error"


def test_a_cut_closes_the_connection_in_the_middle(http: httpx2.Client, model: ModelServer) -> None:
    with pytest.raises(httpx2.TransportError):
        http.post("/v1/messages", json=asking("anthropic", "say half\ncut"))
    assert model.log.wait(lambda request: request.outcome == "cut").status == 200
    assert ask(http, "say half\ncut")[-1]["type"] == "message_stop"


def test_a_client_that_disconnects_ends_its_answer(model: ModelServer) -> None:
    body = json.dumps(asking("anthropic", "stall")).encode()
    with socket.create_connection(("127.0.0.1", model.port), TIMEOUT_S) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        got = b""
        while b"message_start" not in got:
            got += client.recv(65536)
    model.log.wait(lambda request: request.outcome == "left", TIMEOUT_S)


def test_a_hanging_request_gets_nothing_and_ends_with_the_server() -> None:
    body = json.dumps(asking("anthropic", "hang")).encode()
    with running() as model, socket.create_connection(("127.0.0.1", model.port), TIMEOUT_S) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        model.log.wait(lambda request: user_texts(request) == ["hang"], TIMEOUT_S)
        model.stop()
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            return


def test_a_restarted_model_answers_at_the_same_address(model: ModelServer) -> None:
    port = model.port
    model.stop()
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S, trust_env=False) as http:
        with pytest.raises(httpx2.ConnectError):
            http.head("/")
        model.start(port)
        assert http.head("/").status_code == 200
        assert ask(http, "say back")[-1]["type"] == "message_stop"


def test_a_body_in_chunks_is_read(http: httpx2.Client, model: ModelServer) -> None:
    text = json.dumps(asking("anthropic", "say hi")).encode()
    assert http.post("/v1/messages", content=iter([text[:10], text[10:]])).status_code == 200
    assert user_texts(model.log.asked[0]) == ["say hi"]


def test_other_paths_are_answered_and_not_counted(http: httpx2.Client, model: ModelServer) -> None:
    assert http.head("/").status_code == 200
    assert http.post("/v1/messages/count_tokens", json=asking("anthropic", "x")).json()["input_tokens"] > 0
    assert http.get("/v1/models").json()["data"]
    assert http.get("/nowhere").status_code == 404
    form = {
        "format": {"type": "json_schema", "schema": {"type": "object", "properties": {"title": {"type": "string"}}}}
    }
    titled = http.post("/v1/messages", json={**asking("anthropic", "hang", stream=False), "output_config": form}).json()
    assert json.loads(titled["content"][0]["text"]) == {"title": "scripted"}
    assert model.log.asked == [] and len(model.log.all) == 5


def test_the_log_contains_no_keys(http: httpx2.Client, model: ModelServer) -> None:
    headers = {"x-api-key": "secret", "authorization": "Bearer secret", "anthropic-version": "2023-06-01"}
    http.post("/v1/messages", json=asking("anthropic", "say hi"), headers=headers)
    (request,) = model.log.asked
    assert "secret" not in json.dumps(request.headers)
    assert request.headers["anthropic-version"] == "2023-06-01"


def test_a_prefix_is_compared_without_cache_markers(http: httpx2.Client, model: ModelServer) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    first = {"role": "user", "content": [{"type": "text", "text": "say a", **mark}]}
    plain = {"role": "user", "content": "say a"}
    more = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "say b"}]
    for body in (
        {"system": "s", "tools": [], "messages": [first]},
        {"system": "s", "tools": [], "messages": [plain, *more]},
        {"system": "t", "tools": [], "messages": more},
    ):
        http.post("/v1/messages", json={"model": "m", **body})
    one, two, three = model.log.asked
    assert common_prefix(one, two).whole
    assert common_prefix(two, three) == (False, True, 0, 3)


def test_a_usage_limit_is_in_the_headers_with_its_reset_time(http: httpx2.Client) -> None:
    answer = http.post(PATHS["anthropic"], json=asking("anthropic", "limit 100"))
    assert answer.status_code == 429 and answer.json()["error"]["type"] == "rate_limit_error"
    left_s = int(answer.headers["anthropic-ratelimit-unified-reset"]) - time.time()
    assert answer.headers["anthropic-ratelimit-unified-status"] == "rejected" and 0 < left_s <= 101


def test_half_an_emoji_is_sent_as_an_escape(http: httpx2.Client) -> None:
    answer = http.post(PATHS["anthropic"], json=asking("anthropic", 'spell ["a \\ud83d", "\\ude00 b"]'))
    assert '"text":"a \\ud83d"' in answer.text and '"text":"\\ude00 b"' in answer.text


def test_a_stop_leaves_no_socket_open_even_while_one_is_accepted() -> None:
    for _ in range(20):
        server = ModelServer()
        server.start()
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) for _ in range(10)]
        server.stop()
        for client in clients:
            client.close()
    # An open socket warns when it is collected, and a warning is an error here.
    gc.collect()
