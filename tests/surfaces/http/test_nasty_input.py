"""Any input leads to a clear refusal or a success, never to a server error, and never to a partial change."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.surfaces.http.local import LocalServer

DEEP = b"[" * 100_000
BODIES = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b'{"text": "a"',
    b'{"text": "\xff\xfe"}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\udc00\\ud800"}',
    b'{"text": 1}',
    b'{"text": null}',
    b'{"text": ""}',
    b'{"text": " \\n\\t "}',
    b'{"text": ' + DEEP,
    b'{"attachments": ' + DEEP,
    b'{"text": "a", "unknown": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"text": "a", "attachments": [{"a": ' + b"9" * 5_000 + b"}]}",
    b'{"text": "a", "attachments": [{"a": 1e999}]}',
    b'{"text": "a", "attachments": [{"a": NaN}]}',
    b'{"text": "a", "attachments": ["a"]}',
    b'{"text": "a", "message_id": ""}',
    b'{"text": "a", "message_id": "' + b"m" * 300 + b'"}',
    b'{"text": "a", "when_busy": "perhaps"}',
    b'{"text": "a", "agent": "none"}',
    b'{"text": "a", "limits": {"turn_timeout_s": -1}}',
    b'{"text": "a", "limits": {"on_idle": "dance"}}',
    b"text=a&message_id=b",
    b"\xef\xbb\xbf{}",
    b"\x00" * 1000,
    b"\xff" * 1000,
]


def test_a_misspelt_rule_is_refused_and_does_not_allow_everything(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    server = make_server()
    rule = {"tool": "Bash", "pattern": "git status*", "action": "allow"}
    misspelt = {"tool": "Bash", "patern": "git status*", "action": "allow"}
    project = server.post("/api/projects", {"name": "site", "path": str(tmp_path), "permissions": [rule]}, expect=201)
    assert project["permissions"] == [rule]
    path = f"/api/projects/{project['id']}"
    for answer in (
        server.http.patch(path, json={"permissions": [misspelt]}),
        server.http.post("/api/projects", json={"name": "x", "path": str(tmp_path), "permissions": [misspelt]}),
    ):
        assert refused(answer) and "patern" in answer.json()["detail"]
    changed = server.http.patch(path, json={"permissions": [rule, {"tool": "*", "action": "deny"}], "unknown": 1})
    assert [one["action"] for one in changed.json()["permissions"]] == ["allow", "deny"]


def refused(answer: httpx2.Response) -> bool:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["detail"] and body["status"] == answer.status_code
    return 400 <= answer.status_code < 500


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:60]))
def test_a_bad_body_is_refused_and_nothing_is_stored(server: LocalServer, body: bytes) -> None:
    session = server.create()
    before = server.session(session)
    known = len(server.get("/api/sessions?limit=1000")["sessions"])
    for path in (f"/api/sessions/{session}/messages", "/api/messages"):
        answer = server.http.post(path, content=body, headers={"content-type": "application/json"})
        if b'"unknown"' in body or (b"limits" in body and "sessions" in path):
            # Unknown fields are ignored, whatever they contain.
            assert answer.status_code in (202, 400, 409)
            continue
        assert refused(answer), answer.text
    if b'"unknown"' not in body and b"limits" not in body:
        assert server.session(session) == before
        assert len(server.get("/api/sessions?limit=1000")["sessions"]) == known
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "\u00fc"]
)
def test_the_content_type_of_a_body_is_ignored(server: LocalServer, media: str) -> None:
    headers = {b"content-type": media.encode("latin-1")}
    answer = server.http.post("/api/sessions", content=b'{"title": "t"}', headers=headers)
    assert answer.status_code == 201
    assert answer.json()["title"] == "t"


@pytest.mark.parametrize(
    "text",
    ["a\x00b", "\u2028\u2029", "\U0001f600" * 10, "\r\n\r\ndata: x\n\n", "</script>", "\x1b[2J", "\ufeffx", "e\u0301"],
)
def test_any_text_is_stored_unchanged(server: LocalServer, text: str) -> None:
    label = text.replace("\x00", "")
    session = server.create(title=text, labels=[label])
    assert server.session(session)["title"] == text
    said = f"say {text}".strip()
    server.turn(session, said)
    assert server.transcript(session)[0]["message"]["text"] == said
    with server.stream(f"/api/sessions/{session}/events?offset=0") as stream:
        frames = stream.until("waiting_for_input")
    sent = next(data for _, kind, data in frames if kind == "user_message")
    assert sent["text"] == said
    found = server.http.get("/api/sessions", params={"label": label}).json()["sessions"]
    assert session in [entry["id"] for entry in found]
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.parametrize(
    "identity",
    ["a%2Fb", "%2e%2e", "%00", "%ff%fe", "%ED%A0%80", "a%20b", "x" * 5_000, "s_%F0%9F%98%80", "'; DROP TABLE"],
)
def test_an_unknown_id_is_not_found_whatever_characters_it_has(server: LocalServer, identity: str) -> None:
    for method, path in (
        ("GET", f"/api/sessions/{identity}"),
        ("GET", f"/api/sessions/{identity}/events"),
        ("GET", f"/api/sessions/{identity}/log"),
        ("GET", f"/api/sessions/{identity}/transcript"),
        ("GET", f"/api/sessions/{identity}/transcript?format=markdown"),
        ("GET", f"/api/sessions/{identity}/explain"),
        ("GET", f"/api/sessions/{identity}/queue"),
        ("GET", f"/api/sessions/{identity}/prompts"),
        ("DELETE", f"/api/sessions/{identity}"),
        ("DELETE", f"/api/sessions/{identity}?purge=true"),
        ("POST", f"/api/sessions/{identity}/stop"),
        ("POST", f"/api/sessions/{identity}/abort"),
        ("GET", f"/api/projects/{identity}"),
        ("DELETE", f"/api/projects/{identity}"),
        ("GET", f"/api/agents/{identity}"),
    ):
        answer = server.http.request(method, path)
        assert refused(answer)
        assert answer.status_code == 404, (method, path, answer.text)


def test_ids_chosen_by_users_may_contain_slashes(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "hang")
    server.send(session, "say later", when_busy="queue", message_id="2026/01/a b%")
    answer = server.http.delete(f"/api/sessions/{session}/queue/2026%2F01%2Fa%20b%25")
    assert (answer.status_code, answer.json()) == (200, {"queue": []})
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=1001",
        "limit=" + "9" * 400,
        "limit=1.5",
        "limit=\u0661",
        "limit=",
        "archived=maybe",
        "cursor=x",
        "cursor=%00",
        "cursor=" + "A" * 5_000,
    ],
)
def test_a_bad_query_is_refused(server: LocalServer, query: str) -> None:
    answer = server.http.get(f"/api/sessions?{query}")
    assert refused(answer)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "query", ["q=%00", "q=%ff", 'q="', "q=a OR", "q=*", "q=NEAR(", "q=" + "a " * 3_000, "q=-", "q=\u00fc:x"]
)
def test_any_text_can_be_searched_for(server: LocalServer, query: str) -> None:
    assert server.http.get(f"/api/sessions?{query}").status_code == 200


def test_the_last_value_of_a_repeated_query_parameter_wins(server: LocalServer) -> None:
    assert len(server.get("/api/sessions?limit=x&limit=1")["sessions"]) <= 1
    assert server.http.get("/api/sessions?limit=1&limit=x").status_code == 400


@pytest.mark.parametrize("name", ["offset", "limit"])
@pytest.mark.parametrize("value", ["-1", "x", "1e3", "9" * 400, "", "0x1"])
def test_an_invalid_position_in_the_log_is_refused(server: LocalServer, name: str, value: str) -> None:
    session = server.create()
    assert server.http.get(f"/api/sessions/{session}/log", params={name: value}).status_code == 400
    assert server.http.get(f"/api/sessions/{session}/log?offset=9007199254740992").text == ""


def test_an_unknown_transcript_format_is_refused(server: LocalServer) -> None:
    session = server.create()
    assert server.http.get(f"/api/sessions/{session}/transcript?format=pdf").status_code == 400
    assert server.http.get(f"/api/sessions/{session}/transcript?from_turn=x").status_code == 400


def test_an_oversized_message_or_request_is_refused(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(max_message_bytes=1_000, max_attachment_bytes=1_000)
    session = server.create()
    path = f"/api/sessions/{session}/messages"
    assert server.http.post(path, json={"text": "x" * 1_001}).json()["code"] == "too_large"
    assert server.http.post(path, json={"text": "\u00fc" * 501}).status_code == 413
    assert server.http.post("/api/sessions", json={"message": "x" * 1_001}).status_code == 413
    assert server.http.post("/api/messages", json={"text": "x" * 1_001}).status_code == 413
    huge = server.http.post(path, content=(b"x" * 65_536 for _ in range(100)))
    assert (huge.status_code, huge.json()["code"]) == (413, "too_large")
    assert server.session(session)["turn_count"] == 0
    escaped = json.dumps({"text": "say " + "\u00fc" * 490})
    assert server.http.post(path, content=escaped.encode()).status_code == 202
    server.wait_idle(session)


@pytest.mark.parametrize("seconds", [1e300, 1e10, -1])
def test_a_timeout_out_of_range_is_refused(server: LocalServer, seconds: float) -> None:
    assert refused(server.http.post("/api/sessions", json={"limits": {"turn_timeout_s": seconds}}))


@pytest.mark.parametrize("seconds", [1e9, 0])
def test_a_timeout_may_be_very_long_or_off(server: LocalServer, seconds: float) -> None:
    limits = {"turn_timeout_s": seconds, "idle_timeout_s": seconds, "lifetime_s": seconds, "silence_s": seconds}
    session = server.create(limits=limits)
    server.send(session, "hang")
    server.wait(session, lambda found: found["attached"] == "live")
    assert server.http.get(f"/api/sessions/{session}/explain").status_code == 200
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**70), 10**400, 1e308, "x" * 10_000, "\x00", [], {}, None])
def test_any_value_of_an_option_is_accepted_or_refused_cleanly(server: LocalServer, value: object) -> None:
    session = server.create()
    answer = server.http.post(f"/api/sessions/{session}/config", json={"config_id": "mode", "value": value})
    assert answer.status_code in (200, 400)
    assert server.http.get(f"/api/sessions/{session}").status_code == 200
    assert server.http.get(f"/api/sessions/{session}/log").status_code == 200


def test_an_integer_may_be_written_with_a_decimal_point(server: LocalServer) -> None:
    session = server.create()
    for text in ("say one", "say two"):
        server.turn(session, text)
    path = f"/api/sessions/{session}/rewind"
    headers = {"content-type": "application/json"}
    answer = server.http.post(path, content=b'{"turn": 1.5}', headers=headers)
    assert answer.status_code == 400 and "whole number" in answer.json()["error"]
    answer = server.http.post(path, content=b'{"turn": 2.0, "revision": 0.0}', headers=headers)
    assert answer.status_code == 200 and answer.json()["turn_count"] == 1
