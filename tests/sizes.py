"""How much of a generated test is played, or in what steps: less in the fast run, and on demand as a person wants."""

import os

FAST = "PERDURE_TEST_FAST"


def size(name: str, usual: int, *, fast: int) -> int:
    """`size("KILLS", 30, fast=3)`: as PERDURE_TEST_KILLS says, else by the kind of run."""
    return int(os.environ.get(f"PERDURE_TEST_{name}", fast if FAST in os.environ else usual))
