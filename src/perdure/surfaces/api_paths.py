"""The paths of the HTTP API's nouns, and bodies without omitted fields.

Above: client.py and changes_client.py. Below: nothing.
"""

from typing import Any
from urllib.parse import quote


def session_path(session_id: str, *rest: str) -> str:
    return _joined("/api/sessions", session_id, *rest)


def project_path(project_id: str) -> str:
    return _joined("/api/projects", project_id)


def job_path(job_id: str, *rest: str) -> str:
    return _joined("/api/jobs", job_id, *rest)


def node_path(node: str, *rest: str) -> str:
    return _joined("/api/nodes", node, *rest)


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def _joined(start: str, *rest: str) -> str:
    return "/".join([start, *(quote(part, safe="") for part in rest)])
