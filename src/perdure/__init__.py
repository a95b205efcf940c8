"""Perdure: durable, multi-turn conversations with coding agents."""

__version__ = "0.1.0"
