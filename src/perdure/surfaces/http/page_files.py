"""Serves the static files of the page, and its index for each of the page's views.

Above: app.py, which creates their routes, and the guard, which serves them without a token. Below: perdure/web, which
is part of the wheel. Each file is read and compressed once and kept in memory. File names never change, so a browser
revalidates each file with its ETag. All views get the same index: the page itself evaluates the path.
"""

import gzip
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

FOLDER = "page"
MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
    "txt": "text/plain; charset=utf-8",
}
VIEWS = (
    "/",
    "/new",
    "/inbox",
    "/search",
    "/usage",
    "/jobs",
    "/jobs/{job}",
    "/jobs/{job}/edit",
    "/nodes",
    "/settings",
    "/settings/agents",
    "/settings/projects",
)
SESSION_VIEWS = "/s/"
"""The views of sessions have paths below this one."""
JOB_VIEW = re.compile(r"/jobs/[^/]+(/edit)?")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "worker-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}


class PageFile(NamedTuple):
    media: str
    content: bytes
    compressed: bytes
    etag: str


@cache  # The page has few files.
def load(name: str) -> PageFile:
    content = files("perdure.web").joinpath(FOLDER, name).read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return PageFile(MEDIA[name.rsplit(".", 1)[-1]], content, gzip.compress(content, 9, mtime=0), etag)


def names() -> list[str]:
    """All files except the index."""
    found = (entry.name for entry in files("perdure.web").joinpath(FOLDER).iterdir() if entry.is_file())
    return sorted(name for name in found if name != "index.html" and name.rsplit(".", 1)[-1] in MEDIA)


def paths() -> list[str]:
    """The paths of all files except the index."""
    return [f"/{FOLDER}/{name}" for name in names()]


def is_view(path: str) -> bool:
    return path in VIEWS or path.startswith(SESSION_VIEWS) or JOB_VIEW.fullmatch(path) is not None


def is_navigation(request: Request) -> bool:
    """Whether a browser loads a page, as opposed to a call of the API."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def not_found() -> Response:
    """The page with status 404. It shows that the path does not exist."""
    file = load("index.html")
    return Response(file.content, status_code=404, headers={**HEADERS, "content-type": file.media})


async def view(request: Request) -> Response:
    return respond(request, load("index.html"))


async def page_file(request: Request) -> Response:
    return respond(request, load(request.url.path.rsplit("/", 1)[-1]))


def respond(request: Request, file: PageFile) -> Response:
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, headers={**headers, "content-encoding": "gzip", "content-type": file.media})
    return Response(file.content, headers={**headers, "content-type": file.media})
