"""All endpoints of the HTTP API, in the order in which the router tries them.

Above: app.py, which creates the routes, and openapi.py, which documents them. Below: the modules of the nouns, each
with its request bodies, responses, handlers and endpoints.
"""

from perdure.surfaces.http.agents import AGENTS
from perdure.surfaces.http.changes import CHANGES
from perdure.surfaces.http.diane import DIANE
from perdure.surfaces.http.directories import DIRECTORIES
from perdure.surfaces.http.history import HISTORY
from perdure.surfaces.http.imports import IMPORTS
from perdure.surfaces.http.jobs import JOBS
from perdure.surfaces.http.logins import LOGINS
from perdure.surfaces.http.messages import MESSAGES
from perdure.surfaces.http.nodes import NODES
from perdure.surfaces.http.open_design import OPEN_DESIGN
from perdure.surfaces.http.projects import PROJECTS
from perdure.surfaces.http.prompts import PROMPTS
from perdure.surfaces.http.runs import RUNS
from perdure.surfaces.http.server import SERVER
from perdure.surfaces.http.sessions import SESSIONS
from perdure.surfaces.http.streams import EVENTS
from perdure.surfaces.http.teamhq import TEAMHQ
from perdure.surfaces.http.transcripts import TRANSCRIPTS
from perdure.surfaces.http.usage import USAGE

ENDPOINTS = [
    *SERVER,
    *DIRECTORIES,
    *AGENTS,
    # Before the projects, whose ids may contain slashes and would match these paths too.
    *TEAMHQ,
    *PROJECTS,
    *SESSIONS,
    *MESSAGES,
    *PROMPTS,
    *EVENTS,
    *TRANSCRIPTS,
    *HISTORY,
    *CHANGES,
    *IMPORTS,
    *USAGE,
    *RUNS,
    *JOBS,
    *NODES,
    *OPEN_DESIGN,
    *LOGINS,
    *DIANE,
]
