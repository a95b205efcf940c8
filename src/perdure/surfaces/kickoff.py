"""The first message of a session, from a project's kickoff template.

Above: surfaces that start sessions in a project. Below: core/kickoff.py, and the projects.
"""

from perdure.core import kickoff
from perdure.core.clock import stamp
from perdure.core.errors import Refused
from perdure.runtime.verbs.sessions import Sessions


def made_message(sessions: Sessions, project: str, title: str, message: str | None) -> str | None:
    """The project's filled template; None if there is no template, or if it has no place for `message`."""
    identity, settings = sessions.projects.find(project)
    template = settings.kickoff
    if not template or (message is not None and not kickoff.takes_message(template)):
        return None
    return kickoff.first_message(
        template,
        project=settings.name or identity,
        path=settings.path,
        title=title,
        date=stamp(sessions.now())[:10],
        message=message or "",
    )


def asked_message(sessions: Sessions, project: str | None, title: str, message: str | None) -> str:
    """Like made_message, for an explicit request: refuses instead of returning None."""
    if project is None:
        raise Refused("invalid", "kickoff needs a project, because it uses the project's template.", fields=["kickoff"])
    made = made_message(sessions, project, title, message)
    if made is not None:
        return made
    if not sessions.projects.find(project)[1].kickoff:
        raise Refused("invalid", f"Project {project!r} has no kickoff. Set one, or leave kickoff out.")
    raise Refused("invalid", "The project's kickoff has no {message}. Send message or kickoff, not both.")
