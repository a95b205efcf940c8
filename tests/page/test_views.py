"""Every view, light and dark, wide and narrow: screenshots to look at, and automatic checks."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.harness import LiveServer
from tests.page.conftest import ARTEFACTS
from tests.page.person import Person
from tests.page.scenes import Day, a_day, paths

AXE = Path(__file__).resolve().parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
NARROWEST_PX = 360
# Elements that overflow sideways, except those that scroll.
SIDEWAYS = """() => [...document.querySelectorAll("body *")].filter((element) => {
  const style = getComputedStyle(element);
  if (element.closest("pre, table, .uplot, textarea") || style.visibility === "hidden") return false;
  if (["auto", "scroll"].includes(style.overflowX)) return element.scrollWidth > element.clientWidth + 1;
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.right > innerWidth + 1 && !element.closest("[popover], dialog, .sr-only, .truncate");
}).map((element) => element.outerHTML.slice(0, 160))"""


CUT_CHIPS = """() => [...document.querySelectorAll("main [aria-haspopup=menu] .truncate")]
  .filter((name) => name.scrollWidth > name.clientWidth).map((name) => name.textContent)"""
FINGER_PX = 44
PRESSED = "a, button, select, input, summary, [role=option]"
MARHABA = "\u0645\u0631\u062d\u0628\u0627"
# Too small for a finger, except inline links and elements with an extended touch area.
SMALL = """([pressed, least]) => [...document.querySelectorAll(pressed)].filter((element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || element.closest("label, .sr-only, .md") || element.matches(".reach")) return false;
  const beside = [...element.parentNode.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
  return !beside && box.height < least - 0.5;
}).map((element) => element.outerHTML.slice(0, 160))"""


@pytest.fixture(scope="module")
def busy(shared: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[LiveServer, Day]:
    return shared, a_day(shared, tmp_path_factory.mktemp("views") / "site")


def settled(page: Page, view: str) -> None:
    """Wait until the view's main content is visible."""
    signs = {
        "list": page.get_by_text("Flaky tests"),
        "new": page.get_by_role("button", name="Agent: rehearsal"),
        "inbox": page.get_by_role("region", name="Permission request"),
        "session": page.get_by_role("group", name="Turn 3"),
        "waiting": page.get_by_role("region", name="Permission request"),
        "failed": page.get_by_role("group", name="Error"),
        "team": page.get_by_role("button", name="Delegated to reviewer"),
        "search": page.locator("mark").first,
        "usage": page.locator(".uplot").first,
        "jobs": page.get_by_role("listitem").filter(has_text="Nightly tests").get_by_text("Completed"),
        "job": page.get_by_role("list", name="History").get_by_text("Completed"),
        "newjob": page.get_by_role("list", name="Next five runs").get_by_role("listitem").last,
        "agents": page.get_by_text("not sent", exact=False).or_(
            page.get_by_role("heading", name="rehearsal", exact=True)
        ),
        "projects": page.get_by_role("heading", name="Site"),
        "settings": page.get_by_text("up for"),
        "inspector": page.get_by_role("list", name="Events").get_by_role("listitem").first,
    }
    expect(signs[view].first).to_be_visible()


