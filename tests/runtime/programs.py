"""Small scripts in place of agents: real files that are executed."""

import os
from pathlib import Path


def program(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def claude(path: Path, version: str = "2.1.197", more: str = "") -> Path:
    """A fake Claude Code that prints its version, and counts these calls in a file beside it."""
    counts = f'case "$*" in *--version) echo asked >> "{path}.asked";; esac'
    return program(path, f'{counts}\n{more}\necho "{version} (Claude Code)"')


def times_asked(path: Path) -> int:
    counted = Path(f"{path}.asked")
    return counted.read_text().count("asked") if counted.exists() else 0


def touched(path: Path) -> None:
    """Replace the file at the same path, as an update does."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
