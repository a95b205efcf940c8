"""One message of the model in stream-json: its deltas, and each whole block before the block's stop.

Above: claude_turn.py supplies the content. Below: claude_lines.py.
The order is that of the real one: `message_start`; for each block `content_block_start`, the deltas, an `assistant`
line with only that block, `content_block_stop`; then `message_delta` and `message_stop`. Without partial messages,
only the `assistant` lines are sent. A permission request comes between a tool's block and its stop, so that block stays
open until claude_turn.py closes the message.
"""

import json
import os
from collections.abc import Callable
from json.encoder import encode_basestring as quoted
from typing import Protocol

from perdure.rehearsal import claude_lines as lines
from perdure.rehearsal.claude_ledger import Tokens, tokens_in
from perdure.rehearsal.claude_lines import Line

INPUT_PIECE_CHARACTERS = 24
SIGNATURE = "cmVoZWFyc2Fs"


class Output(Protocol):
    partial: bool
    """Whether to send deltas."""

    def send(self, line: Line) -> None: ...

    def write(self, data: bytes) -> None: ...


def started(model: str, input_tokens: int) -> Line:
    """An empty message."""
    return {
        "id": f"msg_{os.urandom(12).hex()}",
        "type": "message",
        "role": "assistant",
        "model": model.removesuffix("[1m]"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
    }


class Message:
    def __init__(
        self, output: Output, session_id: str, model: str, input_tokens: int, before_block: Callable[[], None]
    ) -> None:
        """`before_block` is called before each `assistant` line."""
        self.last_text = ""
        """The last complete text block."""
        self._output = output
        self._session_id = session_id
        self._before_block = before_block
        self._request_id = lines.request_id()
        self._input_tokens = input_tokens
        self._output_characters = 0
        self._index = -1
        self._open = ""
        self._pieces: list[str] = []
        self._thought_tokens = 0
        self._start = started(model, input_tokens)
        self._delta_start = ""
        self._delta_end = f'}}}},"session_id":{quoted(session_id)},"parent_tool_use_id":null,"uuid":"'
        if output.partial:
            began = {"type": "message_start", "message": self._start}
            output.send(lines.stream_event(session_id, began, ttft_ms=1))

    @property
    def used(self) -> Tokens:
        return Tokens(self._input_tokens, tokens_in(self._output_characters))

    def say(self, delta: str) -> None:
        if self._open != "text":
            self._open_block("text", {"type": "text", "text": ""}, '"text_delta","text":')
        self._add(delta)

    def think(self, delta: str) -> None:
        if self._open != "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
            self._open_block("thinking", block, '"thinking_delta","thinking":')
            self._thought_tokens = 0
        more = tokens_in(len(delta))
        self._thought_tokens += more
        if self._output.partial:
            estimate = {"estimated_tokens": self._thought_tokens, "estimated_tokens_delta": more}
            self._output.send(lines.system("thinking_tokens", self._session_id, **estimate))
        self._add(delta)

    def use_tool(self, tool_id: str, name: str, given: Line) -> None:
        """Send the whole block, without its stop, which `close` sends."""
        start = {"type": "tool_use", "id": tool_id, "name": name, "input": {}}
        self._open_block("tool_use", start, '"input_json_delta","partial_json":')
        text = json.dumps(given, ensure_ascii=False)
        for first in range(0, len(text), INPUT_PIECE_CHARACTERS):
            self._add(text[first : first + INPUT_PIECE_CHARACTERS])
        self._show({**start, "input": given})

    def room(self, size_bytes: int) -> int:
        """How many ASCII characters a delta needs for its line to have this many bytes, including the newline."""
        same = self._open == "text"
        envelope = self._delta_start if same else self._prefix(self._index + 1, '"text_delta","text":')
        return max(0, size_bytes - len(f'{envelope}""{self._delta_end}{lines.new_id()}"}}\n'.encode()))

    def close(self, stop_reason: str) -> None:
        self._close_block()
        if self._output.partial:
            usage = {"output_tokens": self.used.output}
            delta = {"stop_reason": stop_reason, "stop_sequence": None}
            self._event({"type": "message_delta", "delta": delta, "usage": usage})
            self._event({"type": "message_stop"})

    def break_off(self) -> None:
        """Send the text so far, but no stop of the block or the message."""
        if self._open == "text":
            self._show_pieces()
            self._open = ""

    # Blocks ---------------------------------------------------------------------------------------------------

    def _open_block(self, kind: str, start: Line, delta: str) -> None:
        self._close_block()
        self._index += 1
        self._open = kind
        self._pieces = []
        self._delta_start = self._prefix(self._index, delta)
        if self._output.partial:
            self._event({"type": "content_block_start", "index": self._index, "content_block": start})

    @staticmethod
    def _prefix(index: int, delta: str) -> str:
        event = f'{{"type":"content_block_delta","index":{index},"delta":{{"type":{delta}'
        return f'{{"type":"stream_event","event":{event}'

    def _add(self, delta: str) -> None:
        self._pieces.append(delta)
        self._output_characters += len(delta)
        if self._output.partial:
            # Formatted by hand for speed: benchmarks stream many deltas.
            line = f'{self._delta_start}{_escaped(delta)}{self._delta_end}{lines.new_id()}"}}\n'
            self._output.write(line.encode("utf-8", "backslashreplace"))

    def _close_block(self) -> None:
        if not self._open:
            return
        if self._open != "tool_use":
            self._show_pieces()
        self._open = ""
        if self._output.partial:
            self._event({"type": "content_block_stop", "index": self._index})

    def _show_pieces(self) -> None:
        text = "".join(self._pieces)
        if self._open == "text":
            self.last_text = text
            self._show({"type": "text", "text": text})
            return
        if self._output.partial:
            delta = {"type": "signature_delta", "signature": SIGNATURE}
            self._event({"type": "content_block_delta", "index": self._index, "delta": delta})
        self._show({"type": "thinking", "thinking": text, "signature": SIGNATURE})

    def _show(self, block: Line) -> None:
        self._before_block()
        message = {**self._start, "content": [block], "context_management": None}
        self._output.send(lines.assistant(self._session_id, message, self._request_id))

    def _event(self, event: Line) -> None:
        self._output.send(lines.stream_event(self._session_id, event))


def _escaped(text: str) -> str:
    return quoted(text).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