def shoot(person: Person, name: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    person.page.screenshot(path=ARTEFACTS / f"{name}.png", animations="disabled")


def violations(page: Page) -> list[str]:
    """Serious problems found by axe."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
    return [
        f"{one['id']}: {one['help']} {[node['html'][:140] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_accessible_and_has_a_screenshot(
    busy: tuple[LiveServer, Day], make_person: Callable[..., Person], width: int, dark: bool
) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core (./run ui install)")
    server, day = busy
    person = make_person(server, width=width, height=800 if width > 1000 else 844, dark=dark, touch=width < 1000)
    bad: dict[str, list[str]] = {}
    for view, path in {"list": "/", **paths(day)}.items():
        person.go(path)
        settled(person.page, view)
        if view == "session":
            person.log.get_by_role("button", name="4 tools").click()
            person.log.get_by_role("button", name="Edited src/auth.py").first.click()
            written = person.log.get_by_role("cell", name="rehearsed 1", exact=True).first.bounding_box()
            assert written is not None and written["width"] > width / 3, "a diff has room for its text"
        if view == "team":
            for card in person.log.get_by_role("button", name="Delegated to").all():
                card.click()
            person.log.get_by_role("button", name="Edited reviewer.md").click()
            expect(person.log.get_by_role("cell", name="rehearsed 1", exact=True)).to_be_visible()
        shoot(person, f"{view}-{width}-{'dark' if dark else 'light'}")
        found = violations(person.page)
        if found:
            bad[view] = found
    person.page.keyboard.press("Control+k")
    expect(person.page.get_by_role("combobox", name="Command or session")).to_be_focused()
    shoot(person, f"palette-{width}-{'dark' if dark else 'light'}")
    bad.update({"palette": found} if (found := violations(person.page)) else {})
    assert not bad, bad


def test_the_sign_in_view_is_accessible_and_has_a_screenshot(
    busy: tuple[LiveServer, Day], make_person: Callable[..., Person]
) -> None:
    person = make_person(busy[0], width=390)
    busy[0].http.delete("/api/logins").raise_for_status()
    person.go("/")
    expect(person.page.get_by_role("button", name="Sign in")).to_be_visible()
    shoot(person, "signin-390-light")
    assert not AXE.exists() or not violations(person.page)


def test_no_view_scrolls_sideways_on_the_smallest_phone(
    busy: tuple[LiveServer, Day], make_person: Callable[..., Person]
) -> None:
    server, day = busy
    person = make_person(server, width=NARROWEST_PX, height=640, touch=True)
    for view, path in {"list": "/", **paths(day)}.items():
        person.go(path)
        settled(person.page, view)
        assert person.page.evaluate("() => document.documentElement.scrollWidth") <= NARROWEST_PX, view
        assert person.page.evaluate(SIDEWAYS) == [], view


def test_composer_options_are_not_truncated_on_the_smallest_phone(
    busy: tuple[LiveServer, Day], make_person: Callable[..., Person]
) -> None:
    server, day = busy
    person = make_person(server, width=NARROWEST_PX, height=640, touch=True)
    for path, chip in {"/new": "Model: Default model", f"/s/{day.failed}": "Mode: Ask before acting"}.items():
        person.go(path)
        expect(person.page.get_by_role("button", name=chip)).to_be_visible()
        assert person.page.evaluate(CUT_CHIPS) == [], path


def test_touch_targets_are_large_enough_on_a_phone(
    busy: tuple[LiveServer, Day], make_person: Callable[..., Person]
) -> None:
    server, day = busy
    person = make_person(server, width=390, height=844, touch=True)
    small: dict[str, list[str]] = {}
    for view, path in {"list": "/", **paths(day)}.items():
        person.go(path)
        settled(person.page, view)
        found = person.page.evaluate(SMALL, [PRESSED, FINGER_PX])
        if view == "session":
            person.page.get_by_role("button", name="Plan, files, outline").click()
            expect(person.page.get_by_role("link", name=re.compile("stored"))).to_be_visible()
            found += person.page.evaluate(SMALL, [PRESSED, FINGER_PX])
        if found:
            small[view] = found
    assert not small, small


def test_a_table_does_not_break_words_on_a_phone_and_text_keeps_its_direction(
    busy: tuple[LiveServer, Day], make_person: Callable[..., Person]
) -> None:
    server, day = busy
    person = make_person(server, width=390, height=844, touch=True)
    columns = ["reviewer", "continuity", "percentage", "description", "responsible"]
    table = f"| {' | '.join(columns)} |\n| {' | '.join(['---:'] * 5)} |\n| {' | '.join(columns)} |"
    answer = f"{table}\n\n{MARHABA}\n\n- {MARHABA}\n- {MARHABA}"

    def with_table(route: Route) -> None:
        found = route.fetch().json()
        for turn in found["turns"]:
            turn["parts"] = [{"type": "text", "block": 0, "text": answer}]
        route.fulfill(json=found)

    person.page.route(re.compile("/transcript"), with_table)
    person.open(day.work)
    head = person.log.get_by_role("columnheader", name="responsible").first
    expect(head).to_have_css("text-align", "right")
    assert head.evaluate("(cell) => cell.scrollWidth <= cell.clientWidth && cell.clientHeight < 40")
    assert person.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    expect(person.log.get_by_role("list").last).to_have_css("direction", "rtl")
