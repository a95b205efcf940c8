"""Servers for the conversations with real processes."""

from tests.end_to_end.conftest import make_server as make_server
