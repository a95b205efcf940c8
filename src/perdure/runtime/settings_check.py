"""What is wrong with settings that can be read: agents that nobody knows, projects whose directory is not there.

Above: server.py reports it at the start, and `perdure doctor` at any time. Below: the agents of this machine. None of
it keeps a server from starting but `server.agent`, without which no session could be made.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from perdure.config import Config, ProjectSettings
from perdure.core.errors import Refused
from perdure.runtime.agents import Agents


def default_agent(config: Config, agents: Agents) -> str | None:
    """Why the agent of sessions that name none can't be used; None if it can."""
    try:
        if config.server.agent is not None:
            agents.settings(config.server.agent)
    except Refused as refusal:
        return f"The setting server.agent can't be used. {refusal.detail}"
    return None


def projects(configured: dict[str, ProjectSettings], agents: Agents) -> Iterator[tuple[str, str]]:
    """Projects of perdure.toml in which no session can be started, and what to do."""
    for key, project in configured.items():
        if not os.path.isdir(project.path):
            what = f"its path {project.path!r} is not a directory"
            yield key, f"{what}. Make it, or correct projects.{key}.path in perdure.toml."
        if project.agent is not None:
            try:
                agents.settings(project.agent)
            except Refused as refusal:
                yield key, f"{refusal.detail} Correct projects.{key}.agent in perdure.toml."


def troubles(config: Config, data: Path) -> Iterator[tuple[str, str]]:
    """All of it, for a data directory whose server may not run: (what it is about, what is wrong)."""
    agents = Agents(config.agents, data, config.server.agent)
    if (problem := default_agent(config, agents)) is not None:
        yield "settings", problem
    for key, what in projects(config.projects, agents):
        yield f"project {key}", what
