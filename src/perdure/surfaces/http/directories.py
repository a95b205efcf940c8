"""Directories over HTTP: completion of a path, recent directories and projects, and a description of one directory.

Above: routes.py. Below: the verbs for directories.
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.surfaces.http.endpoint import ABSOLUTE, Endpoint, between
from perdure.surfaces.http.requests import flag, reply, verbs, whole_number

ENTRIES = 50
MAX_ENTRIES = 200

PREFIX = (
    "The first characters of an absolute path; `~/` is the server's home directory, and the default. Names that start "
    "with a dot are left out unless the last part of the path starts with one too."
)

# Responses ------------------------------------------------------------------------------------------------------------


class GitState(Struct, kw_only=True):
    """The state of a git repository. If it can't be read, `reason` says why, and the other fields are null."""

    root: str | None
    """The top of its working tree."""
    branch: str | None
    head: str | None
    """The current commit; null if there is none yet."""
    detached: bool | None
    dirty: int | None
    """The number of changed and untracked files."""
    in_progress: str | None
    """Such as `rebase` or `merge`."""
    reason: str | None


class Directory(Struct, kw_only=True):
    path: str
    """With symbolic links resolved."""
    identity: str
    """Derived from the kernel's boot id and the directory's device and inode."""
    private: bool
    """Whether it is in the data directory, where no session may run."""
    projects: list[str]
    """The innermost project that contains it, or several if they share a path."""
    git: GitState | None
    """The git repository that it is in."""


class DirectoryEntry(Struct, kw_only=True):
    name: str
    path: str
    repository: bool | None
    """Whether it is the top of a git repository. Null if it is not known in time; so are the fields of other lists."""


class RecentDirectory(Struct, kw_only=True):
    path: str
    last_active_at: str
    sessions: int | None
    """The number of sessions that work in it. Null if the server has too many sessions to count."""
    branch: str | None
    """Null in a detached state, and if it is not known."""
    head: str | None = None
    """The commit that is checked out."""
    dirty: int | None
    repository: bool | None


class ProjectDirectory(Struct, kw_only=True):
    id: str
    name: str
    path: str
    branch: str | None
    """Null in a detached state, and if it is not known."""
    head: str | None = None
    """The commit that is checked out."""
    dirty: int | None
    repository: bool | None


class DirectoryList(Struct, kw_only=True):
    path: str
    """The directory of the entries."""
    parent: str | None
    entries: list[DirectoryEntry]
    truncated: bool
    """Whether there may be more entries."""
    recent: list[RecentDirectory]
    projects: list[ProjectDirectory]


# Handlers -------------------------------------------------------------------------------------------------------------


async def get_directory(request: Request) -> Response:
    return reply(await verbs(request).directories.describe(request.query_params.get("path", "/")))


async def list_directories(request: Request) -> Response:
    path = request.query_params.get("path")
    limit = whole_number(request, "limit", ENTRIES, low=1, high=MAX_ENTRIES)
    recent = flag(request, "recent") if "recent" in request.query_params else True
    if (node := request.query_params.get("node")) is not None:
        return reply(await verbs(request).changes.directories_of(node, path, limit, recent=recent))
    return reply(await verbs(request).directories.complete(path, limit, recent=recent))


# Endpoints ------------------------------------------------------------------------------------------------------------

DIRECTORIES = [
    Endpoint(
        "GET",
        "/api/directory",
        get_directory,
        "Describe a directory on the server, so a client can check that both see the same one",
        query={"path": (str, "Absolute path; default `/`.", ABSOLUTE)},
        answers={200: Directory},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/directories",
        list_directories,
        "Complete the path of a directory on the server, and list recent directories and projects",
        query={
            "path": (str, PREFIX, {"pattern": r"^(/|~(/|$))[^\u0000]*$"}),
            "limit": (int, f"Maximum number of entries; default {ENTRIES}.", between(1, MAX_ENTRIES)),
            "recent": (bool, "Whether to list recent directories and projects too; default true."),
            "node": (str, "The id of the node whose directories to list. Default: the node that gets the request."),
        },
        answers={200: DirectoryList},
        refusals=("not_found", "unavailable"),
    ),
]
