"""Another web server on this host, as an agent or a front end may run: a page of another origin.

Above: the tests of signing in and of other origins. Below: the standard library's server.
"""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Neighbour:
    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies: list[str] = []
        """The cookies that browsers sent to it."""


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.cookies.extend(self.headers.get_all("Cookie") or [])
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>Neighbour</title>")

        def log_message(self, *_: object) -> None:
            """Don't log to the test output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Neighbour(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
