"""A real server, a real browser, and a person's hands: what the tests of the page share.

Above: the tests of this folder. Below: tests/harness.py for the server, Debian's Chromium driven by Playwright. Without
either the tests are skipped, and say why. Nothing here waits for a while: `expect` waits for what is to be seen.
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
# The same engine without windows, which takes half the time.
SHELL = shutil.which("chromium-headless-shell") or CHROMIUM
LAUNCH_LIMIT_MS = 90_000
ARTEFACTS = Path(__file__).resolve().parents[2] / ".artefacts"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        used = getattr(item, "fixturenames", ())
        lacks = ("browser" in used and not SHELL) or ("whole_browser" in used and not CHROMIUM)
        if lacks and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs chromium, which is not on PATH"))


# For this folder and not for the whole run: while Playwright is there, its loop runs in this thread, and no other may.
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
    """For what the browser without windows does not have: notifications."""
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
    """A server that the tests of a module share, with all that they leave there."""
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        yield server


@pytest.fixture
def server(servers: SharedServers) -> Iterator[LiveServer]:
    """An empty server, to kill and to start again."""
    with servers.borrowed(LiveServer, NO_LIMITS) as server:
        yield server


@pytest.fixture
def make_person(browser: Browser) -> Iterator[Callable[..., Person]]:
    """`make_person(server, width=390, dark=True)`: somebody with cookies of their own, signed in."""
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
            # What is still being answered by a test's own hand has nobody to go to.
            page.unroute_all(behavior="ignoreErrors")
        person.context.close()
    assert not troubles, f"the page complained: {troubles}"


@pytest.fixture
def person(shared: LiveServer, make_person: Callable[..., Person]) -> Person:
    return make_person(shared)
