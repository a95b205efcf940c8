"""Tests neither use nor depend on what the person at this machine has: a home, settings, coding agents.

Above: conftest.py, before anything is started. Below: the environment, which every process of a test inherits. Without
this, a server with `claude` on its PATH would choose that as its agent, and tests would talk to a paid model.
"""

import os
from pathlib import Path

from perdure.runtime.agents.catalogue import CATALOGUE

AGENT_PROGRAMS = {entry.installed[0] for entry in CATALOGUE.values() if entry.installed}


def isolate(folder: Path) -> None:
    """A home that is empty, no settings, and a PATH on which no coding agent is found."""
    home = folder / "home"
    home.mkdir()
    os.environ["HOME"] = str(home)
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "XDG_")) and not name.startswith("PERDURE_TEST_"):
            del os.environ[name]
    os.environ["PATH"] = path_without(AGENT_PROGRAMS, os.environ.get("PATH", os.defpath), folder)


def path_without(programs: set[str], path: str, folder: Path) -> str:
    """The same PATH; a directory with such a program is replaced by one with links to all else that it holds."""
    found = []
    for number, directory in enumerate(path.split(os.pathsep)):
        if not any(os.path.exists(os.path.join(directory, program)) for program in programs):
            found.append(directory)
            continue
        links = folder / f"path-{number}"
        links.mkdir()
        for name in set(os.listdir(directory)) - programs:
            (links / name).symlink_to(Path(directory, name).absolute())
        found.append(str(links))
    return os.pathsep.join(found)
