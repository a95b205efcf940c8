"""The usage and cost of the turns of one process, and the `result` lines that report them.

Above: a turn adds its usage and ends with a result made here. Below: claude_lines.py.
Tokens are per turn. Cost, API time and tokens by model are totals of the process, and restart at zero in the next
process even if it resumes a session. Prices are invented: they only have to add up.
"""

import time
from typing import Any, NamedTuple

from perdure.rehearsal.claude_lines import Line, new_id

CHARACTERS_PER_TOKEN = 4
INPUT_USD_PER_TOKEN = 5 / 1_000_000
OUTPUT_USD_PER_TOKEN = 25 / 1_000_000
CONTEXT_WINDOW_TOKENS = 200_000


class Tokens(NamedTuple):
    input: int = 0
    output: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        return Tokens(self.input + other.input, self.output + other.output)


def tokens_in(characters: int) -> int:
    return characters // CHARACTERS_PER_TOKEN + 1


class Ending(NamedTuple):
    """How a turn ended, with the field names of its result. `text` is None where the real one has no answer."""

    subtype: str
    is_error: bool
    num_turns: int
    terminal_reason: str | None
    text: str | None = None
    stop_reason: str | None = None
    api_error_status: int | None = None
    errors: tuple[str, ...] = ()


class Ledger:
    def __init__(self) -> None:
        self._by_model: dict[str, Tokens] = {}
        self._api_s = 0.0

    def result(
        self, session_id: str, ending: Ending, began: float, model: str, used: Tokens, denials: list[Line]
    ) -> Line:
        """Record a turn's usage and return its `result` line. `began` is a time of the monotonic clock."""
        spent_s = time.monotonic() - began
        if used.input or used.output:
            self._api_s += spent_s
            self._by_model[model] = self._by_model.get(model, Tokens()).plus(used)
        first: Line = {"type": "result", "subtype": ending.subtype}
        times: Line = {"duration_ms": int(spent_s * 1000), "duration_api_ms": int(self._api_s * 1000)}
        if ending.terminal_reason is not None and not ending.is_error:
            # There is no model to wait for, so the first token is available immediately.
            times |= {"ttft_ms": 1, "ttft_stream_ms": 1, "time_to_request_ms": 0}
        if ending.text is not None:
            status = {"is_error": ending.is_error, "api_error_status": ending.api_error_status}
            first |= status | times | {"num_turns": ending.num_turns, "result": ending.text}
        else:
            first |= times | {"is_error": ending.is_error, "num_turns": ending.num_turns}
        return {
            **first,
            "stop_reason": ending.stop_reason,
            "session_id": session_id,
            "total_cost_usd": sum(_cost(tokens) for tokens in self._by_model.values()),
            "usage": usage_of(used.input, used.output),
            "modelUsage": {name: _model_usage(tokens) for name, tokens in self._by_model.items()},
            "permission_denials": denials,
            **_reason(ending),
            "uuid": new_id(),
            **({"errors": list(ending.errors)} if ending.errors else {}),
        }


def refusal(session_id: str, message: str) -> Line:
    """The result of a process that could not start a turn."""
    ending = Ending("error_during_execution", True, 0, None, errors=(message,))
    return Ledger().result(session_id, ending, time.monotonic(), "", Tokens(), [])


def _reason(ending: Ending) -> Line:
    if ending.terminal_reason is None:
        return {}
    return {"terminal_reason": ending.terminal_reason, "fast_mode_state": "off"}


def _cost(tokens: Tokens) -> float:
    return tokens.input * INPUT_USD_PER_TOKEN + tokens.output * OUTPUT_USD_PER_TOKEN


def usage_of(input_tokens: int, output_tokens: int) -> Line:
    return {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": "",
        "iterations": [],
        "speed": "standard",
    }


def _model_usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "inputTokens": tokens.input,
        "outputTokens": tokens.output,
        "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0,
        "webSearchRequests": 0,
        "costUSD": _cost(tokens),
        "contextWindow": CONTEXT_WINDOW_TOKENS,
        "maxOutputTokens": 64_000,
    }
