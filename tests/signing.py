"""A simulated browser that signs in.

Above: the tests of signing in and out. Below: harness.py.
"""

import contextlib
from collections.abc import Iterator

import httpx2

from tests.harness import WAIT_S, LiveServer

KEY_HEADER = "perdure-page-key"


class Browser(httpx2.Client):
    """A client with the origin of the page, and with the key that signing in returns."""

    def __init__(self, server: LiveServer) -> None:
        super().__init__(base_url=server.url, headers={"origin": server.url}, timeout=WAIT_S, trust_env=False)

    def sign_in(self, code: str) -> httpx2.Response:
        answer = self.post("/api/login", json={"code": code})
        if answer.status_code == 200:
            self.headers[KEY_HEADER] = answer.json()["page_key"]
        return answer

    def login_id(self) -> str:
        """Return the id of its own sign-in, from the list of sign-ins."""
        [login] = [one["id"] for one in self.get("/api/logins").json()["logins"] if one["this"]]
        return str(login)


def new_code(server: LiveServer) -> str:
    path = server.post("/api/login-links", expect=201)["path"]
    before, _, code = path.partition("#login=")
    assert before == "/", "the code must be in the fragment, which is never sent"
    return str(code)


@contextlib.contextmanager
def signed_in(server: LiveServer, code: str | None = None) -> Iterator[Browser]:
    with Browser(server) as browser:
        browser.sign_in(code or new_code(server)).raise_for_status()
        yield browser
