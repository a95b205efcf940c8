"""A user of the page: opens it, types, clicks and looks.

Above: the tests. Below: Playwright's page, and the server, for what the page does not show.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from tests.harness import LiveServer, eventually

WAIT_MS = 30_000
AGAIN_MS = 3_000
TRIES = 10
# What browsers log when a server is unreachable or refuses. Tests check what the page shows in that case.
EXPECTED = re.compile(r"Failed to load resource|ERR_CONNECTION_REFUSED|net::ERR|Password forms should")
# The page scrolls a frame or more after the wheel event, smoothly, and in jumps on a busy machine.
STILL = """(element) => new Promise((resolve) => {
  let [before, frames, since] = [NaN, 0, 0];
  const look = () => {
    if (element.scrollTop !== before) [before, frames, since] = [element.scrollTop, 0, performance.now()];
    frames += 1;
    if (frames > 5 && performance.now() - since > 700) resolve();
    else requestAnimationFrame(look);
  };
  look();
})"""


def limit_waits() -> None:
    expect.set_options(timeout=WAIT_MS)


def until(seen: Callable[[int], None], act: Callable[[], None]) -> None:
    """Repeat until seen. A key sequence only works if its keys follow quickly, which a busy machine may prevent."""
    for _ in range(TRIES - 1):
        act()
        try:
            seen(AGAIN_MS)
        except AssertionError:
            continue
        return
    act()
    seen(WAIT_MS)


def hold(person: "Person", path: str | re.Pattern[str]) -> list[Route]:
    """Hold back the responses to these requests. Returns the requests, to continue them later."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    person.page.route(path, keep)
    return held


class Person:
    def __init__(self, server: LiveServer, context: BrowserContext) -> None:
        self.server = server
        self.context = context
        context.set_default_timeout(WAIT_MS)
        self.troubles: list[str] = []
        """Script errors, and what the content security policy blocked."""
        context.on("weberror", lambda error: self.troubles.append(str(error.error)))
        context.on("console", self._hear)
        self.page = self.new_tab(server.post("/api/login-links", expect=201)["path"])
        expect(self.page.get_by_role("navigation", name="Sessions")).to_be_attached()

    def _hear(self, message: Any) -> None:
        if message.type == "error" and not EXPECTED.search(message.text):
            self.troubles.append(message.text)

    def new_tab(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.goto(self.server.url + path)
        return page

    def go(self, path: str) -> None:
        self.page.goto(self.server.url + path)

    # A conversation ------------------------------------------------------------------------------------------------

    @property
    def composer(self) -> Locator:
        # Found by its label, because its role changes: a combobox while it offers completions, otherwise a text field.
        return self.page.get_by_label("Message", exact=True)

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log", name="Conversation")

    @property
    def header(self) -> Locator:
        return self.page.locator("main header").first

    def open(self, session: str) -> None:
        self.go(f"/s/{session}")
        expect(self.log).to_be_visible()

    def send(self, text: str) -> None:
        self.composer.fill(text)
        self.composer.press("Enter")

    def start(self, text: str) -> str:
        """Start a session with its first message. Returns its id."""
        self.go("/new")
        self.send(text)
        expect(self.page).to_have_url(re.compile("/s/"))
        return self.page.url.rsplit("/", 1)[-1]

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.log).to_contain_text(text)

    def is_idle(self) -> None:
        expect(self.header).to_contain_text("Idle")

    def turn_menu(self, turn: int, action: str) -> None:
        self.page.get_by_role("button", name=f"Actions for turn {turn}").click()
        self.page.get_by_role("menuitem", name=re.compile("^" + action)).click()

    def menu(self, action: str) -> None:
        self.page.get_by_role("button", name="Session actions").click()
        self.page.get_by_role("menuitem", name=re.compile("^" + action)).click()

    def may_answer(self) -> None:
        """Wait until keys can answer the prompt, which is some time after it appears."""
        expect(self.page.locator("[data-keys=ready]")).to_be_visible()

    def press(self, keys: str) -> None:
        """Press keys outside any text field."""
        self.page.locator("body").evaluate("() => document.activeElement && document.activeElement.blur()")
        for key in keys.split(" "):
            self.page.keyboard.press(key)

    def press_both(self, keys: str, shown: Locator) -> None:
        """Press a key sequence until this is shown."""
        until(lambda limit: expect(shown).to_be_visible(timeout=limit), lambda: self.press(keys))

    def interrupt(self) -> None:
        until(
            lambda limit: expect(self.header).to_contain_text("Idle", timeout=limit),
            lambda: self.press("Escape Escape"),
        )

    def attach(self, file: Path) -> None:
        self.page.locator("input[type=file]").set_input_files(file)
        expect(self.page.get_by_role("list", name="Attachments")).to_contain_text(file.name)

    def scroll_back(self, pixels: int) -> None:
        """Scroll up with the wheel, once the conversation no longer moves, and wait until it stops again. Its height
        and all offsets change while rows are measured."""
        self.log.hover()
        self.log.evaluate(STILL)
        before = self.scrolled()
        self.page.mouse.wheel(0, -pixels)
        expect(self.log).to_have_attribute("data-following", "false")
        eventually(lambda: self.scrolled() < before, "the conversation is scrolled")
        self.log.evaluate(STILL)

    def scrolled(self) -> float:
        return float(self.log.evaluate("(element) => element.scrollTop"))

    def copied(self, text: str) -> None:
        read = "() => navigator.clipboard.readText()"
        eventually(lambda: self.page.evaluate(read) == text, f"{text[:80]!r} is in the clipboard")
