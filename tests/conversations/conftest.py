"""Servers for the conversations with real processes."""

from tests.end_to_end.conftest import server as server
