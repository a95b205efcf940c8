"""What is wrong with settings that can be read: agents that nobody knows, projects whose directory can't be used.

Above: server.py reports it at the start, and `perdure doctor` at any time. Below: the agents of this machine, and the
stored projects. None of it keeps a server from starting but `server.agent`, without which no session could be made.
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
    """Why the agent of sessions that name none can't be used; None if it can."""
    try:
        if config.server.agent is not None:
            agents.settings(config.server.agent)
    except Refused as refusal:
        return f"The setting server.agent can't be used. {refusal.detail}"
    return None


def projects(
    known: dict[str, ProjectSettings], configured: Collection[str], agents: Agents, data: Path
) -> Iterator[tuple[str, str]]:
    """Projects in which a session can't be started, why, and what to do. `configured` are those of perdure.toml; the
    others were made over the API or on the page."""
    for key, project in known.items():
        is_fixed, change = key in configured, f"PATCH /api/projects/{key}"
        if (what := _wrong_path(project.path, data)) is not None:
            how = f"correct projects.{key}.path in perdure.toml" if is_fixed else f"set another with {change}"
            yield key, f"its path {project.path!r} {what}{how}. Until then no session can be started in the project."
        if project.agent is not None:
            try:
                agents.settings(project.agent)
            except Refused as refusal:
                how = f"Correct projects.{key}.agent in perdure.toml"
                if not is_fixed:
                    how = f"Choose another on the page, or with {change}"
                yield key, f"{refusal.detail} {how}. Until then a new session in the project has to name its agent."


def _wrong_path(path: str, data: Path) -> str | None:
    if not os.path.isdir(path):
        return "is not a directory. Make it, or "
    return f"{PRIVATE}. Choose another place: " if is_private(path, data) else None


def check_agents(config: Config, data: Path) -> Agents:
    """The agents as a server would have them; ConfigError if it could not begin with them."""
    return Agents(config.agents, data, config.server.agent)


def troubles(config: Config, data: Path) -> Iterator[tuple[str, str]]:
    """All of it, for a data directory whose server may not run: (what it is about, what is wrong)."""
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
