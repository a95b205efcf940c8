"""The size of generated tests: smaller in the fast run, and configurable with environment variables."""

import os

FAST = "PERDURE_TEST_FAST"


def size(name: str, usual: int, *, fast: int) -> int:
    """`size("KILLS", 30, fast=3)` returns PERDURE_TEST_KILLS if set, else 3 in the fast run and 30 otherwise."""
    return int(os.environ.get(f"PERDURE_TEST_{name}", fast if FAST in os.environ else usual))
