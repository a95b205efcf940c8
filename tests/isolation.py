"""Isolation of tests from the user's environment: home directory, settings, coding agents.

Above: conftest.py, before anything is started. Below: the environment, which every process of a test inherits. Without
this, a server with `claude` on its PATH would choose it as the default agent, and tests would use a paid model.
"""

import os
from pathlib import Path

from perdure.runtime.agents.catalogue import CATALOGUE

AGENT_PROGRAMS = {entry.installed[0] for entry in CATALOGUE.values() if entry.installed}


def isolate(folder: Path) -> None:
    """Set an empty home directory, no settings, and a PATH without coding agents."""
    home = folder / "home"
    home.mkdir()
    os.environ["HOME"] = str(home)
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "XDG_")) and not name.startswith("PERDURE_TEST_"):
            del os.environ[name]
    os.environ["PATH"] = path_without(AGENT_PROGRAMS, os.environ.get("PATH", os.defpath), folder)


def path_without(programs: set[str], path: str, folder: Path) -> str:
    """Return the PATH with each directory that has such a program replaced by one with links to its other files."""
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
