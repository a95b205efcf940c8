"""A local package index: http.server with the pages and files that a test provides.

Above: test_get_pip.py and test_bare_machine.py. Below: real sockets. It records every request, so that a test can check
what was requested and with which password.
"""

import contextlib
import hashlib
import html
import io
import json
import ssl
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

JSON_TYPE = "application/vnd.pypi.simple.v1+json"

# A fake pip that records in its environment that it was started, and with which arguments.
PROGRAM = """\
import json, pathlib, sys
pathlib.Path(sys.prefix, "installed.json").write_text(json.dumps([{version!r}, *sys.argv[1:]]))
"""


class Request(NamedTuple):
    path: str
    authorization: str | None


class Release(NamedTuple):
    """One file of pip in the index, and its metadata."""

    name: str
    body: bytes
    requires_python: str = ">=3.9"
    yanked: bool = False
    digest: str | None = None
    """The sha256 in the index. None: the correct one; empty: the index has none."""

    @property
    def shown_digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest() if self.digest is None else self.digest


def small_pip(version: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("pip/__main__.py", PROGRAM.format(version=version))
    return packed.getvalue()


def release(version: str, tags: str = "py3-none-any.whl", **said: Any) -> Release:
    return Release(f"pip-{version}-{tags}", small_pip(version), **said)


def html_page(releases: list[Release], files: str) -> bytes:
    lines = []
    for each in releases:
        fragment = f"#sha256={each.shown_digest}" if each.shown_digest else ""
        yanked = ' data-yanked="broken"' if each.yanked else ""
        requires = f' data-requires-python="{html.escape(each.requires_python)}"'
        lines.append(f'<a href="{files}{each.name}{fragment}"{requires}{yanked}>{each.name}</a><br/>')
    return f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>".encode()


def json_page(releases: list[Release], files: str) -> bytes:
    described = [
        {
            "filename": each.name,
            "url": files + each.name,
            "hashes": {"sha256": each.shown_digest} if each.shown_digest else {},
            "requires-python": each.requires_python,
            "yanked": each.yanked,
        }
        for each in releases
    ]
    return json.dumps({"meta": {"api-version": "1.0"}, "name": "pip", "files": described}).encode()


class PackageIndex:
    def __init__(self, releases: list[Release], *, speaks_json: bool = False, files: str = "../../files/") -> None:
        self.releases = releases
        self.speaks_json = speaks_json
        self.files = files
        self.password: str | None = None
        """The Authorization header that every request needs."""
        self.requests: list[Request] = []
        self.url = ""
        self.port = 0

    def answer(self, request: Request, accepts: str) -> tuple[int, str, bytes]:
        self.requests.append(request)
        if self.password is not None and request.authorization != self.password:
            return 401, "text/plain", b"who are you?"
        if request.path.endswith("/simple/pip/"):
            if self.speaks_json and JSON_TYPE in accepts:
                return 200, JSON_TYPE, json_page(self.releases, self.files)
            return 200, "text/html", html_page(self.releases, self.files)
        for each in self.releases:
            if request.path.endswith("/files/" + each.name):
                return 200, "application/octet-stream", each.body
        return 404, "text/plain", b"nothing is here"


@contextlib.contextmanager
def served(index: PackageIndex, certificate: str | None = None) -> Iterator[PackageIndex]:
    """Serve the index. With a certificate (a file that includes its key): over HTTPS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            request = Request(self.path, self.headers.get("Authorization"))
            status, kind, body = index.answer(request, self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing; `requests` has the requests."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore clients that disconnect because they don't trust the certificate."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        index.port = server.server_address[1]
        index.url = f"http{'s' if certificate else ''}://localhost:{index.port}/simple"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()
