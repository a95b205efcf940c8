"""A real server, a real browser, and a person's hands: what the tests of the page share.

Above: the tests of this folder. Below: tests/harness.py for the server, Debian's Chromium driven by Playwright. Without
either the tests are skipped, and say why. Nothing here waits for a while: `expect` waits for what is to be seen.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.harness import NO_LIMITS, LiveServer, SharedServers
from tests.page.person import Person, limit_waits

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LAUNCH_LIMIT_MS = 90_000
ARTEFACTS = Path(__file__).resolve().parents[2] / ".artefacts"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            Path(__file__).parent in item.path.parents
            and not CHROMIUM
            and "browser" in getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.skip(reason="needs chromium, which is not on PATH"))


# For this folder and not for the whole run: while Playwright is there, its loop runs in this thread, and no other may.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    limit_waits()
    with sync_playwright() as running:
        opened = running.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
            timeout=LAUNCH_LIMIT_MS,
        )
        yield opened
        opened.close()


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
    """`make_person(server, width=390, dark=True)`: somebody with a browser of their own, signed in."""
    made: list[Person] = []

    def make(
        server: LiveServer, *, width: int = 1280, height: int = 800, dark: bool = False, touch: bool = False
    ) -> Person:
        context = browser.new_context(
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
