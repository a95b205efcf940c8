"""Fixtures of the page tests: a real server, a real browser and a user.

Above: the tests in this folder. Below: tests/harness.py for the server, and Chromium driven by Playwright. Without
one of them, tests are skipped with the reason. Nothing sleeps: `expect` waits until something is visible.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.harness import NO_LIMITS, LiveServer, SharedServers
from tests.page.person import Person, limit_waits

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The same engine without windows. It takes half the time.
SHELL = shutil.which("chromium-headless-shell") or CHROMIUM
LAUNCH_LIMIT_MS = 90_000
ARTEFACTS = Path(__file__).resolve().parents[2] / ".artefacts"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        used = getattr(item, "fixturenames", ())
        lacks = ("browser" in used and not SHELL) or ("whole_browser" in used and not CHROMIUM)
        if lacks and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs chromium, which is not on PATH"))


# Only for this folder: while Playwright is open, its event loop runs in this thread, and no other loop can.
@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    limit_waits()
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with closing(launched(playwright, SHELL)) as opened:
        yield opened


@pytest.fixture
def whole_browser(playwright: Playwright) -> Iterator[Browser]:
    """The full browser, for notifications, which the one without windows does not have."""
    with closing(launched(playwright, CHROMIUM)) as opened:
        yield opened


def launched(playwright: Playwright, program: str | None) -> Browser:
    return playwright.chromium.launch(
        executable_path=program,
        args=["--no-sandbox"] if os.geteuid() == 0 else [],
        timeout=LAUNCH_LIMIT_MS,
    )


@pytest.fixture(scope="module")
def shared(servers: SharedServers) -> Iterator[LiveServer]:
    """A server shared by the tests of a module, with everything that they leave behind."""
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        yield server


@pytest.fixture
def server(servers: SharedServers) -> Iterator[LiveServer]:
    """An empty server that a test may kill and restart."""
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        yield server


@pytest.fixture
def make_person(browser: Browser) -> Iterator[Callable[..., Person]]:
    """`make_person(server, width=390, dark=True)`: a signed-in user with separate cookies."""
    made: list[Person] = []

    def make(
        server: LiveServer,
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        touch: bool = False,
        within: Browser = browser,
    ) -> Person:
        context = within.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            reduced_motion="reduce",
        )
        person = Person(server, context)
        made.append(person)
        return person

    yield make
    troubles = [trouble for person in made for trouble in person.troubles]
    for person in made:
        for page in person.context.pages:
            # Requests that a test still intercepts have no page to return to.
            page.unroute_all(behavior="ignoreErrors")
        person.context.close()
    assert not troubles, f"the page complained: {troubles}"


@pytest.fixture
def person(shared: LiveServer, make_person: Callable[..., Person]) -> Person:
    return make_person(shared)
