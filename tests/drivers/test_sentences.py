"""Real error messages of agents, each turned into one sentence; and when an exhausted quota resets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.drivers import jsonrpc
from perdure.drivers.acp.faults import turn_fault
from perdure.drivers.sentences import NO_REASON, SENTENCE_CHARS, plain, reset_after_s, reset_at, said

QUOTA = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota, please check your plan and bill.\nPlease retry in 47.4s.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "47s"}],
    }
}
TWICE = {"error": {"message": json.dumps(QUOTA, indent=2), "code": 429, "status": "Too Many Requests"}}


def failed(error: object) -> jsonrpc.Failure:
    frame = jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode())
    assert frame is not None
    found = jsonrpc.failure(frame)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            {"code": 400, "message": '{"error":{"code":400,"message":"scripted failure","status":"INTERNAL"}}'},
            "scripted failure",
        ),
        (
            {"code": -32603, "message": "Internal error: API Error: 400 scripted failure", "data": {"errorKind": "x"}},
            "API Error: 400 scripted failure",
        ),
        (
            {
                "code": -32603,
                "message": "Internal error",
                "data": {"details": "Error code: 400 - {'error': {'type': 'api_error', 'message': 'it broke'}}"},
            },
            "Error code: 400: it broke",
        ),
        ({"code": -32603, "message": "Internal error", "data": {"details": "no rollout found"}}, "no rollout found"),
        (
            {
                "code": -32603,
                "message": "Client error '400 Bad Request' for url 'http://h/v1'\nFor more information: it broke",
                "data": None,
            },
            "Client error '400 Bad Request' for url 'http://h/v1' For more information: it broke",
        ),
        ({"code": -32602, "message": "Invalid params", "data": {"_errors": [], "cwd": {}}}, "Invalid params"),
        (
            {"code": 429, "message": f"[API Error: {json.dumps(TWICE)}]\nPlease wait and try again later."},
            (
                "API Error: You exceeded your current quota, please check your plan and bill. Please retry in 47.4s. "
                "Please wait and try again later."
            ),
        ),
        ({"code": -32603, "message": "Internal error"}, "Internal error"),
        ({"code": -32603}, NO_REASON),
        ("busy", "busy"),
    ],
)
def test_an_error_becomes_one_sentence_and_the_raw_error_is_kept(error: object, sentence: str) -> None:
    found = failed(error)
    assert found.sentence == sentence
    assert json.loads(found.raw) == error


@given(st.text() | st.dictionaries(st.text(), st.text()).map(json.dumps), st.text())
def test_a_sentence_is_always_short_and_on_one_line(before: str, after: str) -> None:
    sentence = plain(before + after)
    assert 0 < len(sentence) <= SENTENCE_CHARS and "\n" not in sentence


def test_a_raw_error_that_only_repeats_the_sentence_is_dropped() -> None:
    assert said("It broke.") == ("It broke.", None)
    assert said('API Error: 500 {"error": {"message": "it broke"}}') == (
        "API Error: 500: it broke",
        'API Error: 500 {"error": {"message": "it broke"}}',
    )
    assert said("usage limit reached|1767225600").sentence == "usage limit reached"


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("You've hit your usage limit. Upgrade to Pro, or try again in 2 days 3 hours 28 minutes.", 185_280),
        ("You have exhausted your capacity on this model. Your quota will reset after 3h20m10s.", 12_010),
        ("Your quota will reset after 5s.. Retrying after 6173ms...", 5),
        ("usage limit reached: it resets in 30 seconds", 30),
        ("Please retry in 47.434392449s.", 47.434392449),
        ("Try again in 1 hour and 5 minutes", 3900),
        (json.dumps(TWICE), 47.4),
        ('{"retryDelay": "12s"}', 12),
        ('{"code": "usage_limit", "resets_in_s": 2.5}', 2.5),
        ("You've hit your limit, resets 3pm (Europe/Berlin)", None),
        ("try again in 99999 days", None),
        ("it broke", None),
    ],
)
def test_the_time_until_a_quota_resets_is_read_from_the_text(text: str, after_s: float | None) -> None:
    assert reset_after_s(text) == (None if after_s is None else pytest.approx(after_s))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("usage limit reached|1767225600", 1_767_225_600),
        ("usage limit reached|1767225600000", 1_767_225_600),
        ('{"error": {"type": "usage_limit_reached", "resets_at": 1767600000}}', 1_767_600_000),
        (json.dumps(json.dumps({"resets_at": 1767600000})), 1_767_600_000),
        ("Your limit resets at 2026-01-05T10:00:00Z.", 1_767_607_200),
        ('{"resetsAt": "2026-01-05T11:00:00+01:00"}', 1_767_607_200),
        ("Try again at 2026-01-05 10:00:00.5+00:00", 1_767_607_200.5),
        ("resets at 2026-13-45T10:00:00Z", None),
        ("resets at 2026-01-05T10:00:00", None),
        ("resets 3pm (Europe/Berlin)", None),
        ("it broke at 2026-01-05T10:00:00Z", None),
    ],
)
def test_an_unambiguous_reset_time_is_read(text: str, moment: float | None) -> None:
    assert reset_at(text) == moment
    fault = turn_fault(failed({"code": 429, "message": text}))
    assert (fault.retry_at, fault.retry_after_s) == (moment, None)


def test_a_usage_limit_is_not_mistaken_for_a_session_that_is_too_long() -> None:
    exhausted = turn_fault(failed({"code": 429, "message": json.dumps(QUOTA)}))
    assert (exhausted.code, exhausted.poisoned) == ("usage_limit", False)
    assert exhausted.retry_after_s == pytest.approx(47.4)
    assert turn_fault(failed({"code": 429, "message": "Too Many Requests"})).code == "rate_limited"
    too_long = turn_fault(failed({"code": 400, "message": "the input exceeds the model's context window limit"}))
    assert (too_long.code, too_long.poisoned) == ("context_too_long", True)
