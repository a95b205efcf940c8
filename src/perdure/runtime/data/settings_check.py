"""Checks settings that are valid TOML but can't work: unknown agents, projects with an unusable directory.

Above: server.py, which reports problems at startup; `perdure doctor`, which reports them at any time. Below: the agents
of this machine and the stored projects. Only a bad `server.agent` keeps the server from starting, because without it no
session can be created.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from perdure.config import Config, ConfigError, ProjectSettings
from perdure.core.errors import Refused
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data import inspection
from perdure.runtime.data.filesystem import PRIVATE, is_private
from perdure.runtime.data.projects import read


def default_agent(config: Config, agents: Agents) -> str | None:
    """Why the default agent can't be used; None if it can."""
    try:
        if config.server.agent is not None:
            agents.settings(config.server.agent)
    except Refused as refusal:
        return f"The setting server.agent is not valid. {refusal.detail}"
    return None


def projects(
    known: dict[str, ProjectSettings], configured: Collection[str], agents: Agents, data: Path
) -> Iterator[tuple[str, str]]:
    """Projects in which a session can't be started, each with the reason and advice. `configured` are those in
    perdure.toml; the others were created over the API or on the page."""
    for key, project in known.items():
        is_fixed, change = key in configured, f"PATCH /api/projects/{key}"
        if (what := _wrong_path(project.path, data)) is not None:
            how = f"correct projects.{key}.path in perdure.toml" if is_fixed else f"set another with {change}"
            yield key, f"its path {project.path!r} {what}{how}. Until then, no session can start in the project."
        if project.agent is not None:
            try:
                agents.settings(project.agent)
            except Refused as refusal:
                how = f"Correct projects.{key}.agent in perdure.toml"
                if not is_fixed:
                    how = f"Choose another on the page, or with {change}"
                yield key, f"{refusal.detail} {how}. Until then, new sessions in the project must name an agent."


def _wrong_path(path: str, data: Path) -> str | None:
    if not os.path.isdir(path):
        return "is not a directory. Create it, or "
    return f"{PRIVATE}. Choose another place: " if is_private(path, data) else None


def check_agents(config: Config, data: Path) -> Agents:
    """The agents as a server would have them. Raises ConfigError if a server could not start with them."""
    return Agents(config.agents, data, config.server.agent)


def troubles(config: Config, data: Path) -> Iterator[tuple[str, str]]:
    """All problems as (subject, message), for a data directory with or without a running server."""
    try:
        agents = check_agents(config, data)
    except ConfigError as error:
        yield "settings", str(error)
        return
    if (problem := default_agent(config, agents)) is not None:
        yield "settings", problem
    made, _ = read(inspection.documents(data, "project"))
    for key, what in projects({**made, **config.projects}, config.projects, agents, data):
        yield f"project {key}", what
