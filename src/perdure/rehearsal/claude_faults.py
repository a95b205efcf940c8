"""Failures in the Claude dialect: broken lines, a usage limit, a context that is too long.

Above: claude_turn.py. Below: claude_lines.py. The messages are those of the real `claude` command.
"""

import math
import time

from perdure.rehearsal import claude_lines as lines
from perdure.rehearsal.claude_ledger import Ending
from perdure.rehearsal.claude_lines import Line

GARBAGE = b"".join(
    (
        b"this is not JSON\n",
        b"[SandboxDebug] a line that some builds print\n",
        b'{"type":"assistant","mess\n',
        b"\xff\xfe\x80 these bytes are not UTF-8 \xc3\x28\n",
        b"\n",
        b"null\n",
        b'["a","list"]\n',
        b"{}\n",
        b'{"type":7}\n',
        b'{"type":"no_such_type","uuid":"x"}\n',
        b'{"type":"system","subtype":"no_such_subtype"}\n',
        b'{"type":"stream_event","event":"no object"}\n',
        b'{"type":"assistant","message":"no object"}\n',
        b'{"type":"user","message":{"role":"user","content":7}}\n',
        b'{"type":"control_response","response":{"subtype":"success","request_id":"nobody-asked"}}\n',
        b'{"type":"control_cancel_request","request_id":"nobody-asked"}\n',
    )
)


def usage_limit(session_id: str, seconds: float) -> tuple[list[Line], Ending]:
    resets_at = math.ceil(time.time() + seconds)
    hour = time.gmtime(resets_at)
    clock = f"{hour.tm_hour % 12 or 12}:{hour.tm_min:02d}{'am' if hour.tm_hour < 12 else 'pm'}"
    text = f"You've hit your session limit · resets {clock} (UTC)"
    shown = [lines.rate_limit(session_id, resets_at), lines.synthetic(session_id, text, "rate_limit")]
    return shown, Ending("success", True, 1, "completed", text, "stop_sequence", 429)


def context_overflow(session_id: str) -> tuple[list[Line], Ending]:
    text = "Prompt is too long"
    shown = [lines.synthetic(session_id, text, "invalid_request")]
    return shown, Ending("success", True, 1, "prompt_too_long", text, "stop_sequence", 400)
