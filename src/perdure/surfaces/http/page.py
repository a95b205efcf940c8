"""The page's files, as the wheel carries them: which paths they have, and how a browser may keep and use them.

Above: app.py makes routes of them, the guard lets everybody have them. Below: perdure/web. They are read once,
compressed once and held; names never change, so a browser asks each time and is told by a validator that nothing
changed. Whoever asks for one of the page's views gets the same index: the page itself reads the path.
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
VIEWS_BELOW = "/s/"
"""Sessions have paths of their own below this one."""
OF_JOBS = re.compile(r"/jobs/[^/]+(/edit)?")
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


@cache  # of the files of the page, which are few
def load(name: str) -> PageFile:
    content = files("perdure.web").joinpath(FOLDER, name).read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return PageFile(MEDIA[name.rsplit(".", 1)[-1]], content, gzip.compress(content, 9, mtime=0), etag)


def names() -> list[str]:
    """Every file of the page but its index."""
    found = (entry.name for entry in files("perdure.web").joinpath(FOLDER).iterdir() if entry.is_file())
    return sorted(name for name in found if name != "index.html" and name.rsplit(".", 1)[-1] in MEDIA)


def paths() -> list[str]:
    """Where the files are, besides the views."""
    return [f"/{FOLDER}/{name}" for name in names()]


def is_view(path: str) -> bool:
    return path in VIEWS or path.startswith(VIEWS_BELOW) or OF_JOBS.fullmatch(path) is not None


def is_for_people(request: Request) -> bool:
    """Somebody came here with a browser, and not a program to the API."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def nowhere() -> Response:
    """The page, which says that there is nothing."""
    file = load("index.html")
    return Response(file.content, status_code=404, headers={**HEADERS, "content-type": file.media})


async def view(request: Request) -> Response:
    return answer(request, load("index.html"))


async def page_file(request: Request) -> Response:
    return answer(request, load(request.url.path.rsplit("/", 1)[-1]))


def answer(request: Request, file: PageFile) -> Response:
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, headers={**headers, "content-encoding": "gzip", "content-type": file.media})
    return Response(file.content, headers={**headers, "content-type": file.media})
