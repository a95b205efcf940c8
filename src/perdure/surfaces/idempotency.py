"""Ids that make requests idempotent: a request that is sent again with the same id has no further effect.

Above: client.py and changes_client.py, and the chat, which keeps the id of a message that it may have to send again.
Below: nothing.
"""

import secrets
import time


def new_message_id() -> str:
    return f"m_{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def new_run_id() -> str:
    return f"r_{int(time.time() * 1000):011x}{secrets.token_hex(5)}"
